//! Problems of a running target, with their remedies, for `status`.

use std::collections::HashSet;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use cairn_base::shell::shell_word;
use cairn_config::{Config, Limits, Namespace, Nqn, Trid, host_doubt, is_slip};
use cairn_data_path::registry::RefusedFor;
use cairn_data_path::reservation_file::{RESERVATIONS_END, UNREADABLE};
use cairn_data_path::size_file::{SMALLER, UNKNOWN_SIZE};
use nvme_auth::controller::Cause;
use nvme_proto::wire::Quoted;

use super::last_copies::removal;
use super::losses::{leads_to, listener_at};
use super::lost_state;
use super::published::Facts;
use super::stale::Stale;
use super::views::{FAILED, deletion};
use crate::answers::{Health, Problem, RefusedHost};
use crate::health::{Obstacle, Thing};
use crate::nouns::count as counted;
use crate::server::Snapshot;

/// Time for which a refused host counts as a problem after its last attempt.
const RECENT: Duration = Duration::from_secs(600);

/// Age of a disk's oldest command at which the disk counts as stuck.
const STUCK: Duration = Duration::from_secs(10);

const HOST_SECRET: &str = "cairn-initiator --dhchap-secret-file; nvme connect --dhchap-secret if \
                           the host has an RDMA device or rdma_rxe";

const KEYS: &str = "restore the file, which needs no reload; until then its hosts have the key read \
                    before, or are refused if the target has not read it since its start";

const DHCHAP_KEY: &str = "dhchap_key";
const DHCHAP_CTRL_KEY: &str = "dhchap_ctrl_key";

/// Maximum problems of one kind about hosts, because strangers can cause them.
const HOSTS_MAX: usize = 32;

pub(super) struct Observations<'a> {
    pub(super) facts: &'a Facts,
    /// Difference between the configuration file and the configuration in force.
    pub(super) stale: Option<Stale>,
    pub(super) odd_hosts: &'a [OddHost],
    pub(super) lost_state: Option<(PathBuf, String)>,
}

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

pub(super) fn problems(
    snapshot: &Snapshot,
    seen: &Observations<'_>,
    refused: &[RefusedHost],
) -> Vec<Problem> {
    let mut all = Vec::new();
    all.extend(missing(snapshot));
    all.extend(listeners(snapshot));
    all.extend(devices(snapshot));
    all.extend(configuration(seen));
    all.extend(state_directory(seen));
    all.extend(disks(snapshot));
    all.extend(panics(snapshot));
    all.extend(turned_away(snapshot));
    all.extend(refusals(&snapshot.config, refused));
    all.extend(mistyped(snapshot, seen.odd_hosts, refused));
    // Refused hosts do not degrade the health.
    all.sort_by_key(|one| one.kind == Problem::REFUSED);
    all
}

pub(super) fn health(problems: &[Problem]) -> Health {
    match problems.iter().all(|one| one.kind == Problem::REFUSED) {
        true => Health::Ok,
        false => Health::Degraded,
    }
}

fn problem(
    kind: &'static str,
    what: impl Into<String>,
    since: Option<Duration>,
    why: impl Into<String>,
    remedy: impl Into<String>,
) -> Problem {
    Problem {
        kind,
        what: what.into(),
        for_s: since.map(|since| since.as_secs()),
        why: why.into(),
        remedy: remedy.into(),
    }
}

fn missing(snapshot: &Snapshot) -> impl Iterator<Item = Problem> {
    snapshot.missing.iter().map(|(one, lasting)| {
        let remedy = match one.thing {
            Thing::Namespace(_) if one.reason.contains(UNREADABLE) => format!(
                "restore the file from a backup, which needs no reload; to drop the reservations of \
                 this disk alone, remove the file and its namesake in the folder index \
                 ({RESERVATIONS_END})"
            ),
            Thing::Namespace(_) if one.reason.contains(UNKNOWN_SIZE) => {
                "restore the file from a backup, or remove it if the disk has its size: needs no \
                 reload"
                    .to_owned()
            }
            Thing::Namespace(place) if one.reason.contains(SMALLER) => {
                let accept = acceptance(place.0.raw(), place.1, snapshot.configured(&place));
                format!("restore it from a backup, which needs no reload; to use it as it is: {accept}")
            }
            Thing::Namespace((nqn, nsid)) => format!(
                "make the disk available, which needs no reload; if it never returns: \
                 cairn-target namespace remove {nqn} {nsid}"
            ),
            Thing::Directory(_) => "make the directory available; needs no reload".to_owned(),
            Thing::Listener(at) => listener_remedy(one.obstacle, at),
            Thing::Metrics(_) => "free the port (ss -ltnp), give this machine the address, or change [metrics] listen".to_owned(),
            Thing::Keys(_) => KEYS.to_owned(),
            Thing::Audit(_) => "make the output of [audit] writable".to_owned(),
        };
        let what = one.thing.to_string();
        problem("missing", what, Some(*lasting), one.reason.clone(), remedy)
    })
}

/// Returns the steps that accept a disk's new size. Commands would lose further settings, such as
/// the hosts that may see the namespace.
fn acceptance(nqn: &str, nsid: u32, config: Option<&Namespace>) -> String {
    let Some(plain) = config.filter(|one| one.pooled.is_some() || !has_settings(one)) else {
        return format!(
            "take the table of namespace {nsid} out of the configuration file, cairn-target \
             reload, put the table back, cairn-target reload"
        );
    };
    if plain.pooled.is_some() {
        return "move it out of the directory and back".to_owned();
    }
    let path = plain.backing.to_string();
    let (nqn, path) = (word(nqn), shell_word(&path, "PATH"));
    format!(
        "cairn-target namespace remove {nqn} {nsid} && cairn-target namespace add {nqn} {path} \
         --nsid {nsid}"
    )
}

fn has_settings(config: &Namespace) -> bool {
    let Namespace {
        nsid: _,
        backing: _,
        pooled: _,
        name,
        uuid,
        nguid,
        block_size,
        read_only,
        write_protection,
        write_protection_file,
        shared,
        ana_group,
        hosts,
        limits,
    } = config;
    let has_names = name.is_some() || uuid.is_some() || nguid.is_some() || block_size.is_some();
    let is_guarded = *read_only || *write_protection || write_protection_file.is_some();
    let is_restricted = hosts.list().is_some() || *limits != Limits::default();
    has_names || is_guarded || is_restricted || *shared || *ana_group != 1
}

fn listener_remedy(obstacle: Obstacle, at: Trid) -> String {
    let remedy = match obstacle {
        Obstacle::NoAddress => "give this machine the address",
        Obstacle::UdpPort => "stop the program that has the port (ss -lunp)",
        Obstacle::DevicePort => "stop the program that has the port (rdma resource show cm_id)",
        Obstacle::Other => "remove this cause",
    };
    format!(
        "{remedy}: the listener opens by itself; if that is impossible: cairn-target listener \
         remove {at}"
    )
}

fn listeners(snapshot: &Snapshot) -> impl Iterator<Item = Problem> {
    let down = snapshot.listeners.iter().filter_map(|listener| {
        let (reason, since) = listener.down.clone()?;
        let what = format!("listener {}", listener.address);
        let remedy = "look at the device and its address: cairn-target doctor";
        Some(problem("listener", what, Some(since), reason, remedy))
    });
    let drained = snapshot.listeners.iter().filter(|one| one.drained);
    let drained = drained.map(|listener| {
        let at = listener.address;
        let what = format!("listener {at}");
        let why = "it is drained: no host can connect there";
        let remedy = format!("cairn-target drain {at} --undo");
        problem("drained", what, None, why, remedy)
    });
    down.chain(drained)
}

fn devices(snapshot: &Snapshot) -> impl Iterator<Item = Problem> {
    snapshot.lost_devices.iter().map(|(name, since)| {
        let what = format!("RDMA device {name}");
        let why = "the device was removed, and its hosts were disconnected";
        let remedy = "look at the adapter (dmesg, rdma link): it is used again once it is back";
        problem("device", what, Some(*since), why, remedy)
    })
}

fn configuration(seen: &Observations<'_>) -> Option<Problem> {
    let last = seen.facts.reload.as_ref();
    let failed = last.and_then(|last| last.problem(seen.stale.is_some()));
    let what = "configuration file";
    if let Some((at, error)) = failed {
        let since = SystemTime::now().duration_since(at).unwrap_or_default();
        let why = format!("the last reload failed: {}", first_of(error));
        let stale = seen.stale.as_ref().map(|stale| stale.remedy.as_str());
        let remedy = stale.unwrap_or("cairn-target reload");
        return Some(problem("reload", what, Some(since), why, remedy));
    }
    let Stale { why, remedy } = seen.stale.as_ref()?;
    Some(problem("reload", what, None, why, remedy))
}

fn state_directory(seen: &Observations<'_>) -> Option<Problem> {
    let (folder, why) = seen.lost_state.as_ref()?;
    let what = format!("state_directory {}", folder.display());
    let remedy = format!("{}; at a start, {RESERVATIONS_END}", lost_state::REMEDY);
    Some(problem("state", what, None, why, remedy))
}

pub(super) fn first_of(error: &str) -> String {
    let problems = error.lines().filter(|line| line.starts_with("error: "));
    let more = problems.count().saturating_sub(1);
    let first = error.split("\n\n").next().unwrap_or_default();
    // Lines that begin with "|" quote the file.
    let lines = first.lines().map(str::trim);
    let lines: Vec<_> = lines.take_while(|line| !line.starts_with('|')).collect();
    let first = lines.join(" ");
    match more {
        0 => first,
        more => format!("{first}; and {more} more"),
    }
}

fn disks(snapshot: &Snapshot) -> impl Iterator<Item = Problem> {
    snapshot.exports().flat_map(|export| {
        let namespace = &export.entry.namespace;
        let backend = &namespace.backend;
        let nsid = export.config.nsid;
        let what = format!("namespace {nsid} of {}", export.nqn);
        let of = |is: bool, why: &str, remedy: String| {
            is.then(|| problem("disk", what.clone(), None, why, remedy))
        };
        let path = &export.config.backing;
        let nqn = word(export.nqn.raw());
        let remaining = namespace.remaining_bytes();
        let has_lost = remaining.is_some() || backend.is_cut();
        let lost = has_lost.then(|| {
            let before = namespace.bytes();
            let now = remaining.map_or(String::new(), |bytes| format!(", and has {bytes} now"));
            let why = format!("the disk lost data: it had {before} bytes{now}");
            let accept = acceptance(export.nqn.raw(), nsid, Some(export.config));
            let remedy =
                format!("restore {path} from a backup; then, or to use it as it is: {accept}");
            problem("disk", what.clone(), None, why, remedy)
        });
        let failed = of(
            backend.is_failed() && !has_lost,
            FAILED,
            format!("look at {path} (dmesg); once it works: cairn-target reload"),
        );
        let deleted = of(
            backend.is_deleted(),
            deletion(backend),
            format!(
                "copy the data from a host, before the target ends (it was {path}); with a copy: {}{}",
                removal(export.nqn.raw(), nsid),
                match backend.is_displaced() {
                    true => "; cairn-target namespace add serves the file there now",
                    false => "",
                }
            ),
        );
        let moved = of(
            backend.is_moved(),
            if backend.is_displaced() {
                "another file is at its path: the next start serves that one"
            } else {
                "the path no longer leads to the file: the next start does not find its data"
            },
            format!(
                "move the file back to {path}, or name its new path: cairn-target namespace set \
                 {nqn} {nsid} --export PATH"
            ),
        );
        let counters = namespace.all_counters().iter();
        let oldest = counters.map(|one| one.oldest_ns.get()).max().unwrap_or(0);
        let oldest = Duration::from_nanos(oldest);
        let stuck = (oldest >= STUCK).then(|| {
            let why = "the disk does not end its oldest command";
            let remedy = format!("look at {path} (dmesg, iostat -x)");
            problem("disk", what.clone(), Some(oldest), why, remedy)
        });
        [lost, failed, deleted, moved, stuck].into_iter().flatten()
    })
}

fn panics(snapshot: &Snapshot) -> impl Iterator<Item = Problem> {
    const REMEDY: &str = "report the error in the log (\"panicked\"), then restart the target";
    let reactors = snapshot.reactors.iter().enumerate();
    let reactors = reactors.filter_map(|(index, counters)| {
        let since = SystemTime::now().duration_since(counters.last_panic()?);
        let why = "it panicked, which disconnected its hosts, and was replaced";
        let what = format!("reactor {index}");
        Some(problem("panic", what, since.ok(), why, REMEDY))
    });
    let parts = snapshot.panics.iter().map(|(name, cost, count)| {
        let why = format!(
            "{} since the start; after each, {cost}",
            counted(*count, "panic")
        );
        problem("panic", format!("part {name}"), None, why, REMEDY)
    });
    reactors.chain(parts)
}

/// Returns the listeners that refused an address recently, unless the address is allowed by now.
fn turned_away(snapshot: &Snapshot) -> impl Iterator<Item = Problem> {
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

fn refusals<'a>(
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
                lead.unwrap_or_else(|| {
                    "correct the name at the host, or add the subsystem".to_owned()
                })
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

pub(super) fn key_command(nqn: &str, host: &str, is_listed: bool, options: &str) -> String {
    let verb = if is_listed { "key set" } else { "add" };
    format!(
        "cairn-target host {verb} {} {} {options}",
        word(nqn),
        word(host)
    )
}

fn mistyped(snapshot: &Snapshot, odd: &[OddHost], refused: &[RefusedHost]) -> Vec<Problem> {
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

/// Quotes a name for a shell, because strangers choose names and administrators paste commands. A
/// name that terminals may misinterpret becomes "NQN".
pub(super) fn word(name: &str) -> String {
    if shown(name) == name {
        shell_word(name, "NQN")
    } else {
        "NQN".to_owned()
    }
}

fn shown(name: &str) -> String {
    nvme_proto::wire::Escaped(name).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_reload_shows_its_first_error_and_counts_the_others() {
        let of = |text: &str| {
            let error = Config::parse("t.toml", text, &cairn_config::Flags::default());
            first_of(&error.unwrap_err().to_string())
        };
        let one = of("listener = 7\n");
        assert!(one.contains("--> t.toml:1:12"), "{one}");
        assert!(!one.contains("more") && !one.contains('|'), "{one}");
        let three = of("listener = 7\nsubsystem = 7\nmetrics = 7\n");
        assert!(three.ends_with("--> t.toml:1:12; and 2 more"), "{three}");
        assert_eq!(first_of("the disk is gone"), "the disk is gone");
    }

    #[test]
    fn each_obstacle_of_a_listener_has_its_remedy() {
        let of = |obstacle| listener_remedy(obstacle, "192.0.2.1:4420".parse().unwrap());
        for (obstacle, words) in [
            (Obstacle::NoAddress, "the address"),
            (Obstacle::UdpPort, "ss -lunp"),
            (Obstacle::DevicePort, "rdma resource"),
            (Obstacle::Other, "this cause"),
        ] {
            let text = of(obstacle);
            assert!(text.contains(words) && text.contains("by itself"), "{text}");
            let is_address = obstacle == Obstacle::NoAddress;
            assert_eq!(text.contains("the address"), is_address, "{text}");
        }
    }
}
