//! Identify Controller (CNS 01h), and its NVM command set part (CNS 06h).

use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::IDENTIFY_BYTES;
use crate::wire::nqn::NQN_FIELD_BYTES;

/// Identify Controller (CNS 01h; Base, figure 275).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct IdentifyController {
    /// PCI vendor ID.
    pub vid: U16,
    /// PCI subsystem vendor ID.
    pub ssvid: U16,
    /// Serial number (space-padded ASCII).
    pub sn: [u8; 20],
    /// Model number (space-padded ASCII).
    pub mn: [u8; 40],
    /// Firmware revision (space-padded ASCII).
    pub fr: [u8; 8],
    /// Recommended arbitration burst, 2^RAB commands.
    pub rab: u8,
    /// IEEE OUI of the vendor.
    pub ieee: [u8; 3],
    /// Multi-path and namespace sharing, a [`Cmic`].
    pub cmic: u8,
    /// Maximum transfer, 2^MDTS pages of CAP.MPSMIN; 0: no limit.
    pub mdts: u8,
    /// Controller identifier.
    pub cntlid: U16,
    /// Value of VS.
    pub ver: U32,
    /// RTD3 resume latency (microseconds).
    pub rtd3r: U32,
    /// RTD3 entry latency (microseconds).
    pub rtd3e: U32,
    /// Optional asynchronous events, as in [`crate::wire::feature::AsyncEventConfig`].
    pub oaes: U32,
    /// Controller attributes, a [`Ctratt`].
    pub ctratt: U32,
    /// Read recovery levels.
    pub rrls: U16,
    /// Reserved.
    pub reserved102: [u8; 9],
    /// Controller type: 1 I/O, 2 discovery, 3 administrative.
    pub cntrltype: u8,
    /// FRU globally unique identifier.
    pub fguid: [u8; 16],
    /// Retry delay of CRD 1 (unit: 100 ms).
    pub crdt1: U16,
    /// Retry delay of CRD 2 (unit: 100 ms).
    pub crdt2: U16,
    /// Retry delay of CRD 3 (unit: 100 ms).
    pub crdt3: U16,
    /// Controller reachability capabilities.
    pub crcap: u8,
    /// Controller instance uniquifier (Base 2.3); 0 if not reported.
    pub ciu: u8,
    /// Controller instance random number (Base 2.3).
    pub cirn: U64,
    /// Reserved.
    pub reserved144: [u8; 109],
    /// NVM subsystem report.
    pub nvmsr: u8,
    /// VPD write cycle information.
    pub vwci: u8,
    /// Management endpoint capabilities.
    pub mec: u8,
    /// Optional admin commands.
    pub oacs: U16,
    /// Maximum Aborts in flight, 0-based.
    pub acl: u8,
    /// Maximum Asynchronous Event Requests in flight, 0-based.
    pub aerl: u8,
    /// Number of firmware slots in bits 3:1; bit 0: slot 1 is read-only.
    pub frmw: u8,
    /// Log page attributes, an [`Lpa`].
    pub lpa: u8,
    /// Entries of the Error Information log, 0-based.
    pub elpe: u8,
    /// Number of power states, 0-based.
    pub npss: u8,
    /// Vendor specific admin command configuration.
    pub avscc: u8,
    /// Autonomous power state transition attributes.
    pub apsta: u8,
    /// Warning composite temperature (kelvin).
    pub wctemp: U16,
    /// Critical composite temperature (kelvin).
    pub cctemp: U16,
    /// Maximum firmware activation time (unit: 100 ms).
    pub mtfa: U16,
    /// Preferred host memory buffer size (unit: 4 KiB).
    pub hmpre: U32,
    /// Minimum host memory buffer size (unit: 4 KiB).
    pub hmmin: U32,
    /// Total NVM capacity (bytes).
    pub tnvmcap: U128,
    /// Unallocated NVM capacity (bytes).
    pub unvmcap: U128,
    /// Replay protected memory block support.
    pub rpmbs: U32,
    /// Extended device self-test time (minutes).
    pub edstt: U16,
    /// Device self-test options.
    pub dsto: u8,
    /// Firmware update granularity (unit: 4 KiB).
    pub fwug: u8,
    /// Keep alive granularity (unit: 100 ms); 0 if not supported.
    pub kas: U16,
    /// Host controlled thermal management attributes.
    pub hctma: U16,
    /// Minimum thermal management temperature (kelvin).
    pub mntmt: U16,
    /// Maximum thermal management temperature (kelvin).
    pub mxtmt: U16,
    /// Sanitize capabilities.
    pub sanicap: U32,
    /// Minimum host memory buffer descriptor size (unit: 4 KiB).
    pub hmminds: U32,
    /// Maximum host memory buffer descriptors.
    pub hmmaxd: U16,
    /// Largest NVM set identifier.
    pub nsetidmax: U16,
    /// Largest endurance group identifier.
    pub endgidmax: U16,
    /// ANA transition time (seconds).
    pub anatt: u8,
    /// ANA capabilities, an [`Anacap`].
    pub anacap: u8,
    /// Largest ANA group identifier.
    pub anagrpmax: U32,
    /// Number of ANA group identifiers.
    pub nanagrpid: U32,
    /// Persistent event log size (unit: 64 KiB).
    pub pels: U32,
    /// Domain identifier.
    pub domainid: U16,
    /// Reserved.
    pub reserved358: [u8; 10],
    /// Maximum endurance group capacity (bytes).
    pub megcap: U128,
    /// Reserved.
    pub reserved384: [u8; 2],
    /// Command quiesce time in milliseconds after the keep alive timer expires (Base 2.1); 0 if not
    /// reported.
    pub cqt: U16,
    /// Reserved.
    pub reserved388: [u8; 124],
    /// SQ entry sizes, 2^n bytes: required in bits 3:0, maximum in 7:4.
    pub sqes: u8,
    /// CQ entry sizes, 2^n bytes: required in bits 3:0, maximum in 7:4.
    pub cqes: u8,
    /// Recommended maximum of commands in flight on a queue.
    pub maxcmd: U16,
    /// Largest NSID.
    pub nn: U32,
    /// Optional NVM commands, an [`Oncs`].
    pub oncs: U16,
    /// Fused operations; bit 0: Compare and Write.
    pub fuses: U16,
    /// Format NVM attributes.
    pub fna: u8,
    /// Volatile write cache, a [`Vwc`].
    pub vwc: u8,
    /// Atomic write unit normal (logical blocks, 0-based).
    pub awun: U16,
    /// Atomic write unit power fail (logical blocks, 0-based).
    pub awupf: U16,
    /// Vendor specific I/O command configuration.
    pub icsvscc: u8,
    /// Namespace write protection capabilities.
    pub nwpc: u8,
    /// Atomic compare and write unit (logical blocks, 0-based).
    pub acwu: U16,
    /// Copy descriptor formats.
    pub ocfs: U16,
    /// SGL support, an [`Sgls`].
    pub sgls: U32,
    /// Maximum namespaces; 0 means NN.
    pub mnan: U32,
    /// Maximum namespace attachments of a domain.
    pub maxdna: U128,
    /// Maximum namespace attachments of an I/O controller.
    pub maxcna: U32,
    /// Reserved.
    pub reserved564: [u8; 204],
    /// NVM subsystem NQN.
    pub subnqn: [u8; NQN_FIELD_BYTES],
    /// Reserved.
    pub reserved1024: [u8; 768],
    /// Largest I/O command capsule (unit: 16 bytes).
    pub ioccsz: U32,
    /// Largest I/O response capsule (unit: 16 bytes).
    pub iorcsz: U32,
    /// In-capsule data offset after the SQE (unit: 16 bytes).
    pub icdoff: U16,
    /// Bit 0: static (1) or dynamic (0) controller model.
    pub fcatt: u8,
    /// Maximum SGL data block descriptors of a command; 0: no limit.
    pub msdbd: u8,
    /// Optional Fabrics commands; bit 0: Disconnect.
    pub ofcs: U16,
    /// Discovery controller type: 0 not reported, 1 DDC, 2 CDC.
    pub dctype: u8,
    /// Maximum Cross-Controller Resets in progress (Base 2.3); 0 if not supported.
    pub ccrl: u8,
    /// Reserved.
    pub reserved1808: [u8; 240],
    /// Power state descriptors PSD0 to PSD31.
    pub psd: [PowerState; 32],
    /// Vendor specific.
    pub vendor: [u8; 1024],
}
assert_size!(IdentifyController = IDENTIFY_BYTES);

impl IdentifyController {
    /// CNTRLTYPE of an I/O controller.
    pub const CNTRLTYPE_IO: u8 = 1;
    /// CNTRLTYPE of a discovery controller.
    pub const CNTRLTYPE_DISCOVERY: u8 = 2;
    /// CNTRLTYPE of an administrative controller.
    pub const CNTRLTYPE_ADMIN: u8 = 3;
    /// SQES for 64-byte entries, required and maximum.
    pub const SQES_64: u8 = 0x66;
    /// CQES for 16-byte entries, required and maximum.
    pub const CQES_16: u8 = 0x44;
    /// FUSES bit 0: Compare and Write.
    pub const FUSES_COMPARE_AND_WRITE: u16 = 1 << 0;
    /// OFCS bit 0: Disconnect.
    pub const OFCS_DISCONNECT: u16 = 1 << 0;
}

/// Power state descriptor (Base, figure 276).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct PowerState {
    /// Maximum power (unit: 10 mW, or 0.1 mW with MXPS).
    pub mp: U16,
    /// Reserved.
    pub reserved2: u8,
    /// Bit 0: MXPS. Bit 1: NOPS, no I/O is processed in this state.
    pub flags: u8,
    /// Entry latency (microseconds).
    pub enlat: U32,
    /// Exit latency (microseconds).
    pub exlat: U32,
    /// Relative throughput and latency (RRT, RRL, RWT, RWL).
    pub relative: [u8; 4],
    /// Idle power and active power.
    pub rest: [u8; 16],
}
assert_size!(PowerState = 32);

bitfields! {
    /// CMIC: sharing of the NVM subsystem.
    pub struct Cmic(u8);
    flags {
        multi_port with_multi_port = 0 ("one port" | "two or more ports");
        multi_controller with_multi_controller = 1 ("one controller" | "two or more controllers");
        sriov with_sriov = 2 ("not of an SR-IOV virtual function" | "of an SR-IOV virtual function");
        ana with_ana = 3 (supports "Asymmetric Namespace Access Reporting");
    }
}

bitfields! {
    /// CTRATT: controller attributes.
    pub struct Ctratt(u32);
    flags {
        host_id_128 with_host_id_128 = 0 (supports "128-bit host identifier");
        /// Any command restarts the keep alive timer.
        tbkas with_tbkas = 6 (supports "Traffic Based Keep Alive");
        namespace_granularity with_namespace_granularity = 7 (supports "namespace granularity");
        uuid_list with_uuid_list = 9 (supports "UUID list");
        elbas with_elbas = 15 (supports "extended LBA formats");
    }
    bits {
        19 (supports "Flexible Data Placement");
        18 ("reservations without the host identifier's enforcement"
            | "reservations with the host identifier's enforcement");
        17 (supports "restriction of the host memory buffer in non-operational power states");
        16 ("size limits include metadata" | "size limits exclude metadata");
        14 (supports "Delete NVM Set");
        13 (supports "Delete Endurance Group");
        12 (supports "Variable Capacity Management");
        11 (supports "Fixed Capacity Management");
        10 ("one domain in the subsystem" | "several domains in the subsystem");
        8 (supports "SQ associations");
        5 (supports "Predictable Latency Mode");
        4 (supports "endurance groups");
        3 (supports "read recovery levels");
        2 (supports "NVM sets");
        1 (supports "Non-Operational Power State Permissive Mode");
    }
}

bitfields! {
    /// LPA: supported log pages.
    pub struct Lpa(u8);
    flags {
        smart_per_namespace with_smart_per_namespace = 0 (supports "SMART log of each namespace");
        command_effects with_command_effects = 1 (supports "Commands Supported and Effects log");
        /// Get Log Page has a 32-bit NUMD and a 64-bit offset.
        extended_data with_extended_data = 2 (supports "extended data of Get Log Page");
        telemetry with_telemetry = 3 (supports "Telemetry logs");
        persistent_event with_persistent_event = 4 (supports "Persistent Event log");
        /// Log pages 00h, 12h and 13h.
        supported_pages with_supported_pages = 5 (
            supports "Supported Log Pages and the pages of the effects of features and of MI commands"
        );
    }
    bits {
        6 (supports "telemetry data area 4");
    }
}

bitfields! {
    /// ANACAP: ANA states reported by the controller.
    pub struct Anacap(u8);
    flags {
        optimized with_optimized = 0 (supports "ANA Optimized state");
        non_optimized with_non_optimized = 1 (supports "ANA Non-Optimized state");
        inaccessible with_inaccessible = 2 (supports "ANA Inaccessible state");
        persistent_loss with_persistent_loss = 3 (supports "ANA Persistent Loss state");
        change with_change = 4 (supports "ANA Change state");
        anagrpid_static with_anagrpid_static = 6 ("ANAGRPID may change while the namespace is attached"
            | "ANAGRPID does not change while the namespace is attached");
        anagrpid_nonzero with_anagrpid_nonzero = 7 (supports "ANAGRPID other than 0 in Namespace Management");
    }
}

bitfields! {
    /// ONCS: optional NVM commands.
    pub struct Oncs(u16);
    flags {
        compare with_compare = 0 (supports "Compare");
        write_uncorrectable with_write_uncorrectable = 1 (supports "Write Uncorrectable");
        dataset_management with_dataset_management = 2 (supports "Dataset Management");
        write_zeroes with_write_zeroes = 3 (supports "Write Zeroes");
        save_select with_save_select = 4 (supports "Save and Select of features");
        reservations with_reservations = 5 (supports "reservations");
        timestamp with_timestamp = 6 (supports "Timestamp");
        verify with_verify = 7 (supports "Verify");
        copy with_copy = 8 (supports "Copy");
    }
}

bitfields! {
    /// VWC: volatile write cache.
    pub struct Vwc(u8);
    fields {
        /// Meaning of NSID FFFFFFFFh in Flush (a `FLUSH_ALL_` constant).
        flush_all with_flush_all: u8 = 1..=2 ("Flush of all namespaces" [
            "not reported", "", "not supported", "supported"
        ]);
    }
    flags {
        present with_present = 0 ("no volatile write cache" | "a volatile write cache");
    }
}

impl Vwc {
    /// Flush with NSID FFFFFFFFh fails.
    pub const FLUSH_ALL_NO: u8 = 0b10;
    /// Flush with NSID FFFFFFFFh applies to every namespace.
    pub const FLUSH_ALL_YES: u8 = 0b11;
}

bitfields! {
    /// SGLS: SGL support.
    pub struct Sgls(u32);
    fields {
        /// 00b: no SGLs; 01b: no alignment; 10b: 4-byte alignment.
        supported with_supported: u8 = 0..=1 ("SGLs" ["not supported", "supported", "supported, aligned to 4 bytes"]);
    }
    flags {
        keyed with_keyed = 2 (supports "Keyed SGL Data Block descriptor");
        bit_bucket with_bit_bucket = 16 (supports "SGL Bit Bucket descriptor");
        /// Data block descriptors with an offset, for in-capsule data.
        in_capsule_offset with_in_capsule_offset = 20 (supports "addresses that are offsets (in-capsule data)");
        transport with_transport = 21 (supports "Transport SGL Data Block descriptor");
    }
    bits {
        19 (supports "MPTR with an SGL descriptor");
        18 (supports "SGLs longer than the data");
        17 (supports "metadata at any byte address");
        8..=15 (|descriptors, f| write!(f, "recommended descriptors: {descriptors} (0: not reported)"));
    }
}

/// Identify Controller for the NVM command set (CNS 06h, CSI 00h; NVM, figure 102).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct IdentifyControllerNvm {
    /// Maximum Verify, 2^VSL pages of CAP.MPSMIN; 0: no limit.
    pub vsl: u8,
    /// Maximum Write Zeroes, 2^WZSL pages of CAP.MPSMIN; 0: no limit.
    pub wzsl: u8,
    /// Maximum Write Uncorrectable, 2^WUSL pages of CAP.MPSMIN; 0: no limit.
    pub wusl: u8,
    /// Maximum Dataset Management ranges; 0: no limit.
    pub dmrl: u8,
    /// Maximum logical blocks in one range; 0: no limit.
    pub dmrsl: U32,
    /// Maximum logical blocks in all ranges of a command; 0: no limit.
    pub dmsl: U64,
    /// Reserved.
    pub reserved16: [u8; 4080],
}
assert_size!(IdentifyControllerNvm = IDENTIFY_BYTES);

/// Encodes text as an ASCII field (SN, MN, FR), padded with spaces or truncated.
///
/// Characters outside 20h to 7Eh become `?` (Base, 1.5).
#[must_use]
pub fn ascii_field<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    for (slot, c) in field.iter_mut().zip(text.chars()) {
        *slot = if matches!(c, ' '..='~') {
            c as u8
        } else {
            b'?'
        };
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn controller_offsets() {
        assert_eq!(offset_of!(IdentifyController, cntlid), 78);
        assert_eq!(offset_of!(IdentifyController, cntrltype), 111);
        assert_eq!(offset_of!(IdentifyController, oacs), 256);
        assert_eq!(offset_of!(IdentifyController, tnvmcap), 280);
        assert_eq!(offset_of!(IdentifyController, kas), 320);
        assert_eq!(offset_of!(IdentifyController, anatt), 342);
        assert_eq!(offset_of!(IdentifyController, megcap), 368);
        assert_eq!(offset_of!(IdentifyController, cqt), 386);
        assert_eq!(offset_of!(IdentifyController, sqes), 512);
        assert_eq!(offset_of!(IdentifyController, vwc), 525);
        assert_eq!(offset_of!(IdentifyController, sgls), 536);
        assert_eq!(offset_of!(IdentifyController, subnqn), 768);
        assert_eq!(offset_of!(IdentifyController, ioccsz), 1792);
        assert_eq!(offset_of!(IdentifyController, psd), 2048);
        assert_eq!(offset_of!(IdentifyController, vendor), 3072);
    }

    #[test]
    fn ascii_fields_are_padded_and_cut() {
        assert_eq!(&ascii_field::<6>("ab"), b"ab    ");
        assert_eq!(&ascii_field::<4>("abcdef"), b"abcd");
        assert_eq!(&ascii_field::<4>("aä\n"), b"a?? ");
    }
}
