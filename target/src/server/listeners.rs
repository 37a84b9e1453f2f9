//! Where hosts connect.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cairn_config::Provider as Kind;
use cairn_rdma::{FabricError, ListenOptions, Listener, ListenerEvent, Provider};
use nvme_proto::controller::Termination;
use nvme_proto::discovery;
use nvme_proto::wire::log::RdmaProvider;

use super::StartError;
use super::control::Control;
use crate::ana::{AnaShared, ListenerShared};
use crate::panics::Part;

/// Distinguishes listeners, those of the past included.
pub(super) type ListenerId = u64;

/// A listener that listens.
#[derive(Debug)]
pub(super) struct OpenListener {
    pub(super) config: cairn_config::Listener,
    pub(super) shared: Arc<ListenerShared>,
    /// Whether an administrator has sent its hosts away: it refuses connections.
    pub(super) drained: bool,
    /// Commands that were under way when its hosts were disconnected.
    pub(super) cut_off: u64,
    listener: Box<dyn Listener>,
}

impl OpenListener {
    /// Where.
    pub(super) fn address(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Whether this is what it would be opened as: the rest of its configuration
    /// can change while it listens.
    pub(super) fn serves(&self, config: &cairn_config::Listener) -> bool {
        let own = &self.config;
        own.socket_address() == config.socket_address()
            && (own.provider, own.roce, own.backlog, own.pkey)
                == (config.provider, config.roce, config.backlog, config.pkey)
    }
}

impl Control {
    /// Listens on an address.
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
                // A control plane that has ended takes no connections: the event
                // is dropped, and a request in it is refused by that.
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
                    // The last resort's own reason is the one to act on.
                    failure = Some(error);
                }
                Err(source) => return Err(StartError::Listen { address, source }),
            }
        }
        let source = failure.expect("there is a candidate, and none could listen");
        Err(StartError::Listen { address, source })
    }

    /// The providers to try for a listener: at least one.
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

    /// A listener has something to say.
    pub(super) fn listener_event(&mut self, id: ListenerId, event: ListenerEvent) {
        let Some(listener) = self
            .listeners
            .iter()
            .find(|listener| listener.shared.id == id)
        else {
            // It was closed meanwhile; dropping a request refuses it.
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
                // What panics has dropped the request, and so refused it.
                let panics = Arc::clone(&self.panics);
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

    /// PORTIDs of the listeners that lead to a subsystem; all do if not given.
    fn ports_of(&self, subsystem: &cairn_config::Subsystem) -> Option<BTreeSet<u16>> {
        subsystem.listeners.as_ref()?;
        let open = self.listeners.iter().map(|listener| &listener.config);
        let own = open.filter(|listener| subsystem.is_behind(listener));
        Some(own.map(|listener| listener.port_id).collect())
    }

    /// Disconnects the hosts of a subsystem that came by a listener which no longer leads to it.
    pub(super) fn leave_listeners(&self, config: &cairn_config::Subsystem) {
        let Some(export) = self.exports.get(&config.nqn) else {
            return;
        };
        // Before the hosts are disconnected, so that they cannot come back.
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

    /// Has the discovery log show what there is now.
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
