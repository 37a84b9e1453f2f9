//! Who a host is, which hosts may connect, and which see a namespace.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;

use crate::wire::Nqn;

/// Who is at the other end of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// HOSTNQN.
    pub nqn: Nqn,
    /// HOSTID.
    pub id: [u8; 16],
}

/// Which hosts may connect, or see a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostAccess {
    /// All.
    Any,
    /// Those with one of these NQNs. Shared: a thousand namespaces may have one list of
    /// thousands of hosts.
    Only(Arc<BTreeSet<Nqn>>),
}

impl HostAccess {
    /// These hosts.
    pub fn only(nqns: impl IntoIterator<Item = Nqn>) -> Self {
        Self::Only(Arc::new(nqns.into_iter().collect()))
    }

    /// Whether this host may.
    #[must_use]
    pub fn allows(&self, host: &Nqn) -> bool {
        match self {
            Self::Any => true,
            Self::Only(nqns) => nqns.contains(host),
        }
    }
}
