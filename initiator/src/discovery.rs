//! Which subsystems there are, and how to reach them.

use cairn_rdma::Provider;
use nvme_proto::wire::log::{DiscoveryEntry, DiscoveryLogHeader, LogPage};
use nvme_proto::wire::{FromBytes, Nqn};

use crate::error::HostError;
use crate::host::Host;
use crate::options::HostOptions;

/// Entries that this host is ready to hold. A target that claims more is refused.
const ENTRIES_MAX: u64 = 4096;
/// How often the log may change while it is read.
const ATTEMPTS: u32 = 8;

/// The discovery log page, read as one.
#[derive(Debug, Clone)]
pub struct DiscoveryLog {
    /// GENCTR: changes whenever the log does.
    pub genctr: u64,
    /// The entries.
    pub entries: Vec<DiscoveryEntry>,
}

/// Asks the discovery controller at `options.remote`, and leaves. Of the
/// options, subsystem and queues are not looked at.
///
/// # Errors
/// As for [`Host::connect`] and [`Host::run`].
pub fn discover(provider: &dyn Provider, options: &HostOptions) -> Result<DiscoveryLog, HostError> {
    let options = HostOptions {
        subnqn: Nqn::discovery(),
        io_queues: 0,
        ..options.clone()
    };
    let mut host = Host::connect(provider, options)?;
    let log = host.discovery_log()?;
    host.shutdown()?;
    Ok(log)
}

impl Host {
    /// The discovery log of a discovery controller. Blocks. Re-arms its event.
    ///
    /// # Errors
    /// As for [`run`](Self::run), or the log keeps changing, or is absurd.
    pub fn discovery_log(&mut self) -> Result<DiscoveryLog, HostError> {
        for _ in 0..ATTEMPTS {
            let header = self.discovery_header(true)?;
            let numrec = header.numrec.get();
            if numrec > ENTRIES_MAX {
                let why = format!("its discovery log claims {numrec} entries");
                return Err(HostError::Unsupported(why));
            }
            let entries = self.discovery_entries(numrec as usize)?;
            // Entries of two generations do not make a log (Base, 5.16.1.23).
            if self.discovery_header(false)?.genctr == header.genctr {
                let genctr = header.genctr.get();
                return Ok(DiscoveryLog { genctr, entries });
            }
        }
        let why = "its discovery log changes faster than it can be read".to_owned();
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
