//! How many lines that peers cause the process logs.
//!
//! Anyone who reaches a listener can cause log lines: by requests that are refused,
//! by connections that break, by connecting and leaving. A limit for each address
//! does not bound a log, since an attacker has many addresses. So each line that a
//! peer causes needs a [`Line`], and the whole process hands out so many of them, by
//! [`Topic`]. What is left out is counted, and the counts are logged while they grow.
//!
//! Code that peers drive logs by [`peer_line!`](crate::peer_line) and
//! [`peer_detail!`](crate::peer_detail). A test reads the sources: each other line
//! stands under a comment that says who causes it, `// Cause: ...`.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::allowance::Allowance;
use crate::panics::{Part, confine_part};

/// Between two lines that report what was left out.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// What a line is about. Each topic has lines of its own, so that a flood of one
/// leaves the others their lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// A connection request or a Connect was refused.
    Refused,
    /// A connection broke, or was ended for what the peer did.
    Fault,
    /// A queue was connected, or ended in good order.
    Connection,
    /// A disk failed a peer's command.
    Disk,
    /// For the search for an error, at level debug.
    Detail,
}

impl Topic {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Refused,
        Self::Fault,
        Self::Connection,
        Self::Disk,
        Self::Detail,
    ];

    /// Its name in log and metrics.
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

    /// Lines that may come at once, and time until there is another one. Sixteen hosts
    /// that connect 64 queues each at once are within the limit; in the long run all
    /// topics but `Detail` have ten lines a second together.
    const fn allowance(self) -> (u32, Duration) {
        match self {
            Self::Refused | Self::Fault => (64, Duration::from_millis(500)),
            Self::Connection => (1024, Duration::from_millis(200)),
            Self::Disk => (64, Duration::from_secs(1)),
            Self::Detail => (1024, Duration::from_millis(10)),
        }
    }
}

/// Permission to log one line that a peer caused. Only this module makes one.
#[must_use]
#[derive(Debug)]
pub struct Line {
    unreported: Option<u64>,
}

impl Line {
    /// A line, if there is one left for `topic`. If not, the line is counted as left
    /// out.
    pub fn about(topic: Topic) -> Option<Self> {
        let mut budget = BUDGET.lock().unwrap_or_else(PoisonError::into_inner);
        let granted = budget.take(topic, Instant::now());
        if !granted && !std::mem::replace(&mut budget.is_reporting, true) {
            start_reports(&mut budget);
        }
        granted.then_some(Self { unreported: None })
    }

    /// The line says how many of its kind were passed over before it.
    pub fn after(self, unreported: u64) -> Self {
        Self {
            unreported: Some(unreported),
        }
    }

    /// Lines of its kind that were passed over before it, where that is counted.
    #[must_use]
    pub fn unreported(&self) -> Option<u64> {
        self.unreported
    }
}

/// Lines that were left out since the process began, by topic.
#[must_use]
pub fn left_out() -> [(Topic, u64); Topic::ALL.len()] {
    let budget = BUDGET.lock().unwrap_or_else(PoisonError::into_inner);
    Topic::ALL.map(|topic| (topic, budget.left_out[topic as usize]))
}

/// Logs a line that a peer caused, at a level, by a [`Line`](crate::log::Line):
/// `peer_line!(warn, line, field, "message")`.
#[macro_export]
macro_rules! peer_line {
    ($level:ident, $line:expr, $($what:tt)+) => {{
        let line: $crate::log::Line = $line;
        tracing::$level!(unreported = line.unreported(), $($what)+);
    }};
}

/// Logs a line that a peer caused at level debug, if there is one left for it.
#[macro_export]
macro_rules! peer_detail {
    ($($what:tt)+) => {
        if tracing::enabled!(tracing::Level::DEBUG)
            && let Some(line) = $crate::log::Line::about($crate::log::Topic::Detail)
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
    /// A thread reports what is left out.
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

    /// What was left out since the last report, if anything was.
    fn unreported(&mut self) -> Option<[u64; Topic::ALL.len()]> {
        let mut unreported = self.left_out;
        for (unreported, reported) in unreported.iter_mut().zip(self.reported) {
            *unreported -= reported;
        }
        self.reported = self.left_out;
        (unreported != [0; Topic::ALL.len()]).then_some(unreported)
    }
}

/// Has a thread report what is left out, until nothing more is. There is none
/// before, since lines are seldom left out.
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
    // A machine without a thread to spare: the next line that is left out tries again.
    budget.is_reporting = started.is_ok();
}

fn report([refused, fault, connection, disk, detail]: [u64; Topic::ALL.len()]) {
    // Cause: this module, once an interval.
    tracing::warn!(
        refused,
        fault,
        connection,
        disk,
        detail,
        seconds = REPORT_INTERVAL.as_secs(),
        "log lines were left out: peers caused more of them than the log takes"
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
