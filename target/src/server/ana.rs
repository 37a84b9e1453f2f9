//! Changes of ANA states by a reload or a drain, for listeners and for subsystems that override
//! them.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use cairn_config::{Config, Nqn, Subsystem};

use super::control::Control;
use super::lookup::of_nqn;
use crate::ana::ListenerShared;

impl Control {
    /// Applies the new configuration of listeners that stay open.
    ///
    /// Most settings hold for later connections; ANA states also for existing ones.
    pub(super) fn change_ana(&mut self, config: &Config) {
        let mut changed = Vec::new();
        for listener in &mut self.listeners {
            let same = |config: &&cairn_config::Listener| listener.serves(config);
            let config = config.listeners.iter().find(same);
            listener.config = config.expect("the others were closed").clone();
            let (shared, states) = (&listener.shared, &listener.config.ana);
            if shared.ana.load() != *states {
                shared.ana.store(states);
                changed.push((listener.address(), Arc::clone(shared)));
            }
        }
        // Before hosts are notified of listener states, so that each host gets at most one event.
        let others = self.change_overrides(config);
        for (address, listener) in changed {
            self.update_ana(&listener);
            // Cause: a reload.
            tracing::info!(%address, "ANA states changed");
        }
        for (nqn, addresses) in others {
            let Some(export) = self.exports.get(&nqn) else {
                continue;
            };
            let open = self.listeners.iter().map(|listener| &listener.shared);
            for listener in open.filter(|one| addresses.contains(&one.address)) {
                export.subsystem.update_ana(listener);
                // Cause: a reload.
                tracing::info!(
                    subsystem = %nqn, listener = %listener.address,
                    "the ANA states of a subsystem have changed"
                );
            }
        }
    }

    /// Sets the ANA states that subsystems override; returns the listeners whose states changed.
    fn change_overrides(&self, config: &Config) -> Vec<(Nqn, HashSet<SocketAddr>)> {
        let mut changed = Vec::new();
        for subsystem in &config.subsystems {
            let old = of_nqn(&self.config, &subsystem.nqn);
            let addresses = differences(old, subsystem);
            if let Some(export) = self.exports.get(&subsystem.nqn)
                && !addresses.is_empty()
            {
                export.subsystem.set_ana(&subsystem.ana);
                changed.push((subsystem.nqn, addresses));
            }
        }
        changed
    }

    /// Sends the current ANA states to hosts connected through this listener.
    pub(super) fn update_ana(&self, listener: &ListenerShared) {
        for export in self.exports.values() {
            export.subsystem.update_ana(listener);
        }
    }
}

/// Listeners at which the subsystem's own states differ between the configurations.
fn differences(old: Option<&Subsystem>, new: &Subsystem) -> HashSet<SocketAddr> {
    let before = |at: &SocketAddr| old.and_then(|old| old.ana.get(at));
    let addresses = old.into_iter().flat_map(|old| old.ana.keys());
    let all = addresses.chain(new.ana.keys());
    all.filter(|at| before(at) != new.ana.get(at))
        .copied()
        .collect()
}
