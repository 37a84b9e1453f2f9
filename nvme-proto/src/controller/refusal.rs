//! Error response to a command.

use crate::wire::Status;
use crate::wire::fabrics::ConnectInvalidParameter;

use super::Completion;

/// Error response to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Status of the completion.
    pub status: Status,
    /// Offset of the invalid byte in the SQE, if any.
    ///
    /// Reported as Parameter Error Location in the error log (Base, 5.16.1.2).
    pub byte: Option<u8>,
    /// DW0 of the response.
    pub result: u32,
}

/// Byte offsets of SQE fields.
pub mod byte {
    /// OPC.
    pub const OPC: u8 = 0;
    /// FUSE and PSDT.
    pub const FLAGS: u8 = 1;
    /// NSID, or FCTYPE in a Fabrics command.
    pub const NSID: u8 = 4;
    /// DPTR.
    pub const DPTR: u8 = 24;
    /// CDW10.
    pub const CDW10: u8 = 40;
    /// CDW11.
    pub const CDW11: u8 = 44;
    /// CDW12.
    pub const CDW12: u8 = 48;
    /// CDW14.
    pub const CDW14: u8 = 56;
    /// ATTRIB of the property commands.
    pub const ATTRIB: u8 = 40;
    /// OFST of the property commands.
    pub const OFST: u8 = 44;
    /// VALUE of Property Set.
    pub const VALUE: u8 = 48;
}

impl Refusal {
    /// Creates a permanent error, with DNR set.
    #[must_use]
    pub const fn new(status: Status) -> Self {
        Self {
            status: status.with_dnr(),
            byte: None,
            result: 0,
        }
    }

    /// Creates a temporary error, with DNR clear.
    #[must_use]
    pub const fn transient(status: Status) -> Self {
        Self {
            status,
            byte: None,
            result: 0,
        }
    }

    /// Invalid Field in Command, at this byte of the SQE.
    #[must_use]
    pub const fn field(byte: u8) -> Self {
        Self::new(Status::INVALID_FIELD).at(byte)
    }

    /// Connect Invalid Parameters, with the parameter in DW0 (Base, 6.3).
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

    /// Refusal of an I/O queue's Connect whose controller is not the host's, or not any more.
    ///
    /// DNR is clear: a host that paused after its admin Connect can lose that controller, and must
    /// connect anew. Linux removes its controller if DNR is set.
    #[must_use]
    pub const fn of_departed(parameter: ConnectInvalidParameter) -> Self {
        let mut refusal = Self::connect(parameter);
        refusal.status = Status::CONNECT_INVALID_PARAMETERS;
        refusal
    }

    /// Returns a copy with this invalid byte.
    #[must_use]
    pub const fn at(mut self, byte: u8) -> Self {
        self.byte = Some(byte);
        self
    }

    /// Completion of the command with this error.
    #[must_use]
    pub const fn completion(self, cid: u16) -> Completion {
        Completion {
            cid,
            status: self.status,
            result: self.result as u64,
        }
    }
}
