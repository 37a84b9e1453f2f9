//! The configuration once it is known to be right.

mod ana;
mod dhchap;
mod pool;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cairn_rbd::Spec as ImageSpec;
use cairn_rdma::marking::{Marking, Prefix, Rules};
use cairn_rdma::{PKey, Roce};
use nvme_proto::ana::AnaStates;
use nvme_proto::limits::{NAMESPACES_MAX, PAGE_BYTES};
use nvme_proto::wire::Nqn;
use uuid::Uuid;

use crate::exports::Exports;
use crate::limits::Limits;
use crate::secret::InlineKey;

pub use ana::{ANA_STATES, AnaOverride, ana_word, summary as ana_summary};
pub use dhchap::{DHCHAP_GROUPS, DHCHAP_HASHES, DhchapPolicy};
pub(crate) use pool::DIRECTORY_PREFIX;
pub use pool::{FileId, LeftOut, Pool, PooledFile};

/// The port that the standard gives to NVMe over RDMA.
pub const PORT_DEFAULT: u16 = 4420;
/// How long a reactor may poll before it sleeps, in microseconds, unless `poll_idle_us` says.
pub const POLL_IDLE_DEFAULT_US: u16 = 1000;
/// Listeners of one target.
pub const LISTENERS_MAX: usize = 64;
/// Subsystems of one target.
pub const SUBSYSTEMS_MAX: usize = 1024;
/// The highest NSID, and so the most namespaces, of a subsystem (NN, MNAN).
pub const NSID_MAX: u32 = NAMESPACES_MAX;
/// Namespaces of memory (`mem:`) at most: each registers a memory region with each device, and RoCE in user
/// space has room for 8,192, some of which the reactors need.
pub(crate) const MEMORY_NAMESPACES_MAX: usize = 6 << 10;
/// Hosts that one subsystem, or one namespace, may list.
pub const ALLOWED_HOSTS_MAX: usize = 4096;
/// Groups of hosts of one target.
pub const HOST_GROUPS_MAX: usize = 1024;
/// Keys of one target's keyring.
pub const KEYS_MAX: usize = 4096;
/// What stands before the name of a key of the keyring.
pub const KEY_PREFIX: &str = "key:";
/// What stands before the name of a group in a list of hosts.
pub const GROUP_PREFIX: char = '@';
/// Addresses and prefixes that one listener may list.
pub const ALLOWED_ADDRESSES_MAX: usize = 1024;
/// Referrals of one target.
pub const REFERRALS_MAX: usize = 1024;
/// Rules of one target for the marking of packets.
pub const MARKING_RULES_MAX: usize = 1024;
/// Reactors of one target.
pub const REACTORS_MAX: usize = 64;
/// The port at which metrics are asked for, unless another is given.
pub const METRICS_PORT_DEFAULT: u16 = 9464;

/// A whole configuration, every part of it checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// What concerns the process as a whole.
    pub target: Target,
    /// The metrics page.
    pub metrics: Metrics,
    /// The audit log.
    pub audit: Audit,
    /// The control socket.
    pub control: Control,
    /// What the packets to each host carry; where no rule sets a value, the listener's counts.
    pub marking: Arc<Rules>,
    /// The addresses that hosts connect to: at least one, no two alike.
    pub listeners: Vec<Listener>,
    /// Parameters of authentication for subsystems without their own.
    pub dhchap: DhchapPolicy,
    /// Other discovery services, which hosts are referred to: no two alike.
    pub referrals: Vec<Referral>,
    /// The keyring, by name: no two alike.
    pub keys: Vec<NamedKey>,
    /// Groups of hosts, by name: no two alike.
    pub host_groups: Vec<HostGroup>,
    /// What hosts connect to: no two with one NQN.
    pub subsystems: Vec<Subsystem>,
}

/// What concerns the process as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// How many reactors run, and where.
    pub reactors: Reactors,
    /// How long a reactor without work polls at most before it sleeps.
    pub poll_idle: Duration,
    /// Whether commands to NVMe drives end by polling, where the driver can.
    pub poll_drives: bool,
    /// How long a disk may keep a command before it is cancelled; 0: for ever.
    pub io_timeout: Duration,
    /// Memory of each reactor for data, in bytes; at least two of the largest
    /// transfers.
    pub data_buffers_bytes: u64,
    /// Receives that each reactor posts on each device, for all its queue pairs.
    pub receives: u32,
    /// In-capsule data, in bytes: 0, or a multiple of 512 up to 16 KiB.
    pub in_capsule_data_bytes: u32,
    /// The largest transfer of one command, in bytes: a power of two.
    pub max_transfer_bytes: u32,
    /// Entries of an I/O queue, 16 to 1024.
    pub queue_depth: u16,
    /// I/O queues of one controller.
    pub io_queues: u16,
    /// The name of the discovery service: that of all, or one of its own.
    pub discovery_nqn: Nqn,
    /// Which RoCE is spoken in user space, where a listener says nothing else.
    pub roce: Roce,
    /// Whether congestion notifications slow RoCE in user space down.
    pub congestion_control: bool,
    /// Whether packets of RoCE in user space leave in super-packets.
    pub segmentation_offload: bool,
    /// What is logged, and how.
    pub log: Log,
}

/// The metrics page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Where they can be asked for; `None`: nowhere. Port 0 leaves it to the system.
    pub listen: Option<SocketAddr>,
}

/// Where the audit log goes: nowhere by default, and to each that is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audit {
    /// A file, by absolute path.
    pub file: Option<PathBuf>,
    /// Whether the journal receives it.
    pub journal: bool,
    /// A Unix datagram socket, by absolute path.
    pub datagram: Option<PathBuf>,
}

/// The control socket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Control {
    /// Where it is.
    pub socket: ControlSocket,
    /// The group that may use it beside the target's user; `None`: the target's own.
    pub group: Option<String>,
    /// Whether it may change nothing.
    pub read_only: bool,
    /// Disks that requests at the socket may export; `None`: all that the target can open.
    pub exports: Option<Exports>,
}

/// Where the control socket is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ControlSocket {
    /// At the usual place, if no other target has it.
    #[default]
    Usual,
    /// There, by absolute path.
    At(PathBuf),
    /// Nowhere.
    Off,
}

/// How many reactors run, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reactors {
    /// The target decides.
    Auto,
    /// That many; the target chooses their cores.
    Count(usize),
    /// One on each of these cores.
    Cores(Vec<usize>),
}

/// What is logged, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// Directives as tracing's `EnvFilter` takes them.
    pub filter: String,
    /// How a line looks.
    pub format: LogFormat,
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines, one object a line.
    Json,
}

/// The RDMA provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// `Verbs` where an RDMA device owns the address, `Soft` otherwise.
    Auto,
    /// An RDMA device, by libibverbs.
    Verbs,
    /// RoCE in user space.
    Soft,
}

/// An address that hosts connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// One address of this machine, or the unspecified one, which stands for
    /// all of its family.
    pub address: IpAddr,
    /// Port.
    pub port: u16,
    /// Its RDMA provider.
    pub provider: Provider,
    /// What is spoken there in user space; `None`: as elsewhere in the target.
    pub roce: Option<Roce>,
    /// ToS of the packets sent; `None` mirrors each host's own choice.
    pub traffic_class: Option<u8>,
    /// Hop limit of the packets sent; `None` is the provider's default.
    pub hop_limit: Option<u8>,
    /// Membership in a partition: hosts of other partitions are ignored.
    pub pkey: PKey,
    /// Where hosts may connect from; `None` is everywhere.
    pub allowed_addresses: Option<Vec<Prefix>>,
    /// Connection requests that may wait to be answered.
    pub backlog: u32,
    /// PORTID of the NVM subsystem port; no two listeners with one.
    pub port_id: u16,
    /// The ANA state of each group through this listener.
    pub ana: AnaStates,
}

/// Another discovery service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Referral {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its name.
    pub nqn: Nqn,
}

/// Hosts that lists name together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostGroup {
    /// Its name, without [`GROUP_PREFIX`].
    pub name: Arc<str>,
    /// Who is in it.
    pub hosts: Arc<BTreeSet<Nqn>>,
}

/// What hosts connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subsystem {
    /// Its name. Never the discovery NQN.
    pub nqn: Nqn,
    /// Serial number (SN), 1 to 20 printable ASCII characters.
    pub serial: String,
    /// Model number (MN), 1 to 40 printable ASCII characters.
    pub model: String,
    /// CNTLIDs of its controllers.
    pub controller_ids: RangeInclusive<u16>,
    /// Whether every host may connect.
    pub allow_any_host: bool,
    /// Who may connect while not every host may. Keys are those of hosts in it.
    pub allowed_hosts: HostList,
    /// Addresses of the listeners that lead to it; all do if not given.
    pub listeners: Option<Vec<SocketAddr>>,
    /// ANA states that are not the listeners', by the addresses of these.
    pub ana: BTreeMap<SocketAddr, AnaOverride>,
    /// How hosts authenticate.
    pub authentication: Authentication,
    /// How much all hosts together may take of all its disks.
    pub limits: Limits,
    /// How much each host may take of them.
    pub limits_per_host: Limits,
    /// How much these hosts may take of them, in place of that.
    pub limits_of_hosts: BTreeMap<Nqn, Limits>,
    /// Its disks, by ascending NSID; no two with one NSID.
    pub namespaces: Vec<Namespace>,
    /// Directories whose files are namespaces, too. The checks add none of those.
    pub pools: Vec<Pool>,
}

/// Who sees a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Every host.
    AnyHost,
    /// These.
    Hosts(HostList),
}

/// A list of hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostList {
    /// All of them. Equal lists share one set: a thousand namespaces may have the same
    /// thousands of hosts.
    pub hosts: Arc<BTreeSet<Nqn>>,
    /// Names of the groups whose hosts are among them.
    pub groups: Vec<Arc<str>>,
}

/// How the hosts of a subsystem authenticate (DH-HMAC-CHAP).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authentication {
    /// The keys of hosts that are not in `hosts`; without, they do not authenticate.
    pub others: Option<Keys>,
    /// The keys of single hosts; each is one that may connect, no two are alike.
    pub hosts: Vec<(Nqn, Keys)>,
    /// True if a host without a key is refused.
    pub is_required: bool,
    /// Hash functions and groups that are accepted.
    pub policy: DhchapPolicy,
}

impl Authentication {
    /// True if this host has to authenticate.
    #[must_use]
    pub fn is_asked_of(&self, host: &Nqn) -> bool {
        let has_own = || self.hosts.iter().any(|(other, _)| other == host);
        self.is_required || self.others.is_some() || has_own()
    }
}

/// The keys of a host and of the controllers that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    /// By which the host authenticates.
    pub host: KeySource,
    /// By which the controller does, where the host asks for it.
    pub controller: Option<KeySource>,
}

/// Where a key is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// In this file, by absolute path.
    File(PathBuf),
    /// In the credential of this name that systemd passes on.
    Credential(String),
    /// In the configuration itself, so that each reader of that has it.
    Inline(InlineKey),
    /// In the file of this key of the keyring.
    Named(NamedKey),
}

/// A key of the keyring: tables of hosts name it as "key:NAME".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedKey {
    /// Its name.
    pub name: String,
    /// The file that it is in.
    pub path: PathBuf,
    /// Whether it was removed while hosts have it: these cannot authenticate.
    pub is_removed: bool,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    /// Its number, 1 to [`NSID_MAX`].
    pub nsid: u32,
    /// What the control socket calls the disk, if it is named.
    pub name: Option<String>,
    /// What is behind it.
    pub backing: Backing,
    /// Its UUID, if it is configured: otherwise it is the disk's own.
    pub uuid: Option<Uuid>,
    /// Its NGUID, if it has one.
    pub nguid: Option<[u8; 16]>,
    /// Bytes of a logical block; `None` leaves it to what is behind it.
    pub block_size: Option<BlockSize>,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether hosts may have writes refused.
    pub write_protection: bool,
    /// The file that keeps what they have set when the target ends.
    pub write_protection_file: Option<PathBuf>,
    /// Whether other processes and machines export the same disk, too.
    pub shared: bool,
    /// ANAGRPID: its ANA group.
    pub ana_group: u32,
    /// Which hosts of the subsystem see it.
    pub hosts: Access,
    /// Of a file in a [`Pool`]: which one.
    pub pooled: Option<PooledFile>,
    /// How much all hosts together may take of it.
    pub limits: Limits,
}

/// What is behind a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Backing {
    /// A block device or file, by absolute path.
    Disk(PathBuf),
    /// An image of a Ceph cluster.
    Rbd(ImageSpec),
    /// Memory that lives as long as the process.
    Memory {
        /// A multiple of the block size, and not 0.
        bytes: u64,
    },
    /// Nothing: writes vanish and reads give zeroes.
    Null {
        /// A multiple of the block size, and not 0.
        bytes: u64,
    },
}

/// Bytes of a logical block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockSize {
    /// 512 bytes.
    B512,
    /// 4096 bytes.
    B4096,
}

impl Config {
    /// Takes sets of hosts from `former` where they are equal: what keeps those, and what
    /// is new, then share them.
    pub fn share_hosts(&mut self, former: &Self) {
        // A set that many have is compared once.
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

    /// The listeners that lead to a subsystem.
    pub fn listeners_of(&self, subsystem: &Subsystem) -> impl Iterator<Item = &Listener> {
        let listeners = self.listeners.iter();
        listeners.filter(|listener| subsystem.is_behind(listener))
    }

    /// What user space speaks at a listener.
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
    /// The hosts that are in none of its groups.
    pub fn single<'a>(&'a self, groups: &'a [HostGroup]) -> impl Iterator<Item = &'a Nqn> {
        let of_groups = groups.iter().filter(|one| self.groups.contains(&one.name));
        let of_groups: Vec<&BTreeSet<Nqn>> = of_groups.map(|one| &*one.hosts).collect();
        let is_whole = of_groups.iter().any(|all| std::ptr::eq(*all, &*self.hosts));
        let hosts = self.hosts.iter().filter(move |_| !is_whole);
        hosts.filter(move |host| !of_groups.iter().any(|all| all.contains(host)))
    }
}

impl Target {
    /// MDTS as Identify Controller has it: the power of two of 4 KiB pages
    /// (NVMe Base 2.0, figure 275).
    #[must_use]
    pub fn mdts(&self) -> u8 {
        (self.max_transfer_bytes / PAGE_BYTES).ilog2() as u8
    }
}

impl Listener {
    /// Address and port in one.
    #[must_use]
    pub fn socket_address(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }

    /// Whether hosts may connect from there.
    #[must_use]
    pub fn allows(&self, host: IpAddr) -> bool {
        let host = host.to_canonical();
        let allowed = self.allowed_addresses.as_deref();
        allowed.is_none_or(|allowed| allowed.iter().any(|prefix| prefix.includes(host)))
    }

    /// What packets carry where no rule sets it.
    #[must_use]
    pub fn marking(&self) -> Marking {
        Marking {
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
        }
    }
}

impl Access {
    /// The list, if not every host sees it.
    #[must_use]
    pub fn list(&self) -> Option<&HostList> {
        match self {
            Self::AnyHost => None,
            Self::Hosts(list) => Some(list),
        }
    }
}

impl Subsystem {
    /// Whether the host of this name may connect.
    #[must_use]
    pub fn allows(&self, host: &Nqn) -> bool {
        self.allow_any_host || self.allowed_hosts.hosts.contains(host)
    }

    /// Whether this listener leads to it.
    #[must_use]
    pub fn is_behind(&self, listener: &Listener) -> bool {
        let own = self.listeners.as_ref();
        own.is_none_or(|own| own.contains(&listener.socket_address()))
    }

    /// The ANA states that its hosts get by way of this listener.
    #[must_use]
    pub fn ana_at(&self, listener: &Listener) -> AnaStates {
        let own = self.ana.get(&listener.socket_address());
        own.map_or(listener.ana, |own| own.over(&listener.ana))
    }
}

impl BlockSize {
    /// In bytes.
    #[must_use]
    pub fn bytes(self) -> u32 {
        1 << self.shift()
    }

    /// As a power of two: LBADS of the LBA format (NVM 1.0, figure 98).
    #[must_use]
    pub fn shift(self) -> u8 {
        match self {
            Self::B512 => 9,
            Self::B4096 => 12,
        }
    }
}
