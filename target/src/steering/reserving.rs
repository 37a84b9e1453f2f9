use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cairn_config::{Nqn, Uuid};
use cairn_control::{Error, read};
use nvme_proto::reservation::{HostId, ReservationType, Reservations};
use nvme_proto::wire::Status;
use rustix::io::Errno;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::methods::{Methods, answer};
use super::parameters::{NamespaceOf, parse_nqn};
use super::refused::stopped;
use crate::answers::{Registrant, Registrations, Reservation};
use crate::nouns::count;
use crate::server::{Export, NotCleared, Snapshot};

/// Maximum wait for the result of a clear.
const PATIENCE: Duration = Duration::from_secs(10);

type Names = HashMap<HostId, String>;

pub(super) fn reservations(snapshot: &Snapshot) -> Vec<Reservation> {
    let mut known: HashMap<Nqn, Names> = HashMap::new();
    let mut all = Vec::new();
    for export in snapshot.exports() {
        let state = export.entry.namespace.reserving().answered();
        if !state.registrants().is_empty() {
            let names = known.entry(*export.nqn);
            let names = names.or_insert_with(|| names_of(&export));
            all.push(reservation(&export, &state, names));
        }
    }
    all.sort_by(|a, b| (&a.nqn, a.nsid).cmp(&(&b.nqn, b.nsid)));
    all
}

/// Returns a sentence about the registrants that a removal of the namespace drops, if they do not
/// persist.
pub(super) fn dropped_reservation(snapshot: &Snapshot, nqn: &str, nsid: u32) -> Option<String> {
    let mut all = reservations(snapshot).into_iter();
    dropped(&all.find(|one| one.nqn == nqn && one.nsid == nsid)?)
}

/// Like [`dropped_reservation`], for a reservation that the caller has.
pub(super) fn dropped(it: &Reservation) -> Option<String> {
    if it.persistent {
        return None;
    }
    let holder = it.holder.as_ref().or(it.holder_hostid.as_ref());
    let holder = match (holder, &it.rtype_name) {
        (Some(holder), Some(rtype)) => format!(", held by {holder} ({rtype})"),
        (_, Some(rtype)) => format!(", held by all registrants ({rtype})"),
        _ => String::new(),
    };
    let Reservation { nqn, nsid, .. } = it;
    Some(format!(
        "namespace {nsid} of {nqn} loses its reservation{holder}, with {}: if you add it again, \
         fenced hosts can write",
        count(it.registrants as u64, "registrant")
    ))
}

pub(super) fn registrants(export: &Export<'_>) -> usize {
    let state = export.entry.namespace.reserving().answered();
    state.registrants().len()
}

fn names_of(export: &Export<'_>) -> Names {
    let controllers = export.shared.view().controllers.into_iter();
    controllers.map(|one| (one.hostid, one.host_nqn)).collect()
}

fn reservation(export: &Export<'_>, state: &Reservations, names: &Names) -> Reservation {
    Reservation {
        nqn: export.nqn.raw().to_owned(),
        nsid: export.config.nsid,
        rtype: state.rtype().map(ReservationType::code),
        rtype_name: state.rtype().map(|rtype| rtype.to_string()),
        holder: state.holder().and_then(|holder| names.get(holder).cloned()),
        holder_hostid: state.holder().map(shown),
        registrants: state.registrants().len(),
        generation: state.generation(),
        persistent: state.is_persistent(),
    }
}

fn registrations(export: &Export<'_>) -> Registrations {
    let state = export.entry.namespace.reserving().answered();
    let names = names_of(export);
    let hosts = state.registrants().iter().map(|one| Registrant {
        host: names.get(&one.host).cloned(),
        hostid: shown(&one.host),
        key: format!("{:#x}", one.key),
        holder: state.is_holder(&one.host),
    });
    Registrations {
        reservation: reservation(export, &state, &names),
        hosts: hosts.collect(),
    }
}

fn shown(hostid: &HostId) -> String {
    Uuid::from_bytes(*hostid).to_string()
}

impl Methods {
    pub(super) async fn reservation(&self, params: Map<String, Value>) -> Result<Value, Error> {
        let NamespaceOf { nqn, nsid } = read(params)?;
        let parsed = parse_nqn(&nqn)?;
        match self.snapshot().await?.export(&(parsed, nsid)) {
            Some(export) => answer(&registrations(&export)),
            None => Err(not_exported(&named(&nqn, nsid))),
        }
    }

    /// Clears a namespace's reservations. Returns false if there are no registrants.
    pub(super) async fn clear_reservation(
        &self,
        params: Map<String, Value>,
    ) -> Result<Value, Error> {
        let NamespaceOf { nqn, nsid } = read(params)?;
        let parsed = parse_nqn(&nqn)?;
        let claimed = Arc::new(AtomicBool::new(false));
        let begun = self
            .handle
            .clear_reservations((parsed, nsid), Arc::clone(&claimed));
        let namespace = named(&nqn, nsid);
        let answered = match begun.await.ok_or_else(stopped)? {
            Ok(answered) => answered,
            Err(NotCleared::NoRegistrants) => return Ok(json!(false)),
            Err(refused) => return Err(of_refusal(&refused, &namespace)),
        };
        match timeout(PATIENCE, answered).await {
            Ok(Ok(Ok(()))) => Ok(json!(true)),
            Ok(Ok(Err(status))) => Err(of_status(status, &namespace)),
            Ok(Err(_)) => Err(Error::errno(
                Errno::CANCELED,
                format!("{namespace} was removed or has another disk: nothing was cleared"),
            )),
            Err(_) => Err(late(claimed.swap(true, Ordering::AcqRel), &namespace)),
        }
    }
}

fn named(nqn: &str, nsid: u32) -> String {
    format!("namespace {nsid} of {nqn}")
}

fn not_exported(namespace: &str) -> Error {
    Error::errno(
        Errno::NOENT,
        format!("{namespace} is not exported: see cairn-target namespace list"),
    )
}

fn of_refusal(refused: &NotCleared, namespace: &str) -> Error {
    match refused {
        NotCleared::NotReservable => Error::invalid(format!(
            "{namespace} has no reservations, because it says shared = true: clear them at the \
             storage below it"
        )),
        NotCleared::NoNamespace | NotCleared::NoRegistrants => not_exported(namespace),
    }
}

fn of_status(status: Status, namespace: &str) -> Error {
    if status.code() == Status::COMMAND_INTERRUPTED {
        let why = "earlier requests to clear it wait behind a command of a host";
        return Error::errno(
            Errno::BUSY,
            format!("{namespace}: {why}: look for a disk that hangs, then try again"),
        );
    }
    Error::errno(
        Errno::IO,
        format!(
            "the reservations of {namespace} cannot be stored and stay unchanged: check \
             state_directory, and the log"
        ),
    )
}

fn late(has_begun: bool, namespace: &str) -> Error {
    let message = match has_begun {
        true => format!(
            "the clear of {namespace} has begun and has not ended: check state_directory, then \
             cairn-target reservation list"
        ),
        false => format!(
            "nothing was cleared: a reservation command of a host waits for commands at the disk of \
             {namespace}: look for a disk that hangs, or remove the namespace"
        ),
    };
    Error::errno(Errno::TIMEDOUT, message)
}
