//! Who a host is, and which hosts may connect.

use alloc::vec::Vec;

use crate::wire::Nqn;

/// Who is at the other end of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// HOSTNQN.
    pub nqn: Nqn,
    /// HOSTID.
    pub id: [u8; 16],
}

/// Which hosts may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostAccess {
    /// All.
    Any,
    /// Those with one of these NQNs.
    Only(Vec<Nqn>),
}

impl HostAccess {
    /// Whether this host may.
    #[must_use]
    pub fn allows(&self, host: &Nqn) -> bool {
        match self {
            Self::Any => true,
            Self::Only(nqns) => nqns.contains(host),
        }
    }
}
