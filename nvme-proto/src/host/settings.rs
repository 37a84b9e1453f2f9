//! The settings of a host's association.

use core::time::Duration;

use crate::wire::Nqn;
use crate::wire::feature::AsyncEventConfig;

/// Whom to connect to, as whom, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// SUBNQN: the subsystem.
    pub subnqn: Nqn,
    /// HOSTNQN: who we are.
    pub hostnqn: Nqn,
    /// HOSTID: which machine we are.
    pub hostid: [u8; 16],
    /// I/O queues to ask for; 0 makes an association that only administrates.
    pub io_queues: u16,
    /// Entries of each I/O submission queue, 1-based; the controller may require fewer.
    pub queue_entries: u16,
    /// Whether one of those is for the association's own commands, without which a live queue
    /// does not authenticate again: [`QueueSpec::depth`](super::QueueSpec::depth) leaves it out.
    pub spare_entry: bool,
    /// KATO: keep alive timeout in milliseconds; 0 for none.
    pub kato_ms: u32,
    /// Whether to ask for SQ flow control to be disabled.
    pub disable_sq_flow_control: bool,
    /// Whether the controller of a subsystem must prove who it is: one that does not ask this
    /// host to authenticate cannot.
    pub expects_proof: bool,
    /// How often the queues of an association that authenticated do so again. `None`: never.
    pub reauthenticate_every: Option<Duration>,
    /// Events to enable, as far as the controller offers them (OAES).
    pub events: AsyncEventConfig,
    /// Patience with each step of the host's own.
    pub step_timeout: Duration,
    /// What to do once the controller is lost.
    pub recovery: Recovery,
}

/// When to connect again to a controller that was lost, and for how long, in
/// nvme-cli's words. A controller that was never reached is not retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// `--ctrl-loss-tmo`: how long to try before the controller counts as gone
    /// for good. `None`: for ever. Zero: do not try at all.
    pub ctrl_loss_tmo: Option<Duration>,
    /// `--reconnect-delay`: the time before each try.
    pub reconnect_delay: Duration,
    /// `--fast_io_fail_tmo`: how long commands wait for a lost controller before
    /// they fail, if that is to be sooner than it counts as gone.
    pub fast_io_fail_tmo: Option<Duration>,
}

impl Default for Recovery {
    /// As Linux does: every 10 s for 10 minutes, and commands wait for all of it.
    fn default() -> Self {
        Self {
            ctrl_loss_tmo: Some(Duration::from_secs(600)),
            reconnect_delay: Duration::from_secs(10),
            fast_io_fail_tmo: None,
        }
    }
}

impl Recovery {
    /// No second try: a lost controller is gone.
    pub const NONE: Self = Self {
        ctrl_loss_tmo: Some(Duration::ZERO),
        reconnect_delay: Duration::from_secs(10),
        fast_io_fail_tmo: None,
    };

    /// Whether to try again after `tries` that failed: at most as many as delays fit into `ctrl_loss_tmo`, as in
    /// Linux. The time itself ends them, too.
    pub(super) fn allows(&self, tries: u32) -> bool {
        let Some(loss) = self.ctrl_loss_tmo else {
            return true;
        };
        let delay_ms = self.delay().as_millis();
        u128::from(tries) < loss.as_millis().div_ceil(delay_ms)
    }

    /// The time before each try. Never nothing, lest a host hammers its target.
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
