//! ANA states by way of each listener: the listener's, with what the subsystem sets in place of them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use cairn_config::AnaOverride;
use nvme_proto::ana::AnaStates;
use nvme_proto::wire::log::AnaState;

use super::{State, SubsystemShared};
use crate::ana::ListenerShared;

impl State {
    /// The states that hosts get which come by this listener.
    pub(super) fn ana_by(&self, listener: &ListenerShared) -> AnaStates {
        // Whatever the configuration says, its hosts are to go on by other paths.
        if listener.is_removed() {
            return AnaStates::all(AnaState::INACCESSIBLE);
        }
        let states = listener.ana.load();
        let own = self.ana.get(&listener.address);
        own.map_or(states, |own| own.over(&states))
    }
}

impl SubsystemShared {
    /// Sets the states that are not the listeners', for connects to come; for hosts that are
    /// connected, [`Self::update_ana`] follows.
    pub(crate) fn set_ana(&self, ana: &BTreeMap<SocketAddr, AnaOverride>) {
        self.lock().ana.clone_from(ana);
    }

    /// Has hosts that came by this listener get the states that are in force now. Those whose states
    /// change receive an event.
    pub(crate) fn update_ana(&self, listener: &ListenerShared) {
        self.with(|state, _, actions| {
            let states = state.ana_by(listener);
            for controller in state.controllers.values() {
                if controller.shared.listener.id == listener.id {
                    controller.shared.ana.store(&states);
                }
            }
            state
                .subsystem
                .set_ana_states(listener.id, &states, actions);
        });
    }
}
