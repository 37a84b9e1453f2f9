mod ana;
mod dhchap;
mod nguid;
mod pool;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::{ImageSpec, Traddr, Trid};
use cairn_rdma::marking::{Marking, Prefix, Rules};
use cairn_rdma::{PKey, Roce};
use nvme_proto::ana::AnaStates;
use nvme_proto::limits::{NAMESPACES_MAX, PAGE_BYTES};
use nvme_proto::wire::Nqn;
use uuid::Uuid;

use crate::block_size::BlockSize;
use crate::exports::Exports;
use crate::limits::Limits;
use crate::secret::InlineKey;

pub use ana::{ANA_STATES, AnaOverride, ana_word, summary as ana_summary};
pub use dhchap::{DHCHAP_GROUPS, DHCHAP_HASHES, DhchapPolicy};
pub use nguid::Nguid;
pub(crate) use pool::DIRECTORY_PREFIX;
pub use pool::{FileId, LeftOut, Pool, PooledFile};

/// IANA port of NVMe over RDMA.
pub const PORT_DEFAULT: u16 = 4420;
/// Default of `poll_idle_us`: microseconds for which an idle reactor polls before it sleeps.
pub const POLL_IDLE_DEFAULT_US: u16 = 1000;
pub const LISTENERS_MAX: usize = 64;
pub const SUBSYSTEMS_MAX: usize = 1024;
/// Highest NSID and maximum number of namespaces of a subsystem (NN, MNAN).
pub const NSID_MAX: u32 = NAMESPACES_MAX;
/// Maximum memory namespaces (`mem:`). Each registers one memory region per device, and a device of
/// the soft provider has 8,192 regions.
pub(crate) const MEMORY_NAMESPACES_MAX: usize = 6 << 10;
pub const ALLOWED_HOSTS_MAX: usize = 4096;
pub const HOST_GROUPS_MAX: usize = 1024;
pub const KEYS_MAX: usize = 4096;
/// Prefix of a reference to a keyring key.
pub const KEY_PREFIX: &str = "key:";
/// Prefix of a group name in a host list.
pub const GROUP_PREFIX: char = '@';
pub const ALLOWED_ADDRESSES_MAX: usize = 1024;
pub const REFERRALS_MAX: usize = 1024;
pub const MARKING_RULES_MAX: usize = 1024;
pub const REACTORS_MAX: usize = 64;
pub const METRICS_PORT_DEFAULT: u16 = 9464;

/// Complete configuration that has passed all checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub file: Option<PathBuf>,
    pub target: Target,
    pub metrics: Metrics,
    pub audit: Audit,
    pub control: ControlSettings,
    /// Rules for traffic class and hop limit by host. Packets to hosts without a rule get the
    /// listener's values.
    pub marking: Arc<Rules>,
    /// Listeners with distinct addresses; empty only if the control socket can add listeners.
    pub listeners: Vec<Listener>,
    /// DH-HMAC-CHAP parameters of subsystems that set none.
    pub dhchap: DhchapPolicy,
    /// Distinct referrals.
    pub referrals: Vec<Referral>,
    /// Keyring, with distinct key names.
    pub keys: Vec<NamedKey>,
    /// Host groups with distinct names.
    pub host_groups: Vec<HostGroup>,
    /// Subsystems with distinct NQNs.
    pub subsystems: Vec<Subsystem>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub reactors: Reactors,
    pub poll_idle: Duration,
    pub poll_drives: bool,
    /// Time after which a disk command is cancelled; 0 means never.
    pub io_timeout: Duration,
    /// Data buffers of each reactor in bytes, at least two maximum transfers.
    pub data_buffers_bytes: u64,
    /// Receives that each reactor posts on each device (shared receive queue).
    pub receives: u32,
    /// Maximum in-capsule data in bytes: a multiple of 512, at most 16 KiB.
    pub in_capsule_data_bytes: u32,
    /// Maximum transfer of a command in bytes, a power of two.
    pub max_transfer_bytes: u32,
    /// Entries of an I/O queue, 16 to 1024.
    pub queue_depth: u16,
    pub io_queues: u16,
    pub state_directory: Option<PathBuf>,
    /// NQN of the discovery service, well-known or unique.
    pub discovery_nqn: Nqn,
    /// RoCE version of soft listeners that set none.
    pub roce: Roce,
    pub congestion_control: bool,
    pub segmentation_offload: bool,
    /// True if responses invalidate the host's rkey where the device supports that.
    pub send_with_invalidate: bool,
    /// Time after which an adapter repeats unacknowledged packets; `None` lets the connection
    /// manager choose.
    pub ack_timeout: Option<Duration>,
    pub log: Log,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Listen address; `None` disables the metrics page. For port 0, the system chooses the port.
    pub listen: Option<SocketAddr>,
}

/// Destinations of the audit log; without any, no log is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audit {
    pub file: Option<PathBuf>,
    pub journal: bool,
    pub datagram: Option<PathBuf>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControlSettings {
    pub socket: ControlSocket,
    /// Group that may use the socket besides the target's user; `None` for the target's group.
    pub group: Option<String>,
    pub read_only: bool,
    /// Disks that requests may export; `None` permits all.
    pub exports: Option<Exports>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ControlSocket {
    /// Default path; no socket while another target listens there.
    #[default]
    Usual,
    /// Absolute path.
    At(PathBuf),
    Off,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reactors {
    Auto,
    Count(usize),
    Cores(Vec<usize>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// Filter directives for tracing's `EnvFilter`.
    pub filter: String,
    pub format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// `Verbs` if an RDMA device owns the address, otherwise `Soft`.
    Auto,
    Verbs,
    Soft,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Address of this machine, or the wildcard of a family.
    pub address: Traddr,
    pub port: u16,
    pub provider: Provider,
    /// RoCE version of the soft provider; `None` for the target's default.
    pub roce: Option<Roce>,
    /// Traffic class of sent packets; `None` copies the class of the host's packets.
    pub traffic_class: Option<u8>,
    /// Hop limit of sent packets; `None` for the provider's default.
    pub hop_limit: Option<u8>,
    pub pkey: PKey,
    /// Source addresses that may connect; `None` permits all.
    pub allowed_addresses: Option<Vec<Prefix>>,
    pub backlog: u32,
    /// PORTID, unique among the listeners.
    pub port_id: u16,
    pub ana: AnaStates,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Referral {
    pub address: SocketAddr,
    pub nqn: Nqn,
}

/// Hosts that a list includes by `@NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostGroup {
    /// Name without [`GROUP_PREFIX`].
    pub name: Arc<str>,
    pub hosts: Arc<BTreeSet<Nqn>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subsystem {
    /// NQN, never the discovery NQN.
    pub nqn: Nqn,
    /// Serial number (SN), 1 to 20 printable ASCII characters.
    pub serial: String,
    /// Model number (MN), 1 to 40 printable ASCII characters.
    pub model: String,
    /// CNTLIDs, within 1 to 65519.
    pub controller_ids: RangeInclusive<u16>,
    pub allow_any_host: bool,
    /// Hosts that may connect if `allow_any_host` is false. Only these hosts can have their own
    /// keys.
    pub allowed_hosts: HostList,
    /// Addresses of the listeners that lead to the subsystem; `None` for all.
    pub listeners: Option<Vec<Trid>>,
    /// Overrides of the listeners' ANA states, by listener address.
    pub ana: BTreeMap<Trid, AnaOverride>,
    pub authentication: Authentication,
    /// Limits of all hosts together, over all namespaces.
    pub limits: Limits,
    /// Limits of each host, over all namespaces.
    pub limits_per_host: Limits,
    /// Limits of single hosts, instead of `limits_per_host`.
    pub limits_of_hosts: BTreeMap<Nqn, Limits>,
    /// Namespaces with distinct NSIDs in ascending order.
    pub namespaces: Vec<Namespace>,
    /// Directories whose files are namespaces. Each scan adds the files to `namespaces`.
    pub pools: Vec<Pool>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    AnyHost,
    Hosts(HostList),
}

/// Value of `allowed_hosts`, or of a namespace's `hosts`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostList {
    /// Hosts of the list and of its groups; equal lists share one set.
    pub hosts: Arc<BTreeSet<Nqn>>,
    pub groups: Vec<Arc<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authentication {
    /// Keys of all hosts not in `hosts`. With `None`, these hosts connect without authentication,
    /// or are refused if `is_required`.
    pub others: Option<Keys>,
    /// Keys of single hosts in `allowed_hosts`, at most one entry per host.
    pub hosts: Vec<(Nqn, Keys)>,
    /// True if hosts without a key are refused.
    pub is_required: bool,
    pub policy: DhchapPolicy,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    /// Key by which the host authenticates.
    pub host: KeySource,
    /// Key by which the controller authenticates, if the host requests that.
    pub controller: Option<KeySource>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// Absolute path of a file.
    File(PathBuf),
    Credential(String),
    /// Key in the configuration itself, readable by every program that can read the file.
    Inline(InlineKey),
    Named(NamedKey),
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Credential(name) => write!(f, "credential:{name}"),
            Self::Inline(_) => f.write_str("in the configuration file"),
            Self::Named(key) => write!(f, "{KEY_PREFIX}{}", key.name),
        }
    }
}

/// Keyring entry, referred to as "key:NAME".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedKey {
    /// Name without [`KEY_PREFIX`].
    pub name: String,
    pub path: PathBuf,
    /// True if the key was removed while in use: its hosts cannot authenticate.
    pub is_removed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    pub nsid: u32,
    /// Bdev name at the control socket.
    pub name: Option<String>,
    pub backing: Backing,
    /// Configured UUID; `None` for the UUID of the disk.
    pub uuid: Option<Uuid>,
    /// Configured NGUID; `None` for the NGUID of the NVMe drive, if any.
    pub nguid: Option<Nguid>,
    /// Logical block size; `None` for the block size of the backing.
    pub block_size: Option<BlockSize>,
    pub read_only: bool,
    pub write_protection: bool,
    pub write_protection_file: Option<PathBuf>,
    pub shared: bool,
    /// ANA group (ANAGRPID).
    pub ana_group: u32,
    pub hosts: Access,
    /// Identity of the file, for a namespace from a [`Pool`].
    pub pooled: Option<PooledFile>,
    /// Limits of all hosts together on this namespace.
    pub limits: Limits,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Backing {
    /// Block device or file, by absolute path.
    Disk(PathBuf),
    Rbd(ImageSpec),
    /// Memory of the process, lost when the process ends.
    Memory {
        /// Bytes, a nonzero multiple of the block size.
        bytes: u64,
    },
    /// No storage: writes are discarded, and reads return zeroes.
    Null {
        /// Bytes, a nonzero multiple of the block size.
        bytes: u64,
    },
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(path) => write!(f, "{}", path.display()),
            Self::Rbd(image) => image.fmt(f),
            Self::Memory { bytes } => write!(f, "mem:{bytes}"),
            Self::Null { bytes } => write!(f, "null:{bytes}"),
        }
    }
}

impl Config {
    /// Replaces each host set by an equal set of `former`, if any, so that both configurations
    /// share one copy.
    pub fn share_hosts(&mut self, former: &Self) {
        let mut seen = HashSet::new();
        let sets = former.host_sets();
        let sets: HashSet<_> = sets
            .filter(|set| seen.insert(Arc::as_ptr(set)))
            .cloned()
            .collect();
        let mut known = HashMap::new();
        for set in self.host_sets_mut() {
            let shared = known
                .entry(Arc::as_ptr(set))
                .or_insert_with(|| sets.get(set).unwrap_or(set).clone());
            *set = Arc::clone(shared);
        }
    }

    fn host_sets(&self) -> impl Iterator<Item = &Arc<BTreeSet<Nqn>>> {
        let of_subsystems = self.subsystems.iter().flat_map(|subsystem| {
            let namespaces = subsystem.namespaces.iter();
            let of_namespaces = namespaces.filter_map(|one| one.hosts.list());
            of_namespaces.chain([&subsystem.allowed_hosts])
        });
        let of_groups = self.host_groups.iter().map(|group| &group.hosts);
        of_groups.chain(of_subsystems.map(|list| &list.hosts))
    }

    pub fn listeners_of(&self, subsystem: &Subsystem) -> impl Iterator<Item = &Listener> {
        let listeners = self.listeners.iter();
        listeners.filter(|listener| subsystem.is_behind(listener))
    }

    #[must_use]
    pub fn roce_at(&self, listener: &Listener) -> Roce {
        listener.roce.unwrap_or(self.target.roce)
    }

    fn host_sets_mut(&mut self) -> impl Iterator<Item = &mut Arc<BTreeSet<Nqn>>> {
        let of_subsystems = self.subsystems.iter_mut().flat_map(|subsystem| {
            let namespaces = subsystem.namespaces.iter_mut();
            let of_namespaces = namespaces.filter_map(|one| match &mut one.hosts {
                Access::AnyHost => None,
                Access::Hosts(list) => Some(list),
            });
            of_namespaces.chain([&mut subsystem.allowed_hosts])
        });
        let of_subsystems = of_subsystems.map(|list| &mut list.hosts);
        let of_groups = self.host_groups.iter_mut().map(|group| &mut group.hosts);
        of_groups.chain(of_subsystems)
    }
}

impl HostList {
    /// Returns the hosts of the list that belong to none of its groups.
    pub fn single<'a>(&'a self, groups: &'a [HostGroup]) -> impl Iterator<Item = &'a Nqn> {
        let of_groups = groups.iter().filter(|one| self.groups.contains(&one.name));
        let of_groups: Vec<&BTreeSet<Nqn>> = of_groups.map(|one| &*one.hosts).collect();
        let is_whole = of_groups.iter().any(|all| std::ptr::eq(*all, &*self.hosts));
        let hosts = self.hosts.iter().filter(move |_| !is_whole);
        hosts.filter(move |host| !of_groups.iter().any(|all| all.contains(host)))
    }
}

impl Target {
    /// Returns MDTS: binary logarithm of the maximum transfer in 4 KiB pages (NVMe Base 2.0, figure
    /// 275).
    #[must_use]
    pub fn mdts(&self) -> u8 {
        (self.max_transfer_bytes / PAGE_BYTES).ilog2() as u8
    }
}

impl Listener {
    #[must_use]
    pub fn trid(&self) -> Trid {
        Trid::new(self.address, self.port)
    }

    #[must_use]
    pub fn allows(&self, host: IpAddr) -> bool {
        let host = host.to_canonical();
        let allowed = self.allowed_addresses.as_deref();
        allowed.is_none_or(|allowed| allowed.iter().any(|prefix| prefix.includes(host)))
    }

    /// Returns the marking of packets to hosts without a matching rule.
    #[must_use]
    pub fn marking(&self) -> Marking {
        Marking {
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
        }
    }
}

impl Access {
    #[must_use]
    pub fn list(&self) -> Option<&HostList> {
        match self {
            Self::AnyHost => None,
            Self::Hosts(list) => Some(list),
        }
    }
}

impl Subsystem {
    #[must_use]
    pub fn allows(&self, host: &Nqn) -> bool {
        self.allow_any_host || self.allowed_hosts.hosts.contains(host)
    }

    #[must_use]
    pub fn is_behind(&self, listener: &Listener) -> bool {
        let own = self.listeners.as_ref();
        own.is_none_or(|own| own.contains(&listener.trid()))
    }

    /// Returns the ANA states of this subsystem at a listener, overrides included.
    #[must_use]
    pub fn ana_at(&self, listener: &Listener) -> AnaStates {
        let own = self.ana.get(&listener.trid());
        own.map_or(listener.ana, |own| own.over(&listener.ana))
    }
}
