//! Listener state and ANA states, shared by control plane and reactors.

use cairn_base::Trid;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use cairn_rdma::PKey;
use nvme_proto::ana::AnaStates;
use nvme_proto::limits::ANA_GROUPS_MAX;
use nvme_proto::wire::log::AnaState;

#[derive(Debug)]
pub struct ListenerShared {
    /// Unique in the process.
    pub id: u64,
    pub address: Trid,
    pub provider: &'static str,
    pub pkey: PKey,
    pub ana: AnaShared,
    pub removed: AtomicBool,
}

impl ListenerShared {
    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Relaxed)
    }
}

/// State of each ANA group. A change does not affect commands in progress.
#[derive(Debug)]
pub struct AnaShared([AtomicU8; ANA_GROUPS_MAX as usize]);

impl AnaShared {
    pub fn new(states: &AnaStates) -> Self {
        let shared = Self([const { AtomicU8::new(0) }; ANA_GROUPS_MAX as usize]);
        shared.store(states);
        shared
    }

    /// The configuration's check ensures that `anagrpid` is in `1..=ANA_GROUPS_MAX`.
    pub(crate) fn get(&self, anagrpid: u32) -> AnaState {
        AnaState(self.0[anagrpid as usize - 1].load(Ordering::Relaxed))
    }

    pub fn load(&self) -> AnaStates {
        let mut states = AnaStates::default();
        for anagrpid in 1..=ANA_GROUPS_MAX {
            states.set(anagrpid, self.get(anagrpid));
        }
        states
    }

    pub fn store(&self, states: &AnaStates) {
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
