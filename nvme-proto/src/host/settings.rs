//! Settings of an association.

use core::time::Duration;

use crate::wire::Nqn;
use crate::wire::feature::AsyncEventConfig;

/// Identity, subsystem and parameters of an association.
#[derive(Clone, Debug)]
pub struct Settings {
    /// SUBNQN of the subsystem.
    pub subnqn: Nqn,
    /// HOSTNQN.
    pub hostnqn: Nqn,
    /// HOSTID.
    pub hostid: [u8; 16],
    /// I/O queues to request; 0 for administration only.
    pub io_queues: u16,
    /// Entries of each I/O submission queue, 1-based; the controller may require fewer.
    pub queue_entries: u16,
    /// Reserves one entry of each I/O queue for reauthentication.
    ///
    /// The entry is not part of [`QueueSpec::depth`](super::QueueSpec::depth).
    pub spare_entry: bool,
    /// KATO: keep alive timeout in milliseconds; 0 disables it.
    pub kato_ms: u32,
    /// Whether to request the end of SQ flow control.
    pub disable_sq_flow_control: bool,
    /// Whether the subsystem's controller must authenticate to this host.
    ///
    /// A controller that does not request the host's authentication cannot authenticate itself.
    pub expects_proof: bool,
    /// Interval of reauthentication; `None` for never.
    pub reauthenticate_every: Option<Duration>,
    /// Events to enable if supported (OAES).
    pub events: AsyncEventConfig,
    /// Timeout of each bring-up step.
    pub step_timeout: Duration,
    /// Policy after the loss of the controller.
    pub recovery: Recovery,
}

/// Reconnection policy, in the terms of nvme-cli.
///
/// A controller that was never live is not retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// `--ctrl-loss-tmo`: time from loss to the end of the association.
    ///
    /// `None` for no limit; zero for no attempt to reconnect.
    pub ctrl_loss_tmo: Option<Duration>,
    /// `--reconnect-delay`: delay before each attempt.
    pub reconnect_delay: Duration,
    /// `--fast_io_fail_tmo`: maximum wait of commands for a lost controller.
    ///
    /// `None` for no limit.
    pub fast_io_fail_tmo: Option<Duration>,
}

impl Default for Recovery {
    /// Returns the defaults of Linux: an attempt every 10 s for 10 minutes, while commands wait.
    fn default() -> Self {
        Self {
            ctrl_loss_tmo: Some(Duration::from_secs(600)),
            reconnect_delay: Duration::from_secs(10),
            fast_io_fail_tmo: None,
        }
    }
}

impl Recovery {
    /// No reconnection.
    pub const NONE: Self = Self {
        ctrl_loss_tmo: Some(Duration::ZERO),
        reconnect_delay: Duration::from_secs(10),
        fast_io_fail_tmo: None,
    };

    /// True if another attempt may follow `tries` failed ones.
    ///
    /// As in Linux, the number of delays within `ctrl_loss_tmo` limits attempts; so does the
    /// timeout itself.
    pub(super) fn allows(&self, tries: u32) -> bool {
        let Some(loss) = self.ctrl_loss_tmo else {
            return true;
        };
        let delay_ms = self.delay().as_millis();
        u128::from(tries) < loss.as_millis().div_ceil(delay_ms)
    }

    /// Delay before each attempt, at least 1 ms to protect the target.
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
