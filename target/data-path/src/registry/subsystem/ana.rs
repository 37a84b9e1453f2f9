//! ANA states by listener: the listener's states, with the subsystem's overrides.

use cairn_base::Trid;
use std::collections::BTreeMap;

use cairn_config::AnaOverride;
use nvme_proto::ana::AnaStates;
use nvme_proto::wire::log::AnaState;

use super::{SubsystemShared, SubsystemState};
use crate::ana::ListenerShared;

impl SubsystemState {
    pub(super) fn ana_by(&self, listener: &ListenerShared) -> AnaStates {
        // Hosts of a removed listener must use other paths.
        if listener.is_removed() {
            return AnaStates::all(AnaState::INACCESSIBLE);
        }
        let states = listener.ana.load();
        let own = self.ana.get(&listener.address);
        own.map_or(states, |own| own.over(&states))
    }
}

impl SubsystemShared {
    /// Sets the overrides for later Connects; [`Self::update_ana`] applies them to connected hosts.
    pub fn set_ana(&self, ana: &BTreeMap<Trid, AnaOverride>) {
        self.lock().ana.clone_from(ana);
    }

    pub fn update_ana(&self, listener: &ListenerShared) {
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
