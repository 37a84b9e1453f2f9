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
    /// Traffic class and hop limit of packets by host and address.
    pub(crate) marking: MarkingTable,
    /// Addresses at which the target accepts hosts.
    pub(crate) listener: Vec<ListenerTable>,
    /// Other discovery services, reported to hosts that use the discovery service of this target.
    pub(crate) referral: Vec<ReferralTable>,
    /// Keyring: named keys, which `dhchap_key` and `dhchap_ctrl_key` refer to as "key:NAME".
    pub(crate) key: Vec<KeyTable>,
    /// Groups of hosts, which `allowed_hosts` and `hosts` refer to as "@NAME".
    pub(crate) host_group: Vec<HostGroupTable>,
    /// Subsystems: a name, the hosts that may connect, and the namespaces.
    pub(crate) subsystem: Vec<SubsystemTable>,
}

/// Settings of the whole process.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TargetTable {
    /// Number of reactors (threads of the data path), 1 to 64. "auto" is half of the cores, at most
    /// 2.
    #[schemars(extend("default" = "auto"))]
    pub(crate) reactors: Option<ReactorCount>,
    /// Cores that reactors are pinned to, one reactor each. Also sets the number of reactors.
    pub(crate) cores: Option<Vec<i64>>,
    /// Longest polling of a reactor without work before it sleeps, in microseconds. Reactors adapt
    /// the time to their load, up to this limit. 0 sleeps at once; a higher limit lowers latency
    /// and uses more CPU time.
    #[schemars(range(min = 0, max = 1_000_000), extend("default" = 1000))]
    pub(crate) poll_idle_us: Option<i64>,
    /// Whether commands to NVMe drives past the block layer complete by polling instead of by
    /// interrupts, if Linux's driver has queues for that (nvme.poll_queues). A reactor keeps its
    /// core busy while such a command is outstanding.
    #[schemars(extend("default" = false))]
    pub(crate) poll_drives: Option<bool>,
    /// Seconds after which the target cancels a command at a disk. The host receives Namespace Not
    /// Ready when the disk has released the command. 0 never cancels.
    #[schemars(range(min = 0, max = 3600), extend("default" = 30))]
    pub(crate) io_timeout_s: Option<i64>,
    /// Memory of each reactor for data between disk and network: at least twice `mdts`.
    #[schemars(extend("default" = "16MiB"))]
    pub(crate) data_buffers: Option<String>,
    /// Receives that each reactor keeps posted on each device, shared by all its queue pairs.
    #[schemars(range(min = 64, max = 32768), extend("default" = 1024))]
    pub(crate) receives: Option<i64>,
    /// Largest data in the capsule of a write command: a multiple of 512 bytes, at most 16 KiB.
    /// Such writes need no second round trip.
    #[schemars(extend("default" = "4KiB"))]
    pub(crate) in_capsule_data: Option<String>,
    /// Largest transfer of a command (MDTS): a power of two, from 8 KiB to 4 MiB.
    #[schemars(extend("default" = "1MiB"))]
    pub(crate) mdts: Option<String>,
    /// Entries of an I/O queue (MQES), which limit its outstanding commands.
    #[schemars(range(min = 16, max = 1024), extend("default" = 128))]
    pub(crate) queue_depth: Option<i64>,
    /// Maximum I/O queues of a controller. A Linux host requests one for each core.
    #[schemars(range(min = 1, max = 1024), extend("default" = 128))]
    pub(crate) io_queues: Option<i64>,
    /// Unique name of the discovery service of this target, such as
    /// "nqn.2024-01.com.example:discovery". Hosts can connect by this name and by the well-known
    /// name.
    #[schemars(extend("default" = "nqn.2014-08.org.nvmexpress.discovery"))]
    pub(crate) discovery_nqn: Option<String>,
    /// RDMA provider of listeners that set none: "verbs" is an RDMA device, "soft" is RoCE in user
    /// space, "auto" is verbs if a device owns the address and soft otherwise.
    #[schemars(extend("default" = "auto", "enum" = ["auto", "verbs", "soft"]))]
    pub(crate) provider: Option<String>,
    /// RoCE version in user space: "v2" on UDP, "v1" on Ethernet.
    #[schemars(extend("default" = "v2", "enum" = ["v1", "v2"]))]
    pub(crate) roce: Option<String>,
    /// Whether congestion notifications (CNP) slow RoCE v2 in user space: "on" or "off". They are
    /// not authenticated; forged ones leave at least half of the rate that window and round trip
    /// time allow.
    #[schemars(extend("default" = "on", "enum" = ["on", "off"]))]
    pub(crate) congestion_control: Option<String>,
    /// Whether RoCE v2 in user space passes several packets of a flow to the system together (UDP
    /// segmentation offload): "on" or "off". "off" helps if a card does not change the IPv4
    /// identification from packet to packet, and costs throughput.
    #[schemars(extend("default" = "on", "enum" = ["on", "off"]))]
    pub(crate) segmentation_offload: Option<String>,
    /// VID of the 802.1Q tag that RoCE v1 writes itself, on an interface that is not a VLAN
    /// interface. With 0 the tag has a priority and no VLAN.
    #[schemars(range(min = 0, max = 4094))]
    pub(crate) vlan: Option<i64>,
    /// Hash functions for the authentication of hosts, best first, in subsystems without their own
    /// list.
    #[schemars(extend("default" = ["sha512", "sha384", "sha256"]))]
    pub(crate) dhchap_hashes: Option<Vec<String>>,
    /// Diffie-Hellman groups for the authentication of hosts, best first, in subsystems without
    /// their own list.
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
    /// ADDRESS or ADDRESS:PORT that serves metrics to Prometheus over HTTP; the default port is
    /// 9464. Without this key no port is open. The port has no password and shows the names of
    /// hosts and disks: use loopback, or an address of a management network.
    pub(crate) listen: Option<String>,
}

/// Audit log: connected hosts, refused hosts, and changes with their author, one line of JSON for
/// each event. Off without a destination; several are possible.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AuditTable {
    /// Absolute path of the file that lines are appended to, such as /var/log/cairn/audit.json.
    /// Created with mode 0600, and reopened by each reload.
    pub(crate) file: Option<String>,
    /// Whether systemd's journal receives the lines, with SYSLOG_IDENTIFIER=cairn-audit.
    #[schemars(extend("default" = false))]
    pub(crate) journal: Option<bool>,
    /// Absolute path of a Unix datagram socket that receives each line as a datagram.
    pub(crate) datagram: Option<String>,
}

/// Control socket: a Unix socket with requests that query and change the target.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ControlTable {
    /// Absolute path of the control socket, or "off". The default is /run/cairn/target.sock for
    /// root and $XDG_RUNTIME_DIR/cairn/target.sock for others, unless another target listens there.
    pub(crate) socket: Option<String>,
    /// Group, by name or number, whose members may open the control socket in addition to the user
    /// of the target.
    pub(crate) group: Option<String>,
    /// Whether requests that change something are refused, for a file under configuration
    /// management.
    #[schemars(extend("default" = false))]
    pub(crate) read_only: Option<bool>,
    /// Disks that requests at the control socket may export: folders, such as "/srv/images";
    /// patterns in which "*" stands for any part of a name, such as "/dev/vg0/*"; and images, such
    /// as "rbd:pool/*". Memory and null disks are always permitted. Without this list, requests may
    /// export any file and device that the target can open.
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

/// Traffic class and hop limit of packets by host and address, for switches and routers.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MarkingTable {
    /// Rules such as "tclass=104,src_ip=192.0.2.1,dst_ip=192.0.2.0/24", in the format of the
    /// drivers' force-DSCP files, with host_nqn and hop_limit in addition. The most specific rule
    /// applies, in any order. Without a matching rule, the values of the listener apply.
    pub(crate) rules: Option<Vec<String>>,
}

/// Address at which the target accepts hosts.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["address"]))]
pub(crate) struct ListenerTable {
    /// IPv4 or IPv6 address of an interface of this machine, or "0.0.0.0" or "::" for all addresses
    /// of the family. Required.
    pub(crate) address: Option<String>,
    /// Port (TRSVCID).
    #[schemars(range(min = 1, max = 65535), extend("default" = 4420))]
    pub(crate) port: Option<i64>,
    /// RDMA provider; `target.provider` by default.
    #[schemars(extend("enum" = ["auto", "verbs", "soft"]))]
    pub(crate) provider: Option<String>,
    /// RoCE version in user space: "v2" on UDP, "v1" on Ethernet; `target.roce` and `target.vlan`
    /// by default.
    #[schemars(extend("enum" = ["v1", "v2"]))]
    pub(crate) roce: Option<String>,
    /// VID of the 802.1Q tag that RoCE v1 writes itself at this address, on an interface that is
    /// not a VLAN interface. With 0 the tag has a priority and no VLAN.
    #[schemars(range(min = 0, max = 4094))]
    pub(crate) vlan: Option<i64>,
    /// Type of service of packets to hosts. Without `tos` and `dscp`, packets to a host carry the
    /// type of service of the packets from this host.
    #[schemars(range(min = 0, max = 255))]
    pub(crate) tos: Option<i64>,
    /// DSCP of packets to hosts, instead of `tos`: the type of service is four times as much.
    #[schemars(range(min = 0, max = 63))]
    pub(crate) dscp: Option<i64>,
    /// Hop limit (TTL) of packets to hosts.
    #[schemars(range(min = 1, max = 255))]
    pub(crate) hop_limit: Option<i64>,
    /// Partition key of 16 bits, such as 0x8001: only hosts of this partition can connect. Bit 15
    /// is full membership; without it, hosts must be full members.
    #[schemars(range(min = 1, max = 65535), extend("default" = 65535))]
    pub(crate) pkey: Option<i64>,
    /// Source addresses that may connect, with prefixes such as "192.0.2.0/24"; all by default.
    pub(crate) allowed_addresses: Option<Vec<String>>,
    /// Maximum unanswered connection requests.
    #[schemars(range(min = 1, max = 4096), extend("default" = 128))]
    pub(crate) backlog: Option<i64>,
    /// Number of this listener as a port of its subsystems (PORTID). Must differ between targets
    /// that export a subsystem together. By default the lowest number that no listener has.
    #[schemars(range(min = 1, max = 65535))]
    pub(crate) port_id: Option<i64>,
    /// ANA state of the paths through this listener: "optimized" is preferred, "non-optimized"
    /// works but is slower, "inaccessible" does not work now, "persistent-loss" will never work
    /// again, "change" is about to become another state.
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
    /// ANA group, set by `ana_group` of each namespace. Required.
    #[schemars(range(min = 1, max = 128))]
    pub(crate) id: Option<i64>,
    /// ANA state of the group. Required.
    #[schemars(extend(
        "enum" = ["optimized", "non-optimized", "inaccessible", "persistent-loss", "change"]
    ))]
    pub(crate) state: Option<String>,
}

/// Another discovery service over RDMA that is reported to hosts.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["address"]))]
pub(crate) struct ReferralTable {
    /// IPv4 or IPv6 address of the service. Required.
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
    /// Name of the subsystem (SUBNQN): "nqn.yyyy-mm.reverse.domain:name". Required.
    pub(crate) nqn: Option<String>,
    /// Serial number, at most 20 ASCII characters. By default made from the NQN, hence the same
    /// after a restart.
    pub(crate) serial: Option<String>,
    /// Model, at most 40 ASCII characters.
    #[schemars(extend("default" = "Cairn"))]
    pub(crate) model: Option<String>,
    /// Range of controller IDs (CNTLID), such as "1-32767". Targets that export a subsystem
    /// together need ranges without overlap.
    #[schemars(extend("default" = "1-65519"))]
    pub(crate) controller_ids: Option<String>,
    /// Whether every host may connect. Either this is true, or `allowed_hosts` lists the hosts.
    /// With both, the list permits keys for its hosts, and restricts access when this becomes
    /// `false`.
    pub(crate) allow_any_host: Option<bool>,
    /// NQNs of the hosts that may connect unless every host may, and "@NAME" for the hosts of a
    /// group. A Linux host has its NQN in /etc/nvme/hostnqn.
    pub(crate) allowed_hosts: Option<Vec<String>>,
    /// Listeners that lead to the subsystem, each as "ADDRESS" or "ADDRESS:PORT" of a
    /// `[[listener]]`; all by default.
    pub(crate) listeners: Option<Vec<String>>,
    /// ANA states of this subsystem that override the states of its listeners.
    pub(crate) ana: Vec<SubsystemAnaTable>,
    /// Key for the authentication (DH-HMAC-CHAP) of hosts without an entry in `host`: the absolute
    /// path of a file that only its owner can read, "key:NAME" for a key of the keyring, or
    /// "credential:NAME" for a credential of systemd (LoadCredential=). The key itself,
    /// "DHHC-1:..", works with a warning, because each reader of this file learns it. Without a
    /// key, hosts do not authenticate. `cairn-target key generate` makes keys.
    pub(crate) dhchap_key: Option<String>,
    /// Key by which the target authenticates to these hosts, if they request it. Written as
    /// `dhchap_key`.
    pub(crate) dhchap_ctrl_key: Option<String>,
    /// Whether a host without a key, here or in `host`, is refused. Otherwise such a host connects
    /// without authentication.
    #[schemars(extend("default" = false))]
    pub(crate) require_key: Option<bool>,
    /// Hash functions for the authentication of hosts, best first; `target.dhchap_hashes` by
    /// default.
    pub(crate) dhchap_hashes: Option<Vec<String>>,
    /// Diffie-Hellman groups for the authentication of hosts, best first; `target.dhchap_groups` by
    /// default. "null" uses no group: an eavesdropper can then try out keys on a recorded exchange.
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

/// ANA state of the subsystem above at a listener.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["listener", "state"]))]
pub(crate) struct SubsystemAnaTable {
    /// Listener that leads to the subsystem, as "ADDRESS" or "ADDRESS:PORT". Required.
    pub(crate) listener: Option<String>,
    /// ANA group with this state at the listener. By default all groups without their own table.
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
    /// Name of the key, which tables of hosts refer to as "key:NAME". Required.
    pub(crate) name: Option<String>,
    /// Absolute path of a file with the key that only its owner can read. Required.
    pub(crate) path: Option<String>,
    /// Whether the key was removed while hosts use it. These hosts cannot authenticate until they
    /// get another key.
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
    /// Source of the data: the absolute path of a block device, a file, or an NVMe drive's
    /// character device ("/dev/ng0n1"), which bypasses the block layer; "dir:DIRECTORY" for the
    /// files of a directory, each with an NSID, starting at this one; "rbd:POOL/IMAGE" or
    /// "rbd:POOL/NAMESPACE/IMAGE" for a Ceph image, with "@SNAPSHOT" for one of its snapshots;
    /// "mem:SIZE" for memory; or "null:SIZE" for a disk that discards writes. Required.
    pub(crate) export: Option<String>,
    /// Access to the cluster of an "rbd:" export.
    pub(crate) ceph: Option<CephTable>,
    /// UUID of the namespace. By default the identity of the disk: of an NVMe drive past the block
    /// layer its own UUID, of another device by its WWID, of a file kept in its extended
    /// attributes, of a Ceph image by cluster and image ID. "mem:" and "null:" get a new UUID at
    /// each start.
    pub(crate) uuid: Option<String>,
    /// NGUID of the namespace: 32 hexadecimal digits, or "from-uuid" for its UUID. By default an
    /// NVMe drive past the block layer has its own, unless `uuid` is set.
    pub(crate) nguid: Option<String>,
    /// Bytes of a logical block. By default the smallest size that the disk supports, 512 for
    /// memory and null.
    #[schemars(extend("enum" = [512, 4096]))]
    pub(crate) block_size: Option<i64>,
    /// Whether writes are refused.
    #[schemars(extend("default" = false))]
    pub(crate) read_only: Option<bool>,
    /// Whether hosts may protect the namespace from writes and lift the protection (feature 84h).
    #[schemars(extend("default" = false))]
    pub(crate) write_protection: Option<bool>,
    /// Absolute path of a file that keeps the write protection set by hosts across restarts. The
    /// target creates the file in an existing folder.
    pub(crate) write_protection_file: Option<String>,
    /// Whether other processes or machines also export the disk. The target then does not lock it,
    /// and the exclusive lock of an "rbd:" image moves to the writing target.
    #[schemars(extend("default" = false))]
    pub(crate) shared: Option<bool>,
    /// ANA group of the namespace; each listener has a state for each group.
    #[schemars(range(min = 1, max = 128), extend("default" = 1))]
    pub(crate) ana_group: Option<i64>,
    /// NQNs of the hosts that the namespace is visible to, and "@NAME" for the hosts of a group;
    /// only hosts that may connect. By default every host of the subsystem; with an empty list, no
    /// host. For other hosts the namespace does not exist.
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
    /// Limits of the host, over all namespaces of the subsystem. Without `limits` here, the host
    /// has no limit except those that it shares with other hosts.
    pub(crate) limits: Option<LimitsTable>,
    /// Share of the host in a limit that it shares with other hosts, whose weight is 1 by default.
    #[schemars(range(min = 1, max = 100), extend("default" = 1))]
    pub(crate) weight: Option<i64>,
}

/// Maximum rates; commands beyond them wait. A rate that is not set is unlimited.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitsTable {
    /// I/O commands per second. Flushes do not count.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(crate) iops: Option<i64>,
    /// Bytes read per second, such as "100MiB".
    pub(crate) read: Option<String>,
    /// Bytes written per second.
    pub(crate) write: Option<String>,
    /// Bytes read and written per second.
    pub(crate) total: Option<String>,
    /// Maximum outstanding commands of the disk; only for a namespace. Commands beyond the limit
    /// wait, and hosts are served by weight.
    #[schemars(range(min = 1, max = 65_535))]
    pub(crate) outstanding: Option<i64>,
    /// Burst: milliseconds of unused rate that accumulate and can be used at once.
    #[schemars(range(min = 1, max = 60_000), extend("default" = 20))]
    pub(crate) burst_ms: Option<i64>,
}

/// Access to a Ceph cluster.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CephTable {
    /// Absolute path of the cluster's configuration. By default librados uses CEPH_CONF and
    /// /etc/ceph/ceph.conf.
    pub(crate) conf: Option<String>,
    /// User, without "client."; "admin" by default.
    pub(crate) id: Option<String>,
    /// Absolute path of the file with the user's key. By default the cluster's configuration names
    /// it.
    pub(crate) keyring: Option<String>,
    /// Options of Ceph's client, with the names of ceph.conf and with precedence over its values,
    /// such as `rbd_readahead_max_bytes = "0"`. Options that the target sets itself are refused.
    pub(crate) options: Option<BTreeMap<String, String>>,
}
