mod entry;
mod referral;

use std::time::Duration;

use cairn_rdma::Provider;
use nvme_proto::host::Notice;
use nvme_proto::wire::log::{DiscoveryEntry, DiscoveryLogHeader, LogPage};
use nvme_proto::wire::{FromBytes, Nqn};

use crate::error::HostError;
use crate::event::Event;
use crate::host::Host;
use crate::options::HostOptions;

use referral::Itinerary;

pub use entry::Route;
pub use referral::{SERVICES_MAX, Service};

const ENTRIES_MAX: u64 = 4096;
const ATTEMPTS: u32 = 8;

/// KATO of a persistent discovery connection, as in Linux.
const PERSISTENT_KATO_MS: u32 = 120_000;

/// Consistent copy of the discovery log page.
#[derive(Debug, Clone)]
pub struct DiscoveryLog {
    /// GENCTR, incremented with each change.
    pub genctr: u64,
    /// Entries in page order.
    pub entries: Vec<DiscoveryEntry>,
}

/// Persistent discovery controller, which reports log changes.
#[derive(Debug)]
pub struct Discovery {
    host: Host,
}

impl Discovery {
    /// Connects to the discovery service at `options.remote`. KATO 0 in `options` becomes 120 s.
    /// Blocks.
    pub fn connect(provider: &dyn Provider, options: &HostOptions) -> Result<Self, HostError> {
        let kato_ms = match options.kato_ms {
            0 => PERSISTENT_KATO_MS,
            kato_ms => kato_ms,
        };
        Self::connect_with(provider, options, Nqn::discovery(), kato_ms)
    }

    /// Reads the log ([`Host::discovery_log`]).
    pub fn log(&mut self) -> Result<DiscoveryLog, HostError> {
        self.host.discovery_log()
    }

    /// Blocks until the log may have changed or the host has reconnected. Returns false on timeout.
    pub fn wait_for_change(&mut self, patience: Duration) -> Result<bool, HostError> {
        let usual = self.host.options().timeout;
        self.host.set_timeout(patience);
        let result = self
            .host
            .wait_until("a change of the discovery log", |host| {
                match host.take_event()? {
                    Event::Notice(Notice::DiscoveryChanged) | Event::Live { .. } => Some(Ok(())),
                    Event::Gone(Some(error)) => Some(Err(error)),
                    _ => None,
                }
            });
        self.host.set_timeout(usual);
        match result {
            Ok(event) => event.map(|()| true),
            Err(HostError::Timeout { .. }) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Shuts the controller down and disconnects. Blocks.
    pub fn leave(self) -> Result<(), HostError> {
        self.host.shutdown()
    }

    fn connect_with(
        provider: &dyn Provider,
        options: &HostOptions,
        subnqn: Nqn,
        kato_ms: u32,
    ) -> Result<Self, HostError> {
        let options = HostOptions {
            subnqn,
            io_queues: 0,
            kato_ms,
            ..options.clone()
        };
        let host = Host::connect(provider, options)?;
        Ok(Self { host })
    }
}

/// Reads the log of the discovery controller at `options.remote`. Ignores subsystem NQN, queues and
/// KATO in `options`.
pub fn discover(provider: &dyn Provider, options: &HostOptions) -> Result<DiscoveryLog, HostError> {
    discover_at(provider, options, Nqn::discovery())
}

fn discover_at(
    provider: &dyn Provider,
    options: &HostOptions,
    subnqn: Nqn,
) -> Result<DiscoveryLog, HostError> {
    let mut discovery = Discovery::connect_with(provider, options, subnqn, 0)?;
    let log = discovery.log()?;
    discovery.leave()?;
    Ok(log)
}

/// Logs of a discovery service and of the services to which it refers.
#[derive(Debug)]
pub struct Discovered {
    /// Logs in reading order.
    pub logs: Vec<(Service, DiscoveryLog)>,
    /// Services that failed, with their errors.
    pub failures: Vec<(Service, HostError)>,
    /// Number of referrals not followed, because [`SERVICES_MAX`] was reached.
    pub left_out: usize,
}

/// Reads the logs of a discovery service and of all services to which the logs refer, each once.
///
/// # Errors
/// The first service failed. Errors of other services are in [`Discovered::failures`].
pub fn discover_all(
    provider: &dyn Provider,
    options: &HostOptions,
) -> Result<Discovered, HostError> {
    let mut itinerary = Itinerary::from(Service {
        address: options.remote,
        subnqn: Nqn::discovery(),
    });
    let mut found = Discovered {
        logs: Vec::new(),
        failures: Vec::new(),
        left_out: 0,
    };
    while let Some(service) = itinerary.next() {
        let options = HostOptions {
            remote: service.address,
            ..options.clone()
        };
        match discover_at(provider, &options, service.subnqn) {
            Ok(log) => {
                itinerary.learn(&log);
                found.logs.push((service, log));
            }
            Err(error) if found.logs.is_empty() => return Err(error),
            Err(error) => found.failures.push((service, error)),
        }
    }
    found.left_out = itinerary.left_out;
    Ok(found)
}

impl Host {
    /// Reads the discovery log and re-arms its event. Blocks.
    ///
    /// # Errors
    /// As [`run`](Self::run), or the log keeps changing or has too many entries.
    pub fn discovery_log(&mut self) -> Result<DiscoveryLog, HostError> {
        for _ in 0..ATTEMPTS {
            let header = self.discovery_header(true)?;
            let numrec = header.numrec.get();
            if numrec > ENTRIES_MAX {
                let why = format!("the discovery log claims {numrec} entries");
                return Err(HostError::Unsupported(why));
            }
            let entries = self.discovery_entries(numrec as usize)?;
            // If GENCTR has changed, the entries may be inconsistent (Base, 5.16.1.23).
            if self.discovery_header(false)?.genctr == header.genctr {
                let genctr = header.genctr.get();
                return Ok(DiscoveryLog { genctr, entries });
            }
        }
        let why = "the discovery log changes faster than it can be read".to_owned();
        Err(HostError::Unsupported(why))
    }

    fn discovery_header(&mut self, retain: bool) -> Result<DiscoveryLogHeader, HostError> {
        let length = size_of::<DiscoveryLogHeader>();
        let bytes = self.log_page(LogPage::DISCOVERY, 0, length, retain)?;
        Ok(DiscoveryLogHeader::read_from_bytes(&bytes).expect("as long as was asked for"))
    }

    fn discovery_entries(&mut self, count: usize) -> Result<Vec<DiscoveryEntry>, HostError> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let offset = size_of::<DiscoveryLogHeader>() as u64;
        let length = count * size_of::<DiscoveryEntry>();
        let bytes = self.log_page(LogPage::DISCOVERY, offset, length, true)?;
        Ok(bytes
            .chunks_exact(size_of::<DiscoveryEntry>())
            .map(|entry| DiscoveryEntry::read_from_bytes(entry).expect("a whole chunk"))
            .collect())
    }
}
