use alloc::collections::BTreeSet;
use alloc::sync::Arc;

use crate::wire::Nqn;

/// Identity of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// HOSTNQN of the Connect.
    pub nqn: Nqn,
    /// HOSTID of the Connect.
    pub id: [u8; 16],
}

/// Hosts that may access a subsystem or namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostAccess {
    /// Every host.
    Any,
    /// HOSTNQNs with access. Thousands of namespaces may share one set.
    Only(Arc<BTreeSet<Nqn>>),
}

impl HostAccess {
    /// Allows only the hosts with these NQNs.
    pub fn only(nqns: impl IntoIterator<Item = Nqn>) -> Self {
        Self::Only(Arc::new(nqns.into_iter().collect()))
    }

    /// True if the host with this NQN has access.
    #[must_use]
    pub fn allows(&self, host: &Nqn) -> bool {
        match self {
            Self::Any => true,
            Self::Only(nqns) => nqns.contains(host),
        }
    }
}
