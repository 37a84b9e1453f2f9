//! Problems of a running target, with their remedies, for `status`.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use cairn_base::shell::shell_word;
use cairn_config::{Limits, Namespace, Trid};
use cairn_data_path::reservation_file::{RESERVATIONS_END, UNREADABLE};
use cairn_data_path::size_file::{SMALLER, UNKNOWN_SIZE};

use super::last_copies::removal;
use super::lost_state;
use super::published::Facts;
use super::refusals::{OddHost, mistyped, refusals, turned_away};
use super::stale::Stale;
use super::views::{FAILED, deletion};
use super::wording::{first_of, problem, word};
use crate::answers::{Health, Problem, RefusedHost};
use crate::health::{Obstacle, Thing};
use crate::nouns::count as counted;
use crate::server::{Export, Snapshot, WAITS};

/// Age of a disk's oldest command at which the disk counts as stuck.
const STUCK: Duration = Duration::from_secs(10);

const KEYS: &str = "restore the file, which needs no reload; until then its hosts have the key read \
                    before, or are refused if the target has not read it since its start";

pub(super) struct Observations<'a> {
    pub(super) facts: &'a Facts,
    /// Difference between the configuration file and the configuration in force.
    pub(super) stale: Option<Stale>,
    pub(super) odd_hosts: &'a [OddHost],
    pub(super) lost_state: Option<(PathBuf, String)>,
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

fn missing(snapshot: &Snapshot) -> impl Iterator<Item = Problem> {
    snapshot.missing.iter().map(|(one, lasting)| {
        let remedy = match one.thing {
            Thing::Namespace(_) if one.reason.contains(WAITS) => format!(
                "restore the directory under another name, and rename it into place, which needs no \
                 reload; if it never had files, restart the target, because {RESERVATIONS_END}"
            ),
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
    format!(
        "cairn-target namespace remove {} {nsid} && {}",
        word(nqn),
        addition(nqn, plain)
    )
}

/// Returns the command that adds a namespace without further settings.
fn addition(nqn: &str, config: &Namespace) -> String {
    let path = config.backing.to_string();
    let path = shell_word(&path, "PATH");
    format!(
        "cairn-target namespace add {} {path} --nsid {}",
        word(nqn),
        config.nsid
    )
}

/// Returns the steps from a deleted file to the other file at its path, if one is there.
fn replacement(export: &Export<'_>) -> String {
    let (nqn, nsid) = (export.nqn.raw(), export.config.nsid);
    let removal = removal(nqn, nsid);
    if !export.entry.namespace.backend.is_displaced() {
        return removal;
    }
    if has_settings(export.config) {
        return format!(
            "{removal}; the file there now is served, with the same settings, once the \
             namespace's table is back in the configuration file: cairn-target reload"
        );
    }
    format!(
        "{removal}; to serve the file there now: {}",
        addition(nqn, export.config)
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
                "copy the data from a host, before the target ends (it was {path}); with a copy: {}",
                replacement(&export)
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

#[cfg(test)]
mod tests {
    use super::*;

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
