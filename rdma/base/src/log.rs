//! Process-wide rate limit for log lines caused by peers.
//!
//! Any machine that reaches a listener can cause log lines. Each of these lines needs a [`LogLine`]
//! from the token bucket of its [`Topic`], and is written by [`peer_line!`](crate::peer_line) or
//! [`peer_detail!`](crate::peer_detail).
//!
//! A test requires, above each other log line, a comment `// Logged ...` that names the cause.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::allowance::Allowance;
use crate::panics::{Part, confine_part};

const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Group of log lines with a common rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// A refused connection request or Connect command.
    Refused,
    /// A connection that broke, or that this end closed because of the peer.
    Fault,
    /// A queue that connected or disconnected without an error.
    Connection,
    /// A peer's command that failed on a disk.
    Disk,
    /// Details at level debug.
    Detail,
}

impl Topic {
    /// Topics in the order of their discriminants, which are indices into this list.
    pub const ALL: [Self; 5] = [
        Self::Refused,
        Self::Fault,
        Self::Connection,
        Self::Disk,
        Self::Detail,
    ];

    /// Returns the name in logs and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Fault => "fault",
            Self::Connection => "connection",
            Self::Disk => "disk",
            Self::Detail => "detail",
        }
    }

    /// Returns the topic's burst in lines, and the interval after which one more line is allowed.
    /// The burst of `Connection` covers sixteen hosts with 64 queues each.
    const fn allowance(self) -> (u32, Duration) {
        match self {
            Self::Refused | Self::Fault => (64, Duration::from_millis(500)),
            Self::Connection => (1024, Duration::from_millis(200)),
            Self::Disk => (64, Duration::from_secs(1)),
            Self::Detail => (1024, Duration::from_millis(10)),
        }
    }
}

/// Permission to log one line caused by a peer, granted by [`Self::about`].
#[must_use]
#[derive(Debug)]
pub struct LogLine {
    unreported: Option<u64>,
}

impl LogLine {
    /// Requests permission for a line of `topic`. Beyond the rate limit, counts the line as
    /// suppressed and returns `None`.
    pub fn about(topic: Topic) -> Option<Self> {
        let mut budget = BUDGET.lock().unwrap_or_else(PoisonError::into_inner);
        let granted = budget.take(topic, Instant::now());
        if !granted && !std::mem::replace(&mut budget.is_reporting, true) {
            start_reports(&mut budget);
        }
        granted.then_some(Self { unreported: None })
    }

    /// Sets the number of similar lines suppressed before this one.
    pub fn after(self, unreported: u64) -> Self {
        Self {
            unreported: Some(unreported),
        }
    }

    /// Returns the number of similar lines suppressed before this one, if counted.
    #[must_use]
    pub fn unreported(&self) -> Option<u64> {
        self.unreported
    }
}

/// Returns the number of lines suppressed since the process started, by topic.
#[must_use]
pub fn left_out() -> [(Topic, u64); Topic::ALL.len()] {
    let budget = BUDGET.lock().unwrap_or_else(PoisonError::into_inner);
    Topic::ALL.map(|topic| (topic, budget.left_out[topic as usize]))
}

/// Logs a line caused by a peer, and the number of suppressed lines. The argument `line` is the
/// permission, a [`LogLine`](crate::log::LogLine): `peer_line!(warn, line, field, "message")`.
#[macro_export]
macro_rules! peer_line {
    ($level:ident, $line:expr, $($what:tt)+) => {{
        let line: $crate::log::LogLine = $line;
        tracing::$level!(unreported = line.unreported(), $($what)+);
    }};
}

/// Logs a line at level debug, within the rate limit of `Topic::Detail`.
#[macro_export]
macro_rules! peer_detail {
    ($($what:tt)+) => {
        if tracing::enabled!(tracing::Level::DEBUG)
            && let Some(line) = $crate::log::LogLine::about($crate::log::Topic::Detail)
        {
            $crate::peer_line!(debug, line, $($what)+);
        }
    };
}

static BUDGET: Mutex<Budget> = Mutex::new(Budget::new());

#[derive(Debug)]
struct Budget {
    topics: [Allowance<Instant>; Topic::ALL.len()],
    left_out: [u64; Topic::ALL.len()],
    reported: [u64; Topic::ALL.len()],
    is_reporting: bool,
}

impl Budget {
    const fn new() -> Self {
        Self {
            topics: [Allowance::new(); Topic::ALL.len()],
            left_out: [0; Topic::ALL.len()],
            reported: [0; Topic::ALL.len()],
            is_reporting: false,
        }
    }

    fn take(&mut self, topic: Topic, now: Instant) -> bool {
        let (limit, interval) = topic.allowance();
        let granted = self.topics[topic as usize].take(now, limit, interval);
        self.left_out[topic as usize] += u64::from(!granted);
        granted
    }

    fn unreported(&mut self) -> Option<[u64; Topic::ALL.len()]> {
        let mut unreported = self.left_out;
        for (unreported, reported) in unreported.iter_mut().zip(self.reported) {
            *unreported -= reported;
        }
        self.reported = self.left_out;
        (unreported != [0; Topic::ALL.len()]).then_some(unreported)
    }
}

fn start_reports(budget: &mut Budget) {
    let thread = std::thread::Builder::new().name("log-report".into());
    let started = thread.spawn(|| {
        loop {
            std::thread::sleep(REPORT_INTERVAL);
            let unreported = {
                let mut budget = BUDGET.lock().unwrap_or_else(PoisonError::into_inner);
                let unreported = budget.unreported();
                budget.is_reporting = unreported.is_some();
                unreported
            };
            let Some(unreported) = unreported else { return };
            confine_part(Part::Log, || report(unreported));
        }
    });
    budget.is_reporting = started.is_ok();
}

fn report([refused, fault, connection, disk, detail]: [u64; Topic::ALL.len()]) {
    // Logged every 10 s (`REPORT_INTERVAL`) while lines are suppressed.
    tracing::warn!(
        refused,
        fault,
        connection,
        disk,
        detail,
        seconds = REPORT_INTERVAL.as_secs(),
        "log lines suppressed: peers caused more lines than the rate limit permits"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_and_counted_and_time_brings_lines_back() {
        let mut budget = Budget::new();
        let start = Instant::now();
        let (limit, interval) = Topic::Refused.allowance();
        let granted = (0..1000)
            .filter(|_| budget.take(Topic::Refused, start))
            .count();
        assert_eq!(granted as u32, limit);
        assert!(budget.take(Topic::Fault, start), "another topic");
        let later = start + 3 * interval;
        let granted = (0..1000).filter(|_| budget.take(Topic::Refused, later));
        assert_eq!(granted.count(), 3);
        assert_eq!(budget.unreported(), Some([1933, 0, 0, 0, 0]));
        assert_eq!(budget.unreported(), None, "it was reported");
    }

    #[test]
    fn silence_brings_back_no_more_than_there_was() {
        let mut budget = Budget::new();
        let start = Instant::now();
        let (limit, _) = Topic::Refused.allowance();
        assert!(budget.take(Topic::Refused, start));
        let later = start + Duration::from_secs(86_400);
        let granted = (0..1000).filter(|_| budget.take(Topic::Refused, later));
        assert_eq!(granted.count() as u32, limit);
    }
}
