//! Retirement of listeners that were removed or are drained: hosts move to other paths and are then
//! disconnected.
//!
//! All ANA groups become inaccessible at the listener. Hosts learn this from an event or the
//! response to their next command. Commands in flight complete. Associations end once their I/O
//! queues are idle for a while, or at the deadline.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nvme_proto::controller::Termination;

use super::control::Control;
use crate::ana::ListenerShared;
use crate::registry::Activity;

/// Time for hosts of a removed listener to move to other paths.
pub(super) const RETIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// Idle time of I/O queues after which hosts have moved.
const SILENCE: Duration = Duration::from_millis(500);

const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Removed or drained listener that still has hosts.
pub(super) struct Retiring {
    listener: Arc<ListenerShared>,
    address: SocketAddr,
    deadline: Instant,
    next_look: Instant,
    activity: Activity,
    silent_since: Instant,
}

impl Retiring {
    pub(super) fn next_look(&self) -> Instant {
        self.next_look
    }

    /// True if its hosts must be disconnected now.
    fn is_over(&mut self, activity: Activity, now: Instant) -> bool {
        self.next_look = now + LOOK_INTERVAL;
        if activity != self.activity || activity.outstanding > 0 {
            self.silent_since = now;
        }
        self.activity = activity;
        now >= self.deadline || now >= self.silent_since + SILENCE
    }
}

impl Control {
    /// Starts to end the associations through a listener, `within` that time.
    pub(super) fn retire(
        &mut self,
        address: SocketAddr,
        listener: Arc<ListenerShared>,
        within: Duration,
    ) {
        // A drained listener may be removed.
        self.forget_retiring(listener.id);
        // A concurrent Connect either sees this flag or is found below.
        listener.removed.store(true, Ordering::Relaxed);
        self.update_ana(&listener);
        let now = self.clock.now();
        self.retiring.push(Retiring {
            activity: self.activity(&listener),
            listener,
            address,
            deadline: now + within,
            next_look: now,
            silent_since: now,
        });
    }

    /// Disconnects the hosts of listeners that are due.
    pub(super) fn look_at_retiring(&mut self) {
        let now = self.clock.now();
        for mut retiring in std::mem::take(&mut self.retiring) {
            if now < retiring.next_look {
                self.retiring.push(retiring);
                continue;
            }
            let activity = self.activity(&retiring.listener);
            if activity.associations > 0 && !retiring.is_over(activity, now) {
                self.retiring.push(retiring);
                continue;
            }
            for subsystem in self.registry.all() {
                subsystem.administer(|subsystem, actions| {
                    let id = retiring.listener.id;
                    subsystem.terminate_port(id, Termination::PortRemoved, actions);
                });
            }
            let mut open = self.listeners.iter_mut();
            if let Some(open) = open.find(|open| open.shared.id == retiring.listener.id) {
                open.cut_off = activity.outstanding;
            }
            if activity.outstanding > 0 {
                // Cause: a reload, or a request of the control socket.
                tracing::warn!(
                    address = %retiring.address, commands = activity.outstanding,
                    "hosts of a listener that was removed or drained are disconnected with \
                     commands under way: look for a disk that hangs"
                );
            }
        }
    }

    /// True if hosts of this listener wait to be disconnected.
    pub(super) fn is_retiring(&self, listener: u64) -> bool {
        self.retiring.iter().any(|one| one.listener.id == listener)
    }

    pub(super) fn forget_retiring(&mut self, listener: u64) {
        self.retiring.retain(|one| one.listener.id != listener);
    }

    pub(super) fn activity(&self, listener: &ListenerShared) -> Activity {
        let subsystems = self.registry.all();
        let all = subsystems.iter().map(|all| all.activity_by(listener.id));
        all.fold(Activity::default(), |one, other| one + other)
    }
}
