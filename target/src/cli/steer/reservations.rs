//! `reservation`, and the table of reservations.

use clap::Subcommand;
use serde_json::{Value, json};

use super::{Asked, At, View};
use crate::cli::tables;

#[derive(Debug, Subcommand)]
pub(crate) enum ReservationAction {
    /// Lists the namespaces with registrants, and their reservations
    List(At),
    /// Removes the reservation and all registrations of a namespace: its hosts are no longer fenced
    Clear {
        /// Name of the subsystem
        nqn: String,
        /// Number of the namespace
        nsid: u32,
        #[command(flatten)]
        at: At,
    },
}

pub(super) fn of_reservation(action: &ReservationAction) -> Asked<'_> {
    match action {
        ReservationAction::List(at) => {
            Asked::list(at, "cairn_reservation_list", View::Reservations)
        }
        ReservationAction::Clear { nqn, nsid, at } => {
            let params = json!({"nqn": nqn, "nsid": nsid});
            let deed = Asked::deed(at, "cairn_reservation_clear", params);
            deed.adding(format!("namespace {nsid} of {nqn} has no registrants"))
        }
    }
}

const RESERVATIONS: &[(&str, &str)] = &[
    ("RESERVED IN", "nqn"),
    ("NSID", "nsid"),
    ("TYPE", "rtype_name"),
    ("HOLDER", "holder"),
    ("HOSTID", "hostid"),
    ("REGISTRANTS", "registrants"),
    ("GENERATION", "generation"),
    ("PERSISTENT", "persistent"),
];

pub(super) fn table(rows: &[Value]) -> String {
    tables::table(&rows.iter().map(row).collect(), RESERVATIONS)
}

/// Returns the row of a namespace: its holder, and the number of registrants.
fn row(of: &Value) -> Value {
    let registrants = of["registrants"].as_array().into_iter().flatten();
    let holders: Vec<&Value> = registrants
        .clone()
        .filter(|one| one["holder"] == true)
        .collect();
    let mut row = of.clone();
    row["registrants"] = registrants.count().into();
    if of["rtype"].as_u64() >= Some(5) {
        row["holder"] = "all registrants".into();
    } else if let [holder] = holders[..] {
        row["holder"] = holder["host"].clone();
        row["hostid"] = holder["hostid"].clone();
    }
    row
}
