//! ANA states, as reactors read them while the control plane changes them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use cairn_rdma::PKey;
use nvme_proto::ana::AnaStates;
use nvme_proto::limits::ANA_GROUPS_MAX;
use nvme_proto::wire::log::AnaState;

/// What the queues that came by one listener share of it.
#[derive(Debug)]
pub(crate) struct ListenerShared {
    /// Distinguishes listeners, those of the past included.
    pub(crate) id: u64,
    /// Its address in the configuration, by which subsystems name it.
    pub(crate) address: SocketAddr,
    /// What speaks RDMA there.
    pub(crate) provider: &'static str,
    /// Of which partition it is.
    pub(crate) pkey: PKey,
    /// How good a way to each ANA group it is, where a subsystem sets nothing else.
    pub(crate) ana: AnaShared,
    /// Whether a reload took it away, or an administrator drains it.
    pub(crate) removed: AtomicBool,
}

impl ListenerShared {
    /// Whether no host may come by it any more.
    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Relaxed)
    }
}

/// The state of each ANA group by way of one listener. That of a controller is read by every I/O and
/// written by a reload: what is under way when it changes ends as it began.
#[derive(Debug)]
pub(crate) struct AnaShared([AtomicU8; ANA_GROUPS_MAX as usize]);

impl AnaShared {
    /// With these states.
    pub(crate) fn new(states: &AnaStates) -> Self {
        let shared = Self([const { AtomicU8::new(0) }; ANA_GROUPS_MAX as usize]);
        shared.store(states);
        shared
    }

    /// The state of a group. The configuration was checked: there is one.
    pub(crate) fn get(&self, anagrpid: u32) -> AnaState {
        AnaState(self.0[anagrpid as usize - 1].load(Ordering::Relaxed))
    }

    /// All of them.
    pub(crate) fn load(&self) -> AnaStates {
        let mut states = AnaStates::default();
        for anagrpid in 1..=ANA_GROUPS_MAX {
            states.set(anagrpid, self.get(anagrpid));
        }
        states
    }

    /// Sets all of them.
    pub(crate) fn store(&self, states: &AnaStates) {
        for (anagrpid, state) in (1..).zip(&self.0) {
            state.store(states.get(anagrpid).0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_loaded() {
        let shared = AnaShared::new(&AnaStates::default());
        let mut states = AnaStates::default();
        states.set(1, AnaState::CHANGE);
        states.set(128, AnaState::INACCESSIBLE);
        shared.store(&states);
        assert_eq!(shared.get(1), AnaState::CHANGE);
        assert_eq!(shared.load(), states);
    }
}
