//! Status codes (Base, 3.3.3.2.1; NVM, 3.1; Fabrics: Base, figure 97).

use core::fmt;

/// Status field of a completion, without phase tag.
///
/// SC in bits 7:0, SCT in 10:8, CRD in 12:11, M in 13, DNR in 14.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u16);

/// SCT 0h: Generic Command Status.
pub const SCT_GENERIC: u8 = 0x0;
/// SCT 1h: Command Specific Status.
pub const SCT_COMMAND_SPECIFIC: u8 = 0x1;
/// SCT 2h: Media and Data Integrity Errors.
pub const SCT_MEDIA: u8 = 0x2;
/// SCT 3h: Path Related Status.
pub const SCT_PATH: u8 = 0x3;
/// SCT 7h: Vendor Specific.
pub const SCT_VENDOR: u8 = 0x7;

const SC_SCT_MASK: u16 = 0x07ff;
const CRD_SHIFT: u32 = 11;
const MORE: u16 = 1 << 13;
const DNR: u16 = 1 << 14;
const ALL_BITS: u16 = 0x7fff;

/// Declares status codes; `or` adds a name to a code whose meaning depends on the command set.
macro_rules! status_codes {
    ($($sct:literal { $($sc:literal $name:ident $text:literal $(or $alias:ident)*;)+ })+) => {
        impl Status {
            $($(
                #[doc = $text]
                pub const $name: Self = Self::new($sct, $sc);
                $(
                    #[doc = $text]
                    pub const $alias: Self = Self::$name;
                )*
            )+)+

            /// Name in the specification; `None` for an undefined code.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match (self.sct(), self.sc()) {
                    $($(($sct, $sc) => Some($text),)+)+
                    _ => None,
                }
            }
        }
    };
}

status_codes! {
    0 {
        0x00 SUCCESS "Successful Completion";
        0x01 INVALID_OPCODE "Invalid Command Opcode";
        0x02 INVALID_FIELD "Invalid Field in Command";
        0x03 COMMAND_ID_CONFLICT "Command ID Conflict";
        0x04 DATA_TRANSFER_ERROR "Data Transfer Error";
        0x05 ABORTED_POWER_LOSS "Commands Aborted due to Power Loss Notification";
        0x06 INTERNAL_ERROR "Internal Error";
        0x07 ABORT_REQUESTED "Command Abort Requested";
        0x08 ABORTED_SQ_DELETION "Command Aborted due to SQ Deletion";
        0x09 ABORTED_FAILED_FUSED "Command Aborted due to Failed Fused Command";
        0x0a ABORTED_MISSING_FUSED "Command Aborted due to Missing Fused Command";
        0x0b INVALID_NAMESPACE_OR_FORMAT "Invalid Namespace or Format";
        0x0c COMMAND_SEQUENCE_ERROR "Command Sequence Error";
        0x0d INVALID_SGL_SEGMENT_DESCRIPTOR "Invalid SGL Segment Descriptor";
        0x0e INVALID_NUMBER_OF_SGL_DESCRIPTORS "Invalid Number of SGL Descriptors";
        0x0f DATA_SGL_LENGTH_INVALID "Data SGL Length Invalid";
        0x10 METADATA_SGL_LENGTH_INVALID "Metadata SGL Length Invalid";
        0x11 SGL_DESCRIPTOR_TYPE_INVALID "SGL Descriptor Type Invalid";
        0x12 INVALID_USE_OF_CMB "Invalid Use of Controller Memory Buffer";
        0x13 PRP_OFFSET_INVALID "PRP Offset Invalid";
        0x14 ATOMIC_WRITE_UNIT_EXCEEDED "Atomic Write Unit Exceeded";
        0x15 OPERATION_DENIED "Operation Denied";
        0x16 SGL_OFFSET_INVALID "SGL Offset Invalid";
        0x18 HOST_IDENTIFIER_INCONSISTENT_FORMAT "Host Identifier Inconsistent Format";
        0x19 KEEP_ALIVE_TIMER_EXPIRED "Keep Alive Timer Expired";
        0x1a KEEP_ALIVE_TIMEOUT_INVALID "Keep Alive Timeout Invalid";
        0x1b ABORTED_PREEMPT "Command Aborted due to Preempt and Abort";
        0x1c SANITIZE_FAILED "Sanitize Failed";
        0x1d SANITIZE_IN_PROGRESS "Sanitize In Progress";
        0x1e SGL_DATA_BLOCK_GRANULARITY_INVALID "SGL Data Block Granularity Invalid";
        0x1f NOT_SUPPORTED_FOR_QUEUE_IN_CMB "Command Not Supported for Queue in CMB";
        0x20 NAMESPACE_WRITE_PROTECTED "Namespace is Write Protected";
        0x21 COMMAND_INTERRUPTED "Command Interrupted";
        0x22 TRANSIENT_TRANSPORT_ERROR "Transient Transport Error";
        0x23 PROHIBITED_BY_LOCKDOWN "Command Prohibited by Command and Feature Lockdown";
        0x24 ADMIN_COMMAND_MEDIA_NOT_READY "Admin Command Media Not Ready";
        0x80 LBA_OUT_OF_RANGE "LBA Out of Range";
        0x81 CAPACITY_EXCEEDED "Capacity Exceeded";
        0x82 NAMESPACE_NOT_READY "Namespace Not Ready";
        0x83 RESERVATION_CONFLICT "Reservation Conflict";
        0x84 FORMAT_IN_PROGRESS "Format In Progress";
    }
    1 {
        0x00 COMPLETION_QUEUE_INVALID "Completion Queue Invalid";
        0x01 INVALID_QUEUE_IDENTIFIER "Invalid Queue Identifier";
        0x02 INVALID_QUEUE_SIZE "Invalid Queue Size";
        0x03 ABORT_COMMAND_LIMIT_EXCEEDED "Abort Command Limit Exceeded";
        0x05 ASYNC_EVENT_REQUEST_LIMIT_EXCEEDED "Asynchronous Event Request Limit Exceeded";
        0x06 INVALID_FIRMWARE_SLOT "Invalid Firmware Slot";
        0x07 INVALID_FIRMWARE_IMAGE "Invalid Firmware Image";
        0x08 INVALID_INTERRUPT_VECTOR "Invalid Interrupt Vector";
        0x09 INVALID_LOG_PAGE "Invalid Log Page";
        0x0a INVALID_FORMAT "Invalid Format";
        0x0b FIRMWARE_NEEDS_CONVENTIONAL_RESET "Firmware Activation Requires Conventional Reset";
        0x0c INVALID_QUEUE_DELETION "Invalid Queue Deletion";
        0x0d FEATURE_NOT_SAVEABLE "Feature Identifier Not Saveable";
        0x0e FEATURE_NOT_CHANGEABLE "Feature Not Changeable";
        0x0f FEATURE_NOT_NAMESPACE_SPECIFIC "Feature Not Namespace Specific";
        0x10 FIRMWARE_NEEDS_SUBSYSTEM_RESET "Firmware Activation Requires NVM Subsystem Reset";
        0x11 FIRMWARE_NEEDS_CONTROLLER_RESET "Firmware Activation Requires Controller Level Reset";
        0x12 FIRMWARE_NEEDS_MAX_TIME "Firmware Activation Requires Maximum Time Violation";
        0x13 FIRMWARE_ACTIVATION_PROHIBITED "Firmware Activation Prohibited";
        0x14 OVERLAPPING_RANGE "Overlapping Range";
        0x15 NAMESPACE_INSUFFICIENT_CAPACITY "Namespace Insufficient Capacity";
        0x16 NAMESPACE_ID_UNAVAILABLE "Namespace Identifier Unavailable";
        0x18 NAMESPACE_ALREADY_ATTACHED "Namespace Already Attached";
        0x19 NAMESPACE_IS_PRIVATE "Namespace Is Private";
        0x1a NAMESPACE_NOT_ATTACHED "Namespace Not Attached";
        0x1b THIN_PROVISIONING_NOT_SUPPORTED "Thin Provisioning Not Supported";
        0x1c CONTROLLER_LIST_INVALID "Controller List Invalid";
        0x1d SELF_TEST_IN_PROGRESS "Device Self-test In Progress";
        0x1e BOOT_PARTITION_WRITE_PROHIBITED "Boot Partition Write Prohibited";
        0x1f INVALID_CONTROLLER_IDENTIFIER "Invalid Controller Identifier";
        0x24 ANA_GROUP_ID_INVALID "ANA Group Identifier Invalid";
        0x25 ANA_ATTACH_FAILED "ANA Attach Failed";
        0x29 IO_COMMAND_SET_NOT_SUPPORTED "I/O Command Set Not Supported";
        0x2a IO_COMMAND_SET_NOT_ENABLED "I/O Command Set Not Enabled";
        0x2b IO_COMMAND_SET_COMBINATION_REJECTED "I/O Command Set Combination Rejected";
        0x2c INVALID_IO_COMMAND_SET "Invalid I/O Command Set";
        0x3f CROSS_CONTROLLER_RESET_IN_PROGRESS "Cross-Controller Reset in Progress";
        0x40 CROSS_CONTROLLER_RESET_LOG_FULL "Cross-Controller Reset Log Page Full";
        0x41 CROSS_CONTROLLER_RESET_LIMIT_EXCEEDED "Cross-Controller Reset Limit Exceeded";
        0x80 CONNECT_INCOMPATIBLE_FORMAT
            "Connect Incompatible Format, or Conflicting Attributes" or CONFLICTING_ATTRIBUTES;
        0x81 CONNECT_CONTROLLER_BUSY
            "Connect Controller Busy, or Invalid Protection Information" or INVALID_PROTECTION_INFORMATION;
        0x82 CONNECT_INVALID_PARAMETERS
            "Connect Invalid Parameters, or Attempted Write to Read Only Range" or WRITE_TO_READ_ONLY_RANGE;
        0x83 CONNECT_RESTART_DISCOVERY
            "Connect Restart Discovery, or Command Size Limit Exceeded" or COMMAND_SIZE_LIMIT_EXCEEDED;
        0x84 CONNECT_INVALID_HOST "Connect Invalid Host" or INVALID_COMMAND_ID;
        0x85 INVALID_QUEUE_TYPE "Invalid Queue Type";
        0x87 OVERLAPPING_IO_RANGE "Overlapping I/O Range";
        0x90 DISCOVER_RESTART "Discover Restart";
        0x91 AUTHENTICATION_REQUIRED "Authentication Required";
    }
    2 {
        0x80 WRITE_FAULT "Write Fault";
        0x81 UNRECOVERED_READ_ERROR "Unrecovered Read Error";
        0x82 GUARD_CHECK_ERROR "End-to-end Guard Check Error";
        0x83 APPLICATION_TAG_CHECK_ERROR "End-to-end Application Tag Check Error";
        0x84 REFERENCE_TAG_CHECK_ERROR "End-to-end Reference Tag Check Error";
        0x85 COMPARE_FAILURE "Compare Failure";
        0x86 ACCESS_DENIED "Access Denied";
        0x87 DEALLOCATED_OR_UNWRITTEN_BLOCK "Deallocated or Unwritten Logical Block";
        0x88 STORAGE_TAG_CHECK_ERROR "End-to-end Storage Tag Check Error";
    }
    3 {
        0x00 INTERNAL_PATH_ERROR "Internal Path Error";
        0x01 ANA_PERSISTENT_LOSS "Asymmetric Access Persistent Loss";
        0x02 ANA_INACCESSIBLE "Asymmetric Access Inaccessible";
        0x03 ANA_TRANSITION "Asymmetric Access Transition";
        0x60 CONTROLLER_PATHING_ERROR "Controller Pathing Error";
        0x70 HOST_PATHING_ERROR "Host Pathing Error";
        0x71 ABORTED_BY_HOST "Command Aborted By Host";
    }
}

impl Status {
    /// Creates a status without CRD, M and DNR.
    #[must_use]
    pub const fn new(sct: u8, sc: u8) -> Self {
        Self(((sct & 7) as u16) << 8 | sc as u16)
    }

    /// Creates a status from a CQE's status field, without phase tag.
    #[must_use]
    pub const fn from_field(field: u16) -> Self {
        Self(field >> 1)
    }

    /// Returns the status field of a CQE with this phase tag.
    #[must_use]
    pub const fn to_field(self, phase: bool) -> u16 {
        self.0 << 1 | phase as u16
    }

    /// Creates a status from the 15-bit number that Linux prints.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & ALL_BITS)
    }

    /// Returns the 15-bit number that Linux prints.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Status code type.
    #[must_use]
    pub const fn sct(self) -> u8 {
        (self.0 >> 8) as u8 & 7
    }

    /// Status code.
    #[must_use]
    pub const fn sc(self) -> u8 {
        self.0 as u8
    }

    /// CRD: 1 to 3 for a retry delay of CRDT1 to CRDT3; 0 for none.
    #[must_use]
    pub const fn crd(self) -> u8 {
        (self.0 >> CRD_SHIFT) as u8 & 3
    }

    /// M: the Error Information log has more information.
    #[must_use]
    pub const fn more(self) -> bool {
        self.0 & MORE != 0
    }

    /// DNR: a retry is expected to fail.
    #[must_use]
    pub const fn dnr(self) -> bool {
        self.0 & DNR != 0
    }

    /// Returns a copy with DNR.
    #[must_use]
    pub const fn with_dnr(self) -> Self {
        Self(self.0 | DNR)
    }

    /// Returns a copy with M.
    #[must_use]
    pub const fn with_more(self) -> Self {
        Self(self.0 | MORE)
    }

    /// Returns a copy with this CRD.
    #[must_use]
    pub const fn with_crd(self, crd: u8) -> Self {
        Self(self.0 & !(3 << CRD_SHIFT) | ((crd & 3) as u16) << CRD_SHIFT)
    }

    /// Returns SCT and SC only.
    #[must_use]
    pub const fn code(self) -> Self {
        Self(self.0 & SC_SCT_MASK)
    }

    /// True if the command succeeded.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 & SC_SCT_MASK == 0
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name().unwrap_or("Unknown Status"))?;
        write!(f, " ({:X}/{:02X}h", self.sct(), self.sc())?;
        if self.dnr() {
            f.write_str(", do not retry")?;
        }
        f.write_str(")")
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for Status {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn field_keeps_every_bit() {
        for field in 0..=u16::MAX {
            assert_eq!(Status::from_field(field).to_field(field & 1 != 0), field);
        }
    }

    #[test]
    fn parts_and_setters_agree() {
        let status = Status::COMPARE_FAILURE.with_dnr().with_more().with_crd(2);
        assert_eq!(
            (
                status.sct(),
                status.sc(),
                status.crd(),
                status.more(),
                status.dnr()
            ),
            (2, 0x85, 2, true, true)
        );
        assert_eq!(status.code(), Status::COMPARE_FAILURE);
        assert_eq!(status.bits(), 0x7285);
        assert_eq!(Status::INVALID_FIELD.with_dnr().bits(), 0x4002);
        assert!(Status::SUCCESS.with_crd(1).is_success());
        assert!(!status.is_success());
    }

    #[test]
    fn display_names_the_code() {
        assert_eq!(
            Status::INVALID_FIELD.to_string(),
            "Invalid Field in Command (0/02h)"
        );
        assert_eq!(
            Status::CONNECT_INVALID_HOST.with_dnr().to_string(),
            "Connect Invalid Host (1/84h, do not retry)"
        );
        assert_eq!(Status::new(7, 0xc0).to_string(), "Unknown Status (7/C0h)");
    }
}
