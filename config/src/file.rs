//! Types of the configuration file as written.
//!
//! Their doc comments are the text of the JSON schema. They accept any input; `check` converts them
//! to a [`Config`](crate::Config).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

/// The configuration of cairn-target.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "cairn-target configuration")]
pub(crate) struct File {
    /// What concerns the process as a whole.
    pub(crate) target: TargetTable,
    /// The metrics page.
    pub(crate) metrics: MetricsTable,
    /// The audit log.
    pub(crate) audit: AuditTable,
    /// The control socket.
    pub(crate) control: ControlTable,
    /// What the packets to each host carry.
    pub(crate) marking: MarkingTable,
    /// The addresses that hosts connect to.
    pub(crate) listener: Vec<ListenerTable>,
    /// Other discovery services, which hosts that ask this one are referred to.
    pub(crate) referral: Vec<ReferralTable>,
    /// The keyring: keys with names, which `dhchap_key` and `dhchap_ctrl_key` name as
    /// "key:NAME".
    pub(crate) key: Vec<KeyTable>,
    /// Groups of hosts, which `allowed_hosts` and `hosts` name as "@NAME".
    pub(crate) host_group: Vec<HostGroupTable>,
    /// What hosts connect to: a name, who may use it, and its disks.
    pub(crate) subsystem: Vec<SubsystemTable>,
}

/// What concerns the process as a whole.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TargetTable {
    /// How many reactors (threads of the data path, one to a core) run: a
    /// number, or "auto" to leave it to the target.
    #[schemars(extend("default" = "auto"))]
    pub(crate) reactors: Option<ReactorCount>,
    /// The cores that the reactors are pinned to, one each. Says how many
    /// reactors there are, too.
    pub(crate) cores: Option<Vec<i64>>,
    /// Microseconds without work that a reactor bridges by polling, at most,
    /// before it sleeps. It adapts to what it sees. 0 sleeps at once; more buys
    /// latency with CPU time.
    #[schemars(range(min = 0, max = 1_000_000), extend("default" = 1000))]
    pub(crate) poll_idle_us: Option<i64>,
    /// Whether commands to NVMe drives past the block layer end by polling, where Linux's driver has
    /// queues for that (nvme.poll_queues), instead of by interrupts. A reactor keeps its core busy
    /// while such a command is under way.
    #[schemars(extend("default" = false))]
    pub(crate) poll_drives: Option<bool>,
    /// Seconds that a disk may keep a command. Then it is cancelled, and answered with
    /// Namespace Not Ready once the disk has let go of it. 0 waits for ever.
    #[schemars(range(min = 0, max = 3600), extend("default" = 30))]
    pub(crate) io_timeout_s: Option<i64>,
    /// Memory of each reactor for data on its way between disk and network: at
    /// least twice `mdts`.
    #[schemars(extend("default" = "16MiB"))]
    pub(crate) data_buffers: Option<String>,
    /// Receives that each reactor keeps posted on each device, for the commands
    /// of all its queue pairs together.
    #[schemars(range(min = 64, max = 32768), extend("default" = 1024))]
    pub(crate) receives: Option<i64>,
    /// Data that a host may send inside a write command's capsule: a multiple
    /// of 512 bytes, at most 16 KiB. Small writes then need no second trip.
    #[schemars(extend("default" = "4KiB"))]
    pub(crate) in_capsule_data: Option<String>,
    /// The largest transfer of one command (MDTS): a power of two, from 8 KiB
    /// to 4 MiB.
    #[schemars(extend("default" = "1MiB"))]
    pub(crate) mdts: Option<String>,
    /// Entries of an I/O queue (MQES): commands that one queue has
    /// outstanding at a time.
    #[schemars(range(min = 16, max = 1024), extend("default" = 128))]
    pub(crate) queue_depth: Option<i64>,
    /// I/O queues that one controller may have. A Linux host asks for one a
    /// core.
    #[schemars(range(min = 1, max = 1024), extend("default" = 128))]
    pub(crate) io_queues: Option<i64>,
    /// The name of this target's discovery service, such as "nqn.2024-01.com.example:discovery". Hosts
    /// connect by this name or by the one that all discovery services have.
    #[schemars(extend("default" = "nqn.2014-08.org.nvmexpress.discovery"))]
    pub(crate) discovery_nqn: Option<String>,
    /// The RDMA provider of listeners that set none: "verbs" is an RDMA
    /// device, "soft" is RoCE in user space, "auto" takes verbs where a device
    /// owns the address.
    #[schemars(extend("default" = "auto", "enum" = ["auto", "verbs", "soft"]))]
    pub(crate) provider: Option<String>,
    /// Which RoCE is spoken in user space: "v2" on UDP, "v1" on Ethernet.
    #[schemars(extend("default" = "v2", "enum" = ["v1", "v2"]))]
    pub(crate) roce: Option<String>,
    /// Whether RoCE v2 in user space slows down when congestion notifications (CNP)
    /// come: "on" or "off". They are not authenticated, and leave at least half of
    /// the rate that window and round trip allow.
    #[schemars(extend("default" = "on", "enum" = ["on", "off"]))]
    pub(crate) congestion_control: Option<String>,
    /// Whether RoCE v2 in user space hands the system packets of one flow together (UDP
    /// segmentation offload): "on" or "off". "off" helps where a card leaves the IPv4
    /// identification of the packets as it is, and costs throughput.
    #[schemars(extend("default" = "on", "enum" = ["on", "off"]))]
    pub(crate) segmentation_offload: Option<String>,
    /// VID of the 802.1Q tag that RoCE v1 writes itself: for an interface that is
    /// no VLAN's, and 0 to have nothing but a priority in it.
    #[schemars(range(min = 0, max = 4094))]
    pub(crate) vlan: Option<i64>,
    /// Hash functions that hosts may authenticate with, the best first, to subsystems without a
    /// list of their own.
    #[schemars(extend("default" = ["sha512", "sha384", "sha256"]))]
    pub(crate) dhchap_hashes: Option<Vec<String>>,
    /// Diffie-Hellman groups that hosts may authenticate with, the best first, to subsystems
    /// without a list of their own.
    #[schemars(extend("default" = [
        "ffdhe8192", "ffdhe6144", "ffdhe4096", "ffdhe3072", "ffdhe2048", "null"
    ]))]
    pub(crate) dhchap_groups: Option<Vec<String>>,
    /// What is logged: off, error, warn, info, debug or trace; or a list such
    /// as "info,cairn_target::qpair=debug".
    #[schemars(extend("default" = "info"))]
    pub(crate) log: Option<String>,
    /// How it is logged.
    #[schemars(extend("default" = "text", "enum" = ["text", "json"]))]
    pub(crate) log_format: Option<String>,
}

/// The metrics page.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MetricsTable {
    /// ADDRESS or ADDRESS:PORT that serves metrics to Prometheus over HTTP; the
    /// port is 9464 if none is given. Without it there is no such port. The port has
    /// no password, and shows the names of hosts and disks: use loopback, or an
    /// address of a management network.
    pub(crate) listen: Option<String>,
}

/// The audit log: who connected, who was refused, and who changed what, as JSON, one line an
/// event. It is off unless a key says where it goes; several may.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AuditTable {
    /// The absolute path of a file that lines are added to, such as /var/log/cairn/audit.json.
    /// It is created with mode 0600, and opened anew by each reload.
    pub(crate) file: Option<String>,
    /// Whether systemd's journal receives them, by SYSLOG_IDENTIFIER=cairn-audit.
    #[schemars(extend("default" = false))]
    pub(crate) journal: Option<bool>,
    /// The absolute path of a Unix datagram socket that receives them, one datagram each.
    pub(crate) datagram: Option<String>,
}

/// The control socket: a Unix socket by which the target is steered.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ControlTable {
    /// Its absolute path, or "off" for none. If not given, /run/cairn/target.sock for root and
    /// $XDG_RUNTIME_DIR/cairn/target.sock for others, unless another target listens there.
    pub(crate) socket: Option<String>,
    /// The group, by name or number, that may open it beside the target's own user.
    pub(crate) group: Option<String>,
    /// Whether requests that change something are refused: for a file that is under
    /// configuration management.
    #[schemars(extend("default" = false))]
    pub(crate) read_only: Option<bool>,
    /// The disks that requests at the socket may export: folders, such as "/srv/images"; patterns in which "*"
    /// stands for any part of a name, such as "/dev/vg0/*"; and images, such as "rbd:pool/*". Memory and null disks
    /// are always allowed. Without this list, requests may export any file and device that the target can open.
    pub(crate) exports: Option<Vec<String>>,
}

/// A number of reactors, or "auto".
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum ReactorCount {
    /// That many.
    Number(i64),
    /// "auto".
    Word(String),
}

/// What the packets to each host carry, for the switches and routers on their way.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MarkingTable {
    /// Rules such as "tclass=104,src_ip=192.0.2.1,dst_ip=192.0.2.0/24", as the
    /// drivers' force-DSCP files take them; host_nqn and hop_limit are known, too.
    /// The most specific one counts, in any order. Where no rule sets a value, the
    /// listener's counts.
    pub(crate) rules: Option<Vec<String>>,
}

/// An address that hosts connect to.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["address"]))]
pub(crate) struct ListenerTable {
    /// IPv4 or IPv6 address of an interface of this machine; "0.0.0.0" or "::"
    /// stands for all of its family. Required.
    pub(crate) address: Option<String>,
    /// Port (TRSVCID).
    #[schemars(range(min = 1, max = 65535), extend("default" = 4420))]
    pub(crate) port: Option<i64>,
    /// The RDMA provider; `target.provider` if not given.
    #[schemars(extend("enum" = ["auto", "verbs", "soft"]))]
    pub(crate) provider: Option<String>,
    /// Which RoCE is spoken in user space: "v2" on UDP, "v1" on Ethernet; `target.roce` and
    /// `target.vlan` if not given.
    #[schemars(extend("enum" = ["v1", "v2"]))]
    pub(crate) roce: Option<String>,
    /// VID of the 802.1Q tag that RoCE v1 writes itself here: for an interface that is no VLAN's, and 0 to
    /// have nothing but a priority in it.
    #[schemars(range(min = 0, max = 4094))]
    pub(crate) vlan: Option<i64>,
    /// Type of service byte of the packets sent to hosts. Without `tos` and
    /// `dscp`, each host's own choice is mirrored.
    #[schemars(range(min = 0, max = 255))]
    pub(crate) tos: Option<i64>,
    /// The same as `tos`, given as DSCP: ToS is four times as much.
    #[schemars(range(min = 0, max = 63))]
    pub(crate) dscp: Option<i64>,
    /// Hop limit (TTL) of the packets sent to hosts.
    #[schemars(range(min = 1, max = 255))]
    pub(crate) hop_limit: Option<i64>,
    /// Partition key: only hosts of this partition can connect. 16 bits such as 0x8001;
    /// bit 15 stands for full membership, without it hosts must be full members.
    #[schemars(range(min = 1, max = 65535), extend("default" = 65535))]
    pub(crate) pkey: Option<i64>,
    /// Where hosts may connect from: addresses and prefixes such as "192.0.2.0/24".
    /// From everywhere if not given.
    pub(crate) allowed_addresses: Option<Vec<String>>,
    /// Connection requests that may wait to be answered.
    #[schemars(range(min = 1, max = 4096), extend("default" = 128))]
    pub(crate) backlog: Option<i64>,
    /// Number of the subsystem port (PORTID) that this is. Targets that export
    /// one subsystem together need different ones. If not given, the lowest that
    /// no listener has.
    #[schemars(range(min = 1, max = 65535))]
    pub(crate) port_id: Option<i64>,
    /// The ANA state of the paths through this listener: "optimized" is the one
    /// to use, "non-optimized" works but is slower, "inaccessible" does not
    /// work now, "persistent-loss" never will again, "change" will be one of
    /// these in a moment.
    #[schemars(extend(
        "default" = "optimized",
        "enum" = ["optimized", "non-optimized", "inaccessible", "persistent-loss", "change"]
    ))]
    pub(crate) ana: Option<String>,
    /// ANA groups whose state here is another one.
    pub(crate) ana_group: Vec<AnaGroupTable>,
}

/// The state of one ANA group by way of the listener above.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["id", "state"]))]
pub(crate) struct AnaGroupTable {
    /// The group. Required.
    #[schemars(range(min = 1, max = 128))]
    pub(crate) id: Option<i64>,
    /// Its state. Required.
    #[schemars(extend(
        "enum" = ["optimized", "non-optimized", "inaccessible", "persistent-loss", "change"]
    ))]
    pub(crate) state: Option<String>,
}

/// Another discovery service, over RDMA, which hosts are referred to.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["address"]))]
pub(crate) struct ReferralTable {
    /// Its IPv4 or IPv6 address. Required.
    pub(crate) address: Option<String>,
    /// Its port (TRSVCID).
    #[schemars(range(min = 1, max = 65535), extend("default" = 4420))]
    pub(crate) port: Option<i64>,
    /// Its name, if that is not the one that all discovery services have.
    #[schemars(extend("default" = "nqn.2014-08.org.nvmexpress.discovery"))]
    pub(crate) nqn: Option<String>,
}

/// A group of hosts, which `allowed_hosts` and `hosts` name as "@NAME".
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["name"]))]
pub(crate) struct HostGroupTable {
    /// Its name: letters, digits, "-", "_" and ".". Required.
    pub(crate) name: Option<String>,
    /// NQNs of its hosts.
    pub(crate) hosts: Option<Vec<String>>,
}

/// What hosts connect to: a name, who may use it, and its disks.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["nqn"]))]
pub(crate) struct SubsystemTable {
    /// Its name (SUBNQN): "nqn.yyyy-mm.reverse.domain:name". Required.
    pub(crate) nqn: Option<String>,
    /// Serial number, at most 20 ASCII characters. Made from the NQN if not
    /// given, hence the same after a restart.
    pub(crate) serial: Option<String>,
    /// Model, at most 40 ASCII characters.
    #[schemars(extend("default" = "Cairn"))]
    pub(crate) model: Option<String>,
    /// Controller ids (CNTLID) that it gives out, such as "1-32767". Targets that
    /// export one subsystem together need ranges that do not overlap.
    #[schemars(extend("default" = "1-65519"))]
    pub(crate) controller_ids: Option<String>,
    /// Whether every host may connect. Either this is true, or `allowed_hosts`
    /// lists who may, or both: a list beside `true` lets its hosts have keys, and counts when
    /// this is `false` again.
    pub(crate) allow_any_host: Option<bool>,
    /// NQNs of the hosts that may connect while not every host may (a Linux host has its own in
    /// /etc/nvme/hostnqn), and "@NAME" for those of a host group.
    pub(crate) allowed_hosts: Option<Vec<String>>,
    /// The listeners that lead to it, each as "ADDRESS" or "ADDRESS:PORT" of a `[[listener]]`.
    /// All do if not given.
    pub(crate) listeners: Option<Vec<String>>,
    /// ANA states that this subsystem has in place of its listeners'.
    pub(crate) ana: Vec<SubsystemAnaTable>,
    /// The key by which each host has to authenticate (DH-HMAC-CHAP) that has none of its own
    /// in `host`: the absolute path of a file that only its owner can read, or
    /// "credential:NAME" for a credential of systemd (LoadCredential=). The key itself, "DHHC-1:..", works with a
    /// warning: each reader of this file has it. Without a key, hosts do
    /// not authenticate. `cairn-target key generate` makes keys.
    pub(crate) dhchap_key: Option<String>,
    /// The key by which the target authenticates to these hosts, where they ask for it. Written
    /// as `dhchap_key`.
    pub(crate) dhchap_ctrl_key: Option<String>,
    /// Whether a host without a key is refused. Otherwise a host that has no key, here or in
    /// `host`, connects without authentication.
    #[schemars(extend("default" = false))]
    pub(crate) require_key: Option<bool>,
    /// Hash functions that hosts may authenticate with, the best first; those of `[target]` if not
    /// given.
    pub(crate) dhchap_hashes: Option<Vec<String>>,
    /// Diffie-Hellman groups that hosts may authenticate with, the best first; those of `[target]`
    /// if not given. "null" is none: a recorded exchange then lets its listener try out keys.
    pub(crate) dhchap_groups: Option<Vec<String>>,
    /// How much all hosts together may take of all its disks.
    pub(crate) limits: Option<LimitsTable>,
    /// How much each host may take of all its disks.
    pub(crate) limits_per_host: Option<LimitsTable>,
    /// How much single hosts may take, in place of `limits_per_host`.
    pub(crate) limited_host: Vec<LimitedHostTable>,
    /// Keys of single hosts of `allowed_hosts`.
    pub(crate) host: Vec<HostTable>,
    /// Its disks.
    pub(crate) namespace: Vec<NamespaceTable>,
}

/// The ANA state of the subsystem above by way of one listener.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["listener", "state"]))]
pub(crate) struct SubsystemAnaTable {
    /// "ADDRESS" or "ADDRESS:PORT" of a listener that leads to the subsystem. Required.
    pub(crate) listener: Option<String>,
    /// The ANA group that has this state there. If not given, all have it that no other table
    /// names.
    #[schemars(range(min = 1, max = 128))]
    pub(crate) ana_group: Option<i64>,
    /// The state. Required.
    #[schemars(extend(
        "enum" = ["optimized", "non-optimized", "inaccessible", "persistent-loss", "change"]
    ))]
    pub(crate) state: Option<String>,
}

/// A key with a name.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["name", "path"]))]
pub(crate) struct KeyTable {
    /// What tables of hosts name as "key:NAME". Required.
    pub(crate) name: Option<String>,
    /// The absolute path of a file with the key, which its owner alone can read. Required.
    pub(crate) path: Option<String>,
    /// The key was removed while hosts have it: they cannot authenticate until they get another.
    #[schemars(extend("default" = false))]
    pub(crate) removed: Option<bool>,
}

/// The keys of one host.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["nqn", "dhchap_key"]))]
pub(crate) struct HostTable {
    /// The host's NQN, as in `allowed_hosts`. Required.
    pub(crate) nqn: Option<String>,
    /// The key by which it has to authenticate, as the subsystem's `dhchap_key`. Required.
    pub(crate) dhchap_key: Option<String>,
    /// The key by which the target authenticates to it, where it asks for that.
    pub(crate) dhchap_ctrl_key: Option<String>,
}

/// A disk.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["nsid", "export"]))]
pub(crate) struct NamespaceTable {
    /// Its number, as hosts see it. Required.
    #[schemars(range(min = 1, max = 10_240))]
    pub(crate) nsid: Option<i64>,
    /// What the control socket calls the disk.
    pub(crate) name: Option<String>,
    /// What is behind it: "dir:DIRECTORY" for each file of a directory, which gets an NSID from
    /// this one on, the absolute path of a block device or file, or of an NVMe
    /// drive's character device ("/dev/ng0n1"), which goes past the block layer,
    /// "rbd:POOL/IMAGE" for an image of a Ceph cluster ("rbd:POOL/NAMESPACE/IMAGE",
    /// and "@SNAPSHOT" behind either), "mem:SIZE" for memory, or "null:SIZE" for
    /// nothing. Required.
    pub(crate) export: Option<String>,
    /// How the cluster of an "rbd:" export is reached.
    pub(crate) ceph: Option<CephTable>,
    /// Its UUID. If not given it is the disk's own: of an NVMe drive past the block layer
    /// the drive's, of another device by the name that it has (WWID), of a file kept in its extended attributes, of an image of Ceph by
    /// cluster and image id, and of "mem:" and "null:" another one at each start.
    pub(crate) uuid: Option<String>,
    /// NGUID: 32 hexadecimal digits, or "from-uuid" for the UUID. An NVMe drive past the
    /// block layer has its own, unless a UUID is given.
    pub(crate) nguid: Option<String>,
    /// Bytes of a logical block. If not given, the smallest in which what is
    /// behind it can be read and written: 512 for memory and null.
    #[schemars(extend("enum" = [512, 4096]))]
    pub(crate) block_size: Option<i64>,
    /// Whether writes are refused.
    #[schemars(extend("default" = false))]
    pub(crate) read_only: Option<bool>,
    /// Whether hosts may protect it from writes, and lift that (feature 84h).
    #[schemars(extend("default" = false))]
    pub(crate) write_protection: Option<bool>,
    /// Absolute path of a file that keeps what hosts have protected when the target ends. The
    /// target makes it, in a folder that is there.
    pub(crate) write_protection_file: Option<String>,
    /// Whether other processes and machines export the same disk, too: it is then
    /// not locked against them, and the exclusive lock of an "rbd:" image goes to
    /// whichever writes.
    #[schemars(extend("default" = false))]
    pub(crate) shared: Option<bool>,
    /// Its ANA group: listeners have a state for each.
    #[schemars(range(min = 1, max = 128), extend("default" = 1))]
    pub(crate) ana_group: Option<i64>,
    /// NQNs of the hosts that see it, and "@NAME" for those of a host group, of those that may
    /// connect; an empty list shows it to none.
    /// To other hosts it does not exist. Every host of the subsystem sees it if not given.
    pub(crate) hosts: Option<Vec<String>>,
    /// How much all hosts together may take of it.
    pub(crate) limits: Option<LimitsTable>,
}

/// How much one host may take.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["nqn"]))]
pub(crate) struct LimitedHostTable {
    /// The host's NQN. Required.
    pub(crate) nqn: Option<String>,
    /// How much it may take of all the subsystem's disks. Without, it has no limit of its own.
    pub(crate) limits: Option<LimitsTable>,
    /// How many parts it gets of a limit that it shares with other hosts, which have one part each.
    #[schemars(range(min = 1, max = 100), extend("default" = 1))]
    pub(crate) weight: Option<i64>,
}

/// How much hosts may take: what is beyond that waits. Without a rate there is no limit.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitsTable {
    /// I/O commands a second. Flushes do not count.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(crate) iops: Option<i64>,
    /// Bytes that are read in a second, such as "100MiB".
    pub(crate) read: Option<String>,
    /// Bytes that are written in a second.
    pub(crate) write: Option<String>,
    /// Bytes that are read and written in a second.
    pub(crate) total: Option<String>,
    /// Of a namespace alone: commands that its disk has at a time. Those beyond wait, and hosts take turns by their weights.
    #[schemars(range(min = 1, max = 65_535))]
    pub(crate) outstanding: Option<i64>,
    /// Milliseconds whose allowance can be saved up while less is taken, and then be taken at once.
    #[schemars(range(min = 1, max = 60_000), extend("default" = 20))]
    pub(crate) burst_ms: Option<i64>,
}

/// How a Ceph cluster is reached.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CephTable {
    /// Absolute path of the cluster's configuration. Where librados looks by itself
    /// (CEPH_CONF, /etc/ceph/ceph.conf) if not given.
    pub(crate) conf: Option<String>,
    /// The user, without "client."; "admin" if not given.
    pub(crate) id: Option<String>,
    /// Absolute path of the file with the user's key. Where the configuration says
    /// if not given.
    pub(crate) keyring: Option<String>,
    /// Options of Ceph's client, as ceph.conf has them, such as `rbd_readahead_max_bytes = "0"`. They stand above
    /// that file's. What the target sets itself cannot be among them.
    pub(crate) options: Option<BTreeMap<String, String>>,
}
