//! Command-line actions for each kind of object.

use std::net::{IpAddr, SocketAddr};

use cairn_config::{PORT_DEFAULT, parse_listen};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::At;

fn parse_listener(text: &str) -> Result<SocketAddr, String> {
    let parsed = parse_listen(text, PORT_DEFAULT).map(SocketAddr::from);
    parsed.ok_or_else(|| "write ADDR or ADDR:PORT, such as 192.0.2.1:4420".to_owned())
}

#[derive(Debug, Subcommand)]
pub(crate) enum SubsystemAction {
    /// Lists them
    List(At),
    /// Adds one without namespaces
    Add {
        /// Its name
        nqn: String,
        /// Serial number
        #[arg(long)]
        serial: Option<String>,
        /// Model
        #[arg(long)]
        model: Option<String>,
        /// Controller ids that it gives out, such as 1-32767
        #[arg(long, value_name = "FIRST-LAST")]
        controller_ids: Option<String>,
        /// Let every host connect
        #[arg(long)]
        allow_any_host: bool,
        /// List this host among those that may connect; repeatable
        #[arg(long, value_name = "NQN")]
        host: Vec<String>,
        /// A listener that leads to it, if not all do; repeatable
        #[arg(long, value_name = "ADDR[:PORT]", value_parser = parse_listener)]
        listener: Vec<SocketAddr>,
        #[command(flatten)]
        at: At,
    },
    /// Removes one with its namespaces, and disconnects its hosts
    Remove {
        /// Its name
        nqn: String,
        #[command(flatten)]
        at: At,
    },
    /// Sets what is given, and says what of it takes effect at the next start
    #[command(group = clap::ArgGroup::new("setting").required(true).multiple(true))]
    Set {
        /// Its name
        nqn: String,
        /// Serial number
        #[arg(long, group = "setting")]
        serial: Option<String>,
        /// Model
        #[arg(long, group = "setting")]
        model: Option<String>,
        /// Controller ids that it gives out, such as 1-32767
        #[arg(long, value_name = "FIRST-LAST", group = "setting")]
        controller_ids: Option<String>,
        /// Whether to refuse hosts that have no key
        #[arg(long, group = "setting", value_name = "on|off", value_parser = on_or_off)]
        require_key: Option<bool>,
        /// A listener that leads to it, in place of those that do; repeatable
        #[arg(long, value_name = "ADDR[:PORT]", group = "setting", value_parser = parse_listener)]
        listener: Vec<SocketAddr>,
        /// Let every listener lead to it
        #[arg(long, group = "setting", conflicts_with = "listener")]
        every_listener: bool,
        #[command(flatten)]
        at: At,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum NamespaceAction {
    /// Lists them
    List(At),
    /// Exports a disk as one
    Add {
        /// The subsystem
        nqn: String,
        /// A file, a block device, a Ceph image, memory, or a null disk
        #[arg(value_name = "PATH|dir:DIRECTORY|rbd:POOL/IMAGE|mem:SIZE|null:SIZE")]
        export: String,
        /// Its number; the lowest that is free if not given
        #[arg(long)]
        nsid: Option<u32>,
        /// Name of the disk at the control socket
        #[arg(long)]
        name: Option<String>,
        /// Its UUID
        #[arg(long)]
        uuid: Option<String>,
        /// Its NGUID, or from-uuid for its UUID
        #[arg(long)]
        nguid: Option<String>,
        /// Bytes of a block
        #[arg(long, value_name = "512|4096")]
        block_size: Option<u32>,
        /// Refuse writes
        #[arg(long)]
        read_only: bool,
        /// Let hosts protect it from writes
        #[arg(long)]
        write_protection: bool,
        /// Other targets export the disk, too
        #[arg(long)]
        shared: bool,
        /// Its ANA group
        #[arg(long)]
        ana_group: Option<u32>,
        /// A host that sees it; every host of the subsystem if not given
        #[arg(long, value_name = "NQN")]
        host: Option<Vec<String>>,
        #[command(flatten)]
        at: At,
    },
    /// Removes one
    Remove {
        /// The subsystem
        nqn: String,
        /// Its number
        nsid: u32,
        #[command(flatten)]
        at: At,
    },
    /// Sets what is given; the rest stays
    Set(NamespaceSet),
}

/// What a namespace is to be like.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("setting").required(true).multiple(true))]
pub(crate) struct NamespaceSet {
    /// The subsystem
    pub(super) nqn: String,
    /// Its number
    pub(super) nsid: u32,
    /// Name of the disk at the control socket
    #[arg(long, group = "setting")]
    pub(super) name: Option<String>,
    /// Another disk, or the same null disk with another size. Hosts that are connected first see that the
    /// former disk is gone, but for a null disk
    #[arg(
        long,
        group = "setting",
        value_name = "PATH|rbd:POOL/IMAGE|mem:SIZE|null:SIZE"
    )]
    pub(super) export: Option<String>,
    /// Whether to refuse writes. Hosts that are connected first see that the former disk is gone
    #[arg(long, group = "setting", value_name = "on|off", value_parser = on_or_off)]
    pub(super) read_only: Option<bool>,
    /// Whether hosts may protect it from writes
    #[arg(long, group = "setting", value_name = "on|off", value_parser = on_or_off)]
    pub(super) write_protection: Option<bool>,
    /// Its ANA group
    #[arg(long, group = "setting", value_name = "ID")]
    pub(super) ana_group: Option<u32>,
    /// A host that sees it, or @GROUP, in place of those that do; repeatable
    #[arg(long, groups = ["setting", "seen_by"], value_name = "NQN")]
    pub(super) host: Option<Vec<String>>,
    /// Show it to no host
    #[arg(long, groups = ["setting", "seen_by"])]
    pub(super) no_host: bool,
    /// Show it to every host of the subsystem
    #[arg(long, groups = ["setting", "seen_by"])]
    pub(super) every_host: bool,
    #[command(flatten)]
    pub(super) at: At,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ListenerAction {
    /// Lists them
    List(At),
    /// Listens on one more address
    Add {
        /// An address of this machine
        address: IpAddr,
        /// Port; 4420 if not given
        #[arg(long)]
        port: Option<u16>,
        /// The RDMA provider there
        #[arg(long, value_name = "auto|verbs|soft")]
        provider: Option<String>,
        /// What is spoken there in user space; as in the rest of the target if not given
        #[arg(long, value_name = "v1|v2")]
        roce: Option<String>,
        /// VID of the tag that RoCE v1 writes there
        #[arg(long, value_name = "VID")]
        vlan: Option<u16>,
        /// The ANA state of its paths
        #[arg(long, value_name = "STATE")]
        ana: Option<String>,
        #[command(flatten)]
        at: At,
    },
    /// Stops listening at an address, and disconnects the hosts that connected there
    Remove {
        /// The address
        address: IpAddr,
        /// Port; 4420 if not given
        #[arg(long)]
        port: Option<u16>,
        #[command(flatten)]
        at: At,
    },
    /// Sets the ANA state of its paths: optimized, non-optimized, inaccessible, ...
    Set {
        /// The address
        address: IpAddr,
        /// Port; 4420 if not given
        #[arg(long)]
        port: Option<u16>,
        /// The state
        #[arg(long, value_name = "STATE", required_unless_present = "inherit")]
        ana: Option<String>,
        /// For the disks of this subsystem alone
        #[arg(long, value_name = "NQN")]
        subsystem: Option<String>,
        /// The subsystem gets the listener's own states again
        #[arg(long, requires = "subsystem", conflicts_with = "ana")]
        inherit: bool,
        /// For the disks of this ANA group alone
        #[arg(long, value_name = "ID")]
        ana_group: Option<u32>,
        #[command(flatten)]
        at: At,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReferralAction {
    /// Lists them
    List(At),
    /// Refers hosts that ask for discovery to one more service
    Add(ReferralTo),
    /// Refers hosts to one no longer
    Remove(ReferralTo),
}

/// Another discovery service.
#[derive(Debug, Args)]
pub(crate) struct ReferralTo {
    /// Its address
    address: IpAddr,
    /// Port; 4420 if not given
    #[arg(long)]
    port: Option<u16>,
    /// Its name, if it has one of its own
    #[arg(long)]
    nqn: Option<String>,
    #[command(flatten)]
    pub(super) at: At,
}

impl ReferralTo {
    pub(super) fn params(&self) -> Value {
        let Self {
            address, port, nqn, ..
        } = self;
        json!({"address": address, "port": port, "nqn": nqn})
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum HostAction {
    /// Lists the hosts that may connect to a subsystem, and how many controllers each has
    List {
        /// The subsystem
        nqn: String,
        #[command(flatten)]
        at: At,
    },
    /// Lists a host among those that may connect
    Add {
        /// The subsystem
        nqn: String,
        /// The host, as its /etc/nvme/hostnqn says
        host: String,
        #[command(flatten)]
        at: At,
    },
    /// Lists a host no longer, and disconnects it unless every host may connect
    Remove {
        /// The subsystem
        nqn: String,
        /// The host
        host: String,
        #[command(flatten)]
        at: At,
    },
    /// Lets every host connect, or only those that are listed
    Any {
        /// The subsystem
        nqn: String,
        /// Whether every host may connect
        #[arg(value_name = "on|off", value_parser = on_or_off, action = clap::ArgAction::Set)]
        allow: bool,
        #[command(flatten)]
        at: At,
    },
    /// Shows and changes the groups of hosts, which lists of hosts name as @NAME
    Group {
        #[command(subcommand)]
        action: GroupAction,
    },
    /// Shows and changes the keys by which hosts authenticate
    Key {
        #[command(subcommand)]
        action: KeyAction,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyAction {
    /// Shows where keys are, never what they are
    Show {
        /// The subsystem; all of them if not given
        nqn: Option<String>,
        /// The host; all of them if not given
        host: Option<String>,
        #[command(flatten)]
        at: At,
    },
    /// Gives a host its keys; they count when it authenticates next
    Set {
        /// The subsystem
        nqn: String,
        /// The host
        host: String,
        /// A file with the key of the host, as `key generate --output` makes it
        #[arg(long, value_name = "FILE|key:NAME|credential:NAME")]
        key: String,
        /// A file with the key by which the target authenticates to the host
        #[arg(long, value_name = "FILE|key:NAME|credential:NAME")]
        ctrl_key: Option<String>,
        #[command(flatten)]
        at: At,
    },
    /// Lets a host connect without a key of its own
    Remove {
        /// The subsystem
        nqn: String,
        /// The host
        host: String,
        #[command(flatten)]
        at: At,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum GroupAction {
    /// Lists them
    List(At),
    /// Adds hosts to a group, and makes it if there is none of that name
    Add {
        /// The group, without @
        name: String,
        /// The hosts, as their /etc/nvme/hostnqn say
        hosts: Vec<String>,
        #[command(flatten)]
        at: At,
    },
    /// Removes hosts from a group, or the group if no host is given
    Remove {
        /// The group, without @
        name: String,
        /// The hosts
        hosts: Vec<String>,
        #[command(flatten)]
        at: At,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum LimitAction {
    /// Lists them
    List(At),
    /// Sets those that are given; the others stay
    Set {
        /// The subsystem
        nqn: String,
        /// The namespace, which all hosts together may take so much of; all of the subsystem's if
        /// not given
        nsid: Option<u32>,
        /// For each host by itself, at all namespaces together
        #[arg(long, conflicts_with = "nsid")]
        each_host: bool,
        /// For this host, in place of what each host may take
        #[arg(long, value_name = "HOSTNQN", conflicts_with_all = ["nsid", "each_host"])]
        host: Option<String>,
        /// I/O commands a second; 0: no limit
        #[arg(long, value_name = "NUMBER")]
        iops: Option<u64>,
        /// Bytes read in a second, such as 100MiB; 0: no limit
        #[arg(long, value_name = "SIZE")]
        read: Option<String>,
        /// Bytes written in a second; 0: no limit
        #[arg(long, value_name = "SIZE")]
        write: Option<String>,
        /// Bytes read and written in a second; 0: no limit
        #[arg(long, value_name = "SIZE")]
        total: Option<String>,
        /// Commands that a namespace's disk has at a time; 0: no limit
        #[arg(long, value_name = "NUMBER", requires = "nsid")]
        outstanding: Option<u64>,
        /// Milliseconds whose allowance can be saved up; 0: the default
        #[arg(long, value_name = "MS")]
        burst_ms: Option<u64>,
        #[command(flatten)]
        at: At,
    },
    /// Removes all limits of a namespace, of each host, of one, or of the subsystem as a whole
    Remove {
        /// The subsystem
        nqn: String,
        /// The namespace
        nsid: Option<u32>,
        /// Those of each host
        #[arg(long, conflicts_with = "nsid")]
        each_host: bool,
        /// Those of this host: it may take what each host may again
        #[arg(long, value_name = "HOSTNQN", conflicts_with_all = ["nsid", "each_host"])]
        host: Option<String>,
        #[command(flatten)]
        at: At,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConnectionsAction {
    /// Lists them
    List(At),
    /// Disconnects a host; it may connect again
    Remove {
        /// The subsystem
        nqn: String,
        /// Its controller
        cntlid: u16,
        #[command(flatten)]
        at: At,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigAction {
    /// Prints the configuration that is in force
    Show(At),
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off".to_owned()),
    }
}
