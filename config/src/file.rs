//! Types of the configuration file as written.
//!
//! The doc comments of these types are the text of the JSON schema. The types accept any input;
//! `check` converts them to a [`Config`](crate::Config).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

/// Configuration of cairn-target.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "cairn-target configuration")]
pub(crate) struct File {
    /// Settings of the whole process.
    pub(crate) target: TargetTable,
    /// Metrics over HTTP.
    pub(crate) metrics: MetricsTable,
    /// Audit log.
    pub(crate) audit: AuditTable,
    /// Control socket.
    pub(crate) control: ControlTable,
    /// Traffic class and hop limit of packets.
    pub(crate) marking: MarkingTable,
    /// Addresses at which the target accepts hosts.
    pub(crate) listener: Vec<ListenerTable>,
    /// Other discovery services, reported to hosts.
    pub(crate) referral: Vec<ReferralTable>,
    /// Keyring: named keys.
    pub(crate) key: Vec<KeyTable>,
    /// Groups of hosts.
    pub(crate) host_group: Vec<HostGroupTable>,
    /// Subsystems.
    pub(crate) subsystem: Vec<SubsystemTable>,
}

/// Settings of the whole process.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TargetTable {
    /// Number of reactors (threads of the data path), 1 to 64; "auto" is half of the cores, at most
    /// 2.
    #[schemars(extend("default" = "auto"))]
    pub(crate) reactors: Option<ReactorCount>,
    /// Cores of the reactors, one reactor each; also sets `reactors`.
    pub(crate) cores: Option<Vec<i64>>,
    /// Longest polling of a reactor without work, in microseconds; 0 sleeps at once.
    #[schemars(range(min = 0, max = 1_000_000), extend("default" = 1000))]
    pub(crate) poll_idle_us: Option<i64>,
    /// Whether to poll NVMe drives that are used without the block layer, if Linux's driver has
    /// queues for that (nvme.poll_queues).
    #[schemars(extend("default" = false))]
    pub(crate) poll_drives: Option<bool>,
    /// Seconds after which the target cancels a command at a disk; 0 never cancels.
    #[schemars(range(min = 0, max = 3600), extend("default" = 30))]
    pub(crate) io_timeout_s: Option<i64>,
    /// Memory of each reactor for data between disk and network: at least twice `mdts`.
    #[schemars(extend("default" = "16MiB"))]
    pub(crate) data_buffers: Option<String>,
    /// Receives of each reactor on each device, shared by all its queue pairs. A device without
    /// shared receive queues takes one for each entry of each queue.
    #[schemars(range(min = 64, max = 32768), extend("default" = 1024))]
    pub(crate) receives: Option<i64>,
    /// Largest data in the capsule of a write command: a multiple of 512 bytes, at most 16 KiB.
    #[schemars(extend("default" = "4KiB"))]
    pub(crate) in_capsule_data: Option<String>,
    /// Largest transfer of a command (MDTS): a power of two, from 8 KiB to 4 MiB.
    #[schemars(extend("default" = "1MiB"))]
    pub(crate) mdts: Option<String>,
    /// Entries of an I/O queue (MQES).
    #[schemars(range(min = 16, max = 1024), extend("default" = 128))]
    pub(crate) queue_depth: Option<i64>,
    /// Maximum I/O queues of a controller.
    #[schemars(range(min = 1, max = 1024), extend("default" = 128))]
    pub(crate) io_queues: Option<i64>,
    /// Unique name of the discovery service, in addition to the well-known one.
    #[schemars(extend("default" = "nqn.2014-08.org.nvmexpress.discovery"))]
    pub(crate) discovery_nqn: Option<String>,
    /// RDMA provider: "verbs" (RDMA device), "soft" (RoCE in user space), or "auto" (verbs if a
    /// device owns the address).
    #[schemars(extend("default" = "auto", "enum" = ["auto", "verbs", "soft"]))]
    pub(crate) provider: Option<String>,
    /// RoCE version in user space: "v2" on UDP, "v1" on Ethernet.
    #[schemars(extend("default" = "v2", "enum" = ["v1", "v2"]))]
    pub(crate) roce: Option<String>,
    /// Whether congestion notifications (CNP) slow RoCE v2 in user space: "on" or "off".
    #[schemars(extend("default" = "on", "enum" = ["on", "off"]))]
    pub(crate) congestion_control: Option<String>,
    /// Whether RoCE v2 in user space lets the system split super-packets into packets: "on"; "off"
    /// for network cards that give all packets of a super-packet the same IPv4 identification.
    #[schemars(extend("default" = "on", "enum" = ["on", "off"]))]
    pub(crate) segmentation_offload: Option<String>,
    /// Whether responses invalidate the host's key where the device can: "auto"; "never" for
    /// adapters that do it wrongly.
    #[schemars(extend("default" = "auto", "enum" = ["auto", "never"]))]
    pub(crate) send_with_invalidate: Option<String>,
    /// Milliseconds without an acknowledgement after which an adapter repeats packets; without this
    /// key, the connection manager chooses them.
    #[schemars(range(min = 1, max = 8000))]
    pub(crate) ack_timeout_ms: Option<i64>,
    /// Absolute path of a directory for reservations that persist through power loss.
    pub(crate) state_directory: Option<String>,
    /// VID of the 802.1Q tag that RoCE v1 writes itself; 0 is a tag with only a priority.
    #[schemars(range(min = 0, max = 4094))]
    pub(crate) vlan: Option<i64>,
    /// Hash functions for authentication, best first.
    #[schemars(extend("default" = ["sha512", "sha384", "sha256"]))]
    pub(crate) dhchap_hashes: Option<Vec<String>>,
    /// Diffie-Hellman groups for authentication, best first.
    #[schemars(extend("default" = [
        "ffdhe8192", "ffdhe6144", "ffdhe4096", "ffdhe3072", "ffdhe2048", "null"
    ]))]
    pub(crate) dhchap_groups: Option<Vec<String>>,
    /// Log filter: off, error, warn, info, debug or trace, or a list such as
    /// "info,cairn_data_path::qpair=debug".
    #[schemars(extend("default" = "info"))]
    pub(crate) log: Option<String>,
    /// Format of log lines.
    #[schemars(extend("default" = "text", "enum" = ["text", "json"]))]
    pub(crate) log_format: Option<String>,
}

/// Metrics over HTTP.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MetricsTable {
    /// ADDRESS or ADDRESS:PORT (default 9464) that serves metrics over HTTP without a password;
    /// without this key no port is open.
    pub(crate) listen: Option<String>,
}

/// Audit log: connects, refusals and changes, one line of JSON each; off without a destination.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AuditTable {
    /// Absolute path of the file that lines are appended to, created with mode 0600, and reopened
    /// by each reload.
    pub(crate) file: Option<String>,
    /// Whether systemd's journal receives the lines, with SYSLOG_IDENTIFIER=cairn-audit.
    #[schemars(extend("default" = false))]
    pub(crate) journal: Option<bool>,
    /// Absolute path of a Unix datagram socket that receives each line.
    pub(crate) datagram: Option<String>,
}

/// Control socket: a Unix socket for queries and changes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ControlTable {
    /// Absolute path of the socket, or "off"; by default /run/cairn/target.sock for root,
    /// $XDG_RUNTIME_DIR/cairn/target.sock for others.
    pub(crate) socket: Option<String>,
    /// Group, by name or number, whose members may open the socket.
    pub(crate) group: Option<String>,
    /// Whether changes are refused.
    #[schemars(extend("default" = false))]
    pub(crate) read_only: Option<bool>,
    /// Disks that requests may export besides memory and null disks: folders ("/srv/images"),
    /// patterns ("/dev/vg0/*"), images ("rbd:pool/*"); all by default.
    pub(crate) exports: Option<Vec<String>>,
}

/// Number of reactors, or "auto".
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum ReactorCount {
    /// Number of reactors.
    Number(i64),
    /// "auto".
    Word(String),
}

/// Traffic class and hop limit of packets by host and address.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MarkingTable {
    /// Rules such as "tclass=104,src_ip=192.0.2.1,dst_ip=192.0.2.0/24"; the most specific one
    /// applies.
    pub(crate) rules: Option<Vec<String>>,
}

/// Address at which the target accepts hosts.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["address"]))]
pub(crate) struct ListenerTable {
    /// Address of this machine, or "0.0.0.0" or "::" for all of the family. Required.
    pub(crate) address: Option<String>,
    /// Port (TRSVCID).
    #[schemars(range(min = 1, max = 65535), extend("default" = 4420))]
    pub(crate) port: Option<i64>,
    /// RDMA provider; `target.provider` by default.
    #[schemars(extend("enum" = ["auto", "verbs", "soft"]))]
    pub(crate) provider: Option<String>,
    /// RoCE version in user space: "v2" on UDP, "v1" on Ethernet; `target.roce` by default.
    #[schemars(extend("enum" = ["v1", "v2"]))]
    pub(crate) roce: Option<String>,
    /// VID of the 802.1Q tag that RoCE v1 writes itself; `target.vlan` by default.
    #[schemars(range(min = 0, max = 4094))]
    pub(crate) vlan: Option<i64>,
    /// Type of service of packets to hosts; by default each host's own.
    #[schemars(range(min = 0, max = 255))]
    pub(crate) tos: Option<i64>,
    /// DSCP of packets to hosts, instead of `tos`: the upper six bits of `tos`.
    #[schemars(range(min = 0, max = 63))]
    pub(crate) dscp: Option<i64>,
    /// Hop limit (TTL) of packets to hosts.
    #[schemars(range(min = 1, max = 255))]
    pub(crate) hop_limit: Option<i64>,
    /// Partition key, such as 0x8001: only hosts of this partition can connect.
    #[schemars(range(min = 1, max = 65535), extend("default" = 65535))]
    pub(crate) pkey: Option<i64>,
    /// Source addresses that may connect, such as "192.0.2.0/24"; all by default.
    pub(crate) allowed_addresses: Option<Vec<String>>,
    /// Maximum unanswered connection requests.
    #[schemars(range(min = 1, max = 4096), extend("default" = 128))]
    pub(crate) backlog: Option<i64>,
    /// PORTID, unique among targets that export a subsystem together; by default the lowest free
    /// one.
    #[schemars(range(min = 1, max = 65535))]
    pub(crate) port_id: Option<i64>,
    /// ANA state of the paths through this listener.
    #[schemars(extend(
        "default" = "optimized",
        "enum" = ["optimized", "non-optimized", "inaccessible", "persistent-loss", "change"]
    ))]
    pub(crate) ana: Option<String>,
    /// ANA groups with a different state at this listener.
    pub(crate) ana_group: Vec<AnaGroupTable>,
}

/// State of an ANA group at the listener above.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["id", "state"]))]
pub(crate) struct AnaGroupTable {
    /// ANA group. Required.
    #[schemars(range(min = 1, max = 128))]
    pub(crate) id: Option<i64>,
    /// ANA state. Required.
    #[schemars(extend(
        "enum" = ["optimized", "non-optimized", "inaccessible", "persistent-loss", "change"]
    ))]
    pub(crate) state: Option<String>,
}

/// Discovery service over RDMA that is reported to hosts.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["address"]))]
pub(crate) struct ReferralTable {
    /// Address of the service. Required.
    pub(crate) address: Option<String>,
    /// Port of the service (TRSVCID).
    #[schemars(range(min = 1, max = 65535), extend("default" = 4420))]
    pub(crate) port: Option<i64>,
    /// Unique name of the service, if any.
    #[schemars(extend("default" = "nqn.2014-08.org.nvmexpress.discovery"))]
    pub(crate) nqn: Option<String>,
}

/// Group of hosts, which `allowed_hosts` and `hosts` refer to as "@NAME".
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["name"]))]
pub(crate) struct HostGroupTable {
    /// Name of the group: letters, digits, "-", "_" and ".". Required.
    pub(crate) name: Option<String>,
    /// NQNs of the hosts in the group.
    pub(crate) hosts: Option<Vec<String>>,
}

/// Subsystem: a name, the hosts that may connect, and the namespaces.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["nqn"]))]
pub(crate) struct SubsystemTable {
    /// Name (SUBNQN): "nqn.yyyy-mm.reverse.domain:name". Required.
    pub(crate) nqn: Option<String>,
    /// Serial number, at most 20 ASCII characters; by default made from the NQN.
    pub(crate) serial: Option<String>,
    /// Model, at most 40 ASCII characters.
    #[schemars(extend("default" = "Cairn"))]
    pub(crate) model: Option<String>,
    /// Controller IDs (CNTLID), without overlap between targets that export a subsystem together.
    #[schemars(extend("default" = "1-65519"))]
    pub(crate) controller_ids: Option<String>,
    /// Whether every host may connect; otherwise `allowed_hosts` lists the hosts.
    pub(crate) allow_any_host: Option<bool>,
    /// NQNs of the hosts that may connect (/etc/nvme/hostnqn), and "@NAME" for a group.
    pub(crate) allowed_hosts: Option<Vec<String>>,
    /// Listeners that lead to the subsystem, as "ADDRESS" or "ADDRESS:PORT"; all by default.
    pub(crate) listeners: Option<Vec<String>>,
    /// ANA states that override those of the listeners.
    pub(crate) ana: Vec<SubsystemAnaTable>,
    /// Key (DH-HMAC-CHAP) of hosts without an entry in `host`: the absolute path of a file that
    /// only its owner can read, "key:NAME", "credential:NAME" (systemd), or for tests the key
    /// itself; without a key they do not authenticate.
    pub(crate) dhchap_key: Option<String>,
    /// Key by which the target authenticates to these hosts, if they request it.
    pub(crate) dhchap_ctrl_key: Option<String>,
    /// Whether a host without a key is refused.
    #[schemars(extend("default" = false))]
    pub(crate) require_key: Option<bool>,
    /// Hash functions for authentication, best first; `target.dhchap_hashes` by default.
    pub(crate) dhchap_hashes: Option<Vec<String>>,
    /// Diffie-Hellman groups, best first; `target.dhchap_groups` by default. "null" lets an
    /// eavesdropper guess keys offline.
    pub(crate) dhchap_groups: Option<Vec<String>>,
    /// Limits of all hosts together, over all namespaces.
    pub(crate) limits: Option<LimitsTable>,
    /// Limits of each host, over all namespaces.
    pub(crate) limits_per_host: Option<LimitsTable>,
    /// Limits of single hosts, which replace `limits_per_host`.
    pub(crate) limited_host: Vec<LimitedHostTable>,
    /// Keys of single hosts of `allowed_hosts`.
    pub(crate) host: Vec<HostTable>,
    /// Namespaces of the subsystem.
    pub(crate) namespace: Vec<NamespaceTable>,
}

/// ANA state, at one listener, of the preceding subsystem.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["listener", "state"]))]
pub(crate) struct SubsystemAnaTable {
    /// Listener, as "ADDRESS" or "ADDRESS:PORT". Required.
    pub(crate) listener: Option<String>,
    /// ANA group; all without their own table by default.
    #[schemars(range(min = 1, max = 128))]
    pub(crate) ana_group: Option<i64>,
    /// ANA state. Required.
    #[schemars(extend(
        "enum" = ["optimized", "non-optimized", "inaccessible", "persistent-loss", "change"]
    ))]
    pub(crate) state: Option<String>,
}

/// Named key.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["name", "path"]))]
pub(crate) struct KeyTable {
    /// Name of the key: "key:NAME". Required.
    pub(crate) name: Option<String>,
    /// Absolute path of a file with the key that only its owner can read. Required.
    pub(crate) path: Option<String>,
    /// Whether the key was removed while hosts use it: these hosts need another key.
    #[schemars(extend("default" = false))]
    pub(crate) removed: Option<bool>,
}

/// Keys of a host.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["nqn", "dhchap_key"]))]
pub(crate) struct HostTable {
    /// NQN of the host, as in `allowed_hosts`. Required.
    pub(crate) nqn: Option<String>,
    /// Key by which the host must authenticate, written as the subsystem's `dhchap_key`. Required.
    pub(crate) dhchap_key: Option<String>,
    /// Key by which the target authenticates to the host, if the host requests it.
    pub(crate) dhchap_ctrl_key: Option<String>,
}

/// Namespace: a disk that hosts can use.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["nsid", "export"]))]
pub(crate) struct NamespaceTable {
    /// Number of the namespace for hosts (NSID). Required.
    #[schemars(range(min = 1, max = 10_240))]
    pub(crate) nsid: Option<i64>,
    /// Name of the disk at the control socket.
    pub(crate) name: Option<String>,
    /// Absolute path of a block device, a file, or an NVMe drive ("/dev/ng0n1"); "dir:DIRECTORY",
    /// "rbd:POOL[/NAMESPACE]/IMAGE[@SNAPSHOT]", "mem:SIZE", or "null:SIZE", which discards writes.
    /// Required.
    pub(crate) export: Option<String>,
    /// Access to the cluster of an "rbd:" export.
    pub(crate) ceph: Option<CephTable>,
    /// UUID; by default the identity of the disk, for "mem:" and "null:" a new one at each start.
    pub(crate) uuid: Option<String>,
    /// NGUID: 32 hexadecimal digits, or "from-uuid" to use the UUID; by default the drive's NGUID.
    pub(crate) nguid: Option<String>,
    /// Bytes of a logical block; by default the smallest size of the disk, 512 for memory and null.
    #[schemars(extend("enum" = [512, 4096]))]
    pub(crate) block_size: Option<i64>,
    /// Whether writes are refused.
    #[schemars(extend("default" = false))]
    pub(crate) read_only: Option<bool>,
    /// Whether hosts may set and clear write protection of the namespace (feature 84h).
    #[schemars(extend("default" = false))]
    pub(crate) write_protection: Option<bool>,
    /// Absolute path of a file that keeps the write protection across restarts.
    pub(crate) write_protection_file: Option<String>,
    /// Whether other programs or machines export the disk, so that the target does not lock it.
    #[schemars(extend("default" = false))]
    pub(crate) shared: Option<bool>,
    /// ANA group of the namespace.
    #[schemars(range(min = 1, max = 128), extend("default" = 1))]
    pub(crate) ana_group: Option<i64>,
    /// NQNs of the hosts that see the namespace, and "@NAME" for a group; by default every host of
    /// the subsystem.
    pub(crate) hosts: Option<Vec<String>>,
    /// Limits of all hosts together on this namespace.
    pub(crate) limits: Option<LimitsTable>,
}

/// Limits of a host.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["nqn"]))]
pub(crate) struct LimitedHostTable {
    /// NQN of the host. Required.
    pub(crate) nqn: Option<String>,
    /// Limits of the host, over all namespaces of the subsystem; none by default.
    pub(crate) limits: Option<LimitsTable>,
    /// Share of the host in a limit that hosts share.
    #[schemars(range(min = 1, max = 100), extend("default" = 1))]
    pub(crate) weight: Option<i64>,
}

/// Maximum rates; commands beyond them wait.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitsTable {
    /// I/O commands per second.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(crate) iops: Option<i64>,
    /// Bytes read per second, such as "100MiB".
    pub(crate) read: Option<String>,
    /// Bytes written per second.
    pub(crate) write: Option<String>,
    /// Bytes read and written per second.
    pub(crate) total: Option<String>,
    /// Maximum outstanding commands of the disk; only for a namespace.
    #[schemars(range(min = 1, max = 65_535))]
    pub(crate) outstanding: Option<i64>,
    /// Milliseconds of unused rate that can be used later.
    #[schemars(range(min = 1, max = 60_000), extend("default" = 20))]
    pub(crate) burst_ms: Option<i64>,
}

/// Access to a Ceph cluster.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CephTable {
    /// Absolute path of the cluster's configuration; by default as librados finds it.
    pub(crate) conf: Option<String>,
    /// User, without "client."; "admin" by default.
    pub(crate) id: Option<String>,
    /// Absolute path of the file with the user's key; by default as the cluster's configuration
    /// names it.
    pub(crate) keyring: Option<String>,
    /// Options of Ceph's client, such as `rbd_readahead_max_bytes = "0"`, except those that the
    /// target sets itself.
    pub(crate) options: Option<BTreeMap<String, String>>,
}
