//! Listeners of the target.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cairn_config::Provider as Kind;
use cairn_rdma::{FabricError, ListenOptions, Listener, ListenerEvent, Provider};
use nvme_proto::controller::Termination;
use nvme_proto::discovery;
use nvme_proto::wire::log::RdmaProvider;

use super::control::Control;
use super::error::StartError;
use crate::ana::{AnaShared, ListenerShared};
use crate::panics::Part;

/// ID of a listener, never reused.
pub(super) type ListenerId = u64;

#[derive(Debug)]
pub(super) struct OpenListener {
    pub(super) config: cairn_config::Listener,
    pub(super) shared: Arc<ListenerShared>,
    /// True if an administrator has drained it: it refuses connections.
    pub(super) drained: bool,
    /// Commands in flight when its hosts were disconnected.
    pub(super) cut_off: u64,
    listener: Box<dyn Listener>,
}

impl OpenListener {
    pub(super) fn address(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// True if the listener need not be reopened for `config`: the compared settings are equal, and
    /// all others can change while it listens.
    pub(super) fn serves(&self, config: &cairn_config::Listener) -> bool {
        let own = &self.config;
        own.socket_address() == config.socket_address()
            && (own.provider, own.roce, own.backlog, own.pkey)
                == (config.provider, config.roce, config.backlog, config.pkey)
    }
}

impl Control {
    pub(super) fn listen(
        &mut self,
        config: &cairn_config::Listener,
    ) -> Result<OpenListener, StartError> {
        static NEXT_ID: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let id = NEXT_ID.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let address = config.socket_address();
        let options = ListenOptions {
            address,
            backlog: config.backlog,
            pkey: config.pkey,
            roce: config.roce,
        };
        let candidates = self.candidates(config)?;
        let mut failure = None;
        for provider in candidates {
            let events = self.listener_events_out.clone();
            let sink = Box::new(move |event| {
                // If the control plane has ended, the event is dropped, which refuses the request
                // in it.
                let _ = events.send((id, event));
            });
            match provider.listen(&options, sink) {
                Ok(listener) => {
                    let address = listener.local_addr();
                    let pkey = config.pkey;
                    // Cause: the configuration, or the address of a listener.
                    tracing::info!(%address, provider = provider.name(), %pkey, "listening");
                    return Ok(OpenListener {
                        config: config.clone(),
                        shared: Arc::new(ListenerShared {
                            id,
                            address: config.socket_address(),
                            provider: provider.name(),
                            pkey,
                            ana: AnaShared::new(&config.ana),
                            removed: AtomicBool::new(false),
                        }),
                        drained: false,
                        cut_off: 0,
                        listener,
                    });
                }
                Err(error @ (FabricError::Unavailable { .. } | FabricError::NoDevice { .. })) => {
                    // Report the error of the last candidate: it is the one to act on.
                    failure = Some(error);
                }
                Err(source) => return Err(StartError::Listen { address, source }),
            }
        }
        let source = failure.expect("there is a candidate, and none could listen");
        Err(StartError::Listen { address, source })
    }

    /// Providers to try for a listener, at least one.
    fn candidates(
        &self,
        config: &cairn_config::Listener,
    ) -> Result<Vec<Arc<dyn Provider>>, StartError> {
        let name = match config.provider {
            Kind::Auto => None,
            Kind::Verbs => Some("verbs"),
            Kind::Soft => Some("soft"),
        };
        let wanted =
            |provider: &&Arc<dyn Provider>| name.is_none_or(|name| provider.name() == name);
        let candidates: Vec<_> = self.providers.iter().filter(wanted).cloned().collect();
        if !candidates.is_empty() {
            return Ok(candidates);
        }
        let reason = "no provider of that kind is part of this program".to_owned();
        Err(StartError::NoProvider {
            address: config.socket_address(),
            reason,
        })
    }

    pub(super) fn listener_event(&mut self, id: ListenerId, event: ListenerEvent) {
        let Some(listener) = self
            .listeners
            .iter()
            .find(|listener| listener.shared.id == id)
        else {
            // The listener was closed meanwhile; dropping a request refuses it.
            return;
        };
        match event {
            ListenerEvent::Request(request) if listener.drained => {
                let provider = listener.shared.provider;
                self.refuse_drained(*request, provider);
            }
            ListenerEvent::Request(request) => {
                let config = listener.config.clone();
                let shared = Arc::clone(&listener.shared);
                // After a panic the request is dropped, which refuses it.
                let panics = Arc::clone(self.jobs.panics());
                panics.confine(Part::Connect, || self.admit(&config, shared, *request));
            }
            ListenerEvent::Down { reason } => {
                // Cause: the configuration, or the address of a listener.
                tracing::warn!(address = %listener.address(), reason, "listener down");
            }
            ListenerEvent::Up => {
                // Cause: the configuration, or the address of a listener.
                tracing::info!(address = %listener.address(), "listener up again");
            }
        }
    }

    /// PORTIDs of the subsystem's listeners; `None` for all.
    fn ports_of(&self, subsystem: &cairn_config::Subsystem) -> Option<BTreeSet<u16>> {
        subsystem.listeners.as_ref()?;
        let open = self.listeners.iter().map(|listener| &listener.config);
        let own = open.filter(|listener| subsystem.is_behind(listener));
        Some(own.map(|listener| listener.port_id).collect())
    }

    /// Disconnects hosts that came through a listener that no longer leads to the subsystem.
    pub(super) fn leave_listeners(&self, config: &cairn_config::Subsystem) {
        let Some(export) = self.exports.get(&config.nqn) else {
            return;
        };
        // Must precede the disconnection, so that hosts cannot come back.
        export.subsystem.set_listeners(config.listeners.as_deref());
        let others = self.listeners.iter();
        let others = others.filter(|listener| !config.is_behind(&listener.config));
        export.subsystem.administer(|subsystem, actions| {
            for listener in others {
                let id = listener.shared.id;
                subsystem.terminate_port(id, Termination::PortNotAllowed, actions);
            }
        });
    }

    pub(super) fn update_discovery(&self) {
        let open = self.listeners.iter().filter(|listener| !listener.drained);
        let listeners = open.map(|listener| discovery::Listener {
            portid: listener.config.port_id,
            address: listener.address(),
            provider: RdmaProvider::NONE,
            pkey: listener.config.pkey.bits(),
        });
        let exported = self
            .config
            .subsystems
            .iter()
            .map(|subsystem| discovery::Exported {
                nqn: subsystem.nqn,
                hosts: super::export::allowed(subsystem),
                ports: self.ports_of(subsystem),
            });
        let (listeners, exported) = (listeners.collect(), exported.collect());
        let referrals = self.config.referrals.iter();
        let referrals = referrals.map(|referral| discovery::Referral {
            address: referral.address,
            nqn: referral.nqn,
        });
        let referrals = referrals.collect();
        self.discovery.administer(|subsystem, actions| {
            subsystem.set_discovery(listeners, exported, actions);
            subsystem.set_referrals(referrals, actions);
        });
    }
}
