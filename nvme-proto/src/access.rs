//! Host identity, and the list of hosts with access to a subsystem or namespace.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;

use crate::wire::Nqn;

/// Identity of the host of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// HOSTNQN.
    pub nqn: Nqn,
    /// HOSTID.
    pub id: [u8; 16],
}

/// Hosts with access to a subsystem or namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostAccess {
    /// Every host.
    Any,
    /// Hosts with one of these NQNs.
    ///
    /// The list is shared, because thousands of namespaces may have the same thousands of hosts.
    Only(Arc<BTreeSet<Nqn>>),
}

impl HostAccess {
    /// Restricts access to hosts with these NQNs.
    pub fn only(nqns: impl IntoIterator<Item = Nqn>) -> Self {
        Self::Only(Arc::new(nqns.into_iter().collect()))
    }

    /// True if the host has access.
    #[must_use]
    pub fn allows(&self, host: &Nqn) -> bool {
        match self {
            Self::Any => true,
            Self::Only(nqns) => nqns.contains(host),
        }
    }
}
