use crate::work::{Operation, SendWork};

/// Kind of work request that a device delays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withheld {
    /// RDMA READs of peers.
    Reads,
    /// SENDs of peers.
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
