use std::fs;
use std::io;
use std::iter::Sum;
use std::ops::{Add, Sub};
use std::time::Duration;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CpuTime {
    pub(super) on_cpu: Duration,
    /// Time in which threads were ready to run, but had no processor.
    pub(super) waited: Duration,
}

impl CpuTime {
    pub(super) fn of_process(pid: u32) -> Self {
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
            return Self::default();
        };
        let of_task = |task: io::Result<fs::DirEntry>| {
            let text = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            Self::parse(&text)
        };
        tasks.filter_map(of_task).sum()
    }

    /// Parses `/proc/PID/task/TID/schedstat`, which is in nanoseconds (sched-stats.rst).
    fn parse(schedstat: &str) -> Option<Self> {
        let mut numbers = schedstat.split_whitespace();
        let mut next = || Some(Duration::from_nanos(numbers.next()?.parse().ok()?));
        Some(Self {
            on_cpu: next()?,
            waited: next()?,
        })
    }
}

impl Add for CpuTime {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            on_cpu: self.on_cpu + other.on_cpu,
            waited: self.waited + other.waited,
        }
    }
}

impl Sub for CpuTime {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            on_cpu: self.on_cpu.saturating_sub(earlier.on_cpu),
            waited: self.waited.saturating_sub(earlier.waited),
        }
    }
}

impl Sum for CpuTime {
    fn sum<I: Iterator<Item = Self>>(times: I) -> Self {
        times.fold(Self::default(), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_time_goes_on() {
        let parsed = CpuTime::parse("682685604 162634592 2638\n").unwrap();
        assert_eq!(parsed.on_cpu, Duration::from_nanos(682_685_604));
        assert_eq!(parsed.waited, Duration::from_nanos(162_634_592));
        assert_eq!(CpuTime::parse("1"), None);
        let before = CpuTime::of_process(std::process::id());
        let mut sum = 0_u64;
        while CpuTime::of_process(std::process::id()).on_cpu <= before.on_cpu {
            sum = std::hint::black_box(sum + 1);
        }
        assert_eq!(CpuTime::of_process(u32::MAX), CpuTime::default());
    }
}
