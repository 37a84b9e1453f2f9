//! Changes of reservations: stored, enforced at all reactors, then answered.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cairn_base::log::{LogLine, Topic};
use cairn_base::peer_line;
use nvme_proto::reservation::Reservations;
use nvme_proto::wire::Status;
use tokio::sync::oneshot;

use super::exports::Exports;
use super::flushing::Flushes;
use crate::health::Place;
use crate::panics::Part;
use cairn_data_path::namespace::Namespace;
use cairn_data_path::registry::{ControlMessage, ReservationStep, Scope, SubsystemShared};
use cairn_data_path::reservation_file::ReservationFile;

#[derive(Debug)]
pub(crate) enum NotCleared {
    NoNamespace,
    /// The namespace has `shared = true`.
    NotReservable,
    NoRegistrants,
}

/// The receiver fails if, before the change begins, the namespace is removed or the caller sets
/// `claimed`.
pub(super) fn clear(
    exports: &Exports,
    (nqn, nsid): Place,
    claimed: Arc<AtomicBool>,
) -> Result<oneshot::Receiver<Result<(), Status>>, NotCleared> {
    let export = exports.get(&nqn).ok_or(NotCleared::NoNamespace)?;
    let table = export.subsystem.namespaces();
    let namespace = &table.get(nsid).ok_or(NotCleared::NoNamespace)?.namespace;
    if !namespace.is_reservable() {
        return Err(NotCleared::NotReservable);
    }
    if namespace.reserving().answered().registrants().is_empty() {
        return Err(NotCleared::NoRegistrants);
    }
    let (answer, answered) = oneshot::channel();
    let done = move |result| {
        let _ = answer.send(result);
    };
    export
        .subsystem
        .clear_reservations(namespace, claimed, done);
    Ok(answered)
}

impl Flushes {
    pub(super) fn reserve(
        &mut self,
        subsystem: Arc<SubsystemShared>,
        namespace: Arc<Namespace>,
        step: ReservationStep,
    ) {
        match step {
            ReservationStep::Begun => self.store(subsystem, namespace),
            ReservationStep::Stored(true) => self.enforce(subsystem, namespace),
            ReservationStep::Stored(false) => subsystem.reservation_ended(&namespace, false),
            ReservationStep::Persist {
                controller,
                change,
                persistent,
            } => subsystem.persist_reservations(&namespace, controller, change, persistent),
        }
    }

    /// Enforces the change. If it must survive a power loss, stores it first, because a crash must
    /// not undo a change in force.
    fn store(&mut self, subsystem: Arc<SubsystemShared>, namespace: Arc<Namespace>) {
        let Some(state) = namespace.reserving().to_store() else {
            return self.enforce(subsystem, namespace);
        };
        let (control, subsystem) = (self.control.clone(), subsystem.id);
        let panics = Arc::clone(self.jobs.panics());
        self.jobs.run(Box::new(move || {
            let store = || keep(&namespace, &state);
            let stored = panics.confine(Part::Flush, store).unwrap_or(false);
            let _ = control.send(ControlMessage::Reservation {
                subsystem,
                namespace,
                step: ReservationStep::Stored(stored),
            });
        }));
    }

    /// Puts the change in force. Answers the request once the disks have ended all commands that
    /// the change forbids.
    fn enforce(&mut self, subsystem: Arc<SubsystemShared>, namespace: Arc<Namespace>) {
        let scope = Scope::Reservation(namespace.reserving().enforce());
        self.settle(scope, move |flushes, settled| {
            if settled {
                return subsystem.reservation_ended(&namespace, true);
            }
            if let Some(line) = LogLine::about(Topic::Disk) {
                let (subsystem, nsid) = (subsystem.nqn(), namespace.nsid);
                peer_line!(
                    warn,
                    line,
                    subsystem,
                    nsid,
                    "a reservation command waits for commands at the disk that it forbids; look for \
                     a disk that hangs"
                );
            }
            flushes.enforce(subsystem, namespace);
        });
    }
}

/// Stores persistent reservations again if their file is missing or older, such as a restored copy.
/// Returns true if stored. Blocks on the file system.
pub(crate) fn store_again(namespace: &Namespace, file: &ReservationFile) -> io::Result<bool> {
    let reserving = namespace.reserving();
    let _storing = reserving.storing();
    // A pending change may have stored its state. No change that must be stored can end after this
    // check while `_storing` exists.
    if reserving.to_store().is_some() {
        return Ok(false);
    }
    let state = reserving.answered();
    if !state.is_persistent() || file.holds(&state) {
        return Ok(false);
    }
    file.write(&state).map(|()| true)
}

fn keep(namespace: &Namespace, state: &Reservations) -> bool {
    let Some(file) = &namespace.reservation_file else {
        return false;
    };
    let _storing = namespace.reserving().storing();
    let Err(error) = file.write(state) else {
        return true;
    };
    // Restores the file, which has the refused state if only the sync of its folder failed.
    let _ = file.write(&namespace.reserving().answered());
    if let Some(line) = LogLine::about(Topic::Disk) {
        let (nsid, file) = (namespace.nsid, file.path().display());
        peer_line!(error, line, nsid, %file, %error,
            "cannot store the reservations of a namespace, which stay unchanged; check \
             state_directory"
        );
    }
    false
}
