//! Refused and mistyped hosts of a running target, with the commands that admit them.

use std::collections::HashSet;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use cairn_config::{Config, Nqn, host_doubt, is_slip};
use cairn_data_path::registry::RefusedFor;
use nvme_auth::controller::Cause;
use nvme_proto::wire::Quoted;

use super::losses::{leads_to, listener_at};
use super::wording::{key_command, problem, shown, word};
use crate::answers::{Problem, RefusedHost};
use crate::nouns::count as counted;
use crate::server::Snapshot;

/// Time for which a refused host counts as a problem after its last attempt.
const RECENT: Duration = Duration::from_secs(600);

const HOST_SECRET: &str = "cairn-initiator --dhchap-secret-file; nvme connect --dhchap-secret if \
                           the host has an RDMA device or rdma_rxe";

const DHCHAP_KEY: &str = "dhchap_key";
const DHCHAP_CTRL_KEY: &str = "dhchap_ctrl_key";

/// Maximum problems of one kind about hosts, because strangers can cause them.
const HOSTS_MAX: usize = 32;

#[derive(Debug, Clone)]
pub(crate) struct OddHost {
    list: String,
    pub(crate) host: Nqn,
    why: String,
}

impl fmt::Display for OddHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "host {} in the list of {}: {}",
            self.host, self.list, self.why
        )
    }
}

pub(crate) fn odd_hosts(config: &Config) -> Vec<OddHost> {
    let groups = config.host_groups.iter();
    let groups =
        groups.flat_map(|group| group.hosts.iter().map(|host| (group.name.as_ref(), host)));
    let lists = config.subsystems.iter().flat_map(|subsystem| {
        let hosts = subsystem.allowed_hosts.single(&config.host_groups);
        hosts.map(|host| (subsystem.nqn.raw(), host))
    });
    let odd = groups.chain(lists).filter_map(|(list, host)| {
        Some(OddHost {
            list: list.to_owned(),
            host: *host,
            why: host_doubt(host)?,
        })
    });
    odd.take(HOSTS_MAX).collect()
}

fn connected(snapshot: &Snapshot) -> HashSet<(Nqn, String)> {
    let subsystems = snapshot.subsystems.iter();
    let hosts = subsystems.flat_map(|(nqn, shared)| {
        let controllers = shared.view().controllers.into_iter();
        controllers.map(|one| (*nqn, one.host_nqn))
    });
    hosts.collect()
}

/// Returns the refused hosts that may be refused again, latest first.
pub(super) fn refused_hosts(snapshot: &Snapshot) -> Vec<RefusedHost> {
    if snapshot.refused.is_empty() {
        return Vec::new();
    }
    let config = &snapshot.config;
    let connected = connected(snapshot);
    let refused = snapshot.refused.iter().filter(|(one, _, _)| {
        let mut subsystems = config.subsystems.iter();
        let own = subsystems.find(|subsystem| subsystem.nqn == one.subsystem);
        let is_over = own.is_some_and(|own| {
            let keys = &own.authentication;
            own.allows(&one.host)
                && match one.reason {
                    RefusedFor::Host => true,
                    RefusedFor::NoKey => !keys.lacks_key_of(&one.host),
                    RefusedFor::Unauthenticated => !keys.is_asked_of(&one.host),
                    RefusedFor::Subsystem => leads_to(config, own, one.local),
                    RefusedFor::Authentication(_) => false,
                }
        });
        !is_over
    });
    let refused = refused.map(|(one, first, last)| {
        let host = one.host.raw();
        let (kind, key) = match one.reason {
            RefusedFor::Host => ("host", None),
            RefusedFor::Subsystem => ("subsystem", None),
            RefusedFor::Authentication(cause) => (RefusedHost::KEY, key_of(cause)),
            RefusedFor::NoKey => (RefusedHost::KEY, Some(DHCHAP_KEY)),
            RefusedFor::Unauthenticated => (RefusedHost::KEY, None),
        };
        // An invalid NQN could act as an option or a host group in the remedy's command.
        let is_nqn = one.host.irregularity().is_none();
        let admit = is_nqn && one.reason == RefusedFor::Host;
        let admit = admit.then(|| Quoted(host).to_string());
        let mut subsystems = config.subsystems.iter();
        let own = subsystems.find(|own| own.nqn == one.subsystem);
        let lacks_key = own.is_some_and(|own| own.authentication.lacks_key_of(&one.host));
        RefusedHost {
            host: host.to_owned(),
            nqn: one.subsystem.raw().to_owned(),
            peer: one.peer,
            local: one.local.to_string(),
            connected: connected.contains(&(one.subsystem, one.host.to_string())),
            kind,
            reason: one.reason.to_string(),
            admit,
            key,
            lacks_key,
            is_listed: own.is_some_and(|own| own.allowed_hosts.hosts.contains(&one.host)),
            has_tried: one.reason != RefusedFor::Unauthenticated,
            attempts: one.attempts,
            first_s: first.as_secs(),
            last_s: last.as_secs(),
        }
    });
    refused.collect()
}

fn key_of(cause: Cause) -> Option<&'static str> {
    match cause {
        Cause::HostSecret => Some(DHCHAP_KEY),
        Cause::ControllerSecret | Cause::NoControllerSecret => Some(DHCHAP_CTRL_KEY),
        Cause::Other(_) => None,
    }
}

/// Returns the listeners that refused an address recently, unless the address is allowed by now.
pub(super) fn turned_away(snapshot: &Snapshot) -> impl Iterator<Item = Problem> {
    snapshot.listeners.iter().filter_map(|listener| {
        let (one, first, last) = listener.turned_away?;
        let mut all = snapshot.config.listeners.iter();
        let config = all.find(|config| config.trid() == listener.address)?;
        if last >= RECENT || config.allows(one.peer) {
            return None;
        }
        let why = format!(
            "it refused {}, the last from {}, because the address is not in its allowed_addresses",
            counted(one.count, "connection request"),
            one.peer.to_canonical()
        );
        let remedy = "to admit the address, add it to allowed_addresses of this listener in the \
                      configuration file: cairn-target reload";
        let what = format!("listener {}", listener.address);
        Some(problem(Problem::REFUSED, what, Some(first), why, remedy))
    })
}

/// Returns the command that makes the listener at `local` lead to the subsystem, if both exist.
fn lead(config: &Config, nqn: &str, local: SocketAddr) -> Option<String> {
    let mut subsystems = config.subsystems.iter();
    let own = subsystems.find(|own| own.nqn.raw() == nqn)?;
    let at = listener_at(config, local)?;
    let all = config.listeners_of(own).map(cairn_config::Listener::trid);
    let options = all.chain([at]).map(|at| format!(" --listener {at}"));
    let options: String = options.collect();
    Some(format!(
        "if hosts may use this listener: cairn-target subsystem set {}{options}",
        word(nqn)
    ))
}

pub(super) fn refusals<'a>(
    config: &'a Config,
    refused: &'a [RefusedHost],
) -> impl Iterator<Item = Problem> + 'a {
    let recent = |one: &&RefusedHost| one.last_s < RECENT.as_secs();
    let hosts = refused.iter().filter(recent).take(HOSTS_MAX).map(|one| {
        let what = format!("host {}", shown(&one.host));
        let elsewhere = match one.connected {
            true => "; it is connected on another path",
            false => "",
        };
        let why = format!(
            "refused at {} from {} at {}: {}{elsewhere}",
            shown(&one.nqn),
            one.peer,
            one.local,
            one.reason
        );
        let remedy = match &one.admit {
            Some(element) => format!(
                "cairn-target host add {} {}, or in the file: add the element {element} to \
                 allowed_hosts of subsystem {}",
                word(&one.nqn),
                word(&one.host),
                shown(&one.nqn)
            ),
            None if one.kind == RefusedHost::KEY => of_key(one),
            None => {
                let local = one.local.parse().ok();
                let local = local.filter(|_| one.kind == "subsystem");
                let lead = local.and_then(|local| lead(config, &one.nqn, local));
                let otherwise = match one.kind {
                    "host" => "correct the name at the host: it is not a valid NQN",
                    _ => "correct the name at the host, or add the subsystem",
                };
                lead.unwrap_or_else(|| otherwise.to_owned())
            }
        };
        let since = Duration::from_secs(one.first_s);
        problem(Problem::REFUSED, what, Some(since), why, remedy)
    });
    let count = refused.iter().filter(recent).count();
    let more = count.checked_sub(HOSTS_MAX).filter(|more| *more > 0);
    let more = more.map(|more| {
        let remedy = "see all: cairn-target status -o json, key refused";
        let what = counted(more as u64, "more host");
        problem(Problem::REFUSED, what, None, "refused recently", remedy)
    });
    hosts.chain(more)
}

fn of_key(one: &RefusedHost) -> String {
    let option = match one.key {
        Some(DHCHAP_CTRL_KEY) => "--key FILE --ctrl-key FILE",
        _ => "--key FILE",
    };
    let set = key_command(&one.nqn, &one.host, one.is_listed, option);
    match (one.lacks_key, one.has_tried) {
        (true, true) => format!("give the target the key of the host: {set}"),
        (true, false) => {
            format!("give the host a secret ({HOST_SECRET}), and the target the same: {set}")
        }
        (false, false) => format!("give the host its secret: {HOST_SECRET}"),
        (false, true) => format!(
            "compare the fingerprints of {} at host and target (cairn-target key check FILE), \
             and set the right one: {set}",
            one.key.unwrap_or("the keys")
        ),
    }
}

pub(super) fn mistyped(
    snapshot: &Snapshot,
    odd: &[OddHost],
    refused: &[RefusedHost],
) -> Vec<Problem> {
    let odd = odd.iter().map(|OddHost { list, host, why }| {
        let what = format!("host {host} in the list of {list}");
        let remedy = "compare it with /etc/nvme/hostnqn of the host";
        problem("host", what, None, why, remedy)
    });
    let mut all: Vec<Problem> = odd.collect();
    let recent = refused.iter().filter(|one| one.last_s < RECENT.as_secs());
    let recent = recent.filter(|one| one.admit.is_some());
    let recent: Vec<&RefusedHost> = recent.take(HOSTS_MAX).collect();
    if recent.is_empty() {
        return all;
    }
    let connected = connected(snapshot);
    for one in recent {
        let mut config = snapshot.config.subsystems.iter();
        let Some(own) = config.find(|subsystem| subsystem.nqn.raw() == one.nqn) else {
            continue;
        };
        let listed = own.allowed_hosts.hosts.iter();
        let listed = listed.filter(|host| !connected.contains(&(own.nqn, host.to_string())));
        for host in listed.filter(|host| is_slip(host.raw(), &one.host)) {
            let what = format!("host {host} in the list of {}", one.nqn);
            let why = format!("it is almost the refused host {}", shown(&one.host));
            let remedy = "if it is mistyped, correct it; compare /etc/nvme/hostnqn of the host";
            all.push(problem(Problem::REFUSED, what, None, why, remedy));
        }
    }
    all.truncate(HOSTS_MAX);
    all
}
