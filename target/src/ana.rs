//! Listener state and ANA states, shared by control plane and reactors.

use cairn_base::Trid;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use cairn_rdma::PKey;
use nvme_proto::ana::AnaStates;
use nvme_proto::limits::ANA_GROUPS_MAX;
use nvme_proto::wire::log::AnaState;

#[derive(Debug)]
pub(crate) struct ListenerShared {
    /// Unique in the process.
    pub(crate) id: u64,
    pub(crate) address: Trid,
    pub(crate) provider: &'static str,
    pub(crate) pkey: PKey,
    pub(crate) ana: AnaShared,
    pub(crate) removed: AtomicBool,
}

impl ListenerShared {
    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Relaxed)
    }
}

/// ANA states of all groups, read by every I/O command. Changes do not affect commands in progress.
#[derive(Debug)]
pub(crate) struct AnaShared([AtomicU8; ANA_GROUPS_MAX as usize]);

impl AnaShared {
    pub(crate) fn new(states: &AnaStates) -> Self {
        let shared = Self([const { AtomicU8::new(0) }; ANA_GROUPS_MAX as usize]);
        shared.store(states);
        shared
    }

    /// `anagrpid` must be in `1..=ANA_GROUPS_MAX`, as the configuration's check ensures.
    pub(crate) fn get(&self, anagrpid: u32) -> AnaState {
        AnaState(self.0[anagrpid as usize - 1].load(Ordering::Relaxed))
    }

    pub(crate) fn load(&self) -> AnaStates {
        let mut states = AnaStates::default();
        for anagrpid in 1..=ANA_GROUPS_MAX {
            states.set(anagrpid, self.get(anagrpid));
        }
        states
    }

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
