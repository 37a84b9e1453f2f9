use cairn_base::Trid;
use std::collections::BTreeMap;

use nvme_proto::ana::AnaStates;
use nvme_proto::limits::ANA_GROUPS_MAX;
use nvme_proto::wire::log::AnaState;

use super::Check;
use crate::config::{ANA_STATES, AnaOverride, Listener};
use crate::file::{AnaGroupTable, ListenerTable, SubsystemAnaTable};
use crate::key_path::KeyPath;

pub(super) fn states(check: &mut Check<'_>, place: &KeyPath, table: &ListenerTable) -> AnaStates {
    let all = check.word(&place.key("ana"), table.ana.as_deref(), &ANA_STATES);
    let mut states = AnaStates::all(all.unwrap_or(AnaState::OPTIMIZED));
    let mut firsts: BTreeMap<u32, KeyPath> = BTreeMap::new();
    for (index, group) in table.ana_group.iter().enumerate() {
        let place = place.key("ana_group").index(index);
        let Some((id, state)) = self::group(check, &place, group) else {
            continue;
        };
        states.set(id, state);
        let at = place.key("id");
        match firsts.get(&id) {
            Some(first) => {
                let first = first.clone();
                check.repeated(&at, &first, format_args!("the ANA group {id}"));
            }
            None => {
                firsts.insert(id, at);
            }
        }
    }
    states
}

fn group(check: &mut Check<'_>, place: &KeyPath, table: &AnaGroupTable) -> Option<(u32, AnaState)> {
    if table.id.is_none() {
        check.missing(
            place,
            "id",
            "write the number that its namespaces have as ana_group",
        );
    }
    let id = check.number(&place.key("id"), table.id, 1..=i64::from(ANA_GROUPS_MAX));
    let state = state(check, place, table.state.as_deref());
    Some((id? as u32, state?))
}

fn state(check: &mut Check<'_>, place: &KeyPath, word: Option<&str>) -> Option<AnaState> {
    if word.is_none() {
        check.missing(
            place,
            "state",
            "write one, such as state = \"inaccessible\"",
        );
    }
    check.word(&place.key("state"), word, &ANA_STATES)
}

pub(super) fn overrides(
    check: &mut Check<'_>,
    place: &KeyPath,
    tables: &[SubsystemAnaTable],
    leading: Option<&[Trid]>,
    known: Option<&[Listener]>,
) -> BTreeMap<Trid, AnaOverride> {
    let mut overrides: BTreeMap<Trid, AnaOverride> = BTreeMap::new();
    let mut firsts: BTreeMap<(Trid, Option<u32>), KeyPath> = BTreeMap::new();
    for (index, table) in tables.iter().enumerate() {
        let place = place.index(index);
        let group = check.number(
            &place.key("ana_group"),
            table.ana_group,
            1..=i64::from(ANA_GROUPS_MAX),
        );
        let state = state(check, &place, table.state.as_deref());
        let Some(at) = overridden(check, &place, table, leading, known) else {
            continue;
        };
        // An invalid group, reported above, is `None` too, and would mean all groups.
        if group.is_none() && table.ana_group.is_some() {
            continue;
        }
        let group = group.map(|group| group as u32);
        if let Some(first) = firsts.get(&(at, group)).cloned() {
            let what = match group {
                Some(group) => format!("the state of the ANA group {group} at {at}"),
                None => format!("the ANA state at {at}"),
            };
            check
                .repeated(&place.key("listener"), &first, what)
                .help("remove one of the tables, or give it another ana_group");
            continue;
        }
        firsts.insert((at, group), place.key("listener"));
        let Some(state) = state else { continue };
        let own = overrides.entry(at).or_default();
        match group {
            Some(group) => drop(own.groups.insert(group, state)),
            None => own.all = Some(state),
        }
    }
    overrides
}

fn overridden(
    check: &mut Check<'_>,
    place: &KeyPath,
    table: &SubsystemAnaTable,
    leading: Option<&[Trid]>,
    known: Option<&[Listener]>,
) -> Option<Trid> {
    let Some(text) = &table.listener else {
        let help = "name one that leads to the subsystem, such as listener = \"192.0.2.1:4420\"";
        check.missing(place, "listener", help);
        return None;
    };
    let place = place.key("listener");
    let at = check.listener_address(&place, text)?;
    let is_known = check.known_listener(&place, at, known);
    if is_known && leading.is_some_and(|leading| !leading.contains(&at)) {
        check
            .wrong(
                &place,
                format!("the listener {at} does not lead to this subsystem"),
            )
            .help("add it to the subsystem's listeners, or remove this table");
    }
    Some(at)
}

pub(super) fn port_ids(
    check: &mut Check<'_>,
    place: &KeyPath,
    tables: &[ListenerTable],
) -> Vec<u16> {
    let mut given: BTreeMap<u16, usize> = BTreeMap::new();
    for (index, table) in tables.iter().enumerate() {
        let at = place.index(index).key("port_id");
        let Some(id) = check.number(&at, table.port_id, 1..=i64::from(u16::MAX)) else {
            continue;
        };
        match given.get(&(id as u16)) {
            Some(first) => {
                let first = place.index(*first).key("port_id");
                check
                    .repeated(&at, &first, format_args!("the port {id}"))
                    .help(
                        "each listener is a port of its own: leave port_id out, or write another",
                    );
            }
            None => {
                given.insert(id as u16, index);
            }
        }
    }
    let mut free = (1..=u16::MAX).filter(|id| !given.contains_key(id));
    tables
        .iter()
        .map(|table| match table.port_id {
            Some(id) => id as u16,
            None => free.next().expect("there are fewer listeners than ports"),
        })
        .collect()
}
