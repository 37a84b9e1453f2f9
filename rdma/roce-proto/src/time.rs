//! Time of the protocol state machines.

use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

use cairn_base::allowance::Moment;

/// Time since a start chosen by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    /// Start of the time scale.
    pub const START: Self = Self(Duration::ZERO);

    /// Returns [`Self::START`] plus `start`.
    #[must_use]
    pub const fn after(start: Duration) -> Self {
        Self(start)
    }

    /// Returns the time since [`Self::START`].
    #[must_use]
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// Returns the time since `earlier`, or zero if `earlier` is later.
    #[must_use]
    #[inline]
    pub const fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Alias of [`Self::saturating_duration_since`].
    #[must_use]
    #[inline]
    pub const fn duration_since(self, earlier: Self) -> Duration {
        self.saturating_duration_since(earlier)
    }

    /// Subtracts `duration`; `None` if the result is before the start.
    #[must_use]
    #[inline]
    pub fn checked_sub(self, duration: Duration) -> Option<Self> {
        self.0.checked_sub(duration).map(Self)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    #[inline]
    fn add(self, duration: Duration) -> Self {
        Self(self.0 + duration)
    }
}

impl AddAssign<Duration> for Instant {
    #[inline]
    fn add_assign(&mut self, duration: Duration) {
        self.0 += duration;
    }
}

impl Sub for Instant {
    type Output = Duration;

    #[inline]
    fn sub(self, earlier: Self) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

impl Moment for Instant {
    fn since(self, earlier: Self) -> Duration {
        self.saturating_duration_since(earlier)
    }
}
