//! The time of the state machines.

use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

use cairn_rdma::allowance::Moment;

/// A point in time: how long after a start that the owner of the state machines chooses.
///
/// It stands in for the standard library's type of this name, which only the operating
/// system's clock can make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    /// The first point in time.
    pub const START: Self = Self(Duration::ZERO);

    /// The point in time that is so long after [`Self::START`].
    #[must_use]
    pub const fn after(start: Duration) -> Self {
        Self(start)
    }

    /// How long after [`Self::START`] it is.
    #[must_use]
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// The time since `earlier`; none, if that is later.
    #[must_use]
    #[inline]
    pub const fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The time since `earlier`; none, if that is later.
    #[must_use]
    #[inline]
    pub const fn duration_since(self, earlier: Self) -> Duration {
        self.saturating_duration_since(earlier)
    }

    /// So much earlier. `None`: before the start.
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
