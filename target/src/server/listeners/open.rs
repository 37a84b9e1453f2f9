use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use cairn_base::Trid;
use cairn_config::Provider as Kind;
use cairn_rdma::{FabricError, ListenOptions, Listener, ListenerEvent, Provider};
use tokio::sync::mpsc::UnboundedSender;

use super::super::error::StartError;
use cairn_data_path::ana::{AnaShared, ListenerShared};

/// Number of a listener, never reused.
pub(crate) type ListenerId = u64;

pub(crate) type FromListener = (ListenerId, ListenerEvent);

/// Connection requests from addresses outside `allowed_addresses`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnedAway {
    pub(crate) count: u64,
    pub(crate) peer: IpAddr,
    pub(crate) first: Instant,
    pub(crate) last: Instant,
}

#[derive(Debug)]
pub(crate) struct OpenListener {
    pub(crate) config: cairn_config::Listener,
    pub(crate) shared: Arc<ListenerShared>,
    pub(crate) drained: bool,
    /// Reason and start of an outage.
    pub(crate) down: Option<(String, Instant)>,
    pub(crate) cut_off: u64,
    pub(crate) turned_away: Option<TurnedAway>,
    listener: Box<dyn Listener>,
}

impl OpenListener {
    pub(super) fn open(
        config: &cairn_config::Listener,
        providers: &[Arc<dyn Provider>],
        events: &UnboundedSender<FromListener>,
    ) -> Result<Self, StartError> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let address = config.trid();
        let resolved = address.resolve().map_err(|error| StartError::Listen {
            address,
            // A missing interface counts as a missing device, because it may appear later.
            source: FabricError::NoDevice {
                address: config.address.ip(),
                remedy: error.to_string(),
            },
        })?;
        let options = ListenOptions {
            address: resolved,
            backlog: config.backlog,
            pkey: config.pkey,
            roce: config.roce,
        };
        let mut failure: Option<FabricError> = None;
        for provider in candidates(config, providers)? {
            let events = events.clone();
            let sink = Box::new(move |event| {
                // Without a receiver, the event is dropped, which refuses its request.
                let _ = events.send((id, event));
            });
            match provider.listen(&options, sink) {
                Ok(listener) => {
                    let address = listener.local_addr();
                    let pkey = config.pkey;
                    let no_verbs = failure.map(|error| error.to_string());
                    // Logged when a listener or its address changes.
                    tracing::info!(
                        %address,
                        provider = provider.name(),
                        %pkey,
                        no_verbs = no_verbs.as_deref(),
                        "listening"
                    );
                    return Ok(Self {
                        config: config.clone(),
                        shared: Arc::new(ListenerShared {
                            id,
                            address: config.trid(),
                            provider: provider.name(),
                            pkey,
                            ana: AnaShared::new(&config.ana),
                            removed: AtomicBool::new(false),
                        }),
                        drained: false,
                        down: None,
                        cut_off: 0,
                        turned_away: None,
                        listener,
                    });
                }
                Err(
                    error @ (FabricError::Unavailable { .. }
                    | FabricError::NoDevice { .. }
                    | FabricError::PortTaken { .. }),
                ) => {
                    failure = Some(match failure {
                        Some(first) => both(&first, error),
                        None => error,
                    });
                }
                Err(source) => return Err(StartError::Listen { address, source }),
            }
        }
        let source = failure.expect("there is a candidate, and none could listen");
        Err(StartError::Listen { address, source })
    }

    pub(crate) fn address(&self) -> Trid {
        Trid::new(self.config.address, self.local_addr().port())
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// True if the open listener can adopt `config`: the settings compared here are equal, and all
    /// others can change.
    pub(crate) fn serves(&self, config: &cairn_config::Listener) -> bool {
        let own = &self.config;
        own.trid() == config.trid()
            && (own.provider, own.roce, own.backlog, own.pkey)
                == (config.provider, config.roce, config.backlog, config.pkey)
    }
}

/// Adds the first provider's reason to the second provider's, because the user may have to repair
/// either provider.
fn both(first: &FabricError, second: FabricError) -> FabricError {
    match (first, second) {
        (FabricError::Unavailable { .. }, FabricError::Unavailable { provider, reason }) => {
            let reason = format!("{reason}; {first}");
            FabricError::Unavailable { provider, reason }
        }
        (FabricError::Unavailable { .. }, FabricError::PortTaken { reason }) => {
            let reason = format!("{reason}; {first}");
            FabricError::PortTaken { reason }
        }
        (_, second) => second,
    }
}

fn candidates<'a>(
    config: &cairn_config::Listener,
    providers: &'a [Arc<dyn Provider>],
) -> Result<Vec<&'a Arc<dyn Provider>>, StartError> {
    let name = match config.provider {
        Kind::Auto => None,
        Kind::Verbs => Some("verbs"),
        Kind::Soft => Some("soft"),
    };
    let wanted = |provider: &&Arc<dyn Provider>| name.is_none_or(|name| provider.name() == name);
    let candidates: Vec<_> = providers.iter().filter(wanted).collect();
    if !candidates.is_empty() {
        return Ok(candidates);
    }
    let reason = "no provider of that kind is part of this program".to_owned();
    Err(StartError::NoProvider {
        address: config.trid(),
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reasons_of_both_providers_are_reported() {
        let unavailable = |provider, reason: &str| FabricError::Unavailable {
            provider,
            reason: reason.to_owned(),
        };
        let first = unavailable("verbs", "no shared receive queues");
        let text = both(&first, unavailable("soft", "irdma0 takes port 4791")).to_string();
        for part in ["irdma0", "the verbs provider", "no shared receive queues"] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    }
}
