//! What a listener says of ANA: its state for each group, and which port it is.

use std::collections::BTreeMap;

use nvme_proto::ana::AnaStates;
use nvme_proto::limits::ANA_GROUPS_MAX;
use nvme_proto::wire::log::AnaState;

use super::Check;
use crate::file::{AnaGroupTable, ListenerTable};
use crate::place::Place;

const STATES: [(&str, AnaState); 5] = [
    ("optimized", AnaState::OPTIMIZED),
    ("non-optimized", AnaState::NON_OPTIMIZED),
    ("inaccessible", AnaState::INACCESSIBLE),
    ("persistent-loss", AnaState::PERSISTENT_LOSS),
    ("change", AnaState::CHANGE),
];

/// The state of every group by way of this listener.
pub(super) fn states(check: &mut Check<'_>, place: &Place, table: &ListenerTable) -> AnaStates {
    let all = check.word(&place.key("ana"), table.ana.as_deref(), &STATES);
    let mut states = AnaStates::all(all.unwrap_or(AnaState::OPTIMIZED));
    let mut firsts: BTreeMap<u32, Place> = BTreeMap::new();
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

fn group(check: &mut Check<'_>, place: &Place, table: &AnaGroupTable) -> Option<(u32, AnaState)> {
    if table.id.is_none() {
        check.missing(place, "id", "number it as ana_group of its namespaces does");
    }
    let id = check.number(&place.key("id"), table.id, 1..=i64::from(ANA_GROUPS_MAX));
    if table.state.is_none() {
        check.missing(
            place,
            "state",
            "write one, such as state = \"inaccessible\"",
        );
    }
    let state = check.word(&place.key("state"), table.state.as_deref(), &STATES);
    Some((id? as u32, state?))
}

/// The port that each listener is: what it says, else the lowest that is free.
pub(super) fn port_ids(check: &mut Check<'_>, place: &Place, tables: &[ListenerTable]) -> Vec<u16> {
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
