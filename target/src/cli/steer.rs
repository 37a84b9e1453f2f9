//! Commands that steer a running target, by its control socket.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use cairn_control::Client;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};

use super::{print_line, tables};

/// For a disk that is slow to open, and a control plane with much to do.
const PATIENCE: Duration = Duration::from_secs(120);

/// Commands that need a running target.
#[derive(Debug, Subcommand)]
pub(super) enum Steer {
    /// Shows the state of a running target
    Status(At),
    /// Has a running target read its configuration again, and reports the result
    Reload(At),
    /// Shows, adds and removes subsystems of a running target
    Subsystem {
        #[command(subcommand)]
        action: SubsystemAction,
    },
    /// Shows, adds and removes namespaces of a running target
    Namespace {
        #[command(subcommand)]
        action: NamespaceAction,
    },
    /// Shows, adds, removes and sets listeners of a running target
    Listener {
        #[command(subcommand)]
        action: ListenerAction,
    },
    /// Sets which hosts may connect to a running target
    Host {
        #[command(subcommand)]
        action: HostAction,
    },
    /// Lists the hosts that are connected to a running target, and disconnects them
    Connections {
        #[command(subcommand)]
        action: ConnectionsAction,
    },
    /// Shows the configuration of a running target
    Config {
        #[command(subcommand)]
        action: ConfigAction,
    },
    /// Sends any request to a running target
    Rpc {
        /// The method
        method: String,
        /// Its parameters, a JSON object
        #[arg(value_parser = parameters)]
        params: Option<Map<String, Value>>,
        #[command(flatten)]
        at: At,
    },
}

/// Which target, and how its answer is shown.
#[derive(Debug, Clone, Args)]
pub(super) struct At {
    /// The target's control socket; the usual place if not given
    #[arg(long, value_name = "PATH", env = "CAIRN_CONTROL")]
    socket: Option<PathBuf>,
    /// How the answer is shown
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

#[derive(Debug, Subcommand)]
pub(super) enum SubsystemAction {
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
        #[arg(long, conflicts_with = "host")]
        allow_any_host: bool,
        /// Let this host connect; repeatable
        #[arg(long, value_name = "NQN")]
        host: Vec<String>,
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
}

#[derive(Debug, Subcommand)]
pub(super) enum NamespaceAction {
    /// Lists them
    List(At),
    /// Exports a disk as one
    Add {
        /// The subsystem
        nqn: String,
        /// A file, a block device, a Ceph image, memory, or a null disk
        #[arg(value_name = "PATH|rbd:POOL/IMAGE|mem:SIZE|null:SIZE")]
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
        /// Bytes of a block
        #[arg(long, value_name = "512|4096")]
        block_size: Option<u32>,
        /// Refuse writes
        #[arg(long)]
        read_only: bool,
        /// Other targets export the disk, too
        #[arg(long)]
        shared: bool,
        /// Its ANA group
        #[arg(long)]
        ana_group: Option<u32>,
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
}

#[derive(Debug, Subcommand)]
pub(super) enum ListenerAction {
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
        #[arg(long, value_name = "STATE")]
        ana: String,
        /// For the disks of this ANA group alone
        #[arg(long, value_name = "ID")]
        ana_group: Option<u32>,
        #[command(flatten)]
        at: At,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum HostAction {
    /// Lets a host connect
    Add {
        /// The subsystem
        nqn: String,
        /// The host, as its /etc/nvme/hostnqn says
        host: String,
        #[command(flatten)]
        at: At,
    },
    /// Removes a host from those that may connect, and disconnects it
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
}

#[derive(Debug, Subcommand)]
pub(super) enum ConnectionsAction {
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
pub(super) enum ConfigAction {
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

fn parameters(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("not a JSON object: {error}"))
}

/// How an answer looks as a table.
enum Look {
    /// Rows of these columns.
    Rows(&'static [(&'static str, &'static str)]),
    Status,
    Config,
    /// It says what was done, in a word or nothing.
    Done,
    Json,
}

const SUBSYSTEMS: Look = Look::Rows(&[
    ("NQN", "nqn"),
    ("NAMESPACES", "namespaces"),
    ("ANY HOST", "allow_any_host"),
    ("HOSTS", "hosts"),
    ("SERIAL", "serial"),
]);
const NAMESPACES: Look = Look::Rows(&[
    ("NQN", "nqn"),
    ("NSID", "nsid"),
    ("NAME", "name"),
    ("EXPORT", "export"),
    ("BYTES", "bytes"),
    ("BLOCK", "block_bytes"),
    ("UUID", "uuid"),
    ("FAILED", "failed"),
]);
const LISTENERS: Look = Look::Rows(&[
    ("ADDRESS", "address"),
    ("PORT", "port"),
    ("PROVIDER", "provider"),
]);
const CONNECTIONS: Look = Look::Rows(&[
    ("NQN", "nqn"),
    ("CNTLID", "cntlid"),
    ("HOST", "host"),
    ("PEER", "peer"),
    ("LOCAL", "local"),
    ("QUEUES", "queues"),
    ("OUTSTANDING", "outstanding"),
]);

/// A request, and how its answer looks.
struct Asked<'a> {
    at: &'a At,
    method: &'a str,
    params: Value,
    look: Look,
}

impl<'a> Asked<'a> {
    fn list(at: &'a At, method: &'a str, look: Look) -> Self {
        Self {
            at,
            method,
            params: json!({}),
            look,
        }
    }

    /// What is not given is left out.
    fn deed(at: &'a At, method: &'a str, mut params: Value) -> Self {
        if let Some(params) = params.as_object_mut() {
            params.retain(|_, value| !value.is_null());
        }
        Self {
            at,
            method,
            params,
            look: Look::Done,
        }
    }
}

/// Sends what a command asks for, and shows what came back.
pub(super) fn run(steer: &Steer) -> Result<(), String> {
    let asked = asked(steer);
    let path = asked.at.socket.clone().or_else(cairn_control::default_path);
    let path = path.ok_or("error: which target? Give its control socket, by --socket PATH")?;
    let failed = |error: cairn_control::CallError| format!("error: {error}");
    let mut client = Client::connect(&path, PATIENCE).map_err(failed)?;
    let answer = client.call(asked.method, &asked.params).map_err(failed)?;
    let text = match (asked.at.output, &asked.look) {
        (Format::Json, _) | (_, Look::Json) => format!("{answer:#}"),
        (_, Look::Rows(columns)) => tables::table(&answer, columns),
        (_, Look::Status) => {
            let mut text = tables::members(&answer, &["listeners", "missing"]);
            for (key, columns) in [("listeners", LISTENER_COLUMNS), ("missing", MISSING)] {
                if answer[key].as_array().is_some_and(|rows| !rows.is_empty()) {
                    text += "\n\n";
                    text += &tables::table(&answer[key], columns);
                }
            }
            text
        }
        (_, Look::Config) => answer["text"]
            .as_str()
            .unwrap_or_default()
            .trim_end()
            .to_owned(),
        (_, Look::Done) if answer.is_boolean() => return Ok(()),
        (_, Look::Done) => answer.to_string(),
    };
    print_line(&text);
    Ok(())
}

const MISSING: &[(&str, &str)] = &[
    ("MISSING", "name"),
    ("SECONDS", "for_s"),
    ("REASON", "reason"),
];

const LISTENER_COLUMNS: &[(&str, &str)] = match LISTENERS {
    Look::Rows(columns) => columns,
    _ => &[],
};

fn asked(steer: &Steer) -> Asked<'_> {
    match steer {
        Steer::Status(at) => Asked::list(at, "cairn_status", Look::Status),
        Steer::Reload(at) => Asked::list(at, "cairn_reload", Look::Status),
        Steer::Subsystem { action } => of_subsystem(action),
        Steer::Namespace { action } => of_namespace(action),
        Steer::Listener { action } => of_listener(action),
        Steer::Host { action } => of_host(action),
        Steer::Connections { action } => match action {
            ConnectionsAction::List(at) => Asked::list(at, "cairn_connection_list", CONNECTIONS),
            ConnectionsAction::Remove { nqn, cntlid, at } => {
                let params = json!({"nqn": nqn, "cntlid": cntlid});
                Asked::deed(at, "cairn_connection_remove", params)
            }
        },
        Steer::Config {
            action: ConfigAction::Show(at),
        } => Asked::list(at, "cairn_config_get", Look::Config),
        Steer::Rpc { method, params, at } => Asked {
            at,
            method,
            params: Value::Object(params.clone().unwrap_or_default()),
            look: Look::Json,
        },
    }
}

fn of_subsystem(action: &SubsystemAction) -> Asked<'_> {
    match action {
        SubsystemAction::List(at) => Asked::list(at, "cairn_subsystem_list", SUBSYSTEMS),
        SubsystemAction::Add {
            nqn,
            serial,
            model,
            controller_ids,
            allow_any_host,
            host,
            at,
        } => {
            let params = json!({
                "nqn": nqn,
                "serial": serial,
                "model": model,
                "controller_ids": controller_ids,
                "allow_any_host": allow_any_host,
                "hosts": host,
            });
            Asked::deed(at, "cairn_subsystem_add", params)
        }
        SubsystemAction::Remove { nqn, at } => {
            Asked::deed(at, "cairn_subsystem_remove", json!({"nqn": nqn}))
        }
    }
}

fn of_namespace(action: &NamespaceAction) -> Asked<'_> {
    match action {
        NamespaceAction::List(at) => Asked::list(at, "cairn_namespace_list", NAMESPACES),
        NamespaceAction::Add {
            nqn,
            export,
            nsid,
            name,
            uuid,
            block_size,
            read_only,
            shared,
            ana_group,
            at,
        } => {
            let params = json!({
                "nqn": nqn,
                "export": absolute(export),
                "nsid": nsid,
                "name": name,
                "uuid": uuid,
                "block_size": block_size,
                "read_only": read_only,
                "shared": shared,
                "ana_group": ana_group,
            });
            Asked::deed(at, "cairn_namespace_add", params)
        }
        NamespaceAction::Remove { nqn, nsid, at } => {
            let params = json!({"nqn": nqn, "nsid": nsid});
            Asked::deed(at, "cairn_namespace_remove", params)
        }
    }
}

fn of_listener(action: &ListenerAction) -> Asked<'_> {
    match action {
        ListenerAction::List(at) => Asked::list(at, "cairn_listener_list", LISTENERS),
        ListenerAction::Add {
            address,
            port,
            provider,
            ana,
            at,
        } => {
            let params = json!({
                "address": address, "port": port, "provider": provider, "ana": ana,
            });
            Asked::deed(at, "cairn_listener_add", params)
        }
        ListenerAction::Remove { address, port, at } => {
            let params = json!({"address": address, "port": port});
            Asked::deed(at, "cairn_listener_remove", params)
        }
        ListenerAction::Set {
            address,
            port,
            ana,
            ana_group,
            at,
        } => {
            let params = json!({
                "address": address, "port": port, "ana": ana, "ana_group": ana_group,
            });
            Asked::deed(at, "cairn_listener_set", params)
        }
    }
}

fn of_host(action: &HostAction) -> Asked<'_> {
    match action {
        HostAction::Add { nqn, host, at } => {
            Asked::deed(at, "cairn_host_add", json!({"nqn": nqn, "host": host}))
        }
        HostAction::Remove { nqn, host, at } => {
            Asked::deed(at, "cairn_host_remove", json!({"nqn": nqn, "host": host}))
        }
        HostAction::Any { nqn, allow, at } => {
            Asked::deed(at, "cairn_host_any", json!({"nqn": nqn, "allow": allow}))
        }
    }
}

/// A path is relative to where the command is given, not to the target's folder.
fn absolute(export: &str) -> String {
    if ["mem:", "null:", "rbd:"]
        .iter()
        .any(|kind| export.starts_with(kind))
    {
        return export.to_owned();
    }
    let path = std::path::absolute(export).ok();
    let path = path.and_then(|path| path.to_str().map(str::to_owned));
    path.unwrap_or_else(|| export.to_owned())
}
