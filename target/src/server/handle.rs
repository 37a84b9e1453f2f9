//! Handle through which the control socket queries and changes the control plane.

use cairn_base::Trid;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use cairn_config::{AnaStates, Config, Nqn, Roce};
use nvme_proto::wire::Status;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::audit_log;
use super::control::{Beside, ControlPlane, Order};
use super::error::ReloadError;
use super::listeners::{Drained, TurnedAway, Which};
use super::lookup::at_place;
use super::reload::{ReloadScope, Reloading};
use super::reserving::{self, NotCleared};
use super::state_lock::StateDirectory;
use crate::exposition::Observed;
use crate::health::{Missing, Place};
use cairn_data_path::audit::Audit;
use cairn_data_path::metrics::ReactorCounters;
use cairn_data_path::namespace::Entry;
use cairn_data_path::registry::{RefusedHost, SubsystemShared};

pub(crate) type Companion = Box<dyn FnOnce(Handle) -> Beside + Send>;

#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) config: Arc<Config>,
    pub(crate) listeners: Vec<Listening>,
    pub(crate) subsystems: Vec<(Nqn, Arc<SubsystemShared>)>,
    pub(crate) missing: Vec<(Missing, Duration)>,
    /// Removed RDMA devices, with the time since their removal.
    pub(crate) lost_devices: Vec<(String, Duration)>,
    /// Refused hosts, with the times since the first and the last attempt.
    pub(crate) refused: Vec<(RefusedHost, Duration, Duration)>,
    /// Parts that panicked: name, consequence, count.
    pub(crate) panics: Vec<(&'static str, &'static str, u64)>,
    pub(crate) at_next_start: Vec<String>,
    pub(crate) uptime: Duration,
    pub(crate) reactors: Vec<Arc<ReactorCounters>>,
    pub(crate) state_directory: Option<Arc<StateDirectory>>,
}

pub(crate) struct Export<'a> {
    pub(crate) nqn: &'a Nqn,
    pub(crate) shared: &'a Arc<SubsystemShared>,
    pub(crate) config: &'a cairn_config::Namespace,
    pub(crate) entry: Entry,
}

impl Snapshot {
    pub(crate) fn export(&self, place: &(Nqn, u32)) -> Option<Export<'_>> {
        let (subsystem, config) = at_place(&self.config, place)?;
        let mut subsystems = self.subsystems.iter();
        let (nqn, shared) = subsystems.find(|(nqn, _)| *nqn == subsystem.nqn)?;
        let entry = shared.view().namespaces.get(config.nsid)?.clone();
        Some(Export {
            nqn,
            shared,
            config,
            entry,
        })
    }

    pub(crate) fn configured(&self, place: &(Nqn, u32)) -> Option<&cairn_config::Namespace> {
        at_place(&self.config, place).map(|(_, namespace)| namespace)
    }

    pub(crate) fn exports(&self) -> impl Iterator<Item = Export<'_>> {
        let configured = self.config.subsystems.iter();
        let configured: HashMap<Nqn, _> = configured.map(|one| (one.nqn, one)).collect();
        self.subsystems.iter().flat_map(move |(nqn, shared)| {
            let table = shared.view().namespaces;
            let config = configured.get(nqn);
            let namespaces = config.map_or(&[][..], |config| &config.namespaces);
            namespaces.iter().filter_map(move |config| {
                let entry = table.get(config.nsid)?.clone();
                Some(Export {
                    nqn,
                    shared,
                    config,
                    entry,
                })
            })
        })
    }
}

#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) address: Trid,
    pub(crate) provider: &'static str,
    pub(crate) roce: Roce,
    pub(crate) ana: AnaStates,
    pub(crate) drained: bool,
    pub(crate) down: Option<(String, Duration)>,
    /// Refusals by `allowed_addresses`, with the time since the first and the last.
    pub(crate) turned_away: Option<(TurnedAway, Duration, Duration)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Handle {
    orders: UnboundedSender<Order>,
    pub(crate) audit: Audit,
}

impl Handle {
    pub(super) fn new(orders: UnboundedSender<Order>, audit: Audit) -> Self {
        Self { orders, audit }
    }

    pub(crate) async fn reload(&self, config: Config) -> Result<(), ReloadError> {
        self.change(Arc::new(config), ReloadScope::Whole).await
    }

    pub(crate) async fn change(
        &self,
        config: Arc<Config>,
        scope: ReloadScope,
    ) -> Result<(), ReloadError> {
        let keys = match scope {
            ReloadScope::Step(_) => None,
            ReloadScope::Text | ReloadScope::Whole => Some(super::keys::load(&config).await?),
        };
        let (answer, answered) = oneshot::channel();
        // Sending fails only after the control plane has ended.
        let _ = self.orders.send(Order::Reload(Reloading {
            config,
            keys,
            scope,
            answer,
        }));
        answered.await.unwrap_or(Err(ReloadError::Stopped))
    }

    pub(crate) fn note_reload(&self, ended: &Result<(), String>) {
        self.audit.record(|| audit_log::reload(ended));
        let succeeded = ended.is_ok();
        let order = Order::Do(Box::new(move |control| {
            control.observed.reloaded(succeeded);
        }));
        let _ = self.orders.send(order);
    }

    pub(crate) fn note_state(&self, is_lost: bool) {
        let note = Order::Do(Box::new(move |control| {
            control.observed.note_state(is_lost);
        }));
        let _ = self.orders.send(note);
    }

    pub(crate) async fn snapshot(&self) -> Option<Snapshot> {
        self.with(|control| snapshot_of(control)).await
    }

    pub(crate) async fn observed(&self) -> Option<Arc<Observed>> {
        self.with(|control| Arc::clone(&control.observed)).await
    }

    pub(crate) async fn disconnect(&self, nqn: Nqn, cntlid: u16) -> Option<bool> {
        self.with(move |control| {
            let Some(export) = control.service.exports.get(&nqn) else {
                return false;
            };
            let view = export.subsystem.view();
            let is_there = view.controllers.iter().any(|one| one.cntlid == cntlid);
            export
                .subsystem
                .administer(|subsystem, actions| subsystem.disconnect(cntlid, actions));
            is_there
        })
        .await
    }

    pub(crate) async fn clear_reservations(
        &self,
        place: Place,
        claimed: Arc<AtomicBool>,
    ) -> Option<Result<oneshot::Receiver<Result<(), Status>>, NotCleared>> {
        self.with(move |control| reserving::clear(&control.service.exports, place, claimed))
            .await
    }

    pub(crate) async fn drain(&self, which: Which, within: Duration) -> Option<Vec<Drained>> {
        self.with(move |control| {
            let service = &mut control.service;
            let drained = service.listeners.drain(which, within, &service.exports);
            service.update_discovery();
            drained
        })
        .await
    }

    pub(crate) async fn look_at_drained(&self, before: Vec<Drained>) -> Option<Vec<Drained>> {
        self.with(move |control| {
            let service = &control.service;
            service.listeners.look_at_drained(&before, &service.exports)
        })
        .await
    }

    pub(crate) async fn undo_drain(&self, which: Which) -> Option<usize> {
        self.with(move |control| {
            let service = &mut control.service;
            let undone = service.listeners.undo_drain(which, &service.exports);
            service.update_discovery();
            undone
        })
        .await
    }

    async fn with<T: Send + 'static>(
        &self,
        action: impl FnOnce(&mut ControlPlane) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        let action = Order::Do(Box::new(move |control| {
            let _ = answer.send(action(control));
        }));
        let _ = self.orders.send(action);
        answered.await.ok()
    }
}

fn snapshot_of(control: &ControlPlane) -> Snapshot {
    let service = &control.service;
    let exports = service.exports.iter();
    let mut subsystems: Vec<_> = exports
        .map(|(nqn, export)| (*nqn, Arc::clone(&export.subsystem)))
        .collect();
    subsystems.sort_unstable_by_key(|(nqn, _)| *nqn);
    let place = |address: Trid| {
        let mut all = service.config.listeners.iter();
        all.position(|listener| listener.trid() == address)
    };
    let now = control.clock.now();
    let lasting = |since: Instant| now.saturating_duration_since(since);
    let mut listeners: Vec<_> = service.listeners.all().iter().collect();
    listeners.sort_by_key(|listener| place(listener.config.trid()));
    let listeners = listeners.into_iter().map(|listener| Listening {
        address: listener.address(),
        provider: listener.shared.provider,
        roce: service.config.roce_at(&listener.config),
        ana: listener.config.ana,
        drained: listener.drained,
        down: listener
            .down
            .clone()
            .map(|(reason, since)| (reason, lasting(since))),
        turned_away: listener
            .turned_away
            .map(|one| (one, lasting(one.first), lasting(one.last))),
    });
    let missing = service.missing.all().iter();
    let missing = missing.map(|one| (one.clone(), lasting(one.since)));
    let refused = service.exports.registry().refused().all().into_iter();
    let refused = refused.map(|one| {
        let (first, last) = (lasting(one.first), lasting(one.last));
        (one, first, last)
    });
    let panics = crate::panics::Part::ALL
        .iter()
        .filter_map(|(part, name, cost)| {
            let count = service.jobs.panics().of_part(*part);
            (count > 0).then_some((*name, *cost, count))
        });
    Snapshot {
        config: Arc::clone(&service.config),
        listeners: listeners.collect(),
        subsystems,
        missing: missing.collect(),
        lost_devices: control.lost_devices.present(now),
        refused: refused.collect(),
        panics: panics.collect(),
        at_next_start: service.fixed.waiting().to_vec(),
        uptime: control.clock.now().duration_since(control.started),
        reactors: control.observed.reactors().to_vec(),
        state_directory: service.exports.state_directory().cloned(),
    }
}
