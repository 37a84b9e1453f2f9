//! Options of `nvme connect`: controller, host identity and connection.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cairn_base::traddr::ends;
use cairn_base::{Traddr, TraddrError, Trid};
use cairn_doctor::priorities::Priorities;
use cairn_doctor::source::Live;
use cairn_rdma::marking::Rules;
use cairn_rdma::{AckTimeout, PKey};
use clap::{Args, ValueEnum};
use nvme_proto::wire::{Escaped, Nqn};

use super::Result;
use super::number::{number, number_in};
use cairn_initiator::identity;
use cairn_initiator::providers::{Provided, RdmaOptions};
use cairn_initiator::{HostOptions, Recovery, Secret, SecretError, Secrets};
use zeroize::Zeroizing;

const PORT: u16 = 4420;

/// Default of `queue_size`, as in Linux.
const QUEUE_ENTRIES: u16 = 128;

/// Options with the names of nvme-cli.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Controller")]
pub(super) struct Address {
    /// Transport type
    #[arg(short = 't', long, value_enum, default_value_t = Transport::Rdma)]
    transport: Transport,
    /// Address of the target: IPv4, IPv6, or a name
    #[arg(short = 'a', long, value_name = "ADDR")]
    traddr: String,
    /// Port of the target
    #[arg(short = 's', long, value_name = "PORT", default_value_t = PORT, value_parser = number::<u16>)]
    trsvcid: u16,
    /// Name of the subsystem; required only if the target has several
    #[arg(short = 'n', long, value_name = "NQN")]
    nqn: Option<String>,
    /// NQN of this host [default: /etc/nvme/hostnqn, else made from the machine's ID]
    #[arg(short = 'q', long, value_name = "NQN")]
    hostnqn: Option<String>,
    /// UUID of this host [default: /etc/nvme/hostid, else the UUID in the host's NQN]
    #[arg(short = 'I', long, value_name = "UUID")]
    hostid: Option<String>,
    /// Secret by which this host authenticates, DHHC-1:...; other users of this machine can read it
    /// in the list of processes
    #[arg(long, value_name = "SECRET", conflicts_with = "dhchap_secret_file")]
    dhchap_secret: Option<Hidden>,
    /// File with the secret of --dhchap-secret
    #[arg(long, value_name = "FILE")]
    dhchap_secret_file: Option<PathBuf>,
    /// Secret by which the target must authenticate, DHHC-1:...
    #[arg(
        long,
        value_name = "SECRET",
        conflicts_with = "dhchap_ctrl_secret_file"
    )]
    dhchap_ctrl_secret: Option<Hidden>,
    /// File with the secret of --dhchap-ctrl-secret
    #[arg(long, value_name = "FILE")]
    dhchap_ctrl_secret_file: Option<PathBuf>,
    /// Interval in seconds at which each queue authenticates again
    #[arg(long, value_name = "SECONDS", value_parser = |text: &str| number_in::<u64>(text, 1..=u64::MAX))]
    dhchap_reauthenticate: Option<u64>,
    /// Address of this machine to connect from
    #[arg(short = 'w', long, value_name = "ADDR")]
    host_traddr: Option<Traddr>,
    /// Number of I/O queues
    #[arg(short = 'i', long, value_name = "N", value_parser = |text: &str| number_in::<u16>(text, 1..=128))]
    nr_io_queues: Option<u16>,
    /// Entries of each I/O queue
    #[arg(short = 'Q', long, value_name = "N", value_parser = |text: &str| number_in::<u16>(text, 16..=1024))]
    queue_size: Option<u16>,
    /// Keep alive timeout in seconds; 0: none
    #[arg(short = 'k', long, value_name = "SECONDS", default_value_t = 5, value_parser = number::<u32>)]
    keep_alive_tmo: u32,
    /// Seconds between attempts to reconnect
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = number::<u64>)]
    reconnect_delay: u64,
    /// Seconds until reconnecting is given up; -1: never, 0: at once
    #[arg(
        short = 'l',
        long,
        value_name = "SECONDS",
        default_value_t = 600,
        allow_hyphen_values = true, value_parser = number::<i64>)]
    ctrl_loss_tmo: i64,
    /// Type of service of this host's packets: DSCP in bits 7 to 2
    #[arg(short = 'T', long, value_name = "TOS", value_parser = number::<u8>)]
    tos: Option<u8>,
    /// Hop limit (TTL) of this host's packets
    #[arg(long, value_name = "HOPS", value_parser = |text: &str| number_in::<u8>(text, 1..=u64::MAX))]
    hop_limit: Option<u8>,
    /// Partition key of this host, such as 0x8001: the target's listener must be in the same
    /// partition
    #[arg(long, value_name = "KEY", default_value_t = PKey::DEFAULT)]
    pkey: PKey,
    /// Milliseconds after which an adapter repeats packets that were not acknowledged
    #[arg(long, value_name = "MS", value_parser = |text: &str| number_in::<u16>(text, 1..=8000))]
    ack_timeout_ms: Option<u16>,
    /// Rule for traffic class and hop limit of packets, such as tclass=104,dst_ip=192.0.2.0/24;
    /// overrides -T; repeatable
    #[arg(long, value_name = "RULE")]
    mark: Vec<String>,
    #[command(flatten)]
    rdma: RdmaOptions,
}

/// Text of a secret, which `Debug` does not print.
#[derive(Clone)]
struct Hidden(Zeroizing<String>);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hidden")
    }
}

impl std::str::FromStr for Hidden {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        Ok(Self(Zeroizing::new(text.to_owned())))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Transport {
    /// RDMA over InfiniBand, iWARP or RoCE
    Rdma,
}

impl Address {
    pub(super) fn subsystem(&self) -> Result<Option<Nqn>> {
        let nqn = self.nqn.as_deref().map(|nqn| parse_nqn("-n", nqn));
        match nqn.transpose()? {
            Some(nqn) if nqn.is_empty() => Err("-n: no subsystem has an empty name".to_owned()),
            nqn => Ok(nqn),
        }
    }

    pub(super) fn io_queues(&self) -> u16 {
        self.nr_io_queues.unwrap_or(1)
    }

    pub(super) fn provided(&self) -> Result<Provided> {
        let (remote, local) = self.ends()?;
        Provided::choose(self.rdma, remote, local)
    }

    /// Seconds of `--ctrl-loss-tmo`, and the most that Linux can store for no limit.
    pub(super) fn patience_s(&self) -> u64 {
        u64::try_from(self.ctrl_loss_tmo).unwrap_or(u32::MAX.into())
    }

    /// Returns the priorities in VLAN tags of packets to the target, or `None` for untagged
    /// packets.
    pub(super) fn priorities(&self, provider: &str) -> Result<Option<Priorities>> {
        let is_soft = provider == "soft";
        if is_soft && self.rdma.vlan.is_some() {
            return Ok(Some(Priorities::OF_LEVEL));
        }
        let machine = Live::machine();
        let (remote, local) = self.ends()?;
        Ok(match local {
            Some(local) => Priorities::of(&machine, local, !is_soft),
            None => Priorities::toward(&machine, remote.ip(), !is_soft),
        })
    }

    pub(super) fn options(&self, subnqn: Nqn) -> Result<HostOptions> {
        let host = identity::of_this_host(
            self.hostnqn
                .as_deref()
                .map(|nqn| parse_nqn("-q", nqn))
                .transpose()?,
            self.hostid.as_deref(),
        )?;
        let rules = Rules::parse(self.mark.iter().map(String::as_str));
        let rules = rules.map_err(|error| format!("--mark: {error}"))?;
        let seconds = Duration::from_secs;
        let recovery = Recovery {
            ctrl_loss_tmo: u64::try_from(self.ctrl_loss_tmo).ok().map(seconds),
            reconnect_delay: seconds(self.reconnect_delay),
            ..Recovery::default()
        };
        let authentication = self.secrets()?;
        if self.dhchap_reauthenticate.is_some() && authentication.is_none() {
            return Err("--dhchap-reauthenticate: give --dhchap-secret, too".to_owned());
        }
        let (remote, local) = self.ends()?;
        Ok(HostOptions {
            authentication,
            reauthenticate_every: self.dhchap_reauthenticate.map(seconds),
            local,
            pkey: self.pkey,
            io_queues: self.io_queues(),
            queue_entries: self.queue_size.unwrap_or(QUEUE_ENTRIES),
            kato_ms: self.keep_alive_tmo.saturating_mul(1000),
            traffic_class: self.tos,
            hop_limit: self.hop_limit,
            ack_timeout: self.ack_timeout(),
            marking_rules: Arc::new(rules),
            recovery,
            ..HostOptions::new(remote, subnqn, host)
        })
    }

    fn ack_timeout(&self) -> Option<AckTimeout> {
        let time = |ms: u16| Duration::from_millis(ms.into());
        self.ack_timeout_ms.map(time).map(AckTimeout::at_least)
    }

    fn secrets(&self) -> Result<Option<Secrets>> {
        let (text, file) = (&self.dhchap_secret, &self.dhchap_secret_file);
        let host = secret("--dhchap-secret", text.as_ref(), file.as_deref())?;
        let (text, file) = (&self.dhchap_ctrl_secret, &self.dhchap_ctrl_secret_file);
        let controller = secret("--dhchap-ctrl-secret", text.as_ref(), file.as_deref())?;
        match (host, controller) {
            (Some(host), controller) => Ok(Some(Secrets { host, controller })),
            (None, None) => Ok(None),
            (None, Some(_)) => Err(
                "--dhchap-ctrl-secret: a target authenticates only to a host that does, too: give \
                 --dhchap-secret"
                    .to_owned(),
            ),
        }
    }

    fn ends(&self) -> Result<(SocketAddr, Option<IpAddr>)> {
        let remote = resolve("-a", &self.traddr, self.trsvcid)?;
        local_end("-a", remote, self.host_traddr)
    }

    /// Parses another address of the target, whose port defaults to `trsvcid`.
    pub(super) fn other_remote(&self, text: &str) -> Result<SocketAddr> {
        let remote = match text.parse::<Trid>() {
            Ok(trid) => trid
                .resolve()
                .map_err(|error| format!("--path {text}: {error}"))?,
            Err(_) => resolve("--path", text, self.trsvcid)?,
        };
        Ok(local_end("--path", remote, self.host_traddr)?.0)
    }
}

pub(super) fn local_end(
    option: &str,
    remote: SocketAddr,
    local: Option<Traddr>,
) -> Result<(SocketAddr, Option<IpAddr>)> {
    let local = local.map(Traddr::resolve).transpose();
    let local = local.map_err(|error| format!("-w: {error}"))?;
    ends(remote, local).map_err(|error| format!("{option}: {error}"))
}

fn secret(option: &str, text: Option<&Hidden>, file: Option<&Path>) -> Result<Option<Secret>> {
    let parsed = match (text, file) {
        (Some(Hidden(text)), _) => text.parse(),
        (None, Some(path)) => {
            let read = std::fs::read_to_string(path).map(Zeroizing::new);
            let text =
                read.map_err(|error| format!("{option}-file {}: {error}", path.display()))?;
            text.parse()
        }
        (None, None) => return Ok(None),
    };
    let parsed: std::result::Result<Secret, SecretError> = parsed;
    parsed
        .map(Some)
        .map_err(|error| format!("{option}: {error}"))
}

fn resolve(option: &str, name: &str, port: u16) -> Result<SocketAddr> {
    let host = name.trim_start_matches('[').trim_end_matches(']');
    match host.parse::<Traddr>().and_then(Traddr::resolve) {
        Ok(address) => return Ok(address.at(port)),
        Err(TraddrError::NotAnAddress) => {}
        Err(error) => return Err(format!("{option} {name}: {error}")),
    }
    let found = (host, port).to_socket_addrs();
    let mut found = found.map_err(|error| format!("{option} {name}: {error}"))?;
    found
        .next()
        .ok_or_else(|| format!("{option} {name}: the name has no address"))
}

fn parse_nqn(option: &str, nqn: &str) -> Result<Nqn> {
    Nqn::parse(nqn).map_err(|error| format!("{option} {}: {error}", Escaped(nqn)))
}
