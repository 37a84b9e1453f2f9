//! Log pages and Get Log Page (Base, 5.16).

use core::fmt::{self, Formatter};

use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::bits::bit_fields;
use super::nqn::NQN_FIELD_BYTES;
use super::status::Status;

codes! {
    /// LID: log page identifier (Base, figure 202).
    pub struct LogPage(u8);
    0x00 SUPPORTED_LOG_PAGES "Supported Log Pages";
    0x01 ERROR_INFORMATION "Error Information";
    0x02 SMART "SMART / Health Information";
    0x03 FIRMWARE_SLOT "Firmware Slot Information";
    0x04 CHANGED_NAMESPACES "Changed Namespace List";
    0x05 COMMAND_EFFECTS "Commands Supported and Effects";
    0x0c ANA "Asymmetric Namespace Access";
    0x12 FEATURE_EFFECTS "Feature Identifiers Supported and Effects";
    0x1e CROSS_CONTROLLER_RESET "Cross-Controller Reset";
    0x70 DISCOVERY "Discovery";
    0x80 RESERVATION_NOTIFICATION "Reservation Notification";
}

bitfields! {
    /// CDW10 of Get Log Page.
    pub struct GetLogCdw10(u32);
    fields {
        /// A [`LogPage`].
        lid with_lid: u8 = 0..=7;
        /// Log specific field.
        lsp with_lsp: u8 = 8..=14;
        /// Lower half of the number of dwords (0-based).
        numdl with_numdl: u16 = 16..=31;
    }
    flags {
        /// Reading the page does not re-arm its asynchronous event.
        rae with_rae = 15;
    }
}

bitfields! {
    /// CDW11 of Get Log Page.
    pub struct GetLogCdw11(u32);
    fields {
        /// Upper half of the number of dwords.
        numdu with_numdu: u16 = 0..=15;
        /// Log specific identifier.
        lsi with_lsi: u16 = 16..=31;
    }
}

bitfields! {
    /// CDW14 of Get Log Page.
    pub struct GetLogCdw14(u32);
    fields {
        /// UUID index.
        uuid_index with_uuid_index: u8 = 0..=6;
        /// I/O command set, for some log pages.
        csi with_csi: u8 = 24..=31;
    }
    flags {
        /// The offset is the index of an entry, not bytes.
        ot with_ot = 23;
    }
}

/// Bytes requested by Get Log Page, at most 16 GiB.
#[must_use]
pub const fn get_log_bytes(cdw10: GetLogCdw10, cdw11: GetLogCdw11) -> u64 {
    let numd = (cdw11.numdu() as u64) << 16 | cdw10.numdl() as u64;
    (numd + 1) * 4
}

/// Supported Log Pages (LID 00h; Base, figure 204).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct SupportedLogPages {
    /// A [`SupportedLogPage`] for each LID.
    pub lids: [U32; 256],
}
assert_size!(SupportedLogPages = 1024);

bitfields! {
    /// Entry of the Supported Log Pages log.
    pub struct SupportedLogPage(u32);
    fields {
        /// Parameter, specific to the log page.
        parameter with_parameter: u16 = 16..=31;
    }
    flags {
        /// The log page is supported.
        lsupp with_lsupp = 0;
        /// The offset of Get Log Page may be an index.
        ios with_ios = 1;
    }
}

/// Entry of the Error Information log (LID 01h; Base, figure 205).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ErrorEntry {
    /// Error count, unique in the controller's lifetime; 0 in an unused entry.
    pub error_count: U64,
    /// SQID of the failed command; FFFFh without a command.
    pub sqid: U16,
    /// CID of the failed command; FFFFh without a command.
    pub cid: U16,
    /// Status field of the completion, phase tag in bit 0.
    pub status: U16,
    /// Invalid SQE field: byte in bits 7:0, bit in bits 10:8; FFFFh if none.
    pub parameter_error_location: U16,
    /// First LBA with an error, if any.
    pub lba: U64,
    /// NSID of the command, if any.
    pub nsid: U32,
    /// Vendor specific log page with details; 0 if none.
    pub vendor_log_page: u8,
    /// Transport type.
    pub trtype: u8,
    /// Reserved.
    pub reserved30: [u8; 2],
    /// Command specific information.
    pub command_specific: U64,
    /// Transport specific information.
    pub transport_specific: U16,
    /// Reserved.
    pub reserved42: [u8; 22],
}
assert_size!(ErrorEntry = 64);

impl ErrorEntry {
    /// SQID, CID and parameter location of an error without a command.
    pub const NOT_OF_A_COMMAND: u16 = 0xffff;
}

/// SMART / Health Information (LID 02h; Base, figure 207).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct SmartLog {
    /// Critical warnings (bit mask).
    pub critical_warning: u8,
    /// Composite temperature (kelvin).
    pub composite_temperature: U16,
    /// Available spare (percent).
    pub avsp: u8,
    /// Available spare threshold (percent).
    pub avspt: u8,
    /// Endurance used (percent); may exceed 100.
    pub pused: u8,
    /// Endurance group critical warnings.
    pub endurance_group_warning: u8,
    /// Reserved.
    pub reserved7: [u8; 25],
    /// Data read (unit: 512,000 bytes, rounded up).
    pub data_units_read: U128,
    /// Data written (unit: 512,000 bytes, rounded up).
    pub data_units_written: U128,
    /// Completed Read and Compare commands.
    pub host_read_commands: U128,
    /// Completed Write commands.
    pub host_write_commands: U128,
    /// Time with I/O commands in flight (minutes).
    pub controller_busy_time: U128,
    /// Power cycles.
    pub power_cycles: U128,
    /// Power-on time (hours).
    pub power_on_hours: U128,
    /// Power losses without shutdown.
    pub unsafe_shutdowns: U128,
    /// Media and data integrity errors.
    pub media_errors: U128,
    /// Error Information log entries in the controller's lifetime.
    pub error_log_entries: U128,
    /// Time above the warning temperature (minutes).
    pub warning_temperature_time: U32,
    /// Time above the critical temperature (minutes).
    pub critical_temperature_time: U32,
    /// Sensor temperatures (kelvin); 0 if not implemented.
    pub temperature_sensors: [U16; 8],
    /// Transitions to thermal management temperature 1.
    pub thermal1_transitions: U32,
    /// Transitions to thermal management temperature 2.
    pub thermal2_transitions: U32,
    /// Time at thermal management temperature 1 (seconds).
    pub thermal1_time: U32,
    /// Time at thermal management temperature 2 (seconds).
    pub thermal2_time: U32,
    /// Reserved.
    pub reserved232: [u8; 280],
}
assert_size!(SmartLog = 512);

/// Firmware Slot Information (LID 03h; Base, figure 208).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct FirmwareSlotLog {
    /// Active slot in bits 2:0; slot to activate at the next reset in bits 6:4.
    pub afi: u8,
    /// Reserved.
    pub reserved1: [u8; 7],
    /// Firmware revisions of slots 1 to 7, ASCII; 0 if empty.
    pub frs: [[u8; 8]; 7],
    /// Reserved.
    pub reserved64: [u8; 448],
}
assert_size!(FirmwareSlotLog = 512);

/// Commands Supported and Effects (LID 05h; Base, figure 210).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct CommandEffectsLog {
    /// A [`CommandEffects`] for each admin opcode.
    pub acs: [U32; 256],
    /// A [`CommandEffects`] for each I/O opcode.
    pub iocs: [U32; 256],
    /// Reserved.
    pub reserved2048: [u8; 2048],
}
assert_size!(CommandEffectsLog = 4096);

bitfields! {
    /// Effects of a command (Base, figure 211).
    pub struct CommandEffects(u32);
    fields {
        /// CSE: 000b no restriction, 001b one command at a time per namespace, 010b one in total.
        cse with_cse: u8 = 16..=18 ("commands at a time" [
            "any number", "one of a namespace", "one of all namespaces"
        ]);
    }
    flags {
        csupp with_csupp = 0 (supports "the command");
        lbcc with_lbcc = 1 ("logical blocks: stay" | "logical blocks: may change");
        ncc with_ncc = 2 ("namespace capabilities: stay" | "namespace capabilities: may change");
        nic with_nic = 3 ("namespace inventory: stays" | "namespace inventory: may change");
        ccc with_ccc = 4 ("controller capabilities: stay" | "controller capabilities: may change");
        uuid_selection with_uuid_selection = 19 (supports "UUID selection");
        /// CSP: the command affects one namespace.
        namespace_scope with_namespace_scope = 20 (supports "scope: namespace");
        /// CSP: the command affects one controller.
        controller_scope with_controller_scope = 21 (supports "scope: controller");
    }
    bits {
        25 (supports "scope: NVM subsystem");
        24 (supports "scope: domain");
        23 (supports "scope: endurance group");
        22 (supports "scope: NVM set");
    }
}

bit_fields! {
    /// Bit fields of the SMART log (Base 2.0, figure 207), firmware log (figure 208) and error log
    /// (figure 206).
    LOG_BITS;
    "critical_warning" 8 {
        5 ("persistent memory region: writable" | "persistent memory region: read-only or unreliable");
        4 ("backup of volatile memory: works" | "backup of volatile memory: failed");
        3 ("media: writable" | "media: read-only");
        2 ("reliability: as it was" | "reliability: degraded");
        1 ("temperature: within its thresholds" | "temperature: past a threshold");
        0 ("spare: above its threshold" | "spare: below its threshold");
    };
    "endurance_grp_critical_warning_summary" 8 {
        3 ("namespaces of endurance groups: writable" | "namespaces of an endurance group: read-only");
        2 ("reliability of endurance groups: as it was" | "reliability of an endurance group: degraded");
        0 ("spare of endurance groups: above its threshold" | "spare of an endurance group: below its threshold");
    };
    "Active Firmware Slot (afi)" 8 {
        4..=6 (|slot, f| match slot {
            0 => f.write_str("slot after the next reset: the same"),
            slot => write!(f, "slot after the next reset: {slot}"),
        });
        0..=2 (|slot, f| write!(f, "active slot: {slot}"));
    };
    "status_field" 15 {
        14 ("the command may be retried" | "do not retry");
        13 ("nothing more in the log" | "more in the log");
        11..=12 ("wait before a retry" ["none", "CRDT1", "CRDT2", "CRDT3"]);
        0..=10 (|bits, f| write!(f, "{}", Status::from_bits(bits as u16).code()));
    };
    "parm_error_location" 16 { 0..=15 (location); };
    "trtype" 8 { 0..=7 ("transport" ["none", "RDMA", "Fibre Channel", "TCP"]); };
}

bit_fields! {
    /// Bit fields of a Commands Supported and Effects entry.
    EFFECT_BITS;
    "effects" CommandEffects;
}

fn location(value: u64, f: &mut Formatter<'_>) -> fmt::Result {
    match value {
        0xffff => f.write_str("not in the command"),
        _ => write!(
            f,
            "byte {} and bit {} of the command",
            value & 0xff,
            value >> 8 & 7
        ),
    }
}

bitfields! {
    /// Entry of the Feature Identifiers Effects log (LID 12h; Base, figure 257).
    pub struct FeatureEffects(u32);
    flags {
        /// The feature is supported.
        fsupp with_fsupp = 0;
        /// FSP: the feature applies to one namespace.
        namespace_scope with_namespace_scope = 20;
        /// FSP: the feature applies to one controller.
        controller_scope with_controller_scope = 21;
    }
}

/// Header of the Asymmetric Namespace Access log (LID 0Ch; Base, figure 224).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct AnaLogHeader {
    /// Change count, with wraparound.
    pub chgcnt: U64,
    /// Number of group descriptors.
    pub ngrps: U16,
    /// Reserved.
    pub reserved10: [u8; 6],
}
assert_size!(AnaLogHeader = 16);

bitfields! {
    /// LSP of Get Log Page for the ANA log.
    pub struct AnaLsp(u8);
    flags {
        /// RGO: group descriptors only, without their NSIDs.
        rgo with_rgo = 0;
    }
}

/// ANA group descriptor, followed by its NSIDs (Base, figure 225).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct AnaGroup {
    /// ANA group identifier.
    pub agid: U32,
    /// Number of NSIDs after the descriptor.
    pub nnsids: U32,
    /// Change count of the group.
    pub chgcnt: U64,
    /// [`AnaState`] in bits 3:0.
    pub anas: u8,
    /// Reserved.
    pub reserved17: [u8; 15],
}
assert_size!(AnaGroup = 32);

codes! {
    /// ANA state (Base, 8.1.3).
    pub struct AnaState(u8);
    0x01 OPTIMIZED "ANA Optimized";
    0x02 NON_OPTIMIZED "ANA Non-Optimized";
    0x03 INACCESSIBLE "ANA Inaccessible";
    0x04 PERSISTENT_LOSS "ANA Persistent Loss";
    0x0f CHANGE "ANA Change";
}

/// Header of the Discovery log (LID 70h; Base, figure 264).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DiscoveryLogHeader {
    /// Generation counter, incremented with each change.
    pub genctr: U64,
    /// Number of entries.
    pub numrec: U64,
    /// RECFMT: 0.
    pub recfmt: U16,
    /// Reserved.
    pub reserved18: [u8; 1006],
}
assert_size!(DiscoveryLogHeader = 1024);

/// Entry of the Discovery log (Base, figure 265).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DiscoveryEntry {
    /// A [`TransportType`].
    pub trtype: u8,
    /// An [`AddressFamily`].
    pub adrfam: u8,
    /// A [`SubsystemType`].
    pub subtype: u8,
    /// Secure channel in bits 1:0 (01b required, 10b not required); bit 2: SQ flow control can be
    /// disabled.
    pub treq: u8,
    /// Identifier of the subsystem port.
    pub portid: U16,
    /// CNTLID; FFFFh for the dynamic controller model.
    pub cntlid: U16,
    /// Maximum entries of an admin submission queue, at least 32.
    pub asqsz: U16,
    /// An [`Eflags`].
    pub eflags: U16,
    /// Reserved.
    pub reserved12: [u8; 20],
    /// TRSVCID (space-padded ASCII): the port for RDMA.
    pub trsvcid: [u8; 32],
    /// Reserved.
    pub reserved64: [u8; 192],
    /// SUBNQN, padded with NULs.
    pub subnqn: [u8; NQN_FIELD_BYTES],
    /// TRADDR (space-padded ASCII).
    pub traddr: [u8; 256],
    /// For RDMA, an [`RdmaTsas`].
    pub tsas: [u8; 256],
}
assert_size!(DiscoveryEntry = 1024);

codes! {
    /// TRTYPE: NVMe transport.
    pub struct TransportType(u8);
    0x01 RDMA "RDMA";
    0x02 FIBRE_CHANNEL "Fibre Channel";
    0x03 TCP "TCP";
    0xfe INTRA_HOST "Intra-host";
}

codes! {
    /// ADRFAM: address family.
    pub struct AddressFamily(u8);
    0x01 IPV4 "IPv4";
    0x02 IPV6 "IPv6";
    0x03 INFINIBAND "InfiniBand";
    0x04 FIBRE_CHANNEL "Fibre Channel";
    0xfe INTRA_HOST "Intra-host";
}

codes! {
    /// SUBTYPE: type of the subsystem.
    pub struct SubsystemType(u8);
    0x01 DISCOVERY_REFERRAL "Referral to another discovery service";
    0x02 NVM "NVM subsystem";
    0x03 CURRENT_DISCOVERY "Current discovery subsystem";
}

bitfields! {
    /// EFLAGS: flags of an entry.
    pub struct Eflags(u16);
    flags {
        /// All ports of the discovery subsystem return the same log.
        dupretinfo with_dupretinfo = 0;
        /// Explicit persistent discovery connections are supported.
        epcsd with_epcsd = 1;
    }
}

/// Transport specific address subtype (TSAS) of RDMA entries (RDMA, figure 9).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RdmaTsas {
    /// RDMA_QPTYPE: 1 reliable connected, 2 reliable datagram.
    pub qptype: u8,
    /// RDMA_PRTYPE: an [`RdmaProvider`].
    pub prtype: u8,
    /// RDMA_CMS: 1 for RDMA_IP_CM.
    pub cms: u8,
    /// Reserved.
    pub reserved3: [u8; 5],
    /// RDMA_PKEY; 0 if not applicable.
    pub pkey: U16,
    /// Reserved.
    pub reserved10: [u8; 246],
}
assert_size!(RdmaTsas = 256);

impl RdmaTsas {
    /// RDMA_QPTYPE: reliable connected.
    pub const QPTYPE_CONNECTED: u8 = 1;
    /// RDMA_CMS: RDMA_IP_CM.
    pub const CMS_RDMA_IP_CM: u8 = 1;
}

codes! {
    /// RDMA_PRTYPE: RDMA provider.
    pub struct RdmaProvider(u8);
    0x01 NONE "None specified";
    0x02 INFINIBAND "InfiniBand";
    0x03 ROCE "RoCE";
    0x04 ROCE_V2 "RoCEv2";
    0x05 IWARP "iWARP";
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn offsets() {
        assert_eq!(offset_of!(ErrorEntry, command_specific), 32);
        assert_eq!(offset_of!(SmartLog, data_units_read), 32);
        assert_eq!(offset_of!(SmartLog, error_log_entries), 176);
        assert_eq!(offset_of!(SmartLog, temperature_sensors), 200);
        assert_eq!(offset_of!(DiscoveryEntry, trsvcid), 32);
        assert_eq!(offset_of!(DiscoveryEntry, subnqn), 256);
        assert_eq!(offset_of!(DiscoveryEntry, traddr), 512);
        assert_eq!(offset_of!(DiscoveryEntry, tsas), 768);
    }

    #[test]
    fn numd_has_32_bits_and_does_not_overflow() {
        assert_eq!(get_log_bytes(GetLogCdw10(0), GetLogCdw11(0)), 4);
        assert_eq!(
            get_log_bytes(GetLogCdw10(0x02ff_0070), GetLogCdw11(0)),
            3072
        );
        assert_eq!(
            get_log_bytes(GetLogCdw10(u32::MAX), GetLogCdw11(u32::MAX)),
            1 << 34
        );
    }
}
