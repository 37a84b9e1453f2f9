//! SGL descriptors, which locate a command's data (Base, 4.1.2).
//!
//! A Fabrics command has one descriptor (SGL1): over RDMA, a keyed data block in host memory, or a
//! data block at an offset in the capsule (RDMA, 3).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::status::Status;

/// Size of an SGL descriptor in bytes.
pub const SGL_DESCRIPTOR_BYTES: usize = 16;

codes! {
    /// SGL descriptor type, in bits 7:4 of the last byte.
    pub struct SglType(u8);
    0x0 DATA_BLOCK "SGL Data Block";
    0x1 BIT_BUCKET "SGL Bit Bucket";
    0x2 SEGMENT "SGL Segment";
    0x3 LAST_SEGMENT "SGL Last Segment";
    0x4 KEYED_DATA_BLOCK "Keyed SGL Data Block";
    0x5 TRANSPORT_DATA_BLOCK "Transport SGL Data Block";
    0xf VENDOR_SPECIFIC "Vendor Specific";
}

/// Subtype 0h: the address is a memory address.
pub const SUBTYPE_ADDRESS: u8 = 0x0;
/// Subtype 1h: the address is an offset in the capsule, from the end of the SQE.
pub const SUBTYPE_OFFSET: u8 = 0x1;
/// Subtype Fh of a keyed descriptor: the response must invalidate the key (RDMA, 3.2.1).
pub const SUBTYPE_INVALIDATE: u8 = 0xf;

/// Descriptor as received, not validated.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(transparent)]
pub struct SglDescriptor(pub [u8; SGL_DESCRIPTOR_BYTES]);
assert_size!(SglDescriptor = SGL_DESCRIPTOR_BYTES);

/// Valid descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sgl {
    /// Data in the command capsule.
    InCapsule {
        /// Offset in bytes, counted from ICDOFF after the SQE.
        offset: u64,
        /// Length in bytes.
        length: u32,
    },
    /// Data at a memory address; not used with RDMA.
    Address {
        /// Memory address.
        address: u64,
        /// Length in bytes.
        length: u32,
    },
    /// Data in host memory, accessed by RDMA READ or WRITE.
    Keyed {
        /// Virtual address.
        address: u64,
        /// Length in bytes, below 2^24.
        length: u32,
        /// Remote key.
        rkey: u32,
        /// True if the response must invalidate `rkey`.
        invalidate: bool,
    },
    /// Data to the host that the controller discards.
    BitBucket {
        /// Length in bytes.
        length: u32,
    },
    /// List of descriptors.
    Segment {
        /// Offset in bytes from the end of the SQE.
        offset: u64,
        /// Length of the list in bytes.
        length: u32,
        /// True for a Last Segment descriptor: no segment follows.
        last: bool,
    },
}

impl Sgl {
    /// Maximum data length of a keyed descriptor, in bytes.
    pub const KEYED_LENGTH_MAX: u32 = 0x00ff_ffff;

    /// Length in bytes of the data or descriptor list.
    #[must_use]
    pub const fn length(&self) -> u32 {
        match *self {
            Self::InCapsule { length, .. }
            | Self::Address { length, .. }
            | Self::Keyed { length, .. }
            | Self::BitBucket { length }
            | Self::Segment { length, .. } => length,
        }
    }
}

impl SglDescriptor {
    /// Creates a keyed data block descriptor.
    ///
    /// # Panics
    /// If `length` exceeds [`Sgl::KEYED_LENGTH_MAX`].
    #[must_use]
    pub fn keyed(address: u64, length: u32, rkey: u32, invalidate: bool) -> Self {
        assert!(
            length <= Sgl::KEYED_LENGTH_MAX,
            "keyed SGL length {length} needs more than 24 bits"
        );
        let mut bytes = [0; SGL_DESCRIPTOR_BYTES];
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..11].copy_from_slice(&length.to_le_bytes()[..3]);
        bytes[11..15].copy_from_slice(&rkey.to_le_bytes());
        let subtype = if invalidate {
            SUBTYPE_INVALIDATE
        } else {
            SUBTYPE_ADDRESS
        };
        bytes[15] = identifier(SglType::KEYED_DATA_BLOCK, subtype);
        Self(bytes)
    }

    /// Creates a keyed descriptor with address, length and key 0.
    #[must_use]
    pub fn none() -> Self {
        Self::keyed(0, 0, 0, false)
    }

    /// Creates a descriptor of in-capsule data.
    #[must_use]
    pub fn in_capsule(offset: u64, length: u32) -> Self {
        Self::unkeyed(SglType::DATA_BLOCK, SUBTYPE_OFFSET, offset, length)
    }

    /// Creates a Last Segment descriptor of a list at `offset` in the capsule.
    #[must_use]
    pub fn last_segment(offset: u64, length: u32) -> Self {
        Self::unkeyed(SglType::LAST_SEGMENT, SUBTYPE_OFFSET, offset, length)
    }

    /// Descriptor type.
    #[must_use]
    #[inline]
    pub const fn sgl_type(&self) -> SglType {
        SglType(self.0[15] >> 4)
    }

    /// Descriptor subtype.
    #[must_use]
    #[inline]
    pub const fn subtype(&self) -> u8 {
        self.0[15] & 0xf
    }

    /// Validates the descriptor. Ignores reserved bytes of an unkeyed descriptor, where Linux
    /// leaves old keys.
    ///
    /// # Errors
    /// SGL Descriptor Type Invalid: type or subtype is undefined for Fabrics.
    // Inlining keeps the result in registers.
    #[inline(always)]
    pub fn parse(&self) -> Result<Sgl, Status> {
        const INVALID: Status = Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr();
        let (address, length) = (self.address(), self.unkeyed_length());
        match (self.sgl_type(), self.subtype()) {
            (SglType::KEYED_DATA_BLOCK, subtype @ (SUBTYPE_ADDRESS | SUBTYPE_INVALIDATE)) => {
                let b = &self.0;
                Ok(Sgl::Keyed {
                    address,
                    length: u32::from_le_bytes([b[8], b[9], b[10], 0]),
                    rkey: self.rkey(),
                    invalidate: subtype == SUBTYPE_INVALIDATE,
                })
            }
            (SglType::DATA_BLOCK, SUBTYPE_OFFSET) => Ok(Sgl::InCapsule {
                offset: address,
                length,
            }),
            (SglType::DATA_BLOCK, SUBTYPE_ADDRESS) => Ok(Sgl::Address { address, length }),
            (SglType::BIT_BUCKET, SUBTYPE_ADDRESS) => Ok(Sgl::BitBucket { length }),
            (t @ (SglType::SEGMENT | SglType::LAST_SEGMENT), SUBTYPE_OFFSET) => {
                let last = t == SglType::LAST_SEGMENT;
                Ok(Sgl::Segment {
                    offset: address,
                    length,
                    last,
                })
            }
            _ => Err(INVALID),
        }
    }

    /// Returns the key that the response must invalidate, even if the command fails.
    #[must_use]
    #[inline]
    pub fn invalidate_rkey(&self) -> Option<u32> {
        match (self.sgl_type(), self.subtype()) {
            (SglType::KEYED_DATA_BLOCK, SUBTYPE_INVALIDATE) => Some(self.rkey()),
            _ => None,
        }
    }

    fn unkeyed(sgl_type: SglType, subtype: u8, address: u64, length: u32) -> Self {
        let mut bytes = [0; SGL_DESCRIPTOR_BYTES];
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        bytes[15] = identifier(sgl_type, subtype);
        Self(bytes)
    }

    #[inline]
    fn rkey(&self) -> u32 {
        let b = &self.0;
        u32::from_le_bytes([b[11], b[12], b[13], b[14]])
    }

    #[inline]
    fn address(&self) -> u64 {
        let b = &self.0;
        u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]])
    }

    #[inline]
    fn unkeyed_length(&self) -> u32 {
        let b = &self.0;
        u32::from_le_bytes([b[8], b[9], b[10], b[11]])
    }
}

impl From<Sgl> for SglDescriptor {
    /// # Panics
    /// If the length of a keyed descriptor exceeds [`Sgl::KEYED_LENGTH_MAX`].
    fn from(sgl: Sgl) -> Self {
        match sgl {
            Sgl::InCapsule { offset, length } => Self::in_capsule(offset, length),
            Sgl::Address { address, length } => {
                Self::unkeyed(SglType::DATA_BLOCK, SUBTYPE_ADDRESS, address, length)
            }
            Sgl::Keyed {
                address,
                length,
                rkey,
                invalidate,
            } => Self::keyed(address, length, rkey, invalidate),
            Sgl::BitBucket { length } => {
                Self::unkeyed(SglType::BIT_BUCKET, SUBTYPE_ADDRESS, 0, length)
            }
            Sgl::Segment {
                offset,
                length,
                last: true,
            } => Self::last_segment(offset, length),
            Sgl::Segment {
                offset,
                length,
                last: false,
            } => Self::unkeyed(SglType::SEGMENT, SUBTYPE_OFFSET, offset, length),
        }
    }
}

const fn identifier(sgl_type: SglType, subtype: u8) -> u8 {
    sgl_type.0 << 4 | subtype
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyed_layout() {
        let descriptor =
            SglDescriptor::keyed(0x1122_3344_5566_7788, 0x00ab_cdef, 0xdead_beef, true);
        assert_eq!(
            descriptor.0,
            [
                0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xef, 0xcd, 0xab, 0xef, 0xbe, 0xad,
                0xde, 0x4f
            ]
        );
        let parsed = descriptor.parse().unwrap();
        assert_eq!(
            parsed,
            Sgl::Keyed {
                address: 0x1122_3344_5566_7788,
                length: 0x00ab_cdef,
                rkey: 0xdead_beef,
                invalidate: true
            }
        );
        assert_eq!(SglDescriptor::from(parsed), descriptor);
    }

    #[test]
    fn stale_key_bytes_of_an_in_capsule_descriptor_are_ignored() {
        let mut descriptor = SglDescriptor::in_capsule(8, 512);
        assert_eq!(descriptor.0[15], 0x01);
        descriptor.0[12..15].fill(0xee);
        assert_eq!(
            descriptor.parse(),
            Ok(Sgl::InCapsule {
                offset: 8,
                length: 512
            })
        );
    }

    #[test]
    fn unknown_types_and_subtypes_are_refused() {
        for identifier in [0x02, 0x11, 0x20, 0x30, 0x41, 0x4e, 0x50, 0x5a, 0x61, 0xf0] {
            let mut descriptor = SglDescriptor::none();
            descriptor.0[15] = identifier;
            let status = descriptor.parse().unwrap_err();
            assert_eq!(
                status,
                Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr(),
                "{identifier:#x}"
            );
        }
    }
}
