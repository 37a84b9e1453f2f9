//! Advice about keys, and about controller IDs of subsystems that several targets export.

use std::collections::{HashMap, HashSet};

use nvme_proto::subsystem::CNTLIDS_ALL;
use nvme_proto::wire::Nqn;

use crate::config::{Authentication, Config, KeySource, Keys, Subsystem};

impl Config {
    /// Returns a sentence for each subsystem that refuses hosts for lack of a key.
    #[must_use]
    pub fn keyless(&self) -> Vec<String> {
        let sentences = self.subsystems.iter().filter_map(|subsystem| {
            let keys = &subsystem.authentication;
            if !keys.is_required || keys.others.is_some() {
                return None;
            }
            let nqn = &subsystem.nqn;
            let none = || format!("no host can connect to {nqn}");
            let give = |whom| format!("give {whom} one by cairn-target host key set");
            let (who, remedy) = match (without_key(subsystem), keys.hosts.is_empty()) {
                (Some((host, _)), true) => (none(), give(host.to_string())),
                (None, true) if subsystem.allow_any_host => {
                    let remedy = "add a host with its key by cairn-target host add --key";
                    (none(), remedy.to_owned())
                }
                (Some((host, more)), false) => {
                    let more = match more {
                        0 => String::new(),
                        more => format!(" and {more} more"),
                    };
                    let who = format!("the host {host}{more} cannot connect to {nqn}");
                    (who, give("it".to_owned()))
                }
                (None, _) => return None,
            };
            Some(format!("{who}, which requires a key: {remedy}"))
        });
        sentences.collect()
    }

    pub(crate) fn advice(&self) -> Vec<String> {
        let mut advice = self.common_keys();
        for subsystem in &self.subsystems {
            advice.extend(claimable(subsystem));
            advice.extend(reflecting(subsystem));
            advice.extend(rival_ids(subsystem));
        }
        advice
    }

    fn common_keys(&self) -> Vec<String> {
        let mut owners: HashMap<String, (&Nqn, bool)> = HashMap::new();
        let mut notes = Vec::new();
        let subsystems = self.subsystems.iter();
        for (host, keys) in subsystems.flat_map(|one| &one.authentication.hosts) {
            let key = match &keys.host {
                KeySource::Inline(key) => key.secret().to_owned(),
                other => other.to_string(),
            };
            let (owner, is_noted) = owners.entry(key).or_insert((host, false));
            if *owner != host && !std::mem::replace(is_noted, true) {
                notes.push(format!(
                    "the hosts {owner} and {host} have the same key ({}), so each can connect as \
                     the other: give each its own",
                    keys.host
                ));
            }
        }
        notes
    }
}

/// Returns a listed host without a key, and the number of further such hosts. Relies on a check
/// that every host with a key is listed.
fn without_key(subsystem: &Subsystem) -> Option<(&Nqn, usize)> {
    let (listed, keys) = (
        &subsystem.allowed_hosts.hosts,
        &subsystem.authentication.hosts,
    );
    let more = listed.len().checked_sub(keys.len() + 1)?;
    let has_key: HashSet<&Nqn> = keys.iter().map(|(host, _)| host).collect();
    let host = listed.iter().find(|host| !has_key.contains(host))?;
    Some((host, more))
}

fn claimable(subsystem: &Subsystem) -> Option<String> {
    let keys = &subsystem.authentication;
    if keys.hosts.is_empty() || keys.is_required || keys.others.is_some() {
        return None;
    }
    let nqn = &subsystem.nqn;
    if subsystem.allow_any_host {
        return Some(format!(
            "{nqn} has keys for some hosts, and every other NQN connects without one: set \
             require_key = true, or allow_any_host = false"
        ));
    }
    let (host, more) = without_key(subsystem)?;
    let more = match more {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Some(format!(
        "{nqn} has keys, but none for {host}{more}: every host that claims that NQN connects; \
         give the host a key by cairn-target host key set, or set require_key = true"
    ))
}

fn reflecting(subsystem: &Subsystem) -> Option<String> {
    let Authentication { others, hosts, .. } = &subsystem.authentication;
    let is_one = |keys: &Keys| keys.controller.as_ref() == Some(&keys.host);
    let host = hosts.iter().find(|(_, keys)| is_one(keys));
    let of = match host {
        Some((host, _)) => format!("of {host} at {}", subsystem.nqn),
        None if others.as_ref().is_some_and(is_one) => format!("of {}", subsystem.nqn),
        None => return None,
    };
    Some(format!(
        "dhchap_key and dhchap_ctrl_key {of} are the same, so each owner of the key can pose as host \
         and as target: make another dhchap_ctrl_key"
    ))
}

fn rival_ids(subsystem: &Subsystem) -> Option<String> {
    let pools = subsystem.pools.iter().map(|pool| &pool.like);
    let mut all = subsystem.namespaces.iter().chain(pools);
    let shared = all.find(|one| one.shared)?;
    (subsystem.controller_ids == CNTLIDS_ALL).then(|| {
        format!(
            "namespace {} of {} is shared, and controller_ids is the default: if another target \
             also gives the same IDs, Linux refuses the second controller; set controller_ids = \
             \"1-32767\" here and \"32768-65519\" there",
            shared.nsid, subsystem.nqn
        )
    })
}
