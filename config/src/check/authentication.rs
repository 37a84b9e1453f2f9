use std::path::{Component, Path, PathBuf};

use nvme_proto::wire::Nqn;

use super::subsystem::parse_nqn;
use super::{Check, keyring};
use crate::config::{
    Authentication, DHCHAP_GROUPS, DHCHAP_HASHES, DhchapPolicy, HostList, KEY_PREFIX, KeySource,
    Keys, NamedKey,
};
use crate::file::{HostTable, SubsystemTable, TargetTable};
use crate::key_path::KeyPath;
use crate::secret::InlineKey;

const CREDENTIAL: &str = "credential:";
const HELP: &str = "write the absolute path of a file with the key, as `cairn-target key generate \
                    --output FILE` makes it, \"credential:NAME\", or \"key:NAME\"";

pub(super) fn check(
    check: &mut Check<'_>,
    place: &KeyPath,
    table: &SubsystemTable,
    allowed: &HostList,
    keyring: &[NamedKey],
    default: &DhchapPolicy,
) -> Authentication {
    let others = keys(
        check,
        place,
        table.dhchap_key.as_deref(),
        table.dhchap_ctrl_key.as_deref(),
        keyring,
    );
    let hosts = hosts(check, &place.key("host"), &table.host, allowed, keyring);
    let is_required = table.require_key.unwrap_or(false);
    let any = is_required || table.dhchap_key.is_some() || !table.host.is_empty();
    for (key, value) in [
        ("dhchap_hashes", &table.dhchap_hashes),
        ("dhchap_groups", &table.dhchap_groups),
    ] {
        if !any && value.is_some() {
            let message = format!("\"{key}\" has no effect without a key");
            check
                .wrong(&place.key(key), message)
                .help("set dhchap_key, or remove it");
        }
    }
    let (hashes, groups) = (&table.dhchap_hashes, &table.dhchap_groups);
    Authentication {
        others,
        hosts,
        is_required,
        policy: policy(check, place, hashes.as_deref(), groups.as_deref(), default),
    }
}

pub(super) fn policy_of_target(
    check: &mut Check<'_>,
    place: &KeyPath,
    table: &TargetTable,
) -> DhchapPolicy {
    let (hashes, groups) = (&table.dhchap_hashes, &table.dhchap_groups);
    let all = DhchapPolicy::default();
    policy(check, place, hashes.as_deref(), groups.as_deref(), &all)
}

fn policy(
    check: &mut Check<'_>,
    place: &KeyPath,
    hashes: Option<&[String]>,
    groups: Option<&[String]>,
    default: &DhchapPolicy,
) -> DhchapPolicy {
    let DhchapPolicy {
        hashes: default_hashes,
        groups: default_groups,
    } = default.clone();
    let place_of = |key: &str| place.key(key);
    let hashes = hashes.map(|list| words(check, &place_of("dhchap_hashes"), list, &DHCHAP_HASHES));
    let groups = groups.map(|list| words(check, &place_of("dhchap_groups"), list, &DHCHAP_GROUPS));
    DhchapPolicy {
        hashes: hashes.unwrap_or(default_hashes),
        groups: groups.unwrap_or(default_groups),
    }
}

fn words(
    check: &mut Check<'_>,
    place: &KeyPath,
    words: &[String],
    all: &[&'static str],
) -> Vec<&'static str> {
    if words.is_empty() {
        let message = "an empty list lets no host authenticate";
        check
            .wrong(place, message)
            .help("remove the key, or list at least one");
    }
    let known: Vec<(&str, &'static str)> = all.iter().map(|word| (*word, *word)).collect();
    let mut found = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let at = place.index(index);
        let Some(word) = check.word(&at, Some(word), &known) else {
            continue;
        };
        match found.iter().position(|other| *other == word) {
            Some(first) => {
                let first = place.index(first);
                check.repeated(&at, &first, word).help("remove one of them");
            }
            None => found.push(word),
        }
    }
    found
}

fn hosts(
    check: &mut Check<'_>,
    place: &KeyPath,
    tables: &[HostTable],
    allowed: &HostList,
    keyring: &[NamedKey],
) -> Vec<(Nqn, Keys)> {
    let mut hosts: Vec<(Nqn, Keys)> = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        let place = place.index(index);
        let keys = keys(
            check,
            &place,
            table.dhchap_key.as_deref(),
            table.dhchap_ctrl_key.as_deref(),
            keyring,
        );
        if table.dhchap_key.is_none() {
            check.missing(&place, "dhchap_key", HELP);
        }
        let Some(name) = &table.nqn else {
            check.missing(&place, "nqn", "name the host, as allowed_hosts does");
            continue;
        };
        let at = place.key("nqn");
        let Some(nqn) = parse_nqn(check, &at, name) else {
            continue;
        };
        if !allowed.hosts.contains(&nqn) {
            check
                .wrong(&at, format!("allowed_hosts does not list the host {nqn}"))
                .help("add it to allowed_hosts, or remove its keys");
        }
        if hosts.iter().any(|(other, _)| *other == nqn) {
            check
                .wrong(&at, format!("the host {nqn} has two tables of keys"))
                .help("remove one of them");
        } else if let Some(keys) = keys {
            hosts.push((nqn, keys));
        }
    }
    hosts
}

fn keys(
    check: &mut Check<'_>,
    place: &KeyPath,
    host: Option<&str>,
    controller: Option<&str>,
    keyring: &[NamedKey],
) -> Option<Keys> {
    let at = place.key("dhchap_ctrl_key");
    if host.is_none() && controller.is_some() {
        check
            .wrong(
                &at,
                "the target authenticates only to hosts that also authenticate",
            )
            .help("set dhchap_key as well");
    }
    let controller = controller.and_then(|text| source(check, &at, text, keyring));
    let host = source(check, &place.key("dhchap_key"), host?, keyring)?;
    Some(Keys { host, controller })
}

fn source(
    check: &mut Check<'_>,
    place: &KeyPath,
    text: &str,
    keyring: &[NamedKey],
) -> Option<KeySource> {
    if let Some(name) = text.strip_prefix(KEY_PREFIX) {
        return keyring::named(check, place, name, keyring).map(KeySource::Named);
    }
    if let Some(name) = text.strip_prefix(CREDENTIAL) {
        let mut parts = Path::new(name).components();
        if matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name)
        {
            return Some(KeySource::Credential(name.to_owned()));
        }
        check
            .wrong(
                place,
                format!("\"{}\" names no credential", name.escape_debug()),
            )
            .help("write its name in the service's LoadCredential=, such as \"credential:db1\"");
        return None;
    }
    let path = Path::new(text);
    if path.is_absolute() && !text.contains('\0') {
        return Some(KeySource::File(PathBuf::from(text)));
    }
    if let Some(key) = InlineKey::of(text) {
        return Some(KeySource::Inline(key));
    }
    check
        .wrong(
            place,
            format!("\"{}\" is not an absolute path", text.escape_debug()),
        )
        .help(HELP);
    None
}
