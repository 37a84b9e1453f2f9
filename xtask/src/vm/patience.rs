//! Time limit of a machine on a busy host.

use std::fs;
use std::time::{Duration, Instant};

/// Wall time after which a machine is always stopped, in multiples of its limit.
const LOAD_MAX: u32 = 4;

/// Age of a machine, except time in which it was ready to run but had no processor.
pub(super) struct Patience {
    pid: u32,
    started: Instant,
}

impl Patience {
    pub(super) fn new(pid: u32) -> Self {
        Self {
            pid,
            started: Instant::now(),
        }
    }

    pub(super) fn is_beyond(&self, limit: Duration) -> bool {
        let elapsed = self.started.elapsed();
        elapsed >= limit * LOAD_MAX
            || elapsed.saturating_sub(time_without_processor(self.pid)) >= limit
    }
}

/// Returns the longest time that a thread of a process or of its descendants waited for a
/// processor.
fn time_without_processor(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let waits = tasks.into_iter().flatten().flatten().map(|task| {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let own = waited(&read("schedstat"));
        let children = read("children");
        let children = children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok());
        children
            .map(time_without_processor)
            .fold(own, Duration::max)
    });
    waits.max().unwrap_or_default()
}

/// Returns the second number of a `schedstat` file: nanoseconds of waiting for a processor.
fn waited(schedstat: &str) -> Duration {
    let nanos = schedstat.split_whitespace().nth(1);
    Duration::from_nanos(nanos.and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_wait_is_read_from_schedstat() {
        assert_eq!(
            waited("425251861 1267551166 8511\n"),
            Duration::from_nanos(1_267_551_166)
        );
        assert_eq!(waited(""), Duration::ZERO);
    }

    #[test]
    fn descendants_without_a_processor_are_found() {
        let mut shell = Command::new("taskset")
            .args(["-c", "0", "sh", "-c"])
            .arg("(while :; do :; done) & (while :; do :; done) & wait")
            .spawn()
            .unwrap();
        let patience = Patience::new(shell.id());
        while time_without_processor(shell.id()) < Duration::from_millis(200) {
            assert!(shell.try_wait().unwrap().is_none());
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!patience.is_beyond(Duration::from_secs(3600)));
        assert!(patience.is_beyond(Duration::ZERO));
        Command::new("pkill")
            .args(["-P", &shell.id().to_string()])
            .status()
            .unwrap();
        shell.wait().unwrap();
    }
}
