//! Differences between two configurations, one sentence for each object.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write};
use std::sync::Arc;

use cairn_config::{Config, HostGroup, Namespace, Nqn, Subsystem, Target, Uuid};

use crate::nouns::count;
use crate::server::{Export, Snapshot};

/// Maximum names in a list; further names are only counted.
const NAMES_MAX: usize = 4;

pub(super) struct Former {
    config: Arc<Config>,
    lengths: Lengths,
}

impl Former {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        Self {
            config: Arc::clone(&snapshot.config),
            lengths: lengths(snapshot),
        }
    }

    pub(super) fn changes_to(&self, now: &Snapshot) -> Vec<String> {
        let mut all = differences(&self.config, &now.config);
        all.extend(resized(&self.lengths, &lengths(now)));
        all.extend(now.exports().filter_map(|export| kept(&export)));
        all
    }
}

/// Returns a sentence if a reload kept the former size or file of a disk.
fn kept(export: &Export<'_>) -> Option<String> {
    let namespace = &export.entry.namespace;
    let kept = if let Some(now) = namespace.remaining_bytes() {
        let before = namespace.bytes();
        format!("not resized: the disk lost data, {before} bytes before, {now} now")
    } else if namespace.backend.is_deleted() || namespace.backend.is_moved() {
        "not replaced: its path leads to another file or none, and the open file is still served"
            .to_owned()
    } else {
        return None;
    };
    let (nqn, nsid) = (export.nqn, export.config.nsid);
    Some(format!(
        "subsystem {nqn}: namespace {nsid} {kept}; see cairn-target status"
    ))
}

/// UUID and bytes of namespaces by subsystem and NSID.
type Lengths = BTreeMap<(Nqn, u32), (Uuid, u64)>;

fn lengths(snapshot: &Snapshot) -> Lengths {
    let exports = snapshot.exports().map(|export| {
        let bytes = export.entry.namespace.bytes();
        let uuid = export.entry.namespace.uuid;
        ((*export.nqn, export.config.nsid), (uuid, bytes))
    });
    exports.collect()
}

fn resized(before: &Lengths, after: &Lengths) -> Vec<String> {
    let both = after
        .iter()
        .filter_map(|(of, now)| Some((of, *before.get(of)?, *now)));
    let changed = both.filter(|(_, former, now)| former != now);
    let sentences = changed.map(|((nqn, nsid), (before, former), (uuid, now))| {
        let change = match former < now {
            _ if before != uuid => "is another disk: its size changed",
            true => "grew",
            false => "lost the data beyond its new end: it shrank",
        };
        format!("subsystem {nqn}: namespace {nsid} {change} from {former} to {now} bytes")
    });
    sentences.collect()
}

fn differences(before: &Config, after: &Config) -> Vec<String> {
    let mut all = subsystems(before, after);
    let listeners = |config: &Config| -> BTreeMap<String, _> {
        let listeners = config.listeners.iter();
        let named = listeners.map(|one| (format!("listener {}", one.trid()), one.clone()));
        named.collect()
    };
    all.extend(objects(&listeners(before), &listeners(after)));
    all.extend(groups(&before.host_groups, &after.host_groups));
    let referrals = |config: &Config| -> BTreeMap<String, ()> {
        let referrals = config.referrals.iter();
        let named = referrals.map(|one| (format!("referral {} {}", one.address, one.nqn), ()));
        named.collect()
    };
    all.extend(objects(&referrals(before), &referrals(after)));
    let keys = |config: &Config| -> BTreeMap<String, _> {
        let keys = config.keys.iter();
        let named = keys.map(|one| (format!("key {}", one.name), one.clone()));
        named.collect()
    };
    all.extend(objects(&keys(before), &keys(after)));
    let of_target = target_keys(&before.target, &after.target);
    all.extend(of_target.map(|key| format!("[target] {key}: changed")));
    let sections = [
        ("[metrics]", before.metrics != after.metrics),
        ("[audit]", before.audit != after.audit),
        ("[control]", before.control != after.control),
        ("marking rules", before.marking != after.marking),
        ("DH-HMAC-CHAP parameters", before.dhchap != after.dhchap),
    ];
    let changed = sections.iter().filter(|(_, is_changed)| *is_changed);
    all.extend(changed.map(|(name, _)| format!("{name}: changed")));
    all
}

fn target_keys(before: &Target, after: &Target) -> impl Iterator<Item = &'static str> {
    // Without `..` in the pattern, the compiler reports each new key that is not compared.
    let Target {
        reactors,
        poll_idle,
        poll_drives,
        io_timeout,
        data_buffers_bytes,
        receives,
        in_capsule_data_bytes,
        max_transfer_bytes,
        queue_depth,
        io_queues,
        state_directory,
        discovery_nqn,
        roce,
        congestion_control,
        segmentation_offload,
        send_with_invalidate,
        ack_timeout,
        log,
    } = before;
    let keys = [
        ("reactors, cores", *reactors != after.reactors),
        ("poll_idle_us", *poll_idle != after.poll_idle),
        ("poll_drives", *poll_drives != after.poll_drives),
        ("io_timeout_s", *io_timeout != after.io_timeout),
        (
            "data_buffers",
            *data_buffers_bytes != after.data_buffers_bytes,
        ),
        ("receives", *receives != after.receives),
        (
            "in_capsule_data",
            *in_capsule_data_bytes != after.in_capsule_data_bytes,
        ),
        ("mdts", *max_transfer_bytes != after.max_transfer_bytes),
        ("queue_depth", *queue_depth != after.queue_depth),
        ("io_queues", *io_queues != after.io_queues),
        ("state_directory", *state_directory != after.state_directory),
        ("discovery_nqn", *discovery_nqn != after.discovery_nqn),
        ("roce, vlan", *roce != after.roce),
        (
            "congestion_control",
            *congestion_control != after.congestion_control,
        ),
        (
            "segmentation_offload",
            *segmentation_offload != after.segmentation_offload,
        ),
        (
            "send_with_invalidate",
            *send_with_invalidate != after.send_with_invalidate,
        ),
        ("ack_timeout_ms", *ack_timeout != after.ack_timeout),
        ("log", log.filter != after.log.filter),
        ("log_format", log.format != after.log.format),
    ];
    keys.into_iter()
        .filter_map(|(key, is_changed)| is_changed.then_some(key))
}

fn objects<T: PartialEq>(before: &BTreeMap<String, T>, after: &BTreeMap<String, T>) -> Vec<String> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let changes = names.into_iter().filter_map(|name| {
        let change = match (before.get(name), after.get(name)) {
            (None, _) => "added",
            (_, None) => "removed",
            (former, now) if former != now => "changed",
            _ => return None,
        };
        Some(format!("{name}: {change}"))
    });
    changes.collect()
}

fn groups(before: &[HostGroup], after: &[HostGroup]) -> Vec<String> {
    let find = |groups: &[HostGroup], name: &str| {
        groups.iter().find(|group| *group.name == *name).cloned()
    };
    let names = before.iter().chain(after).map(|group| &*group.name);
    let names: BTreeSet<&str> = names.collect();
    let changes = names.into_iter().filter_map(|name| {
        let change = match (find(before, name), find(after, name)) {
            (Some(_), None) => "removed".to_owned(),
            (None, Some(group)) => {
                format!("added, with {}", count(group.hosts.len() as u64, "host"))
            }
            (Some(former), Some(now)) => hosts(&former.hosts, &now.hosts)?,
            (None, None) => return None,
        };
        Some(format!("host group {name}: {change}"))
    });
    changes.collect()
}

fn subsystems(before: &Config, after: &Config) -> Vec<String> {
    let by_nqn = |config: &Config| -> BTreeMap<Nqn, Subsystem> {
        let all = config.subsystems.iter();
        all.map(|one| (one.nqn, one.clone())).collect()
    };
    let (before, after) = (by_nqn(before), by_nqn(after));
    let names: BTreeSet<&Nqn> = before.keys().chain(after.keys()).collect();
    let changes = names.into_iter().filter_map(|nqn| {
        let change = match (before.get(nqn), after.get(nqn)) {
            (Some(former), None) => format!("removed{}", with(&former.namespaces)),
            (None, Some(now)) => format!("added{}", with(&now.namespaces)),
            (Some(former), Some(now)) => subsystem(former, now)?,
            (None, None) => return None,
        };
        Some(format!("subsystem {nqn}: {change}"))
    });
    changes.collect()
}

fn with(namespaces: &[Namespace]) -> String {
    let nsids: Vec<u32> = namespaces.iter().map(|one| one.nsid).collect();
    match nsids.is_empty() {
        true => String::new(),
        false => format!(", with {}", ranges(&nsids)),
    }
}

fn subsystem(before: &Subsystem, after: &Subsystem) -> Option<String> {
    if before == after {
        return None;
    }
    let mut changes = namespaces(&before.namespaces, &after.namespaces);
    changes.extend(hosts(
        &before.allowed_hosts.hosts,
        &after.allowed_hosts.hosts,
    ));
    if before.allow_any_host != after.allow_any_host {
        let every = match after.allow_any_host {
            true => "every host may connect",
            false => "only listed hosts may connect",
        };
        changes.push(every.to_owned());
    }
    let settings = [
        ("serial", before.serial != after.serial),
        ("model", before.model != after.model),
        (
            "controller IDs",
            before.controller_ids != after.controller_ids,
        ),
        ("listeners", before.listeners != after.listeners),
        ("ANA states", before.ana != after.ana),
        (
            "authentication",
            before.authentication != after.authentication,
        ),
        (
            "limits",
            before.limits != after.limits
                || before.limits_per_host != after.limits_per_host
                || before.limits_of_hosts != after.limits_of_hosts,
        ),
    ];
    let settings = settings.iter().filter(|(_, is_changed)| *is_changed);
    changes.extend(settings.map(|(name, _)| format!("changed {name}")));
    if changes.is_empty() {
        changes.push("changed".to_owned());
    }
    Some(changes.join("; "))
}

fn namespaces(before: &[Namespace], after: &[Namespace]) -> Vec<String> {
    let by_nsid = |all: &[Namespace]| -> BTreeMap<u32, Namespace> {
        all.iter().map(|one| (one.nsid, one.clone())).collect()
    };
    let (before, after) = (by_nsid(before), by_nsid(after));
    let added = after.keys().filter(|nsid| !before.contains_key(nsid));
    let removed = before.keys().filter(|nsid| !after.contains_key(nsid));
    let is_changed = |nsid: &&u32| before.get(nsid).is_some_and(|one| one != &after[nsid]);
    let changed = after.keys().filter(is_changed);
    let lists: [(&str, Vec<u32>); 3] = [
        ("added", added.copied().collect()),
        ("removed", removed.copied().collect()),
        ("changed", changed.copied().collect()),
    ];
    let lists = lists.iter().filter(|(_, nsids)| !nsids.is_empty());
    lists
        .map(|(change, nsids)| format!("{change} {}", ranges(nsids)))
        .collect()
}

fn hosts(before: &BTreeSet<Nqn>, after: &BTreeSet<Nqn>) -> Option<String> {
    let changes = [
        ("added", names(after.difference(before))),
        ("removed", names(before.difference(after))),
    ];
    let changes = changes.iter().filter(|(_, names)| !names.is_empty());
    let changes = changes.map(|(change, names)| format!("{change} host {names}"));
    let text = changes.collect::<Vec<_>>().join("; ");
    (!text.is_empty()).then_some(text)
}

fn names(all: impl Iterator<Item = impl Display>) -> String {
    let mut text = String::new();
    let mut count = 0;
    for name in all {
        if count < NAMES_MAX {
            let comma = if count > 0 { ", " } else { "" };
            let _ = write!(text, "{comma}{name}");
        }
        count += 1;
    }
    if count > NAMES_MAX {
        let _ = write!(text, " and {} more", count - NAMES_MAX);
    }
    text
}

fn ranges(nsids: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for nsid in nsids {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *nsid => *last = *nsid,
            _ => ranges.push((*nsid, *nsid)),
        }
    }
    let plural = if nsids.len() == 1 { "" } else { "s" };
    let ranges = ranges.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    let ranges: Vec<String> = ranges.collect();
    format!("namespace{plural} {}", ranges.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_config::Flags;

    fn parse(text: &str) -> Config {
        Config::parse("a.toml", text, &Flags::default()).unwrap()
    }

    const BEFORE: &str = "
        [[listener]]
        address = \"192.0.2.1\"
        [[subsystem]]
        nqn = \"nqn.2024-01.com.example:a\"
        allowed_hosts = [\"nqn.2024-01.com.example:h1\"]
        [[subsystem.namespace]]
        nsid = 1
        export = \"mem:1MiB\"
        [[subsystem]]
        nqn = \"nqn.2024-01.com.example:b\"
        allow_any_host = true
        [[subsystem.namespace]]
        nsid = 4
        export = \"mem:1MiB\"
        [[subsystem.namespace]]
        nsid = 5
        export = \"mem:1MiB\"
    ";

    #[test]
    fn each_object_has_one_line() {
        let before = parse(BEFORE);
        assert_eq!(differences(&before, &before), [""; 0]);
        let after = parse(
            "
            [target]
            io_queues = 4
            [[listener]]
            address = \"192.0.2.2\"
            [[host_group]]
            name = \"dbs\"
            hosts = [\"nqn.2024-01.com.example:h3\"]
            [[subsystem]]
            nqn = \"nqn.2024-01.com.example:a\"
            allowed_hosts = [\"nqn.2024-01.com.example:h2\"]
            serial = \"S1\"
            [[subsystem.namespace]]
            nsid = 1
            export = \"mem:2MiB\"
            [[subsystem.namespace]]
            nsid = 2
            export = \"mem:1MiB\"
        ",
        );
        assert_eq!(
            differences(&before, &after),
            [
                "subsystem nqn.2024-01.com.example:a: added namespace 2; changed namespace 1; \
                 added host nqn.2024-01.com.example:h2; removed host nqn.2024-01.com.example:h1; \
                 changed serial",
                "subsystem nqn.2024-01.com.example:b: removed, with namespaces 4-5",
                "listener 192.0.2.1:4420: removed",
                "listener 192.0.2.2:4420: added",
                "host group dbs: added, with 1 host",
                "[target] io_queues: changed",
            ]
        );
    }

    #[test]
    fn numbers_and_names_are_shortened() {
        assert_eq!(ranges(&[2]), "namespace 2");
        assert_eq!(ranges(&[1, 2, 3, 7]), "namespaces 1-3, 7");
        assert_eq!(names(["a", "b"].iter()), "a, b");
        assert_eq!(names(0..6), "0, 1, 2, 3 and 2 more");
    }
}
