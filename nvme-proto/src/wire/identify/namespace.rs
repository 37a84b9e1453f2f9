//! Identify Namespace (CNS 00h, 05h and 08h).

use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::IDENTIFY_BYTES;

/// Identify Namespace for the NVM command set (CNS 00h; NVM, figure 97).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct IdentifyNamespace {
    /// Size (logical blocks).
    pub nsze: U64,
    /// Capacity (logical blocks).
    pub ncap: U64,
    /// Utilization (logical blocks).
    pub nuse: U64,
    /// Features, an [`Nsfeat`].
    pub nsfeat: u8,
    /// Number of LBA formats, 0-based.
    pub nlbaf: u8,
    /// LBA format index, in bits 3:0 and 6:5.
    pub flbas: u8,
    /// Metadata capabilities.
    pub mc: u8,
    /// End-to-end data protection capabilities.
    pub dpc: u8,
    /// End-to-end data protection settings.
    pub dps: u8,
    /// Bit 0: several controllers may share the namespace.
    pub nmic: u8,
    /// Reservation capabilities.
    pub rescap: u8,
    /// Format progress indicator.
    pub fpi: u8,
    /// Deallocate features, a [`Dlfeat`].
    pub dlfeat: u8,
    /// Atomic write unit normal (logical blocks, 0-based).
    pub nawun: U16,
    /// Atomic write unit power fail (logical blocks, 0-based).
    pub nawupf: U16,
    /// Atomic compare and write unit (logical blocks, 0-based).
    pub nacwu: U16,
    /// Atomic boundary size normal (logical blocks, 0-based).
    pub nabsn: U16,
    /// Atomic boundary offset (logical blocks).
    pub nabo: U16,
    /// Atomic boundary size power fail (logical blocks, 0-based).
    pub nabspf: U16,
    /// Optimal I/O boundary (logical blocks).
    pub noiob: U16,
    /// Capacity (bytes).
    pub nvmcap: U128,
    /// Preferred write granularity (logical blocks, 0-based).
    pub npwg: U16,
    /// Preferred write alignment (logical blocks, 0-based).
    pub npwa: U16,
    /// Preferred deallocate granularity (logical blocks, 0-based).
    pub npdg: U16,
    /// Preferred deallocate alignment (logical blocks, 0-based).
    pub npda: U16,
    /// Optimal write size (logical blocks, 0-based).
    pub nows: U16,
    /// Maximum source range of Copy (logical blocks).
    pub mssrl: U16,
    /// Maximum copy length (logical blocks).
    pub mcl: U32,
    /// Maximum source ranges of Copy, 0-based.
    pub msrc: u8,
    /// Reserved.
    pub reserved81: u8,
    /// Number of LBA formats with unique attributes.
    pub nulbaf: u8,
    /// Reserved.
    pub reserved83: [u8; 9],
    /// ANA group identifier; 0 for none.
    pub anagrpid: U32,
    /// Reserved.
    pub reserved96: [u8; 3],
    /// Bit 0: write protected.
    pub nsattr: u8,
    /// NVM set identifier.
    pub nvmsetid: U16,
    /// Endurance group identifier.
    pub endgid: U16,
    /// NGUID, big-endian; 0 if missing.
    pub nguid: [u8; 16],
    /// EUI-64, big-endian; 0 if missing.
    pub eui64: [u8; 8],
    /// LBAF0 to LBAF63; NLBAF is the number of valid formats minus 1.
    pub lbaf: [LbaFormat; 64],
    /// Vendor specific.
    pub vendor: [u8; 3712],
}
assert_size!(IdentifyNamespace = IDENTIFY_BYTES);

impl IdentifyNamespace {
    /// NMIC bit 0: several controllers may share the namespace.
    pub const NMIC_SHARED: u8 = 1 << 0;
    /// NSATTR bit 0: write protected.
    pub const NSATTR_WRITE_PROTECTED: u8 = 1 << 0;

    /// Index of the current LBA format, from FLBAS.
    #[must_use]
    pub const fn lba_format_index(&self) -> usize {
        let index = if self.nlbaf < 16 {
            self.flbas & 0xf
        } else {
            self.flbas & 0xf | self.flbas >> 1 & 0x30
        };
        index as usize
    }

    /// Current LBA format; `None` if its index exceeds NLBAF.
    #[must_use]
    pub fn lba_format(&self) -> Option<LbaFormat> {
        let index = self.lba_format_index();
        (index <= usize::from(self.nlbaf))
            .then(|| self.lbaf.get(index).copied())
            .flatten()
    }
}

/// LBA format (NVM, figure 98).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct LbaFormat {
    /// Metadata bytes per logical block.
    pub ms: U16,
    /// Log2 of the block size in bytes.
    pub lbads: u8,
    /// Relative performance in bits 1:0, from 0 (best) to 3.
    pub rp: u8,
}
assert_size!(LbaFormat = 4);

bitfields! {
    /// NSFEAT: namespace features.
    pub struct Nsfeat(u8);
    flags {
        /// Thin provisioning: NCAP may be less than NSZE.
        thinp with_thinp = 0 (supports "thin provisioning");
        nsabp with_nsabp = 1 ("atomicity is the controller's" | "NAWUN, NAWUPF and NACWU are the namespace's");
        /// With DULBE, reads of deallocated blocks fail.
        dae with_dae = 2 (supports "errors for deallocated blocks");
        uidreuse with_uidreuse = 3 ("NGUID and EUI64 may be used again" | "NGUID and EUI64 are never used again");
        optperf with_optperf = 4 (supports "NPWG, NPWA, NPDG, NPDA and NOWS");
    }
}

bitfields! {
    /// DLFEAT: behavior of deallocated blocks.
    pub struct Dlfeat(u8);
    fields {
        /// Bytes read from deallocated blocks: 0 for not reported, 1 for 00h, 2 for FFh.
        read with_read: u8 = 0..=2 ("deallocated blocks read as" ["not reported", "00h", "FFh"]);
    }
    flags {
        write_zeroes_deallocate with_write_zeroes_deallocate = 3 (supports "the Deallocate bit of Write Zeroes");
        guard_crc with_guard_crc = 4 ("guard of deallocated blocks: FFFFh"
            | "guard of deallocated blocks: the CRC of their data");
    }
}

/// Identify Namespace for the NVM command set (CNS 05h, CSI 00h; NVM, figure 100).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct IdentifyNamespaceNvm {
    /// Logical block storage tag mask.
    pub lbstm: U64,
    /// Protection information capabilities.
    pub pic: u8,
    /// Reserved.
    pub reserved9: [u8; 3],
    /// Extended LBA formats ELBAF0 to ELBAF63.
    pub elbaf: [U32; 64],
    /// Reserved.
    pub reserved268: [u8; 3828],
}
assert_size!(IdentifyNamespaceNvm = IDENTIFY_BYTES);

/// Identify data common to all command sets (CNS 08h; Base, figure 280).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct IdentifyNamespaceIndependent {
    /// NSFEAT bits common to all command sets.
    pub nsfeat: u8,
    /// Bit 0: several controllers may share the namespace.
    pub nmic: u8,
    /// Reservation capabilities.
    pub rescap: u8,
    /// Format progress indicator.
    pub fpi: u8,
    /// ANA group identifier; 0 for none.
    pub anagrpid: U32,
    /// Bit 0: write protected.
    pub nsattr: u8,
    /// Reserved.
    pub reserved9: u8,
    /// NVM set identifier.
    pub nvmsetid: U16,
    /// Endurance group identifier.
    pub endgid: U16,
    /// Bit 0: the namespace is ready.
    pub nstat: u8,
    /// Reserved.
    pub reserved15: [u8; 4081],
}
assert_size!(IdentifyNamespaceIndependent = IDENTIFY_BYTES);

impl IdentifyNamespaceIndependent {
    /// NSTAT bit 0: ready.
    pub const NSTAT_READY: u8 = 1 << 0;
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn namespace_offsets() {
        assert_eq!(offset_of!(IdentifyNamespace, nvmcap), 48);
        assert_eq!(offset_of!(IdentifyNamespace, mssrl), 74);
        assert_eq!(offset_of!(IdentifyNamespace, anagrpid), 92);
        assert_eq!(offset_of!(IdentifyNamespace, nguid), 104);
        assert_eq!(offset_of!(IdentifyNamespace, lbaf), 128);
        assert_eq!(offset_of!(IdentifyNamespaceIndependent, nstat), 14);
    }
}
