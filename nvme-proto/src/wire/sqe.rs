//! Submission queue entries (Base, 3.3.3.1; Fabrics: 3.3.3.1.1).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::sgl::SglDescriptor;
use super::status::Status;

/// Bytes of a submission queue entry.
pub const SQE_BYTES: usize = 64;

codes! {
    /// Admin opcodes (Base, figure 138).
    pub struct AdminOpcode(u8);
    0x00 DELETE_IO_SQ "Delete I/O Submission Queue";
    0x01 CREATE_IO_SQ "Create I/O Submission Queue";
    0x02 GET_LOG_PAGE "Get Log Page";
    0x04 DELETE_IO_CQ "Delete I/O Completion Queue";
    0x05 CREATE_IO_CQ "Create I/O Completion Queue";
    0x06 IDENTIFY "Identify";
    0x08 ABORT "Abort";
    0x09 SET_FEATURES "Set Features";
    0x0a GET_FEATURES "Get Features";
    0x0c ASYNC_EVENT_REQUEST "Asynchronous Event Request";
    0x0d NAMESPACE_MANAGEMENT "Namespace Management";
    0x10 FIRMWARE_COMMIT "Firmware Commit";
    0x11 FIRMWARE_IMAGE_DOWNLOAD "Firmware Image Download";
    0x14 DEVICE_SELF_TEST "Device Self-test";
    0x15 NAMESPACE_ATTACHMENT "Namespace Attachment";
    0x18 KEEP_ALIVE "Keep Alive";
    0x19 DIRECTIVE_SEND "Directive Send";
    0x1a DIRECTIVE_RECEIVE "Directive Receive";
    0x38 CROSS_CONTROLLER_RESET "Cross-Controller Reset";
    0x7f FABRICS "Fabrics Command";
    0x80 FORMAT_NVM "Format NVM";
    0x81 SECURITY_SEND "Security Send";
    0x82 SECURITY_RECEIVE "Security Receive";
    0x84 SANITIZE "Sanitize";
}

codes! {
    /// I/O opcodes of the NVM command set (NVM, figure 15).
    pub struct NvmOpcode(u8);
    0x00 FLUSH "Flush";
    0x01 WRITE "Write";
    0x02 READ "Read";
    0x04 WRITE_UNCORRECTABLE "Write Uncorrectable";
    0x05 COMPARE "Compare";
    0x08 WRITE_ZEROES "Write Zeroes";
    0x09 DATASET_MANAGEMENT "Dataset Management";
    0x0c VERIFY "Verify";
    0x0d RESERVATION_REGISTER "Reservation Register";
    0x0e RESERVATION_REPORT "Reservation Report";
    0x11 RESERVATION_ACQUIRE "Reservation Acquire";
    0x15 RESERVATION_RELEASE "Reservation Release";
    0x18 CANCEL "Cancel";
    0x19 COPY "Copy";
    0x7f FABRICS "Fabrics Command";
}

codes! {
    /// FCTYPE: type of a Fabrics command (Base, figure 389).
    pub struct FabricsType(u8);
    0x00 PROPERTY_SET "Property Set";
    0x01 CONNECT "Connect";
    0x04 PROPERTY_GET "Property Get";
    0x05 AUTHENTICATION_SEND "Authentication Send";
    0x06 AUTHENTICATION_RECEIVE "Authentication Receive";
    0x08 DISCONNECT "Disconnect";
}

/// Opcode of Fabrics commands.
pub const OPCODE_FABRICS: u8 = 0x7f;

/// Submission queue entry in the common command format.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Sqe {
    /// Opcode.
    pub opc: u8,
    /// FUSE in bits 1:0, PSDT in bits 7:6.
    pub flags: u8,
    /// CID, unique among the queue's commands in flight.
    pub cid: U16,
    /// NSID; 0 if unused, FFFFFFFFh for all. In Fabrics commands, the first byte is FCTYPE.
    pub nsid: U32,
    /// Command specific.
    pub cdw2: U32,
    /// Command specific.
    pub cdw3: U32,
    /// Metadata pointer.
    pub mptr: U64,
    /// Data pointer; SGL descriptor 1 over Fabrics.
    pub dptr: SglDescriptor,
    /// Command specific.
    pub cdw10: U32,
    /// Command specific.
    pub cdw11: U32,
    /// Command specific.
    pub cdw12: U32,
    /// Command specific.
    pub cdw13: U32,
    /// Command specific.
    pub cdw14: U32,
    /// Command specific.
    pub cdw15: U32,
}
assert_size!(Sqe = SQE_BYTES);

/// PSDT: format of the data pointer (Base, figure 87).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Psdt {
    /// 00b: PRPs, not allowed over Fabrics.
    Prp,
    /// 01b: SGL; MPTR addresses a contiguous metadata buffer.
    Sgl,
    /// 10b: SGL; MPTR addresses an SGL segment.
    SglMetadataSgl,
    /// 11b: reserved.
    Reserved,
}

impl Sqe {
    /// `flags` with PSDT 01b, for Fabrics.
    pub const FLAGS_SGL: u8 = 0b01 << 6;

    /// Creates a command with these fields, PSDT and an empty data pointer; other fields are 0.
    ///
    /// `opc` is an [`AdminOpcode`] or [`NvmOpcode`].
    #[must_use]
    pub fn new(cid: u16, opc: u8, nsid: u32) -> Self {
        let mut sqe: Self = zerocopy::FromZeros::new_zeroed();
        sqe.opc = opc;
        sqe.flags = Self::FLAGS_SGL;
        sqe.cid = U16::new(cid);
        sqe.nsid = U32::new(nsid);
        sqe.dptr = SglDescriptor::none();
        sqe
    }

    /// Splits a capsule into SQE and in-capsule data; `None` if shorter than an SQE.
    #[must_use]
    pub fn split_capsule(capsule: &[u8]) -> Option<(&Self, &[u8])> {
        Self::ref_from_prefix(capsule).ok()
    }

    /// FUSE: 0 for a normal command, 1 and 2 for a fused pair.
    #[must_use]
    pub const fn fuse(&self) -> u8 {
        self.flags & 0b11
    }

    /// Clears FUSE.
    pub const fn unfuse(&mut self) {
        self.flags &= !0b11;
    }

    /// Format of the data pointer.
    #[must_use]
    pub const fn psdt(&self) -> Psdt {
        match self.flags >> 6 {
            0b00 => Psdt::Prp,
            0b01 => Psdt::Sgl,
            0b10 => Psdt::SglMetadataSgl,
            _ => Psdt::Reserved,
        }
    }

    /// Reserved bits 5:2 of `flags`, not shifted.
    #[must_use]
    pub const fn reserved_flags(&self) -> u8 {
        self.flags & 0b0011_1100
    }

    /// Checks `flags` for Fabrics: not fused, SGL, reserved bits 0 (Base, figure 87).
    ///
    /// # Errors
    /// Invalid Field in Command.
    pub const fn check_flags(&self) -> Result<(), Status> {
        let sgl = matches!(self.psdt(), Psdt::Sgl | Psdt::SglMetadataSgl);
        if self.fuse() == 0 && sgl && self.reserved_flags() == 0 {
            Ok(())
        } else {
            Err(Status::INVALID_FIELD.with_dnr())
        }
    }

    /// True if the opcode is 7Fh (Fabrics).
    #[must_use]
    pub const fn is_fabrics(&self) -> bool {
        self.opc == OPCODE_FABRICS
    }

    /// FCTYPE; valid only for a Fabrics command.
    #[must_use]
    pub fn fctype(&self) -> FabricsType {
        FabricsType(self.nsid.get() as u8)
    }

    /// CDW10 and CDW11 as one number: SLBA of NVM commands.
    #[must_use]
    pub fn cdw10_11(&self) -> u64 {
        u64::from(self.cdw10.get()) | u64::from(self.cdw11.get()) << 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn a_short_capsule_is_no_capsule() {
        assert!(Sqe::split_capsule(&[0; 63]).is_none());
        let (_, data) = Sqe::split_capsule(&[0; 64]).unwrap();
        assert!(data.is_empty());
        let (_, data) = Sqe::split_capsule(&[0; 4160]).unwrap();
        assert_eq!(data.len(), 4096);
    }

    #[test]
    fn fctype_is_the_first_byte_of_nsid() {
        let mut bytes = [0u8; 64];
        bytes[0] = 0x7f;
        bytes[4] = 0x04;
        bytes[5] = 0xaa;
        let sqe = Sqe::read_from_bytes(&bytes).unwrap();
        assert!(sqe.is_fabrics());
        assert_eq!(sqe.fctype(), FabricsType::PROPERTY_GET);
        assert_eq!(Sqe::new_zeroed().fctype(), FabricsType::PROPERTY_SET);
    }

    #[test]
    fn flags_split_into_fuse_psdt_and_reserved() {
        let mut sqe = Sqe::new_zeroed();
        sqe.flags = 0b0110_0110;
        assert_eq!(sqe.fuse(), 2);
        assert_eq!(sqe.psdt(), Psdt::Sgl);
        assert_eq!(sqe.reserved_flags(), 0b0010_0100);
    }
}
