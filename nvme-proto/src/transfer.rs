//! Data transfers: SGL of a command, checked against the command's data length.
//!
//! A target replaces a last segment in the capsule ([`SglList`]) by [`SglList::as_one`]; other
//! segments are rejected.

mod list;

pub use list::{BufferList, DATA_BLOCKS_MAX, Direction, LIST_BYTES_MAX, Piece, SglList};

use crate::wire::{Sgl, Sqe, Status};

/// Location and length of a command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataTransfer {
    /// Data from the host, by RDMA READ.
    FromHost(RemoteBuffer),
    /// Data from the host, by several RDMA READs.
    FromHostList(BufferList),
    /// No data.
    None,
    /// Data from the host, in the capsule.
    InCapsule(CapsuleSlice),
    /// Data to the host, by RDMA WRITE.
    ToHost(RemoteBuffer),
    /// Data to the host, by several RDMA WRITEs.
    ToHostList(BufferList),
}

/// Host memory; address plus length does not overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteBuffer {
    /// Virtual address.
    pub address: u64,
    /// Length in bytes, at least 1.
    pub length: u32,
    /// Remote key.
    pub rkey: u32,
}

impl RemoteBuffer {
    /// Returns the SGL's host memory, exactly `length` bytes.
    #[inline(always)]
    pub(crate) fn of_command(sqe: &Sqe, length: u32) -> Result<Self, Status> {
        match sqe.dptr.parse()? {
            Sgl::Keyed {
                address,
                length: described,
                rkey,
                ..
            } => remote(address, described, rkey, length, Fit::Exact),
            Sgl::InCapsule { .. } => Err(INVALID_FIELD),
            Sgl::Address { .. } | Sgl::BitBucket { .. } | Sgl::Segment { .. } => Err(TYPE_INVALID),
        }
    }
}

/// Range of in-capsule data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapsuleSlice {
    /// Offset in bytes from the end of the SQE (ICDOFF is 0).
    pub offset: u32,
    /// Length in bytes.
    pub length: u32,
}

impl CapsuleSlice {
    /// Byte range within the in-capsule data.
    #[must_use]
    pub const fn range(&self) -> core::ops::Range<usize> {
        self.offset as usize..self.offset as usize + self.length as usize
    }
}

const LENGTH_INVALID: Status = Status::DATA_SGL_LENGTH_INVALID.with_dnr();
const OFFSET_INVALID: Status = Status::SGL_OFFSET_INVALID.with_dnr();
const TYPE_INVALID: Status = Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr();
const INVALID_FIELD: Status = Status::INVALID_FIELD.with_dnr();

impl DataTransfer {
    /// Checks that the SGL describes no data.
    ///
    /// # Errors
    /// Data SGL Length Invalid if there is data.
    pub fn none(sqe: &Sqe) -> Result<Self, Status> {
        match sqe.dptr.parse()?.length() {
            0 => Ok(Self::None),
            _ => Err(LENGTH_INVALID),
        }
    }

    /// Locates `length` bytes of data to the host.
    ///
    /// # Errors
    /// Data SGL Length Invalid for another length; Invalid Field for in-capsule data.
    #[inline(always)]
    pub fn to_host(sqe: &Sqe, length: u32) -> Result<Self, Status> {
        RemoteBuffer::of_command(sqe, length).map(Self::ToHost)
    }

    /// Locates `length` bytes from the host. `in_capsule_bytes` is the length of in-capsule data, 0
    /// on the admin queue (RDMA, 3.1).
    ///
    /// # Errors
    /// Data SGL Length Invalid for another length; SGL Offset Invalid beyond the capsule.
    #[inline]
    pub fn from_host(sqe: &Sqe, length: u32, in_capsule_bytes: u32) -> Result<Self, Status> {
        Self::from_host_fitting(sqe, length, in_capsule_bytes, Fit::Exact)
    }

    /// Locates `length` bytes from the host; the SGL may describe more (Linux always describes 256
    /// ranges for Dataset Management).
    pub fn from_host_at_least(
        sqe: &Sqe,
        length: u32,
        in_capsule_bytes: u32,
    ) -> Result<Self, Status> {
        Self::from_host_fitting(sqe, length, in_capsule_bytes, Fit::AtLeast)
    }

    /// Number of bytes to transfer.
    #[must_use]
    pub const fn length(&self) -> u32 {
        match self {
            Self::None => 0,
            Self::ToHost(buffer) | Self::FromHost(buffer) => buffer.length,
            Self::InCapsule(slice) => slice.length,
            Self::ToHostList(list) | Self::FromHostList(list) => list.length,
        }
    }

    /// Returns this transfer of [`SglList::as_one`] over the pieces of `list`.
    #[must_use]
    pub fn over(self, list: &SglList) -> Self {
        let length = self.length();
        let pieces = BufferList {
            length,
            pieces: list.pieces(length).count() as u8,
        };
        match self {
            Self::ToHost(_) => Self::ToHostList(pieces),
            Self::FromHost(_) => Self::FromHostList(pieces),
            other => other,
        }
    }

    #[inline]
    fn from_host_fitting(
        sqe: &Sqe,
        length: u32,
        in_capsule_bytes: u32,
        fit: Fit,
    ) -> Result<Self, Status> {
        match sqe.dptr.parse()? {
            Sgl::Keyed {
                address,
                length: described,
                rkey,
                ..
            } => remote(address, described, rkey, length, fit).map(Self::FromHost),
            Sgl::InCapsule {
                offset,
                length: described,
            } => in_capsule(offset, described, in_capsule_bytes, length, fit).map(Self::InCapsule),
            Sgl::Address { .. } | Sgl::BitBucket { .. } | Sgl::Segment { .. } => Err(TYPE_INVALID),
        }
    }
}

#[derive(Clone, Copy)]
enum Fit {
    Exact,
    AtLeast,
}

impl Fit {
    const fn allows(self, described: u32, needed: u32) -> bool {
        match self {
            Self::Exact => described == needed,
            Self::AtLeast => described >= needed,
        }
    }
}

#[inline]
fn remote(
    address: u64,
    described: u32,
    rkey: u32,
    needed: u32,
    fit: Fit,
) -> Result<RemoteBuffer, Status> {
    let wraps = address.checked_add(u64::from(described)).is_none();
    if wraps || needed == 0 || !fit.allows(described, needed) {
        return Err(LENGTH_INVALID);
    }
    Ok(RemoteBuffer {
        address,
        length: needed,
        rkey,
    })
}

fn in_capsule(
    offset: u64,
    described: u32,
    in_capsule_bytes: u32,
    needed: u32,
    fit: Fit,
) -> Result<CapsuleSlice, Status> {
    let end = offset
        .checked_add(u64::from(described))
        .ok_or(OFFSET_INVALID)?;
    if end > u64::from(in_capsule_bytes) {
        return Err(OFFSET_INVALID);
    }
    if needed == 0 || !fit.allows(described, needed) {
        return Err(LENGTH_INVALID);
    }
    Ok(CapsuleSlice {
        offset: offset as u32,
        length: needed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{FromZeros, SglDescriptor};

    fn with(descriptor: SglDescriptor) -> Sqe {
        let mut sqe = Sqe::new_zeroed();
        sqe.flags = Sqe::FLAGS_SGL;
        sqe.dptr = descriptor;
        sqe
    }

    #[test]
    fn keyed_data_must_have_the_length_of_the_command() {
        let sqe = with(SglDescriptor::keyed(0x1000, 4096, 7, true));
        let buffer = RemoteBuffer {
            address: 0x1000,
            length: 4096,
            rkey: 7,
        };
        assert_eq!(
            DataTransfer::to_host(&sqe, 4096),
            Ok(DataTransfer::ToHost(buffer))
        );
        assert_eq!(
            DataTransfer::from_host(&sqe, 4096, 0),
            Ok(DataTransfer::FromHost(buffer))
        );
        for wrong in [512, 4095, 4097] {
            assert_eq!(DataTransfer::to_host(&sqe, wrong), Err(LENGTH_INVALID));
            assert_eq!(DataTransfer::from_host(&sqe, wrong, 0), Err(LENGTH_INVALID));
        }
        assert_eq!(DataTransfer::none(&sqe), Err(LENGTH_INVALID));
    }

    #[test]
    fn a_zero_length_key_carries_no_data() {
        let sqe = with(SglDescriptor::none());
        assert_eq!(DataTransfer::none(&sqe), Ok(DataTransfer::None));
        assert_eq!(DataTransfer::to_host(&sqe, 512), Err(LENGTH_INVALID));
        assert_eq!(DataTransfer::from_host(&sqe, 512, 0), Err(LENGTH_INVALID));
    }

    #[test]
    fn a_buffer_may_not_wrap_around() {
        let sqe = with(SglDescriptor::keyed(u64::MAX - 511, 512, 7, false));
        assert_eq!(DataTransfer::to_host(&sqe, 512), Err(LENGTH_INVALID));
        let sqe = with(SglDescriptor::keyed(u64::MAX - 512, 512, 7, false));
        assert!(DataTransfer::to_host(&sqe, 512).is_ok());
    }

    #[test]
    fn in_capsule_data_stays_in_the_capsule() {
        let slice = |offset, length| Ok(DataTransfer::InCapsule(CapsuleSlice { offset, length }));
        let sqe = with(SglDescriptor::in_capsule(512, 512));
        assert_eq!(DataTransfer::from_host(&sqe, 512, 1024), slice(512, 512));
        assert_eq!(
            DataTransfer::from_host(&sqe, 512, 1023),
            Err(OFFSET_INVALID)
        );
        assert_eq!(DataTransfer::from_host(&sqe, 512, 0), Err(OFFSET_INVALID));
        assert_eq!(
            DataTransfer::from_host(&sqe, 256, 1024),
            Err(LENGTH_INVALID)
        );
        assert_eq!(DataTransfer::to_host(&sqe, 512), Err(INVALID_FIELD));
        let sqe = with(SglDescriptor::in_capsule(u64::MAX, 512));
        assert_eq!(
            DataTransfer::from_host(&sqe, 512, u32::MAX),
            Err(OFFSET_INVALID)
        );
        assert_eq!(
            CapsuleSlice {
                offset: 512,
                length: 16
            }
            .range(),
            512..528
        );
    }

    #[test]
    fn more_room_than_needed_is_taken_where_it_is_allowed() {
        let sqe = with(SglDescriptor::keyed(0, 4096, 1, true));
        let transfer = DataTransfer::from_host_at_least(&sqe, 16, 0).unwrap();
        assert_eq!(transfer.length(), 16);
        assert_eq!(
            DataTransfer::from_host_at_least(&sqe, 4112, 0),
            Err(LENGTH_INVALID)
        );
        let sqe = with(SglDescriptor::in_capsule(0, 4096));
        assert_eq!(
            DataTransfer::from_host_at_least(&sqe, 16, 4096)
                .unwrap()
                .length(),
            16
        );
        assert_eq!(
            DataTransfer::from_host_at_least(&sqe, 16, 16),
            Err(OFFSET_INVALID)
        );
    }

    #[test]
    fn segments_and_plain_addresses_are_refused() {
        for descriptor in [
            SglDescriptor::last_segment(0, 16),
            SglDescriptor::from(Sgl::Address {
                address: 0,
                length: 512,
            }),
            SglDescriptor::from(Sgl::BitBucket { length: 512 }),
        ] {
            assert_eq!(
                DataTransfer::from_host(&with(descriptor), 512, 512),
                Err(TYPE_INVALID)
            );
            assert_eq!(
                DataTransfer::to_host(&with(descriptor), 512),
                Err(TYPE_INVALID)
            );
        }
    }
}
