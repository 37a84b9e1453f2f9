//! Connection to a controller for one command line.

use std::time::Duration;

use nvme_proto::wire::Nqn;
use nvme_proto::wire::identify::IdentifyNamespace;
use nvme_proto::wire::log::{DiscoveryEntry, SubsystemType};

use clap::Args;

use super::Result;
use super::address::Address;
use super::number::number;
use cairn_bench::Format;
use cairn_initiator::providers::Provided;
use cairn_initiator::{DiscoveryLog, Host, HostError, HostOptions, Namespace as Disk, Recovery};

const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Session {
    pub(super) provided: Provided,
    address: Address,
}

#[derive(Debug)]
pub(super) struct Namespace {
    pub(super) nsid: u32,
    pub(super) identity: Box<IdentifyNamespace>,
    /// Opened namespace, or the reason why this host does not support it.
    disk: Result<Disk>,
}

/// Selection of a namespace.
#[derive(Debug, Args)]
pub(super) struct Where {
    #[command(flatten)]
    pub(super) address: Address,
    /// Namespace; required only if there are several
    #[arg(short = 'N', long, value_name = "NSID", value_parser = number::<u32>)]
    namespace_id: Option<u32>,
}

/// Selected namespace, which this host supports.
pub(super) struct Found {
    pub(super) session: Session,
    pub(super) subsystem: Nqn,
    pub(super) namespace: Namespace,
    pub(super) format: Format,
}

impl Where {
    /// Connects to find the namespace, and disconnects.
    pub(super) fn find(&self) -> Result<Found> {
        let session = Session::new(&self.address)?;
        let subsystem = session.subsystem()?;
        let mut host = session.connect_to(subsystem, 1)?;
        let namespace = namespace(&mut host, self.namespace_id)?;
        let format = namespace.format(&host)?;
        host.shutdown().map_err(text)?;
        Ok(Found {
            session,
            subsystem,
            namespace,
            format,
        })
    }
}

impl Session {
    pub(super) fn new(address: &Address) -> Result<Self> {
        Ok(Self {
            provided: address.provided()?,
            address: address.clone(),
        })
    }

    pub(super) fn discovery_log(&self) -> Result<DiscoveryLog> {
        let mut host = self.connect_to(Nqn::discovery(), 0)?;
        let log = host.discovery_log().map_err(text)?;
        host.shutdown().map_err(text)?;
        Ok(log)
    }

    pub(super) fn subsystem(&self) -> Result<Nqn> {
        if let Some(nqn) = self.address.subsystem()? {
            return Ok(nqn);
        }
        let names = subsystems(&self.discovery_log()?.entries)?;
        match &names[..] {
            [only] => Ok(*only),
            [] => Err("the target has no subsystem for this host: name one by -n".to_owned()),
            several => {
                let names: Vec<_> = several.iter().map(Nqn::to_string).collect();
                Err(format!(
                    "the target has several subsystems, name one by -n:\n  {}",
                    names.join("\n  ")
                ))
            }
        }
    }

    pub(super) fn connect(&self, io_queues: u16) -> Result<Host> {
        self.connect_to(self.subsystem()?, io_queues)
    }

    pub(super) fn connect_to(&self, subnqn: Nqn, io_queues: u16) -> Result<Host> {
        self.connect_by(HostOptions {
            io_queues,
            timeout: PATIENCE,
            // No reconnection: the user can repeat the command.
            recovery: Recovery::NONE,
            ..self.options(subnqn)?
        })
    }

    pub(super) fn options(&self, subnqn: Nqn) -> Result<HostOptions> {
        self.address.options(subnqn)
    }

    pub(super) fn connect_by(&self, options: HostOptions) -> Result<Host> {
        Host::connect_on(&self.provided.device, options).map_err(text)
    }
}

pub(super) fn subsystems(entries: &[DiscoveryEntry]) -> Result<Vec<Nqn>> {
    let mut names: Vec<Nqn> = Vec::new();
    for entry in entries {
        if SubsystemType(entry.subtype) == SubsystemType::NVM {
            let name = Nqn::decode(&entry.subnqn)
                .map_err(|error| format!("the discovery log contains an invalid NQN: {error}"))?;
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    Ok(names)
}

pub(super) fn namespace(host: &mut Host, nsid: Option<u32>) -> Result<Namespace> {
    let all = host.active_namespaces().map_err(text)?;
    let nsid = match (nsid, &all[..]) {
        (Some(nsid), _) if all.contains(&nsid) => nsid,
        (None, [only]) => *only,
        (_, []) => return Err("the subsystem has no namespace".to_owned()),
        (wanted, _) => {
            let names: Vec<_> = all.iter().map(u32::to_string).collect();
            let names = names.join(", ");
            return Err(match wanted {
                Some(nsid) => {
                    format!("namespace {nsid} does not exist; the namespaces are {names}")
                }
                None => format!("there are several namespaces, name one by -N: {names}"),
            });
        }
    };
    let identity = host.namespace(nsid).map_err(text)?;
    let disk = match host.open_namespace(nsid) {
        // An unsupported namespace can be displayed, but not read or written.
        Err(HostError::Unsupported(why)) => Err(why),
        opened => Ok(opened.map_err(text)?),
    };
    Ok(Namespace {
        nsid,
        identity,
        disk,
    })
}

impl Namespace {
    pub(super) fn format(&self, host: &Host) -> Result<Format> {
        Ok(Format::of(&self.disk()?, host))
    }

    pub(super) fn disk(&self) -> Result<Disk> {
        self.disk.clone()
    }
}

pub(super) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
