//! Metrics of the process, from proc(5).

#![expect(clippy::disallowed_methods, reason = "/proc")]

use std::fs;

use super::reporter::Reporter;
use crate::exposition::families;
use crate::revision;

pub(super) fn report(reporter: &Reporter<'_>) {
    let labels = [("version", revision::VERSION), ("commit", revision::COMMIT)];
    reporter.info(&families::BUILD_INFO, &labels);
    if let Some(times) = fs::read_to_string("/proc/self/stat")
        .ok()
        .as_deref()
        .and_then(times)
    {
        reporter.count_ns(&families::PROCESS_CPU, &[], times.cpu_ns);
        if let Some(boot) = boot_seconds() {
            let start = boot + times.start_ns / 1_000_000_000;
            reporter.gauge(&families::PROCESS_START, &[], start);
        }
    }
    for (topic, count) in cairn_base::log::left_out() {
        let labels = [("topic", topic.name())];
        reporter.count(&families::LOG_LEFT_OUT, &labels, count);
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    for (family, field, unit) in [
        (&families::PROCESS_RESIDENT, "VmRSS", 1024),
        (&families::PROCESS_VIRTUAL, "VmSize", 1024),
        (&families::PROCESS_THREADS, "Threads", 1),
    ] {
        if let Some(value) = number(&status, field) {
            reporter.gauge(family, &[], value * unit);
        }
    }
    if let (Some(locked), Some(pinned)) = (number(&status, "VmLck"), number(&status, "VmPin")) {
        let bytes = (locked + pinned) * 1024;
        reporter.gauge(&families::PROCESS_LOCKED, &[], bytes);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        let open = (open.count() as u64).saturating_sub(1);
        reporter.gauge(&families::PROCESS_FDS, &[], open);
    }
}

fn number(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| {
        let rest = line.strip_prefix(field)?;
        rest.strip_prefix(':')
    })?;
    line.split_whitespace().next()?.parse().ok()
}

#[derive(Debug, PartialEq, Eq)]
struct ProcessTimes {
    cpu_ns: u64,
    start_ns: u64,
}

/// Parses fields 14, 15 and 22 of /proc/PID/stat. Field 2, the name, may contain spaces.
fn times(stat: &str) -> Option<ProcessTimes> {
    /// Nanoseconds per clock tick (USER_HZ is 100 Hz on Linux for x86-64).
    const TICK_NS: u64 = 10_000_000;
    let (_, fields) = stat.rsplit_once(')')?;
    let field =
        |number: usize| -> Option<u64> { fields.split_whitespace().nth(number - 3)?.parse().ok() };
    Some(ProcessTimes {
        cpu_ns: (field(14)? + field(15)?) * TICK_NS,
        start_ns: field(22)? * TICK_NS,
    })
}

fn boot_seconds() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_fields() {
        let stat = "7 (a) 9 (b) S 1 7 7 0 -1 4194560 5 6 7 8 250 50 0 0 20 0 3 0 1234 1 2";
        let expected = ProcessTimes {
            cpu_ns: 3_000_000_000,
            start_ns: 12_340_000_000,
        };
        assert_eq!(times(stat), Some(expected));
        assert_eq!(times("7 (a) S"), None);
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let status = "VmRSSX:\t1 kB\nVmRSS:\t  42 kB\nThreads:\t3\n";
        assert_eq!(number(status, "VmRSS"), Some(42));
        assert_eq!(number(status, "Threads"), Some(3));
        assert_eq!(number(status, "VmLck"), None);
    }
}
