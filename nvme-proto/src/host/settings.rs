use core::time::Duration;

use crate::wire::Nqn;
use crate::wire::feature::AsyncEventConfig;

use super::notice::all_notices;

/// Settings of an association.
#[derive(Clone, Debug)]
pub struct Settings {
    /// NQN of the requested subsystem.
    pub subnqn: Nqn,
    /// NQN of the host.
    pub hostnqn: Nqn,
    /// HOSTID, unique for each host.
    pub hostid: [u8; 16],
    /// I/O queues to request; 0 connects only the admin queue.
    pub io_queues: u16,
    /// Entries of each I/O submission queue, reduced to the controller's limits.
    pub queue_entries: u16,
    /// True to reserve an entry of each I/O queue for reauthentication, not counted in
    /// [`QueueSpec::depth`](super::QueueSpec::depth).
    pub spare_entry: bool,
    /// KATO in milliseconds; 0 disables keep alive.
    pub kato_ms: u32,
    /// True to request no SQ flow control.
    pub disable_sq_flow_control: bool,
    /// True if the controller must authenticate to this host.
    ///
    /// The host then refuses a controller that does not authenticate the host, because such a
    /// controller does not authenticate itself either.
    pub expects_proof: bool,
    /// Interval of reauthentication; `None` for never.
    pub reauthenticate_every: Option<Duration>,
    /// Asynchronous events to enable if OAES offers them.
    pub events: AsyncEventConfig,
    /// Time limit of a bring-up, reauthentication or teardown step.
    pub step_timeout: Duration,
    /// Reconnection after a loss.
    pub recovery: Recovery,
}

impl Settings {
    /// Creates settings for one I/O queue, without authentication.
    ///
    /// Keep alive (5 s), queue size (128 entries) and reconnection are Linux's defaults. Events are
    /// [`all_notices`]; a step may take 10 s.
    #[must_use]
    pub fn new(subnqn: Nqn, hostnqn: Nqn, hostid: [u8; 16]) -> Self {
        Self {
            subnqn,
            hostnqn,
            hostid,
            io_queues: 1,
            queue_entries: 128,
            spare_entry: false,
            kato_ms: 5000,
            disable_sq_flow_control: false,
            expects_proof: false,
            reauthenticate_every: None,
            events: all_notices(),
            step_timeout: Duration::from_secs(10),
            recovery: Recovery::default(),
        }
    }
}

/// Reconnection parameters, named as in nvme-cli. A failed first connection is not retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// `--ctrl-loss-tmo`: time after a loss at which reconnecting ends; `None` for no limit, zero
    /// for no attempt.
    pub ctrl_loss_tmo: Option<Duration>,
    /// `--reconnect-delay`: delay before each attempt.
    pub reconnect_delay: Duration,
    /// `--fast_io_fail_tmo`: time after a loss at which waiting commands fail; `None` for no limit.
    pub fast_io_fail_tmo: Option<Duration>,
}

impl Default for Recovery {
    /// Linux's defaults: an attempt every 10 s for 600 s, while commands wait.
    fn default() -> Self {
        Self {
            ctrl_loss_tmo: Some(Duration::from_secs(600)),
            reconnect_delay: Duration::from_secs(10),
            fast_io_fail_tmo: None,
        }
    }
}

impl Recovery {
    /// Never reconnects.
    pub const NONE: Self = Self {
        ctrl_loss_tmo: Some(Duration::ZERO),
        reconnect_delay: Duration::from_secs(10),
        fast_io_fail_tmo: None,
    };

    /// True if another attempt may follow `tries` failed attempts. As in Linux, the maximum is
    /// `ctrl_loss_tmo` divided by the delay, rounded up.
    pub(super) fn allows(&self, tries: u32) -> bool {
        let Some(loss) = self.ctrl_loss_tmo else {
            return true;
        };
        let delay_ms = self.delay().as_millis();
        u128::from(tries) < loss.as_millis().div_ceil(delay_ms)
    }

    /// Returns `reconnect_delay`, at least 1 ms to limit the target's load.
    pub(super) fn delay(&self) -> Duration {
        self.reconnect_delay.max(Duration::from_millis(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_are_counted_as_linux_does() {
        let default = Recovery::default();
        assert!(default.allows(59) && !default.allows(60));
        assert!(!Recovery::NONE.allows(0));
        let odd = Recovery {
            ctrl_loss_tmo: Some(Duration::from_secs(25)),
            ..default
        };
        assert!(odd.allows(2) && !odd.allows(3));
        let for_ever = Recovery {
            ctrl_loss_tmo: None,
            ..default
        };
        assert!(for_ever.allows(u32::MAX));
        let hasty = Recovery {
            reconnect_delay: Duration::ZERO,
            ..default
        };
        assert!(hasty.allows(599_999) && !hasty.allows(600_000));
    }
}
