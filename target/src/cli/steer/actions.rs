//! Command-line actions for each kind of object.

use cairn_config::{PORT_DEFAULT, Traddr, Trid};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::At;
use crate::cli::result_file::ResultFile;

pub(super) fn parse_place(text: &str) -> Result<Trid, String> {
    let parsed = Trid::parse(text, PORT_DEFAULT);
    parsed.map_err(|error| {
        format!("{error}: write ADDR or ADDR:PORT, such as 192.0.2.1:4420 or [2001:db8::1]:4420")
    })
}

/// Address and port.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// Address, with port 4420 by default: 192.0.2.1:4421, [2001:db8::1]:4421
    #[arg(value_name = "ADDR[:PORT]", value_parser = parse_place)]
    address: Trid,
    /// Former spelling of :PORT
    #[arg(long, hide = true)]
    port: Option<u16>,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Trid::new(self.address(), self.port()).fmt(f)
    }
}

impl Place {
    pub(super) fn address(&self) -> Traddr {
        self.address.address
    }

    pub(super) fn port(&self) -> u16 {
        self.port.unwrap_or(self.address.port)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum SubsystemAction {
    /// Lists the subsystems
    List(At),
    /// Adds a subsystem without namespaces
    Add {
        /// Name of the subsystem
        nqn: String,
        /// Serial number
        #[arg(long)]
        serial: Option<String>,
        /// Model
        #[arg(long)]
        model: Option<String>,
        /// Range of controller IDs, such as 1-32767
        #[arg(long, value_name = "FIRST-LAST")]
        controller_ids: Option<String>,
        /// Let every host connect
        #[arg(long)]
        allow_any_host: bool,
        /// Permit this host; repeatable
        #[arg(long, value_name = "NQN")]
        host: Vec<String>,
        /// Listener that leads to the subsystem; repeatable [default: all listeners]
        #[arg(long, value_name = "ADDR[:PORT]", value_parser = parse_place)]
        listener: Vec<Trid>,
        #[command(flatten)]
        at: At,
    },
    /// Removes a subsystem with its namespaces
    Remove {
        /// Name of the subsystem
        nqn: String,
        /// Disconnect its hosts and drop its reservations
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        at: At,
    },
    /// Changes the given settings of a subsystem, and lists those that take effect at the next
    /// start
    #[command(group = clap::ArgGroup::new("setting").required(true).multiple(true))]
    Set {
        /// Name of the subsystem
        nqn: String,
        /// Serial number
        #[arg(long, group = "setting")]
        serial: Option<String>,
        /// Model
        #[arg(long, group = "setting")]
        model: Option<String>,
        /// Range of controller IDs, such as 1-32767
        #[arg(long, value_name = "FIRST-LAST", group = "setting")]
        controller_ids: Option<String>,
        /// Whether to refuse hosts without a key
        #[arg(long, group = "setting", value_name = "on|off", value_parser = on_or_off)]
        require_key: Option<bool>,
        /// Listener that leads to the subsystem, replacing the present ones; repeatable
        #[arg(long, value_name = "ADDR[:PORT]", group = "setting", value_parser = parse_place)]
        listener: Vec<Trid>,
        /// Let every listener lead to the subsystem
        #[arg(long, group = "setting", conflicts_with = "listener")]
        every_listener: bool,
        #[command(flatten)]
        at: At,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum NamespaceAction {
    /// Lists the namespaces
    List(At),
    /// Exports a disk as a namespace
    Add {
        /// Name of the subsystem
        nqn: String,
        /// File, block device, files of a directory, Ceph image, memory, or null disk
        #[arg(value_name = "PATH|dir:DIRECTORY|rbd:POOL/IMAGE|mem:SIZE|null:SIZE")]
        export: String,
        /// Number of the namespace [default: the lowest free one]
        #[arg(long)]
        nsid: Option<u32>,
        /// Name of the disk at the control socket
        #[arg(long)]
        name: Option<String>,
        /// UUID of the namespace [default: that of the disk]
        #[arg(long)]
        uuid: Option<String>,
        /// NGUID of the namespace: 32 hexadecimal digits, or from-uuid to use the UUID
        #[arg(long)]
        nguid: Option<String>,
        /// Bytes of a logical block [default: the smallest that the disk supports]
        #[arg(long, value_name = "512|4096")]
        block_size: Option<u32>,
        /// Refuse writes
        #[arg(long)]
        read_only: bool,
        /// Let hosts protect the namespace from writes
        #[arg(long)]
        write_protection: bool,
        /// Do not lock the disk, because other targets also export it
        #[arg(long)]
        shared: bool,
        /// ANA group of the namespace [default: 1]
        #[arg(long, value_name = "ID")]
        ana_group: Option<u32>,
        /// Host that the namespace is visible to; repeatable [default: every host of the subsystem]
        #[arg(long, value_name = "NQN")]
        host: Option<Vec<String>>,
        #[command(flatten)]
        at: At,
    },
    /// Removes a namespace
    Remove {
        /// Name of the subsystem
        nqn: String,
        /// Number of the namespace
        nsid: u32,
        /// Remove the namespace even if its file was deleted. The data is then lost
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        at: At,
    },
    /// Changes the given settings of a namespace
    Set(NamespaceSet),
}

/// New settings of a namespace.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("setting").required(true).multiple(true))]
pub(crate) struct NamespaceSet {
    /// Name of the subsystem
    pub(super) nqn: String,
    /// Number of the namespace
    pub(super) nsid: u32,
    /// Name of the disk at the control socket
    #[arg(long, group = "setting")]
    pub(super) name: Option<String>,
    /// New disk, or a new size of the null disk. Connected hosts lose the namespace before they see
    /// the new one, unless a null disk is resized
    #[arg(
        long,
        group = "setting",
        value_name = "PATH|rbd:POOL/IMAGE|mem:SIZE|null:SIZE"
    )]
    pub(super) export: Option<String>,
    /// UUID of the namespace. Connected hosts lose the namespace before they see the new one
    #[arg(long, group = "setting")]
    pub(super) uuid: Option<String>,
    /// NGUID of the namespace: 32 hexadecimal digits, or from-uuid. Connected hosts lose the old
    /// namespace first
    #[arg(long, group = "setting")]
    pub(super) nguid: Option<String>,
    /// Bytes of a logical block. Connected hosts lose the namespace before they see the new one
    #[arg(long, group = "setting", value_name = "512|4096")]
    pub(super) block_size: Option<u32>,
    /// Whether other targets also export the disk, which then is not locked. Connected hosts lose
    /// the old namespace first
    #[arg(long, group = "setting", value_name = "on|off", value_parser = on_or_off)]
    pub(super) shared: Option<bool>,
    /// Whether to refuse writes. Connected hosts lose the namespace before they see the new one
    #[arg(long, group = "setting", value_name = "on|off", value_parser = on_or_off)]
    pub(super) read_only: Option<bool>,
    /// Whether hosts may protect the namespace from writes
    #[arg(long, group = "setting", value_name = "on|off", value_parser = on_or_off)]
    pub(super) write_protection: Option<bool>,
    /// ANA group of the namespace
    #[arg(long, group = "setting", value_name = "ID")]
    pub(super) ana_group: Option<u32>,
    /// Host or @GROUP that the namespace is visible to, replacing the present ones; repeatable
    #[arg(long, groups = ["setting", "seen_by"], value_name = "NQN")]
    pub(super) host: Option<Vec<String>>,
    /// Hide the namespace from every host
    #[arg(long, groups = ["setting", "seen_by"])]
    pub(super) no_host: bool,
    /// Make the namespace visible to every host of the subsystem
    #[arg(long, groups = ["setting", "seen_by"])]
    pub(super) every_host: bool,
    #[command(flatten)]
    pub(super) at: At,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ListenerAction {
    /// Lists the listeners
    List(At),
    /// Listens at an additional address
    Add {
        #[command(flatten)]
        place: Place,
        /// RDMA provider of the listener [default: that of the target]
        #[arg(long, value_name = "auto|verbs|soft")]
        provider: Option<String>,
        /// RoCE version in user space [default: that of the target]
        #[arg(long, value_name = "v1|v2")]
        roce: Option<String>,
        /// VID of the VLAN tag that RoCE v1 writes
        #[arg(long, value_name = "VID")]
        vlan: Option<u16>,
        /// ANA state of the paths through the listener
        #[arg(long, value_name = "STATE")]
        ana: Option<String>,
        #[command(flatten)]
        at: At,
    },
    /// Stops listening at an address, and disconnects the hosts that are connected there
    Remove {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        at: At,
    },
    /// Sets the ANA state of a listener's paths: optimized, non-optimized, inaccessible, ...
    Set {
        #[command(flatten)]
        place: Place,
        /// ANA state
        #[arg(long, value_name = "STATE", required_unless_present = "inherit")]
        ana: Option<String>,
        /// Only for the namespaces of this subsystem
        #[arg(long, value_name = "NQN")]
        subsystem: Option<String>,
        /// Remove the states of the subsystem, so that the listener's states apply
        #[arg(long, requires = "subsystem", conflicts_with = "ana")]
        inherit: bool,
        /// Only for the namespaces of this ANA group
        #[arg(long, value_name = "ID")]
        ana_group: Option<u32>,
        #[command(flatten)]
        at: At,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReferralAction {
    /// Lists the referrals
    List(At),
    /// Adds a discovery service that is reported to hosts
    Add(ReferralTo),
    /// Removes a discovery service from those reported to hosts
    Remove(ReferralTo),
}

/// Another discovery service.
#[derive(Debug, Args)]
pub(crate) struct ReferralTo {
    #[command(flatten)]
    pub(super) place: Place,
    /// Unique name of the service, if any
    #[arg(long)]
    nqn: Option<String>,
    #[command(flatten)]
    pub(super) at: At,
}

impl ReferralTo {
    pub(super) fn params(&self) -> Value {
        let Self { place, nqn, .. } = self;
        json!({"address": place.address(), "port": place.port(), "nqn": nqn})
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum HostAction {
    /// Lists the permitted hosts of a subsystem, with the number of their controllers
    List {
        /// Name of the subsystem
        nqn: String,
        #[command(flatten)]
        at: At,
    },
    /// Permits a host
    Add {
        /// Name of the subsystem
        nqn: String,
        /// NQN of the host, as in its /etc/nvme/hostnqn
        host: String,
        /// File with the key of the host, which then cannot connect without it
        #[arg(long, value_name = "FILE|key:NAME|credential:NAME")]
        key: Option<String>,
        /// File with the key by which the target authenticates to the host
        #[arg(long, requires = "key", value_name = "FILE|key:NAME|credential:NAME")]
        ctrl_key: Option<String>,
        #[command(flatten)]
        at: At,
    },
    /// Removes a host from the permitted ones, and disconnects it unless every host may connect
    Remove {
        /// Name of the subsystem
        nqn: String,
        /// NQN of the host
        host: String,
        #[command(flatten)]
        at: At,
    },
    /// Permits every host, or only the listed ones
    Any {
        /// Name of the subsystem
        nqn: String,
        /// Whether every host may connect
        #[arg(value_name = "on|off", value_parser = on_or_off, action = clap::ArgAction::Set)]
        allow: bool,
        #[command(flatten)]
        at: At,
    },
    /// Shows and changes the groups of hosts, which lists of hosts refer to as @NAME
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
    /// Shows the files of keys, never their content
    Show {
        /// Name of the subsystem [default: all subsystems]
        nqn: Option<String>,
        /// NQN of the host [default: all hosts]
        host: Option<String>,
        #[command(flatten)]
        at: At,
    },
    /// Sets the keys of a host, from its next authentication on
    Set {
        /// Name of the subsystem
        nqn: String,
        /// NQN of the host
        host: String,
        /// File with the key of the host, as written by `key generate`
        #[arg(long, value_name = "FILE|key:NAME|credential:NAME")]
        key: String,
        /// File with the key by which the target authenticates to the host; the present one stays
        /// if this is not given
        #[arg(long, value_name = "FILE|key:NAME|credential:NAME")]
        ctrl_key: Option<String>,
        #[command(flatten)]
        at: At,
    },
    /// Removes the keys of a host, which then needs the subsystem's key for all hosts. Without that
    /// key, the host cannot connect
    Remove {
        /// Name of the subsystem
        nqn: String,
        /// NQN of the host
        host: String,
        #[command(flatten)]
        at: At,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum GroupAction {
    /// Lists the groups
    List(At),
    /// Adds hosts to a group, and creates the group if it does not exist
    Add {
        /// Name of the group, without @
        name: String,
        /// NQNs of the hosts, as in their /etc/nvme/hostnqn
        hosts: Vec<String>,
        #[command(flatten)]
        at: At,
    },
    /// Removes hosts from a group, or the whole group if no host is given
    Remove {
        /// Name of the group, without @
        name: String,
        /// NQNs of the hosts
        hosts: Vec<String>,
        #[command(flatten)]
        at: At,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum LimitAction {
    /// Lists the limits
    List(At),
    /// Changes the given limits; others stay unchanged
    Set {
        /// Name of the subsystem
        nqn: String,
        /// Number of the namespace whose limits apply to all hosts together [default: all
        /// namespaces of the subsystem together]
        nsid: Option<u32>,
        /// Limit each host separately, over all namespaces
        #[arg(long, conflicts_with = "nsid")]
        each_host: bool,
        /// Limit this host, replacing the limits of --each-host
        #[arg(long, value_name = "NQN", conflicts_with_all = ["nsid", "each_host"])]
        host: Option<String>,
        /// I/O commands per second; 0: no limit
        #[arg(long, value_name = "NUMBER")]
        iops: Option<u64>,
        /// Bytes read per second, such as 100MiB; 0: no limit
        #[arg(long, value_name = "SIZE")]
        read: Option<String>,
        /// Bytes written per second; 0: no limit
        #[arg(long, value_name = "SIZE")]
        write: Option<String>,
        /// Bytes read and written per second; 0: no limit
        #[arg(long, value_name = "SIZE")]
        total: Option<String>,
        /// Outstanding commands of a namespace's disk; 0: no limit
        #[arg(long, value_name = "NUMBER", requires = "nsid")]
        outstanding: Option<u64>,
        /// Milliseconds of unused rate that accumulate for a burst; 0: the default
        #[arg(long, value_name = "MS")]
        burst_ms: Option<u64>,
        #[command(flatten)]
        at: At,
    },
    /// Removes all limits of a namespace, of each host, of one host, or of the whole subsystem
    Remove {
        /// Name of the subsystem
        nqn: String,
        /// Number of the namespace
        nsid: Option<u32>,
        /// Remove the limits set by --each-host
        #[arg(long, conflicts_with = "nsid")]
        each_host: bool,
        /// Remove the limits of this host, so that those of --each-host apply
        #[arg(long, value_name = "NQN", conflicts_with_all = ["nsid", "each_host"])]
        host: Option<String>,
        #[command(flatten)]
        at: At,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConnectionAction {
    /// Lists the connected hosts
    List(At),
    /// Disconnects a host; it may connect again
    #[command(alias = "remove")]
    Disconnect {
        /// Name of the subsystem
        nqn: String,
        /// ID of its controller
        cntlid: u16,
        #[command(flatten)]
        at: At,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigAction {
    /// Prints the present configuration
    Show {
        #[command(flatten)]
        result: ResultFile,
        #[command(flatten)]
        at: At,
    },
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off".to_owned()),
    }
}
