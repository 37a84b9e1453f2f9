//! Validated configuration.

mod ana;
mod dhchap;
mod nguid;
mod pool;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cairn_rbd::Spec as ImageSpec;
use cairn_rdma::marking::{Marking, Prefix, Rules};
use cairn_rdma::{PKey, Roce, Traddr, Trid};
use nvme_proto::ana::AnaStates;
use nvme_proto::limits::{NAMESPACES_MAX, PAGE_BYTES};
use nvme_proto::wire::Nqn;
use uuid::Uuid;

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
/// Default busy-poll time of a reactor in microseconds (`poll_idle_us`).
pub const POLL_IDLE_DEFAULT_US: u16 = 1000;
/// Maximum listeners of a target.
pub const LISTENERS_MAX: usize = 64;
/// Maximum subsystems of a target.
pub const SUBSYSTEMS_MAX: usize = 1024;
/// Highest NSID of a subsystem, which is also its maximum number of namespaces (NN, MNAN).
pub const NSID_MAX: u32 = NAMESPACES_MAX;
/// Maximum number of memory namespaces (`mem:`). Each registers one memory region per device, and
/// the soft provider has 8,192 regions.
pub(crate) const MEMORY_NAMESPACES_MAX: usize = 6 << 10;
/// Maximum hosts in the list of a subsystem or namespace.
pub const ALLOWED_HOSTS_MAX: usize = 4096;
/// Maximum host groups of a target.
pub const HOST_GROUPS_MAX: usize = 1024;
/// Maximum keys in the keyring.
pub const KEYS_MAX: usize = 4096;
/// Prefix of the name of a keyring key.
pub const KEY_PREFIX: &str = "key:";
/// Prefix of a group name in a host list.
pub const GROUP_PREFIX: char = '@';
/// Maximum addresses and prefixes that a listener may list.
pub const ALLOWED_ADDRESSES_MAX: usize = 1024;
/// Maximum referrals of a target.
pub const REFERRALS_MAX: usize = 1024;
/// Maximum packet-marking rules of a target.
pub const MARKING_RULES_MAX: usize = 1024;
/// Maximum reactors of a target.
pub const REACTORS_MAX: usize = 64;
/// Default port of the metrics page.
pub const METRICS_PORT_DEFAULT: u16 = 9464;

/// Complete and checked configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Settings of the process.
    pub target: Target,
    /// The metrics page.
    pub metrics: Metrics,
    /// The audit log.
    pub audit: Audit,
    /// The control socket.
    pub control: ControlSettings,
    /// Packet marking rules by host; the listener's values apply to hosts without a matching rule.
    pub marking: Arc<Rules>,
    /// At least one listener, unless the control socket can add listeners; addresses are distinct.
    pub listeners: Vec<Listener>,
    /// DH-HMAC-CHAP parameters of subsystems that set none.
    pub dhchap: DhchapPolicy,
    /// Distinct referrals to other discovery services.
    pub referrals: Vec<Referral>,
    /// Keyring; key names are distinct.
    pub keys: Vec<NamedKey>,
    /// Host groups; names are distinct.
    pub host_groups: Vec<HostGroup>,
    /// Subsystems; NQNs are distinct.
    pub subsystems: Vec<Subsystem>,
}

/// Settings of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Number and placement of reactors.
    pub reactors: Reactors,
    /// Maximum time that an idle reactor busy-polls before it sleeps.
    pub poll_idle: Duration,
    /// True if completions of NVMe drives are polled where the driver supports it.
    pub poll_drives: bool,
    /// Time after which a disk command is cancelled; 0 disables the timeout.
    pub io_timeout: Duration,
    /// Data buffer memory of each reactor in bytes, at least two transfers of `max_transfer_bytes`.
    pub data_buffers_bytes: u64,
    /// Receives posted by each reactor on each device (shared receive queue).
    pub receives: u32,
    /// Maximum in-capsule data in bytes: 0, or a multiple of 512 up to 16 KiB.
    pub in_capsule_data_bytes: u32,
    /// Maximum transfer of a command in bytes, a power of two.
    pub max_transfer_bytes: u32,
    /// Entries of an I/O queue, 16 to 1024.
    pub queue_depth: u16,
    /// Maximum I/O queues of a controller.
    pub io_queues: u16,
    /// NQN of the discovery service: the well-known one or a unique one.
    pub discovery_nqn: Nqn,
    /// RoCE version of soft listeners that set none.
    pub roce: Roce,
    /// True if the soft provider reacts to congestion notifications.
    pub congestion_control: bool,
    /// True if the soft provider sends super-packets (segmentation offload).
    pub segmentation_offload: bool,
    /// Log filter and format.
    pub log: Log,
}

/// The metrics page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Listen address; `None` for no metrics page. Port 0 lets the system choose.
    pub listen: Option<SocketAddr>,
}

/// Destinations of the audit log. Without any, no audit log is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audit {
    /// Absolute path of a file to which lines are appended.
    pub file: Option<PathBuf>,
    /// True if lines go to the systemd journal.
    pub journal: bool,
    /// Absolute path of a Unix datagram socket to which lines are sent.
    pub datagram: Option<PathBuf>,
}

/// The control socket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControlSettings {
    /// Path setting of the socket.
    pub socket: ControlSocket,
    /// Group that may use the socket besides the target's user; `None` for the target's own group.
    pub group: Option<String>,
    /// True if requests that change the target are refused.
    pub read_only: bool,
    /// Disks that requests may export; `None` permits every disk that the target can open.
    pub exports: Option<Exports>,
}

/// Path setting of the control socket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ControlSocket {
    /// Default path, unless another target listens there.
    #[default]
    Usual,
    /// Absolute path.
    At(PathBuf),
    /// No control socket.
    Off,
}

/// Number and placement of reactors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reactors {
    /// The target chooses the number and the cores.
    Auto,
    /// Number of reactors on cores that the target chooses.
    Count(usize),
    /// One reactor on each of these cores.
    Cores(Vec<usize>),
}

/// Logging.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// Directives for tracing's `EnvFilter`.
    pub filter: String,
    /// Format of a line.
    pub format: LogFormat,
}

/// Format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Human-readable text.
    Text,
    /// One JSON object for each line.
    Json,
}

/// RDMA provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// `Verbs` if an RDMA device owns the address, otherwise `Soft`.
    Auto,
    /// RDMA device through libibverbs.
    Verbs,
    /// RoCE in user space.
    Soft,
}

/// Address to which hosts connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Address of this machine, or the wildcard of a family.
    pub address: Traddr,
    /// Port of the listener.
    pub port: u16,
    /// RDMA provider of the listener.
    pub provider: Provider,
    /// RoCE version of the soft provider; `None` for the target's default.
    pub roce: Option<Roce>,
    /// Traffic class of sent packets; with `None`, packets to a host copy the traffic class of its
    /// packets.
    pub traffic_class: Option<u8>,
    /// Hop limit of sent packets; `None` for the provider's default.
    pub hop_limit: Option<u8>,
    /// Partition key; hosts of other partitions cannot connect.
    pub pkey: PKey,
    /// Source addresses that may connect; `None` permits all.
    pub allowed_addresses: Option<Vec<Prefix>>,
    /// Maximum number of unanswered connection requests.
    pub backlog: u32,
    /// PORTID of the NVM subsystem port, unique among the listeners.
    pub port_id: u16,
    /// ANA state of each group at this listener.
    pub ana: AnaStates,
}

/// Referral to another discovery service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Referral {
    /// Address of the service.
    pub address: SocketAddr,
    /// NQN of the service.
    pub nqn: Nqn,
}

/// Named group of hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostGroup {
    /// Name without [`GROUP_PREFIX`].
    pub name: Arc<str>,
    /// Hosts in the group.
    pub hosts: Arc<BTreeSet<Nqn>>,
}

/// NVM subsystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subsystem {
    /// NQN, never the discovery NQN.
    pub nqn: Nqn,
    /// Serial number (SN), 1 to 20 printable ASCII characters.
    pub serial: String,
    /// Model number (MN), 1 to 40 printable ASCII characters.
    pub model: String,
    /// CNTLIDs of the subsystem's controllers.
    pub controller_ids: RangeInclusive<u16>,
    /// True if every host may connect.
    pub allow_any_host: bool,
    /// Hosts that may connect if `allow_any_host` is false. Keys exist only for hosts in this list.
    pub allowed_hosts: HostList,
    /// Addresses of the listeners that lead to the subsystem; `None` for all listeners.
    pub listeners: Option<Vec<Trid>>,
    /// Overrides of the listeners' ANA states, by listener address.
    pub ana: BTreeMap<Trid, AnaOverride>,
    /// Authentication of hosts.
    pub authentication: Authentication,
    /// Limits of all hosts together, over all namespaces of the subsystem.
    pub limits: Limits,
    /// Limits of each host by itself, over all namespaces of the subsystem.
    pub limits_per_host: Limits,
    /// Limits of single hosts, which replace `limits_per_host`.
    pub limits_of_hosts: BTreeMap<Nqn, Limits>,
    /// Namespaces with distinct NSIDs in ascending order.
    pub namespaces: Vec<Namespace>,
    /// Directories whose files are namespaces. A later scan adds these namespaces; `namespaces`
    /// lacks them here.
    pub pools: Vec<Pool>,
}

/// Visibility of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Every host of the subsystem.
    AnyHost,
    /// The listed hosts.
    Hosts(HostList),
}

/// List of hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostList {
    /// Hosts of the list and of its groups; equal lists share one set.
    pub hosts: Arc<BTreeSet<Nqn>>,
    /// Names of the groups in the list.
    pub groups: Vec<Arc<str>>,
}

/// DH-HMAC-CHAP settings of a subsystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authentication {
    /// Keys of hosts that are not in `hosts`; with `None`, those hosts connect without
    /// authentication.
    pub others: Option<Keys>,
    /// Keys of single hosts, at most one entry per host. Each of these hosts may connect.
    pub hosts: Vec<(Nqn, Keys)>,
    /// True if hosts without a key are refused.
    pub is_required: bool,
    /// Accepted hash functions and Diffie-Hellman groups.
    pub policy: DhchapPolicy,
}

impl Authentication {
    /// True if this host must authenticate.
    #[must_use]
    pub fn is_asked_of(&self, host: &Nqn) -> bool {
        let has_own = || self.hosts.iter().any(|(other, _)| other == host);
        self.is_required || self.others.is_some() || has_own()
    }
}

/// Keys of a host and of its controllers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    /// Key with which the host authenticates.
    pub host: KeySource,
    /// Key with which the controller authenticates if the host requests it.
    pub controller: Option<KeySource>,
}

/// Source of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// Absolute path of a file.
    File(PathBuf),
    /// Name of a systemd credential.
    Credential(String),
    /// Key in the configuration itself, readable with the file.
    Inline(InlineKey),
    /// Entry of the keyring.
    Named(NamedKey),
}

/// Keyring entry, which hosts refer to as "key:NAME".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedKey {
    /// Name of the key.
    pub name: String,
    /// File with the key.
    pub path: PathBuf,
    /// True if the key was removed while in use, so that its hosts cannot authenticate.
    pub is_removed: bool,
}

/// Namespace of a subsystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    /// NSID, 1 to [`NSID_MAX`].
    pub nsid: u32,
    /// Bdev name at the control socket, if set.
    pub name: Option<String>,
    /// Storage behind the namespace.
    pub backing: Backing,
    /// Configured UUID; with `None`, the namespace has the UUID of its disk.
    pub uuid: Option<Uuid>,
    /// Configured NGUID; with `None`, the namespace has the NGUID of its NVMe drive, if any.
    pub nguid: Option<Nguid>,
    /// Logical block size; with `None`, the block size of the backing.
    pub block_size: Option<BlockSize>,
    /// True if writes are refused.
    pub read_only: bool,
    /// True if hosts may write-protect the namespace.
    pub write_protection: bool,
    /// File that keeps the write protection across restarts.
    pub write_protection_file: Option<PathBuf>,
    /// True if other processes or machines also export the disk.
    pub shared: bool,
    /// ANA group (ANAGRPID).
    pub ana_group: u32,
    /// Hosts to which the namespace is visible.
    pub hosts: Access,
    /// Identity of the file, if the namespace is a file of a [`Pool`].
    pub pooled: Option<PooledFile>,
    /// Limits of all hosts together on this namespace.
    pub limits: Limits,
}

/// Storage behind a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Backing {
    /// Block device or file, by absolute path.
    Disk(PathBuf),
    /// Image of a Ceph cluster.
    Rbd(ImageSpec),
    /// Memory of the process, lost when the process ends.
    Memory {
        /// Size in bytes, a nonzero multiple of the block size.
        bytes: u64,
    },
    /// No storage: writes are discarded and reads return zeroes.
    Null {
        /// Size in bytes, a nonzero multiple of the block size.
        bytes: u64,
    },
}

/// Logical block size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockSize {
    /// 512 bytes.
    B512,
    /// 4096 bytes.
    B4096,
}

impl Config {
    /// Replaces each host set that equals one of `former`, so that both configurations share its
    /// memory.
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

    /// Returns the listeners that lead to a subsystem.
    pub fn listeners_of(&self, subsystem: &Subsystem) -> impl Iterator<Item = &Listener> {
        let listeners = self.listeners.iter();
        listeners.filter(|listener| subsystem.is_behind(listener))
    }

    /// Returns the RoCE version of a soft listener: its own or the target's.
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
    /// Returns the hosts listed by NQN: members of the list that are in none of its groups.
    pub fn single<'a>(&'a self, groups: &'a [HostGroup]) -> impl Iterator<Item = &'a Nqn> {
        let of_groups = groups.iter().filter(|one| self.groups.contains(&one.name));
        let of_groups: Vec<&BTreeSet<Nqn>> = of_groups.map(|one| &*one.hosts).collect();
        let is_whole = of_groups.iter().any(|all| std::ptr::eq(*all, &*self.hosts));
        let hosts = self.hosts.iter().filter(move |_| !is_whole);
        hosts.filter(move |host| !of_groups.iter().any(|all| all.contains(host)))
    }
}

impl Target {
    /// Returns MDTS of Identify Controller: binary logarithm of the maximum transfer in pages of 4
    /// KiB (NVMe Base 2.0, figure 275).
    #[must_use]
    pub fn mdts(&self) -> u8 {
        (self.max_transfer_bytes / PAGE_BYTES).ilog2() as u8
    }
}

impl Listener {
    /// Returns the address with the port.
    #[must_use]
    pub fn trid(&self) -> Trid {
        Trid::new(self.address, self.port)
    }

    /// True if a host with this address may connect to the listener.
    #[must_use]
    pub fn allows(&self, host: IpAddr) -> bool {
        let host = host.to_canonical();
        let allowed = self.allowed_addresses.as_deref();
        allowed.is_none_or(|allowed| allowed.iter().any(|prefix| prefix.includes(host)))
    }

    /// Returns the packet marking for hosts without a matching rule.
    #[must_use]
    pub fn marking(&self) -> Marking {
        Marking {
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
        }
    }
}

impl Access {
    /// Returns the hosts to which the namespace is visible, or `None` if it is visible to all.
    #[must_use]
    pub fn list(&self) -> Option<&HostList> {
        match self {
            Self::AnyHost => None,
            Self::Hosts(list) => Some(list),
        }
    }
}

impl Subsystem {
    /// True if this host may connect.
    #[must_use]
    pub fn allows(&self, host: &Nqn) -> bool {
        self.allow_any_host || self.allowed_hosts.hosts.contains(host)
    }

    /// True if the listener leads to this subsystem.
    #[must_use]
    pub fn is_behind(&self, listener: &Listener) -> bool {
        let own = self.listeners.as_ref();
        own.is_none_or(|own| own.contains(&listener.trid()))
    }

    /// Returns the ANA states of this subsystem at a listener, with overrides applied.
    #[must_use]
    pub fn ana_at(&self, listener: &Listener) -> AnaStates {
        let own = self.ana.get(&listener.trid());
        own.map_or(listener.ana, |own| own.over(&listener.ana))
    }
}

impl BlockSize {
    /// Returns the block size in bytes.
    #[must_use]
    pub fn bytes(self) -> u32 {
        1 << self.shift()
    }

    /// Returns the binary logarithm of the block size: LBADS of the LBA format (NVM 1.0, figure
    /// 98).
    #[must_use]
    pub fn shift(self) -> u8 {
        match self {
            Self::B512 => 9,
            Self::B4096 => 12,
        }
    }
}
