//! Listeners of the target: opened, changed, drained and removed.
//!
//! Draining moves a listener's hosts to other paths and disconnects them. No host can connect until
//! the drain is undone or the target restarts.

mod ana;
mod open;
mod retiring;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cairn_base::{Clock, Trid};
use cairn_config::Config;
use cairn_rdma::Provider;
use nvme_proto::controller::Termination;
use tokio::sync::mpsc::UnboundedSender;

use super::error::{ReloadError, StartError};
use super::exports::Exports;
use super::lookup::of_nqn;
use cairn_data_path::ana::ListenerShared;

pub(crate) use open::{FromListener, ListenerId, OpenListener, TurnedAway};

use ana::change_overrides;
use retiring::{RETIRE_TIMEOUT, Retirements};

pub(crate) struct Listeners {
    providers: Vec<Arc<dyn Provider>>,
    open: Vec<OpenListener>,
    retirements: Retirements,
    events: UnboundedSender<FromListener>,
    clock: Clock,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Drained {
    id: ListenerId,
    pub(crate) address: Trid,
    /// Whether hosts still have time to move to other paths.
    pub(crate) is_under_way: bool,
    pub(crate) associations: usize,
    pub(crate) cut_off: u64,
}

/// Address of the selected listener; `None` selects all.
pub(crate) type Which = Option<Trid>;

impl Listeners {
    pub(crate) fn new(
        providers: Vec<Arc<dyn Provider>>,
        events: UnboundedSender<FromListener>,
        clock: Clock,
    ) -> Self {
        Self {
            providers,
            open: Vec::new(),
            retirements: Retirements::default(),
            events,
            clock,
        }
    }

    pub(crate) fn listen(
        &self,
        config: &cairn_config::Listener,
    ) -> Result<OpenListener, StartError> {
        OpenListener::open(config, &self.providers, &self.events)
    }

    pub(crate) fn add(&mut self, listener: OpenListener) {
        self.open.push(listener);
    }

    pub(crate) fn close(&mut self) {
        self.open.clear();
    }

    pub(crate) fn all(&self) -> &[OpenListener] {
        &self.open
    }

    pub(crate) fn note_down(&mut self, id: ListenerId, reason: Option<&str>) {
        let now = self.clock.now();
        let mut open = self.open.iter_mut();
        if let Some(listener) = open.find(|listener| listener.shared.id == id) {
            listener.down = reason.map(|reason| (reason.to_owned(), now));
        }
    }

    pub(crate) fn note_turned_away(&mut self, id: ListenerId, peer: IpAddr) {
        let now = self.clock.now();
        let mut open = self.open.iter_mut();
        if let Some(listener) = open.find(|listener| listener.shared.id == id) {
            let before = listener.turned_away;
            listener.turned_away = Some(TurnedAway {
                count: before.map_or(0, |before| before.count) + 1,
                peer,
                first: before.map_or(now, |before| before.first),
                last: now,
            });
        }
    }

    pub(crate) fn find(&self, id: ListenerId) -> Option<&OpenListener> {
        self.open.iter().find(|listener| listener.shared.id == id)
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.open.iter().map(OpenListener::local_addr).collect()
    }

    pub(crate) fn serve(&self, config: &cairn_config::Listener) -> bool {
        self.open.iter().any(|open| open.serves(config))
    }

    pub(crate) fn ports_of(&self, subsystem: &cairn_config::Subsystem) -> Option<BTreeSet<u16>> {
        subsystem.listeners.as_ref()?;
        let open = self.open.iter().map(|listener| &listener.config);
        let own = open.filter(|listener| subsystem.is_behind(listener));
        Some(own.map(|listener| listener.port_id).collect())
    }

    pub(crate) fn check(&self, config: &Config) -> Result<(), ReloadError> {
        let mut there = self.open.iter();
        let other = there.find_map(|open| {
            let at = open.config.trid();
            let mut anew = config.listeners.iter();
            let anew = anew.find(|listener| listener.trid() == at)?;
            (!open.serves(anew)).then_some(at)
        });
        match other {
            Some(address) => Err(ReloadError::ListenerChanged { address }),
            None => Ok(()),
        }
    }

    pub(crate) fn change(&mut self, config: &Config, new: Vec<OpenListener>, exports: &Exports) {
        let mut gone = Vec::new();
        self.open.retain(|listener| {
            let stays = config
                .listeners
                .iter()
                .any(|config| listener.serves(config));
            if !stays {
                gone.push((listener.address(), Arc::clone(&listener.shared)));
                // Logged after a reload.
                tracing::info!(address = %listener.address(), "no longer listening");
            }
            stays
        });
        self.open.extend(new);
        for (address, listener) in gone {
            self.retire(address, listener, RETIRE_TIMEOUT, exports);
        }
    }

    pub(crate) fn leave(&self, old: &Config, new: &Config, exports: &Exports) {
        for config in &new.subsystems {
            let old = of_nqn(old, &config.nqn);
            let Some(export) = exports.get(&config.nqn) else {
                continue;
            };
            if old.is_none_or(|old| old.listeners == config.listeners) {
                continue;
            }
            // The listeners are set first, so that disconnected hosts cannot reconnect.
            export.subsystem.set_listeners(config.listeners.as_deref());
            let others = self.open.iter();
            let others = others.filter(|listener| !config.is_behind(&listener.config));
            export.subsystem.administer(|subsystem, actions| {
                for listener in others {
                    let id = listener.shared.id;
                    subsystem.terminate_port(id, Termination::PortNotAllowed, actions);
                }
            });
        }
    }

    /// Applies the new configuration of listeners that stay open. ANA states apply to existing
    /// connections; most other settings apply only to later connections.
    pub(crate) fn change_ana(&mut self, old: &Config, new: &Config, exports: &Exports) {
        let mut changed = Vec::new();
        for listener in &mut self.open {
            let same = |config: &&cairn_config::Listener| listener.serves(config);
            let config = new.listeners.iter().find(same);
            listener.config = config.expect("the others were closed").clone();
            let (shared, states) = (&listener.shared, &listener.config.ana);
            if shared.ana.load() != *states {
                shared.ana.store(states);
                changed.push((listener.address(), Arc::clone(shared)));
            }
        }
        // States of subsystems change first, so that each host gets at most one event.
        let others = change_overrides(exports, old, new);
        for (address, listener) in changed {
            exports.update_ana(&listener);
            // Logged after a reload.
            tracing::info!(%address, "ANA states changed");
        }
        for (nqn, addresses) in others {
            let Some(export) = exports.get(&nqn) else {
                continue;
            };
            let open = self.open.iter().map(|listener| &listener.shared);
            for listener in open.filter(|one| addresses.contains(&one.address)) {
                export.subsystem.update_ana(listener);
                // Logged after a reload.
                tracing::info!(
                    subsystem = %nqn, listener = %listener.address,
                    "ANA states of a subsystem changed"
                );
            }
        }
    }

    fn retire(
        &mut self,
        address: Trid,
        listener: Arc<ListenerShared>,
        within: Duration,
        exports: &Exports,
    ) {
        let now = self.clock.now();
        self.retirements
            .begin(address, listener, within, exports, now);
    }

    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.retirements.next_look()
    }

    pub(crate) fn look_at_retiring(&mut self, exports: &Exports) {
        for (id, outstanding) in self.retirements.look(exports, self.clock.now()) {
            let mut open = self.open.iter_mut();
            if let Some(open) = open.find(|open| open.shared.id == id) {
                open.cut_off = outstanding;
            }
        }
    }

    /// Starts drains, or changes their time limit. Returns an empty list if no listener matches.
    pub(crate) fn drain(
        &mut self,
        which: Which,
        within: Duration,
        exports: &Exports,
    ) -> Vec<Drained> {
        let mut begun = Vec::new();
        for listener in self.open.iter_mut().filter(|one| is_it(one, which)) {
            listener.drained = true;
            listener.cut_off = 0;
            begun.push((listener.address(), Arc::clone(&listener.shared)));
        }
        for (address, shared) in &begun {
            // Logged for a control socket request.
            tracing::info!(%address, "draining: hosts are moved to other paths");
            self.retire(*address, Arc::clone(shared), within, exports);
        }
        let ids = begun.iter().map(|(_, shared)| shared.id);
        let ids: Vec<ListenerId> = ids.collect();
        self.drained(exports, |listener| ids.contains(&listener.shared.id))
    }

    pub(crate) fn look_at_drained(&self, before: &[Drained], exports: &Exports) -> Vec<Drained> {
        self.drained(exports, |listener| {
            before.iter().any(|one| one.id == listener.shared.id)
        })
    }

    fn drained(&self, exports: &Exports, which: impl Fn(&OpenListener) -> bool) -> Vec<Drained> {
        let listeners = self.open.iter();
        let drained = listeners.filter(|listener| listener.drained && which(listener));
        drained
            .map(|listener| Drained {
                id: listener.shared.id,
                address: listener.address(),
                is_under_way: self.retirements.has(listener.shared.id),
                associations: exports.activity(listener.shared.id).associations,
                cut_off: listener.cut_off,
            })
            .collect()
    }

    /// Ends drains: hosts can connect, and connected hosts stay.
    pub(crate) fn undo_drain(&mut self, which: Which, exports: &Exports) -> usize {
        let mut count = 0;
        let mut undone = Vec::new();
        for listener in self.open.iter_mut().filter(|one| is_it(one, which)) {
            count += 1;
            if std::mem::take(&mut listener.drained) {
                let shared = Arc::clone(&listener.shared);
                shared.removed.store(false, Ordering::Relaxed);
                undone.push((listener.address(), shared));
            }
        }
        for (address, listener) in undone {
            self.retirements.forget(listener.id);
            exports.update_ana(&listener);
            // Logged for a control socket request.
            tracing::info!(%address, "draining undone: hosts may connect");
        }
        count
    }
}

fn is_it(listener: &OpenListener, which: Which) -> bool {
    which.is_none_or(|which| which == listener.config.trid())
}
