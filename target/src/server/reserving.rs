//! Changes of reservations: enforced at all reactors, then answered.

use std::sync::Arc;

use cairn_base::log::{LogLine, Topic};
use cairn_base::peer_line;

use super::flushing::Flushes;
use cairn_data_path::namespace::Namespace;
use cairn_data_path::registry::{ReservationStep, Scope, SubsystemShared};

impl Flushes {
    pub(super) fn reserve(
        &mut self,
        subsystem: Arc<SubsystemShared>,
        namespace: Arc<Namespace>,
        step: ReservationStep,
    ) {
        match step {
            ReservationStep::Begun => self.enforce(subsystem, namespace),
            ReservationStep::Persist {
                controller,
                persistent,
            } => subsystem.persist_reservations(&namespace, controller, persistent),
        }
    }

    /// Waits as long as disks hold commands that the change forbids: its answer promises that they have ended.
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
