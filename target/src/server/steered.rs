//! By which the control socket looks at the control plane and changes it.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use cairn_config::{AnaStates, Config, Nqn, Roce};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::auditing;
use super::control::Control;
use super::draining::{Drained, Which};
use super::extent::Extent;
use super::reload::{Reloading, at_place};
use super::{Order, ReloadError};
use crate::audit::Audit;
use crate::metrics::ReactorCounters;
use crate::namespace::Entry;
use crate::outlook::Missing;
use crate::registry::SubsystemShared;

/// What runs on the control plane's thread, beside it.
pub(super) type Beside = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What makes it, once there is a control plane.
pub(crate) type Companion = Box<dyn FnOnce(Handle) -> Beside + Send>;

/// What the control plane does in between.
pub(super) type Action = Box<dyn FnOnce(&mut Control) + Send>;

/// What is served at one moment.
#[derive(Debug)]
pub(crate) struct Picture {
    /// What is in force.
    pub(crate) config: Arc<Config>,
    /// Where it listens, in the configuration's order as far as it is so open.
    pub(crate) listeners: Vec<Listening>,
    /// By NQN, without discovery.
    pub(crate) subsystems: Vec<(Nqn, Arc<SubsystemShared>)>,
    /// What is configured and not there.
    pub(crate) missing: Vec<(Missing, Duration)>,
    /// What of the configuration takes effect at the next start.
    pub(crate) at_next_start: Vec<String>,
    /// Since the start.
    pub(crate) uptime: Duration,
    /// What each reactor counts.
    pub(crate) reactors: Vec<Arc<ReactorCounters>>,
}

/// A namespace that is served.
pub(crate) struct Export<'a> {
    /// That of its subsystem.
    pub(crate) nqn: &'a Nqn,
    /// What the configuration says of it.
    pub(crate) config: &'a cairn_config::Namespace,
    /// What hosts see of it.
    pub(crate) entry: Entry,
}

impl Picture {
    /// The namespace at a place, if it is served.
    pub(crate) fn export(&self, place: &(Nqn, u32)) -> Option<Export<'_>> {
        let (subsystem, config) = at_place(&self.config, place)?;
        let mut subsystems = self.subsystems.iter();
        let (nqn, shared) = subsystems.find(|(nqn, _)| *nqn == subsystem.nqn)?;
        let entry = shared.view().namespaces.get(config.nsid)?.clone();
        Some(Export { nqn, config, entry })
    }

    /// The namespaces that are served: by subsystem, in the configuration's order.
    pub(crate) fn exports(&self) -> impl Iterator<Item = Export<'_>> {
        self.subsystems.iter().flat_map(|(nqn, shared)| {
            let table = shared.view().namespaces;
            let mut subsystems = self.config.subsystems.iter();
            let config = subsystems.find(|subsystem| subsystem.nqn == *nqn);
            let namespaces = config.map_or(&[][..], |config| &config.namespaces);
            namespaces.iter().filter_map(move |config| {
                let entry = table.get(config.nsid)?.clone();
                Some(Export { nqn, config, entry })
            })
        })
    }
}

/// A listener.
#[derive(Debug)]
pub(crate) struct Listening {
    /// Where.
    pub(crate) address: SocketAddr,
    /// What speaks RDMA there.
    pub(crate) provider: &'static str,
    /// What user space speaks there.
    pub(crate) roce: Roce,
    /// The ANA state of each group, as configured.
    pub(crate) ana: AnaStates,
    /// Whether an administrator has sent its hosts away.
    pub(crate) drained: bool,
}

/// A way to the control plane.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    orders: UnboundedSender<Order>,
    /// Where requests of the control socket are recorded.
    pub(crate) audit: Audit,
}

impl Handle {
    pub(super) fn new(orders: UnboundedSender<Order>, audit: Audit) -> Self {
        Self { orders, audit }
    }

    /// Changes to another configuration, as [`Target::reload`](super::Target::reload) does.
    pub(crate) async fn reload(&self, config: Config) -> Result<(), ReloadError> {
        self.change(Arc::new(config), Extent::Whole).await
    }

    /// The same, with less of a look.
    pub(crate) async fn change(
        &self,
        config: Arc<Config>,
        extent: Extent,
    ) -> Result<(), ReloadError> {
        let (answer, answered) = oneshot::channel();
        // A control plane that has ended drops the answer's sender.
        let _ = self.orders.send(Order::Reload(Reloading {
            config,
            extent,
            answer,
        }));
        answered.await.unwrap_or(Err(ReloadError::Stopped))
    }

    /// The configuration was read again, and was taken on or refused.
    pub(crate) fn note_reload(&self, ended: &Result<(), String>) {
        self.audit.record(|| auditing::reload(ended));
        let succeeded = ended.is_ok();
        let order = Order::Do(Box::new(move |control| {
            control.observed.reloaded(succeeded);
        }));
        // A control plane that has ended shows nothing.
        let _ = self.orders.send(order);
    }

    /// What is served now; `None`: the target has stopped.
    pub(crate) async fn look(&self) -> Option<Picture> {
        self.with(|control| control.picture()).await
    }

    /// Ends an association. `false`: there is none such.
    pub(crate) async fn disconnect(&self, nqn: Nqn, cntlid: u16) -> Option<bool> {
        self.with(move |control| {
            let Some(export) = control.exports.get(&nqn) else {
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

    /// Begins to drain listeners. Empty: there are none such.
    pub(crate) async fn drain(&self, which: Which, within: Duration) -> Option<Vec<Drained>> {
        self.with(move |control| control.drain_listeners(which, within))
            .await
    }

    /// How far listeners that are drained have come. One that is drained no longer is left out.
    pub(crate) async fn look_at_drained(&self, before: Vec<Drained>) -> Option<Vec<Drained>> {
        self.with(move |control| control.look_at_drained(&before))
            .await
    }

    /// Lets hosts connect again; how many listeners there are.
    pub(crate) async fn undo_drain(&self, which: Which) -> Option<usize> {
        self.with(move |control| control.undo_drain(which)).await
    }

    async fn with<T: Send + 'static>(
        &self,
        action: impl FnOnce(&mut Control) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        let action = Order::Do(Box::new(move |control| {
            // A client that is gone needs no answer.
            let _ = answer.send(action(control));
        }));
        // A control plane that has ended drops the answer's sender.
        let _ = self.orders.send(action);
        answered.await.ok()
    }
}

impl Control {
    fn picture(&self) -> Picture {
        let mut subsystems: Vec<_> = self
            .exports
            .iter()
            .map(|(nqn, export)| (*nqn, Arc::clone(&export.subsystem)))
            .collect();
        subsystems.sort_unstable_by_key(|(nqn, _)| *nqn);
        let place = |address: SocketAddr| {
            let mut all = self.config.listeners.iter();
            all.position(|listener| listener.socket_address() == address)
        };
        let mut listeners: Vec<_> = self.listeners.iter().collect();
        listeners.sort_by_key(|listener| place(listener.config.socket_address()));
        let listeners = listeners.into_iter().map(|listener| Listening {
            address: listener.address(),
            provider: listener.shared.provider,
            roce: self.config.roce_at(&listener.config),
            ana: listener.config.ana,
            drained: listener.drained,
        });
        let now = self.clock.now();
        let missing = self.missing.all().iter().map(|one| {
            let lasting = now.saturating_duration_since(one.since);
            (one.clone(), lasting)
        });
        Picture {
            config: Arc::clone(&self.config),
            listeners: listeners.collect(),
            subsystems,
            missing: missing.collect(),
            at_next_start: self.fixed.waiting().to_vec(),
            uptime: self.clock.now().duration_since(self.started),
            reactors: self.observed.reactors().to_vec(),
        }
    }
}
