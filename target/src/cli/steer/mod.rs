//! Commands sent through the control socket of a running target.

mod actions;
mod hosts;
mod limits;
mod monitoring;
mod names;
mod reservations;
mod shown;
mod socket;
mod unsaved;

use std::path::PathBuf;
use std::time::Duration;

use cairn_config::{Nqn, Trid, absolute_export};
use cairn_control::{CallError, Client, Effect, chosen_path};
use cairn_doctor::cli::{Format, OutputArgs, print_finding, print_message};
use cairn_doctor::rules::Severity;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::{print_line, tables};
use crate::steering::effect;
use actions::{
    ConfigAction, ConnectionAction, HostAction, LimitAction, ListenerAction, NamespaceAction,
    NamespaceSet, ReferralAction, SubsystemAction, parse_place,
};
use hosts::{HOSTS, of_host, of_referral};
use limits::of_limit;
pub(super) use monitoring::check;
pub(super) use names::place;
use reservations::{ReservationAction, of_reservation};

/// Maximum wait for a response, long because disks may be slow.
const PATIENCE: Duration = Duration::from_secs(120);
const PATIENCE_OF_READS: Duration = Duration::from_secs(20);

/// Commands that need a running target.
#[derive(Debug, Subcommand)]
pub(super) enum Steer {
    /// Shows the state of a running target: its health, its problems with their remedies, and its
    /// listeners
    Status {
        /// Report the health as the exit code, too: ok (0), degraded (1), or not reached (2)
        #[arg(long)]
        check: bool,
        #[command(flatten)]
        at: At,
    },
    /// Reloads the configuration of a running target, and prints the changes
    Reload(At),
    /// Shows, adds, removes and sets subsystems of a running target
    Subsystem {
        #[command(subcommand)]
        action: SubsystemAction,
    },
    /// Shows, adds, removes and sets namespaces of a running target
    Namespace {
        #[command(subcommand)]
        action: NamespaceAction,
    },
    /// Shows, adds, removes and sets listeners of a running target
    Listener {
        #[command(subcommand)]
        action: ListenerAction,
    },
    /// Shows and changes the permitted hosts of a running target, and the groups of hosts
    Host {
        #[command(subcommand)]
        action: HostAction,
    },
    /// Shows, adds and removes the discovery services that a running target reports to hosts
    Referral {
        #[command(subcommand)]
        action: ReferralAction,
    },
    /// Shows, sets and removes rate limits of a running target
    Limit {
        #[command(subcommand)]
        action: LimitAction,
    },
    /// Shows the reservations of a running target, and clears them
    Reservation {
        #[command(subcommand)]
        action: ReservationAction,
    },
    /// Lists the hosts that are connected to a running target, and disconnects them
    #[command(alias = "connections")]
    Connection {
        #[command(subcommand)]
        action: ConnectionAction,
    },
    /// Moves the hosts of a running target to other paths, and disconnects them
    Drain {
        /// Listener whose hosts are moved [default: all listeners]
        #[arg(value_name = "ADDR[:PORT]", value_parser = parse_place)]
        listener: Option<Trid>,
        /// Port of `listener` in the former spelling
        #[arg(long, hide = true, requires = "listener")]
        port: Option<u16>,
        /// Seconds until hosts that still do I/O are disconnected [default: 60]
        #[arg(long, value_name = "SECONDS", conflicts_with = "undo", value_parser = clap::value_parser!(u16).range(..=3600))]
        timeout: Option<u16>,
        /// Let hosts connect again
        #[arg(long)]
        undo: bool,
        #[command(flatten)]
        at: At,
    },
    /// Shows the log filter of a running target, or sets it until the target ends
    Log {
        /// Log filter, as in tracing: info, cairn_target=debug, ...
        filter: Option<String>,
        #[command(flatten)]
        at: At,
    },
    /// Shows the configuration of a running target
    Config {
        #[command(subcommand)]
        action: ConfigAction,
    },
    /// Sends any request to a running target
    Rpc {
        /// Method of the request
        method: String,
        /// Parameters of the request, a JSON object
        #[arg(value_parser = parameters)]
        params: Option<Map<String, Value>>,
        #[command(flatten)]
        at: At,
    },
}

/// Control socket of the target, and output format.
#[derive(Debug, Clone, Args)]
pub(super) struct At {
    /// Control socket of the target [default: in /run/cairn for root, in $XDG_RUNTIME_DIR/cairn for
    /// others]
    #[arg(long, value_name = "PATH", env = "CAIRN_CONTROL")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

impl At {
    fn connect(&self, patience: Duration) -> Result<Client, CallError> {
        Client::connect(&chosen_path(self.socket.as_deref())?, patience)
    }
}

fn parameters(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("not a JSON object: {error}"))
}

enum View {
    Rows(&'static [(&'static str, &'static str)]),
    Status,
    Reload,
    Added,
    Waiting,
    Hosts,
    Registrations,
    Config,
    Text,
    Done,
    Said(String),
    Json,
}

const SUBSYSTEMS: View = View::Rows(&[
    ("NQN", "nqn"),
    ("NAMESPACES", "namespaces"),
    ("ANY HOST", "allow_any_host"),
    ("HOSTS", "hosts"),
    ("GROUPS", "host_groups"),
    ("LISTENERS", "listeners"),
    ("SERIAL", "serial"),
    ("ANA", "ana"),
]);
const NAMESPACES: View = View::Rows(&[
    ("NQN", "nqn"),
    ("NSID", "nsid"),
    ("NAME", "name"),
    ("EXPORT", "export"),
    ("SIZE", "bytes"),
    ("BLOCK", "block_bytes"),
    ("UUID", "uuid"),
    ("STATE", "state"),
    ("REASON", "reason"),
]);
const LISTENERS: View = View::Rows(&[
    ("ADDRESS", "address"),
    ("PORT", "port"),
    ("PROVIDER", "provider"),
    ("ROCE", "roce"),
    ("VLAN", "vlan"),
    ("ANA", "ana"),
    ("ANA GROUPS", "ana_groups"),
    ("DRAINED", "drained"),
]);
const DRAINED: View = View::Rows(&[
    ("ADDRESS", "address"),
    ("PORT", "port"),
    ("DISCONNECTED", "disconnected"),
    ("STILL CONNECTED", "connected"),
    ("COMMANDS CUT OFF", "cut_off"),
]);
const CONNECTIONS: View = View::Rows(&[
    ("NQN", "nqn"),
    ("CNTLID", "cntlid"),
    ("HOST", "host"),
    ("PEER", "peer"),
    ("LOCAL", "local"),
    ("QUEUES", "queues"),
    ("OUTSTANDING", "outstanding"),
]);

struct Asked<'a> {
    at: &'a At,
    method: &'a str,
    params: Value,
    view: View,
    /// Object that the request adds, named in the message if it already exists.
    added: Option<String>,
    /// Warning about the request itself.
    doubt: Option<String>,
}

impl<'a> Asked<'a> {
    fn new(at: &'a At, method: &'a str, params: Value, view: View) -> Self {
        Self {
            at,
            method,
            params,
            view,
            added: None,
            doubt: None,
        }
    }

    fn list(at: &'a At, method: &'a str, view: View) -> Self {
        Self::new(at, method, json!({}), view)
    }

    fn deed(at: &'a At, method: &'a str, mut params: Value) -> Self {
        if let Some(params) = params.as_object_mut() {
            params.retain(|_, value| !value.is_null());
        }
        Self::new(at, method, params, View::Done)
    }

    fn adding(self, object: String) -> Self {
        Self {
            added: Some(object),
            ..self
        }
    }
}

fn answer_to(asked: &Asked<'_>, steer: &Steer) -> Result<Value, CallError> {
    let patience = match steer {
        Steer::Drain { timeout, .. } => {
            PATIENCE + Duration::from_secs(timeout.unwrap_or(60).into())
        }
        _ if effect(asked.method) == Some(Effect::Reads) => PATIENCE_OF_READS,
        _ => PATIENCE,
    };
    let mut client = asked.at.connect(patience)?;
    let answer = client.call(asked.method, &asked.params)?;
    if !is_unchanged(&answer) {
        unsaved::note(asked.method, &mut client, &asked.at.socket_option());
    }
    Ok(answer)
}

pub(super) fn run(steer: &Steer) -> Result<(), String> {
    let asked = asked(steer);
    let option = asked.at.socket_option();
    let answer = answer_to(&asked, steer);
    let mut answer = answer.map_err(|error| option.add_to(&error.to_string()))?;
    let is_data = matches!(asked.at.output.format, Format::Json)
        || matches!(asked.view, View::Json | View::Config | View::Text);
    if !is_data {
        option.add_to_all(&mut answer);
    }
    if let Some(object) = &asked.added
        && is_unchanged(&answer)
    {
        print_message(format_args!("unchanged: {object}"));
    }
    if let Some(doubt) = &asked.doubt {
        print_finding(Severity::Warning, doubt);
    }
    let Some(text) = text_of(&asked, &answer) else {
        return Ok(());
    };
    if let Steer::Config {
        action: ConfigAction::Show { result, .. },
    } = steer
    {
        result.print(&text);
        let written = unsaved::write(result, &text, &answer);
        return written.map_err(|error| option.add_to(&error));
    }
    // An empty list prints no line, so that a shell loop over the lines does nothing.
    if !text.is_empty() {
        print_line(&text);
    }
    Ok(())
}

/// Returns `None` if the answer needs no text.
fn text_of(asked: &Asked<'_>, answer: &Value) -> Option<String> {
    Some(match (asked.at.output.format, &asked.view) {
        (Format::Json, _) | (_, View::Json) => format!("{answer:#}"),
        (Format::Name, View::Rows(_)) => names::names(asked.method, answer),
        (Format::Name, View::Hosts) => names::names(asked.method, &answer["hosts"]),
        (Format::Wide, View::Rows(columns)) => tables::wide(answer, columns),
        (_, View::Rows(columns)) => tables::table(answer, columns),
        (_, View::Status) => shown::status(answer),
        (_, View::Reload) => shown::reload(answer),
        (_, View::Added) => {
            shown::print_warnings(answer);
            let number = answer["nsid"].as_u64().or(answer["added"].as_u64())?;
            number.to_string()
        }
        (_, View::Waiting) => {
            shown::print_warnings(answer);
            waiting(answer)?
        }
        (_, View::Hosts) => {
            let mut text = tables::table(&hosts::shown(&answer["hosts"]), HOSTS);
            if answer["allow_any_host"] == true {
                text += "\n\nEvery host may connect.";
            }
            text
        }
        (_, View::Registrations) => reservations::registrations(answer),
        (_, View::Config) => answer["text"]
            .as_str()
            .unwrap_or_default()
            .trim_end()
            .to_owned(),
        (_, View::Text) => answer.as_str().unwrap_or_default().to_owned(),
        (_, View::Said(text)) => text.clone(),
        (_, View::Done) if answer.is_boolean() || answer.is_object() => {
            shown::print_warnings(answer);
            return None;
        }
        (_, View::Done) => answer.to_string(),
    })
}

fn is_unchanged(answer: &Value) -> bool {
    let added = answer.get("added").or(answer.get("changed"));
    let added = added.unwrap_or(answer);
    (*added == false || *added == 0) && answer["created"] != true
}

fn waiting(answer: &Value) -> Option<String> {
    let parts = answer["at_next_start"].as_array()?;
    let parts: Vec<&str> = parts.iter().filter_map(Value::as_str).collect();
    let text = format!("takes effect at the next start: {}", parts.join(", "));
    (!parts.is_empty()).then_some(text)
}

const LISTENER_COLUMNS: &[(&str, &str)] = match LISTENERS {
    View::Rows(columns) => columns,
    _ => &[],
};

fn asked(steer: &Steer) -> Asked<'_> {
    match steer {
        Steer::Status { at, .. } => Asked::list(at, "cairn_status", View::Status),
        Steer::Reload(at) => Asked::list(at, "cairn_reload", View::Reload),
        Steer::Subsystem { action } => of_subsystem(action),
        Steer::Namespace { action } => of_namespace(action),
        Steer::Listener { action } => of_listener(action),
        Steer::Host { action } => of_host(action),
        Steer::Referral { action } => of_referral(action),
        Steer::Limit { action } => of_limit(action),
        Steer::Reservation { action } => of_reservation(action),
        Steer::Connection { action } => match action {
            ConnectionAction::List(at) => Asked::list(at, "cairn_connection_list", CONNECTIONS),
            ConnectionAction::Disconnect { nqn, cntlid, at } => {
                let params = json!({"nqn": nqn, "cntlid": cntlid});
                Asked::deed(at, "cairn_connection_remove", params)
            }
        },
        Steer::Drain {
            listener,
            port,
            timeout,
            undo,
            at,
        } => {
            let address = listener.map(|listener| listener.address);
            let port = port.or(listener.map(|listener| listener.port));
            let params = json!({"address": address, "port": port, "timeout_s": timeout});
            if *undo {
                let which = listener.map_or("all listeners accept".to_owned(), |at| {
                    format!("{at} accepts")
                });
                let said = format!("{which} hosts");
                let deed = Asked::deed(at, "cairn_drain_undo", params);
                return Asked {
                    view: View::Said(said),
                    ..deed
                };
            }
            let view = DRAINED;
            let deed = Asked::deed(at, "cairn_drain", params);
            Asked { view, ..deed }
        }
        Steer::Log { filter: None, at } => Asked::list(at, "cairn_log_get", View::Text),
        Steer::Log {
            filter: Some(filter),
            at,
        } => Asked::deed(at, "cairn_log_set", json!({"filter": filter})),
        Steer::Config {
            action: ConfigAction::Show { at, .. },
        } => Asked::list(at, "cairn_config_get", View::Config),
        Steer::Rpc { method, params, at } => {
            let params = Value::Object(params.clone().unwrap_or_default());
            Asked::new(at, method, params, View::Json)
        }
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
            listener,
            at,
        } => {
            let params = json!({
                "nqn": nqn,
                "serial": serial,
                "model": model,
                "controller_ids": controller_ids,
                "allow_any_host": allow_any_host,
                "hosts": host,
                "listeners": if_any(listener),
            });
            let deed = Asked::deed(at, "cairn_subsystem_add", params);
            let irregularity = Nqn::parse(nqn).ok().and_then(|nqn| nqn.irregularity());
            let doubt = irregularity.map(|why| format!("\"{nqn}\" is not an NQN: {why}"));
            Asked { doubt, ..deed }.adding(format!("subsystem {nqn}"))
        }
        SubsystemAction::Remove { nqn, force, at } => {
            let params = json!({"nqn": nqn, "force": force.then_some(true)});
            Asked::deed(at, "cairn_subsystem_remove", params)
        }
        SubsystemAction::Set {
            nqn,
            serial,
            model,
            controller_ids,
            require_key,
            listener,
            every_listener,
            at,
        } => {
            let params = json!({
                "nqn": nqn, "serial": serial, "model": model, "controller_ids": controller_ids,
                "require_key": require_key, "listeners": if_any(listener),
                "every_listener": every_listener,
            });
            let deed = Asked::deed(at, "cairn_subsystem_set", params);
            let view = View::Waiting;
            Asked { view, ..deed }
        }
    }
}

fn if_any<T>(list: &[T]) -> Option<&[T]> {
    (!list.is_empty()).then_some(list)
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
            nguid,
            block_size,
            read_only,
            write_protection,
            shared,
            ana_group,
            host,
            at,
        } => {
            let params = json!({
                "nqn": nqn,
                "export": absolute_export(export),
                "nsid": nsid,
                "name": name,
                "uuid": uuid,
                "nguid": nguid,
                "block_size": block_size,
                "read_only": read_only,
                "write_protection": write_protection,
                "shared": shared,
                "ana_group": ana_group,
                "hosts": host,
            });
            let view = View::Added;
            let deed = Asked::deed(at, "cairn_namespace_add", params);
            let deed = Asked { view, ..deed };
            deed.adding(format!("namespace of {nqn} with {export}"))
        }
        NamespaceAction::Remove {
            nqn,
            nsid,
            force,
            at,
        } => {
            let params = json!({"nqn": nqn, "nsid": nsid, "force": force.then_some(true)});
            Asked::deed(at, "cairn_namespace_remove", params)
        }
        NamespaceAction::Set(set) => of_setting(set),
    }
}

fn of_setting(set: &NamespaceSet) -> Asked<'_> {
    let params = json!({
        "nqn": set.nqn,
        "nsid": set.nsid,
        "name": set.name,
        "export": set.export.as_deref().map(absolute_export),
        "uuid": set.uuid,
        "nguid": set.nguid,
        "block_size": set.block_size,
        "shared": set.shared,
        "read_only": set.read_only,
        "write_protection": set.write_protection,
        "ana_group": set.ana_group,
        "hosts": set.host.clone().or(set.no_host.then(Vec::new)),
        "every_host": set.every_host,
    });
    Asked::deed(&set.at, "cairn_namespace_set", params)
}

fn of_listener(action: &ListenerAction) -> Asked<'_> {
    match action {
        ListenerAction::List(at) => Asked::list(at, "cairn_listener_list", LISTENERS),
        ListenerAction::Add {
            place,
            provider,
            roce,
            vlan,
            ana,
            at,
        } => {
            let params = json!({
                "address": place.address(), "port": place.port(), "provider": provider, "roce": roce, "vlan": vlan,
                "ana": ana,
            });
            let deed = Asked::deed(at, "cairn_listener_add", params);
            deed.adding(format!("listener {place}"))
        }
        ListenerAction::Remove { place, at } => {
            let params = json!({"address": place.address(), "port": place.port()});
            Asked::deed(at, "cairn_listener_remove", params)
        }
        ListenerAction::Set {
            place,
            ana,
            subsystem,
            inherit,
            ana_group,
            at,
        } => {
            let params = json!({
                "address": place.address(), "port": place.port(), "nqn": subsystem, "ana": ana,
                "ana_group": ana_group, "inherit": inherit,
            });
            Asked::deed(at, "cairn_listener_set", params)
        }
    }
}
