use clap::Subcommand;
use serde_json::{Value, json};

use super::{Asked, At, View};
use crate::cli::tables;

#[derive(Debug, Subcommand)]
pub(crate) enum ReservationAction {
    /// Lists the namespaces with registrants, and their reservations
    List(At),
    /// Shows the reservation of a namespace and its registrants
    Show {
        /// Name of the subsystem
        nqn: String,
        /// Number of the namespace
        nsid: u32,
        #[command(flatten)]
        at: At,
    },
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
            Asked::list(at, "cairn_reservation_list", View::Rows(RESERVATIONS))
        }
        ReservationAction::Show { nqn, nsid, at } => {
            let params = json!({"nqn": nqn, "nsid": nsid});
            let deed = Asked::deed(at, "cairn_reservation_get", params);
            let view = View::Registrations;
            Asked { view, ..deed }
        }
        ReservationAction::Clear { nqn, nsid, at } => {
            let params = json!({"nqn": nqn, "nsid": nsid});
            let deed = Asked::deed(at, "cairn_reservation_clear", params);
            deed.adding(format!("namespace {nsid} of {nqn} has no registrants"))
        }
    }
}

pub(super) const RESERVATIONS: &[(&str, &str)] = &[
    ("RESERVED IN", "nqn"),
    ("NSID", "nsid"),
    ("TYPE", "rtype_name"),
    ("HOLDER", "holder"),
    ("HOSTID", "holder_hostid"),
    ("REGISTRANTS", "registrants"),
    ("GENERATION", "generation"),
    ("PERSISTENT", "persistent"),
];

const REGISTRANTS: &[(&str, &str)] = &[
    ("REGISTRANT", "host"),
    ("HOSTID", "hostid"),
    ("KEY", "key"),
    ("HOLDER", "holder"),
];

pub(super) fn registrations(answer: &Value) -> String {
    let reservation = tables::table(&json!([answer]), RESERVATIONS);
    let registrants = tables::table(&answer["hosts"], REGISTRANTS);
    format!("{reservation}\n\n{registrants}")
}
