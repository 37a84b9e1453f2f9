//! Devices that do not answer.

use crate::work::{Operation, SendWork};

/// Work of their peers that a device's queue pairs do not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withheld {
    /// RDMA READs.
    Reads,
    /// SENDs.
    Sends,
}

impl Withheld {
    pub(super) fn is(self, work: &SendWork) -> bool {
        match work.op {
            Operation::Read(_) => self == Self::Reads,
            Operation::Send | Operation::SendWithInvalidate { .. } => self == Self::Sends,
            Operation::Write(_) => false,
        }
    }
}
