//! Identify Controller (CNS 01h, and CNS 06h for the NVM command set).

use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::IDENTIFY_BYTES;
use crate::wire::nqn::NQN_FIELD_BYTES;

/// Identify Controller (CNS 01h; Base, figure 275).
///
/// Reserved bytes are preserved, since later revisions may use them.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct IdentifyController {
    /// VID: PCI vendor ID.
    pub vid: U16,
    /// SSVID: PCI subsystem vendor ID.
    pub ssvid: U16,
    /// SN: serial number, ASCII padded with spaces.
    pub sn: [u8; 20],
    /// MN: model number, ASCII padded with spaces.
    pub mn: [u8; 40],
    /// FR: firmware revision, ASCII padded with spaces.
    pub fr: [u8; 8],
    /// RAB: recommended arbitration burst, 2^n commands.
    pub rab: u8,
    /// IEEE: OUI.
    pub ieee: [u8; 3],
    /// CMIC: multi-path and namespace sharing, a [`Cmic`].
    pub cmic: u8,
    /// MDTS: the largest transfer is 2^MDTS pages of CAP.MPSMIN; 0 for no limit.
    pub mdts: u8,
    /// CNTLID: controller identifier.
    pub cntlid: U16,
    /// VER: the value of VS.
    pub ver: U32,
    /// RTD3R: RTD3 resume latency, in microseconds.
    pub rtd3r: U32,
    /// RTD3E: RTD3 entry latency, in microseconds.
    pub rtd3e: U32,
    /// OAES: optional asynchronous events supported; bits as in [`crate::wire::feature::AsyncEventConfig`].
    pub oaes: U32,
    /// CTRATT: controller attributes, a [`Ctratt`].
    pub ctratt: U32,
    /// RRLS: read recovery levels supported.
    pub rrls: U16,
    /// Reserved.
    pub reserved102: [u8; 9],
    /// CNTRLTYPE: 1 I/O, 2 discovery, 3 administrative controller.
    pub cntrltype: u8,
    /// FGUID: FRU globally unique identifier.
    pub fguid: [u8; 16],
    /// CRDT1: delay of a retry with CRD 1, in units of 100 ms.
    pub crdt1: U16,
    /// CRDT2: delay of a retry with CRD 2, in units of 100 ms.
    pub crdt2: U16,
    /// CRDT3: delay of a retry with CRD 3, in units of 100 ms.
    pub crdt3: U16,
    /// Reserved.
    pub reserved134: [u8; 119],
    /// NVMSR: NVM subsystem report.
    pub nvmsr: u8,
    /// VWCI: VPD write cycle information.
    pub vwci: u8,
    /// MEC: management endpoint capabilities.
    pub mec: u8,
    /// OACS: optional admin commands supported.
    pub oacs: U16,
    /// ACL: Abort commands outstanding at a time, 0-based.
    pub acl: u8,
    /// AERL: Asynchronous Event Requests outstanding at a time, 0-based.
    pub aerl: u8,
    /// FRMW: firmware slots; bits 3:1 their number, bit 0 slot 1 is read-only.
    pub frmw: u8,
    /// LPA: log page attributes, an [`Lpa`].
    pub lpa: u8,
    /// ELPE: entries of the Error Information log, 0-based.
    pub elpe: u8,
    /// NPSS: power states, 0-based.
    pub npss: u8,
    /// AVSCC: admin vendor specific command configuration.
    pub avscc: u8,
    /// APSTA: autonomous power state transition attributes.
    pub apsta: u8,
    /// WCTEMP: warning composite temperature threshold, in kelvin.
    pub wctemp: U16,
    /// CCTEMP: critical composite temperature threshold, in kelvin.
    pub cctemp: U16,
    /// MTFA: maximum time for firmware activation, in units of 100 ms.
    pub mtfa: U16,
    /// HMPRE: host memory buffer preferred size, in units of 4 KiB.
    pub hmpre: U32,
    /// HMMIN: host memory buffer minimum size, in units of 4 KiB.
    pub hmmin: U32,
    /// TNVMCAP: total NVM capacity, in bytes.
    pub tnvmcap: U128,
    /// UNVMCAP: unallocated NVM capacity, in bytes.
    pub unvmcap: U128,
    /// RPMBS: replay protected memory block support.
    pub rpmbs: U32,
    /// EDSTT: extended device self-test time, in minutes.
    pub edstt: U16,
    /// DSTO: device self-test options.
    pub dsto: u8,
    /// FWUG: firmware update granularity, in units of 4 KiB.
    pub fwug: u8,
    /// KAS: granularity of KATO, in units of 100 ms; 0 if keep alive is not supported.
    pub kas: U16,
    /// HCTMA: host controlled thermal management attributes.
    pub hctma: U16,
    /// MNTMT: minimum thermal management temperature, in kelvin.
    pub mntmt: U16,
    /// MXTMT: maximum thermal management temperature, in kelvin.
    pub mxtmt: U16,
    /// SANICAP: sanitize capabilities.
    pub sanicap: U32,
    /// HMMINDS: host memory buffer minimum descriptor entry size, in units of 4 KiB.
    pub hmminds: U32,
    /// HMMAXD: host memory buffer maximum descriptors.
    pub hmmaxd: U16,
    /// NSETIDMAX: largest NVM set identifier.
    pub nsetidmax: U16,
    /// ENDGIDMAX: largest endurance group identifier.
    pub endgidmax: U16,
    /// ANATT: ANA transition time, in seconds.
    pub anatt: u8,
    /// ANACAP: ANA capabilities, an [`Anacap`].
    pub anacap: u8,
    /// ANAGRPMAX: largest ANA group identifier.
    pub anagrpmax: U32,
    /// NANAGRPID: number of ANA group identifiers.
    pub nanagrpid: U32,
    /// PELS: persistent event log size, in units of 64 KiB.
    pub pels: U32,
    /// DOMAINID: domain identifier.
    pub domainid: U16,
    /// Reserved.
    pub reserved358: [u8; 10],
    /// MEGCAP: maximum endurance group capacity, in bytes.
    pub megcap: U128,
    /// Reserved.
    pub reserved384: [u8; 2],
    /// CQT: command quiesce time in milliseconds (Base 2.1); 0 if not reported.
    ///
    /// Commands may still be executed for this time after the keep alive timer expired.
    pub cqt: U16,
    /// Reserved.
    pub reserved388: [u8; 124],
    /// SQES: SQ entry sizes, 2^n bytes; required in bits 3:0, maximum in 7:4.
    pub sqes: u8,
    /// CQES: CQ entry sizes, 2^n bytes; required in bits 3:0, maximum in 7:4.
    pub cqes: u8,
    /// MAXCMD: recommended maximum of outstanding commands on a queue.
    pub maxcmd: U16,
    /// NN: largest valid NSID.
    pub nn: U32,
    /// ONCS: optional NVM commands supported, an [`Oncs`].
    pub oncs: U16,
    /// FUSES: fused operations supported; bit 0 Compare and Write.
    pub fuses: U16,
    /// FNA: Format NVM attributes.
    pub fna: u8,
    /// VWC: volatile write cache, a [`Vwc`].
    pub vwc: u8,
    /// AWUN: atomic write unit normal, in logical blocks, 0-based.
    pub awun: U16,
    /// AWUPF: atomic write unit power fail, in logical blocks, 0-based.
    pub awupf: U16,
    /// ICSVSCC: I/O vendor specific command configuration.
    pub icsvscc: u8,
    /// NWPC: namespace write protection capabilities.
    pub nwpc: u8,
    /// ACWU: atomic compare and write unit, in logical blocks, 0-based.
    pub acwu: U16,
    /// CDFS: copy descriptor formats supported.
    pub cdfs: U16,
    /// SGLS: SGL support, an [`Sgls`].
    pub sgls: U32,
    /// MNAN: maximum number of allowed namespaces; 0 if NN is the maximum.
    pub mnan: U32,
    /// MAXDNA: maximum domain namespace attachments.
    pub maxdna: U128,
    /// MAXCNA: maximum I/O controller namespace attachments.
    pub maxcna: U32,
    /// Reserved.
    pub reserved564: [u8; 204],
    /// SUBNQN: NVM subsystem NQN.
    pub subnqn: [u8; NQN_FIELD_BYTES],
    /// Reserved.
    pub reserved1024: [u8; 768],
    /// IOCCSZ: largest I/O command capsule, in units of 16 bytes. The fields from here to DCTYPE
    /// apply to Fabrics.
    pub ioccsz: U32,
    /// IORCSZ: largest I/O response capsule, in units of 16 bytes.
    pub iorcsz: U32,
    /// ICDOFF: in-capsule data offset, in units of 16 bytes from the end of the SQE.
    pub icdoff: U16,
    /// FCATT: bit 0, 0 for the dynamic controller model, 1 for the static one.
    pub fcatt: u8,
    /// MSDBD: maximum SGL data block descriptors of a command; 0 for no limit.
    pub msdbd: u8,
    /// OFCS: optional Fabrics commands supported; bit 0 Disconnect.
    pub ofcs: U16,
    /// DCTYPE: discovery controller type; 0 not reported, 1 DDC, 2 CDC.
    pub dctype: u8,
    /// Reserved.
    pub reserved1807: [u8; 241],
    /// PSD0 to PSD31: power state descriptors.
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
    /// SQES of 64-byte entries.
    pub const SQES_64: u8 = 0x66;
    /// CQES of 16-byte entries.
    pub const CQES_16: u8 = 0x44;
    /// OFCS: Disconnect is supported.
    pub const OFCS_DISCONNECT: u16 = 1 << 0;
}

/// Power state descriptor (Base, figure 276).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct PowerState {
    /// MP: maximum power, in centiwatts unless MXPS is set.
    pub mp: U16,
    /// Reserved.
    pub reserved2: u8,
    /// MXPS in bit 0: MP is in units of 0.1 mW. NOPS in bit 1: no I/O is processed.
    pub flags: u8,
    /// ENLAT: entry latency, in microseconds.
    pub enlat: U32,
    /// EXLAT: exit latency, in microseconds.
    pub exlat: U32,
    /// RRT, RRL, RWT, RWL: relative throughput and latency.
    pub relative: [u8; 4],
    /// Idle and active power.
    pub rest: [u8; 16],
}
assert_size!(PowerState = 32);

bitfields! {
    /// CMIC: multi-path and sharing capabilities of the NVM subsystem.
    pub struct Cmic(u8);
    flags {
        /// More than one port.
        multi_port with_multi_port = 0;
        /// More than one controller.
        multi_controller with_multi_controller = 1;
        /// The controller belongs to an SR-IOV virtual function.
        sriov with_sriov = 2;
        /// Asymmetric namespace access reporting.
        ana with_ana = 3;
    }
}

bitfields! {
    /// CTRATT: controller attributes.
    pub struct Ctratt(u32);
    flags {
        /// 128-bit host identifier.
        host_id_128 with_host_id_128 = 0;
        /// TBKAS: traffic based keep alive; any command restarts the keep alive timer.
        tbkas with_tbkas = 6;
        /// Namespace granularity.
        namespace_granularity with_namespace_granularity = 7;
        /// UUID list.
        uuid_list with_uuid_list = 9;
        /// Extended LBA formats.
        elbas with_elbas = 15;
    }
}

bitfields! {
    /// LPA: log page attributes.
    pub struct Lpa(u8);
    flags {
        /// SMART / Health log by namespace.
        smart_per_namespace with_smart_per_namespace = 0;
        /// Commands Supported and Effects log.
        command_effects with_command_effects = 1;
        /// Extended data: 32-bit NUMD and an offset in Get Log Page.
        extended_data with_extended_data = 2;
        /// Telemetry logs.
        telemetry with_telemetry = 3;
        /// Persistent Event log.
        persistent_event with_persistent_event = 4;
        /// Log pages 00h, 12h and 13h.
        supported_pages with_supported_pages = 5;
    }
}

bitfields! {
    /// ANACAP: supported ANA states, and whether group identifiers change.
    pub struct Anacap(u8);
    flags {
        /// ANA Optimized.
        optimized with_optimized = 0;
        /// ANA Non-Optimized.
        non_optimized with_non_optimized = 1;
        /// ANA Inaccessible.
        inaccessible with_inaccessible = 2;
        /// ANA Persistent Loss.
        persistent_loss with_persistent_loss = 3;
        /// ANA Change.
        change with_change = 4;
        /// The ANAGRPID of a namespace does not change while the namespace is attached.
        anagrpid_static with_anagrpid_static = 6;
        /// ANAGRPID may be set by Namespace Management.
        anagrpid_nonzero with_anagrpid_nonzero = 7;
    }
}

bitfields! {
    /// ONCS: optional NVM commands supported.
    pub struct Oncs(u16);
    flags {
        /// Compare.
        compare with_compare = 0;
        /// Write Uncorrectable.
        write_uncorrectable with_write_uncorrectable = 1;
        /// Dataset Management.
        dataset_management with_dataset_management = 2;
        /// Write Zeroes.
        write_zeroes with_write_zeroes = 3;
        /// The Save and Select fields of Set and Get Features.
        save_select with_save_select = 4;
        /// Reservations.
        reservations with_reservations = 5;
        /// Timestamp feature.
        timestamp with_timestamp = 6;
        /// Verify.
        verify with_verify = 7;
        /// Copy.
        copy with_copy = 8;
    }
}

bitfields! {
    /// VWC: volatile write cache.
    pub struct Vwc(u8);
    fields {
        /// Flush with NSID FFFFFFFFh: 10b not supported, 11b supported.
        flush_all with_flush_all: u8 = 1..=2;
    }
    flags {
        /// A volatile write cache is present.
        present with_present = 0;
    }
}

impl Vwc {
    /// Flush with NSID FFFFFFFFh fails.
    pub const FLUSH_ALL_NO: u8 = 0b10;
    /// Flush with NSID FFFFFFFFh flushes every namespace.
    pub const FLUSH_ALL_YES: u8 = 0b11;
}

bitfields! {
    /// SGLS: SGL support.
    pub struct Sgls(u32);
    fields {
        /// SGL support: 00b none, 01b without alignment requirement, 10b with 4-byte alignment.
        supported with_supported: u8 = 0..=1;
    }
    flags {
        /// Keyed SGL data block descriptors.
        keyed with_keyed = 2;
        /// SGL bit bucket descriptors.
        bit_bucket with_bit_bucket = 16;
        /// Data blocks with an offset as address, for in-capsule data.
        in_capsule_offset with_in_capsule_offset = 20;
        /// Transport SGL data block descriptors.
        transport with_transport = 21;
    }
}

/// Identify Controller for the NVM command set (CNS 06h, CSI 00h; NVM, figure 102).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct IdentifyControllerNvm {
    /// VSL: Verify size limit, 2^VSL pages of CAP.MPSMIN; 0 for no limit.
    pub vsl: u8,
    /// WZSL: Write Zeroes size limit, 2^WZSL pages of CAP.MPSMIN; 0 for no limit.
    pub wzsl: u8,
    /// WUSL: Write Uncorrectable size limit, 2^WUSL pages of CAP.MPSMIN; 0 for no limit.
    pub wusl: u8,
    /// DMRL: maximum ranges of a Dataset Management command; 0 for no limit.
    pub dmrl: u8,
    /// DMRSL: maximum logical blocks of one range; 0 for no limit.
    pub dmrsl: U32,
    /// DMSL: maximum logical blocks of all ranges of a command; 0 for no limit.
    pub dmsl: U64,
    /// Reserved.
    pub reserved16: [u8; 4080],
}
assert_size!(IdentifyControllerNvm = IDENTIFY_BYTES);

/// Encodes text as a field of ASCII padded with spaces (SN, MN, FR), truncated to the field.
///
/// Base, 1.5: ASCII strings contain only 20h to 7Eh; any other character becomes `?`.
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

    /// Offsets equal those in the specification's figures.
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
