use cairn_base::Trid;
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;

use nvme_proto::subsystem::CNTLIDS_ALL;
use nvme_proto::wire::Nqn;

use super::hosts::Groups;
use super::{Check, Named, ana, authentication, limits, namespace, pool};
use crate::config::{HostList, Listener, SUBSYSTEMS_MAX, Subsystem};
use crate::file::{LimitedHostTable, SubsystemTable};
use crate::identity;
use crate::key_path::KeyPath;
use crate::limits::Limits;

/// Maximum lengths of SN and MN of Identify Controller, in bytes (NVMe Base 2.0, figure 275).
const SERIAL_MAX: usize = 20;
const MODEL_MAX: usize = 40;
/// Model of a subsystem whose configuration has none.
pub const MODEL_DEFAULT: &str = "Cairn";

pub(super) fn check(
    check: &mut Check<'_>,
    place: &KeyPath,
    tables: &[SubsystemTable],
    nsid_max: u32,
    named: &mut Named<'_>,
) -> Vec<Subsystem> {
    check.count(place, tables.len(), SUBSYSTEMS_MAX);
    let subsystems: Vec<Option<Subsystem>> = tables
        .iter()
        .enumerate()
        .map(|(index, table)| subsystem(check, &place.index(index), table, nsid_max, named))
        .collect();
    for (index, one) in subsystems.iter().enumerate() {
        let Some(one) = one else { continue };
        let same = |other: &Option<Subsystem>| other.as_ref().is_some_and(|o| o.nqn == one.nqn);
        if let Some(first) = subsystems[..index].iter().position(same) {
            let key = |index| place.index(index).key("nqn");
            check
                .repeated(
                    &key(index),
                    &key(first),
                    format_args!("the subsystem {}", one.nqn),
                )
                .help("give one of them another name, or put the namespaces of both into one");
        }
    }
    namespace::check_disks(check, place, tables);
    namespace::check_limits(check, place, tables, nsid_max);
    subsystems.into_iter().flatten().collect()
}

fn subsystem(
    check: &mut Check<'_>,
    place: &KeyPath,
    table: &SubsystemTable,
    nsid_max: u32,
    Named {
        listeners,
        groups,
        keys,
        dhchap,
    }: &mut Named<'_>,
) -> Option<Subsystem> {
    let allow_any_host = table.allow_any_host.unwrap_or(false);
    let allowed_hosts = allowed_hosts(check, place, table, groups);
    let known = *listeners;
    let listeners = listeners_of(check, &place.key("listeners"), table, known);
    let leading = listeners.as_deref();
    let ana = ana::overrides(check, &place.key("ana"), &table.ana, leading, known);
    let authentication = authentication::check(check, place, table, &allowed_hosts, keys, dhchap);
    let serial = text(
        check,
        &place.key("serial"),
        table.serial.as_deref(),
        SERIAL_MAX,
    );
    let model = text(
        check,
        &place.key("model"),
        table.model.as_deref(),
        MODEL_MAX,
    );
    let controller_ids = controller_ids(check, place, table.controller_ids.as_deref());
    let nqn = nqn(check, place, table.nqn.as_deref());
    let namespaces = namespace::check(check, &place.key("namespace"), &table.namespace, groups);
    let (namespaces, pools) = pool::split(namespaces, nsid_max);
    let limits = limits::check(check, &place.key("limits"), table.limits.as_ref());
    let per_host = place.key("limits_per_host");
    let limits_per_host = limits::check(check, &per_host, table.limits_per_host.as_ref());
    let limits_of_hosts = limited_hosts(check, &place.key("limited_host"), &table.limited_host);
    let nqn = nqn?;
    Some(Subsystem {
        nqn,
        serial: serial.unwrap_or_else(|| identity::serial(&nqn)),
        model: model.unwrap_or_else(|| MODEL_DEFAULT.to_owned()),
        controller_ids,
        allow_any_host,
        allowed_hosts,
        listeners,
        ana,
        authentication,
        limits,
        limits_per_host,
        limits_of_hosts,
        namespaces,
        pools,
    })
}

const WEIGHT_MAX: i64 = 100;

/// Returns limits by host. Hosts outside `allowed_hosts` are accepted, because a reload may add
/// them.
fn limited_hosts(
    check: &mut Check<'_>,
    place: &KeyPath,
    tables: &[LimitedHostTable],
) -> BTreeMap<Nqn, Limits> {
    let mut hosts = BTreeMap::new();
    let mut first = HashMap::new();
    for (index, table) in tables.iter().enumerate() {
        let place = place.index(index);
        let mut limits = limits::check(check, &place.key("limits"), table.limits.as_ref());
        let weight = check.number(&place.key("weight"), table.weight, 1..=WEIGHT_MAX);
        limits.weight = weight.map(|weight| weight as u32);
        let Some(name) = &table.nqn else {
            check.missing(
                &place,
                "nqn",
                "write the NQN of the host, as in its /etc/nvme/hostnqn",
            );
            continue;
        };
        let at = place.key("nqn");
        let Some(nqn) = parse_nqn(check, &at, name) else {
            continue;
        };
        match first.get(&nqn) {
            Some(first) => {
                check
                    .repeated(&at, first, format_args!("the host {nqn}"))
                    .help("put its limits into one table");
            }
            None => {
                first.insert(nqn, at);
                hosts.insert(nqn, limits);
            }
        }
    }
    hosts
}

fn controller_ids(
    check: &mut Check<'_>,
    place: &KeyPath,
    text: Option<&str>,
) -> RangeInclusive<u16> {
    let Some(text) = text else {
        return CNTLIDS_ALL;
    };
    let range = text.split_once('-').and_then(|(first, last)| {
        let number = |text: &str| text.trim().parse::<u16>().ok();
        Some(number(first)?..=number(last)?)
    });
    let last = CNTLIDS_ALL.end();
    match range {
        Some(range) if !range.is_empty() && *range.start() >= 1 && range.end() <= last => range,
        _ => {
            check
                .wrong(
                    &place.key("controller_ids"),
                    format!(
                        "\"{}\" is not a range of controller IDs",
                        text.escape_debug()
                    ),
                )
                .help(format!(
                    "write the first and the last, from 1 to {last}, such as \"1-32767\""
                ));
            CNTLIDS_ALL
        }
    }
}

fn nqn(check: &mut Check<'_>, place: &KeyPath, name: Option<&str>) -> Option<Nqn> {
    let Some(name) = name else {
        check.missing(
            place,
            "nqn",
            "name it, such as nqn = \"nqn.2024-01.com.example:disks\"",
        );
        return None;
    };
    let at = place.key("nqn");
    let nqn = parse_nqn(check, &at, name)?;
    if nqn.is_empty() {
        check
            .wrong(&at, "the name of the subsystem is empty")
            .help("name it, such as nqn = \"nqn.2024-01.com.example:disks\"");
        return None;
    }
    if nqn.is_discovery() {
        check
            .wrong(
                &at,
                "this name belongs to the discovery subsystem, which always exists",
            )
            .help("give the subsystem another name");
        return None;
    }
    Some(nqn)
}

pub(super) fn parse_nqn(check: &mut Check<'_>, place: &KeyPath, name: &str) -> Option<Nqn> {
    match Nqn::parse(name) {
        Ok(nqn) => Some(nqn),
        Err(error) => {
            let message = format!("\"{}\" cannot be a name", name.escape_debug());
            check.wrong(place, message).help(error.to_string());
            None
        }
    }
}

/// Returns the host list. Unless `allow_any_host` is true, a missing list is an error: a forgotten
/// list must not open the disks to all hosts.
fn allowed_hosts(
    check: &mut Check<'_>,
    place: &KeyPath,
    table: &SubsystemTable,
    groups: &mut Groups,
) -> HostList {
    let at = place.key("allowed_hosts");
    let Some(names) = &table.allowed_hosts else {
        let any = place.key("allow_any_host");
        let dropped = [&any, &at].iter().any(|key| check.dropped.contains(*key));
        if table.allow_any_host != Some(true) && !dropped {
            check.wrong(place, "no host may connect to this subsystem").help(
                "list the hosts that may (allowed_hosts = [\"nqn...\"], from /etc/nvme/hostnqn of each \
                 host), or write allow_any_host = true",
            );
        }
        return HostList::default();
    };
    if names.is_empty() && table.allow_any_host.is_none() {
        check.wrong(&at, "an empty list allows no host").help(
            "list at least one host, or write allow_any_host = true instead; if no host may \
                 connect, also write allow_any_host = false",
        );
    }
    groups.list(check, &at, names)
}

fn listeners_of(
    check: &mut Check<'_>,
    place: &KeyPath,
    table: &SubsystemTable,
    known: Option<&[Listener]>,
) -> Option<Vec<Trid>> {
    let texts = table.listeners.as_ref()?;
    let mut found: Vec<Trid> = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        let at = place.index(index);
        let Some(address) = check.listener_address(&at, text) else {
            continue;
        };
        if let Some(first) = found.iter().position(|other| *other == address) {
            check
                .repeated(
                    &at,
                    &place.index(first),
                    format_args!("the listener {address}"),
                )
                .help("remove one of them");
            continue;
        }
        found.push(address);
        check.known_listener(&at, address, known);
    }
    Some(found)
}

fn text(check: &mut Check<'_>, place: &KeyPath, value: Option<&str>, max: usize) -> Option<String> {
    let value = value?;
    let printable = value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if printable && !value.trim().is_empty() && value.len() <= max {
        return Some(value.to_owned());
    }
    check
        .wrong(
            place,
            format!("\"{}\" does not fit its field", value.escape_debug()),
        )
        .help(format!("write 1 to {max} printable ASCII characters"));
    None
}
