//! Errors of admin commands.

use crate::wire::Status;
use crate::wire::fabrics::ConnectInvalidParameter;

use super::Completion;

/// Error response to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Status, with DNR unless a retry may succeed.
    pub status: Status,
    /// Byte offset of the invalid SQE field, if any (Base, 5.16.1.2).
    pub byte: Option<u8>,
    /// DW0 of the completion.
    pub result: u32,
}

/// Byte offsets of SQE fields, for [`Refusal::byte`](super::Refusal::byte).
pub mod byte {
    /// Opcode.
    pub const OPC: u8 = 0;
    /// FUSE and PSDT.
    pub const FLAGS: u8 = 1;
    /// NSID, or FCTYPE.
    pub const NSID: u8 = 4;
    /// Data pointer.
    pub const DPTR: u8 = 24;
    /// Command dword 10.
    pub const CDW10: u8 = 40;
    /// Command dword 11.
    pub const CDW11: u8 = 44;
    /// Command dword 12.
    pub const CDW12: u8 = 48;
    /// Command dword 14.
    pub const CDW14: u8 = 56;
    /// ATTRIB of property commands.
    pub const ATTRIB: u8 = 40;
    /// OFST of property commands.
    pub const OFST: u8 = 44;
    /// VALUE of Property Set.
    pub const VALUE: u8 = 48;
}

impl Refusal {
    /// Creates an error with DNR set.
    #[must_use]
    pub const fn new(status: Status) -> Self {
        Self {
            status: status.with_dnr(),
            byte: None,
            result: 0,
        }
    }

    /// Creates an error without DNR: a retry may succeed.
    #[must_use]
    pub const fn transient(status: Status) -> Self {
        Self {
            status,
            byte: None,
            result: 0,
        }
    }

    /// Creates Invalid Field in Command for the SQE field at this offset.
    #[must_use]
    pub const fn field(byte: u8) -> Self {
        Self::new(Status::INVALID_FIELD).at(byte)
    }

    /// Creates Connect Invalid Parameters; DW0 locates `parameter` (Base, 6.3).
    #[must_use]
    pub const fn connect(parameter: ConnectInvalidParameter) -> Self {
        let byte = if parameter.in_data() {
            None
        } else {
            Some(parameter.ipo() as u8)
        };
        Self {
            byte,
            result: parameter.0,
            ..Self::new(Status::CONNECT_INVALID_PARAMETERS)
        }
    }

    /// Creates the error for the Connect of an I/O queue whose controller has ended or belongs to
    /// another host.
    ///
    /// DNR is clear: a controller may end before its host connects the I/O queues, and Linux
    /// creates a new controller only without DNR.
    #[must_use]
    pub const fn of_departed(parameter: ConnectInvalidParameter) -> Self {
        let mut refusal = Self::connect(parameter);
        refusal.status = Status::CONNECT_INVALID_PARAMETERS;
        refusal
    }

    /// Returns a copy with the byte offset of the invalid SQE field.
    #[must_use]
    pub const fn at(mut self, byte: u8) -> Self {
        self.byte = Some(byte);
        self
    }

    /// Returns the completion of command `cid` with this error.
    #[must_use]
    pub const fn completion(self, cid: u16) -> Completion {
        Completion {
            cid,
            status: self.status,
            result: self.result as u64,
        }
    }
}
