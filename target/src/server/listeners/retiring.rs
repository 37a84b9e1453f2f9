//! Retirement of removed or drained listeners.
//!
//! All ANA groups of the listener become inaccessible. Hosts are notified by an event or a
//! response, and move to other paths. Commands in flight complete. All associations end once the
//! listener has had no I/O for [`SILENCE`], or at the deadline.

use cairn_base::Trid;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::super::exports::Exports;
use super::open::ListenerId;
use cairn_data_path::ana::ListenerShared;
use cairn_data_path::registry::Activity;

pub(super) const RETIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time without I/O at a listener after which its hosts are assumed to use other paths.
const SILENCE: Duration = Duration::from_millis(500);

const LOOK_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(super) struct Retirements {
    all: Vec<Retirement>,
}

struct Retirement {
    listener: Arc<ListenerShared>,
    address: Trid,
    deadline: Instant,
    next_look: Instant,
    activity: Activity,
    silent_since: Instant,
}

impl Retirement {
    fn is_over(&mut self, activity: Activity, now: Instant) -> bool {
        self.next_look = now + LOOK_INTERVAL;
        if activity != self.activity || activity.outstanding > 0 {
            self.silent_since = now;
        }
        self.activity = activity;
        now >= self.deadline || now >= self.silent_since + SILENCE
    }
}

impl Retirements {
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.all.iter().map(|retirement| retirement.next_look).min()
    }

    pub(super) fn begin(
        &mut self,
        address: Trid,
        listener: Arc<ListenerShared>,
        within: Duration,
        exports: &Exports,
        now: Instant,
    ) {
        // The new retirement replaces the retirement of a drained listener.
        self.forget(listener.id);
        // A concurrent Connect reads this flag, or the calls below find its association.
        listener.removed.store(true, Ordering::Relaxed);
        exports.update_ana(&listener);
        self.all.push(Retirement {
            activity: exports.activity(listener.id),
            listener,
            address,
            deadline: now + within,
            next_look: now,
            silent_since: now,
        });
    }

    /// Disconnects the hosts of each listener that is idle or past its deadline. Returns these
    /// listeners with the number of their commands in flight.
    pub(super) fn look(&mut self, exports: &Exports, now: Instant) -> Vec<(ListenerId, u64)> {
        let mut ended = Vec::new();
        for mut retirement in std::mem::take(&mut self.all) {
            if now < retirement.next_look {
                self.all.push(retirement);
                continue;
            }
            let id = retirement.listener.id;
            let activity = exports.activity(id);
            if activity.associations > 0 && !retirement.is_over(activity, now) {
                self.all.push(retirement);
                continue;
            }
            exports.disconnect_port(id);
            ended.push((id, activity.outstanding));
            if activity.outstanding > 0 {
                // Logged after a reload or a control socket request.
                tracing::warn!(
                    address = %retirement.address, commands = activity.outstanding,
                    "hosts of a removed or drained listener are disconnected with commands in \
                     progress: look for a disk that hangs"
                );
            }
        }
        ended
    }

    pub(super) fn has(&self, listener: ListenerId) -> bool {
        self.all.iter().any(|one| one.listener.id == listener)
    }

    pub(super) fn forget(&mut self, listener: ListenerId) {
        self.all.retain(|one| one.listener.id != listener);
    }
}
