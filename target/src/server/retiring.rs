//! Listeners that a reload has removed, or an administrator drains: their hosts are sent to other
//! paths before they are disconnected.
//!
//! Every ANA group becomes inaccessible there, which hosts learn by an event or by the answer to
//! their next command. What is under way is answered. When their I/O queues have been silent for
//! a while, or time is up, the associations end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nvme_proto::controller::Termination;

use super::control::Control;
use crate::ana::ListenerShared;
use crate::registry::Activity;

/// How long hosts of a listener that was removed have to go on by other paths.
pub(super) const RETIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// Hosts whose I/O queues are silent for so long have gone on.
const SILENCE: Duration = Duration::from_millis(500);

/// How often to look whether they are.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A listener that was removed or is drained, and still has hosts.
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

    /// Whether its hosts are to be disconnected now.
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
    /// Begins to end the associations that came by a listener that takes no more, `within` that
    /// time.
    pub(super) fn retire(
        &mut self,
        address: SocketAddr,
        listener: Arc<ListenerShared>,
        within: Duration,
    ) {
        // A listener that is drained may be removed.
        self.forget_retiring(listener.id);
        // A host whose Connect is under way finds this, or is found below.
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

    /// Disconnects the hosts whose time has come.
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

    /// Whether hosts of this listener are still to be disconnected.
    pub(super) fn is_retiring(&self, listener: u64) -> bool {
        self.retiring.iter().any(|one| one.listener.id == listener)
    }

    /// Disconnects the hosts of this listener no more.
    pub(super) fn forget_retiring(&mut self, listener: u64) {
        self.retiring.retain(|one| one.listener.id != listener);
    }

    pub(super) fn activity(&self, listener: &ListenerShared) -> Activity {
        let subsystems = self.registry.all();
        let all = subsystems.iter().map(|all| all.activity_by(listener.id));
        all.fold(Activity::default(), |one, other| one + other)
    }
}
