//! Reactors in SPDK's format.

#![expect(clippy::disallowed_methods, reason = "/proc and /sys")]

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::iostat::TICK_RATE;
use crate::{Reactor, Snapshot};

pub(super) fn thread(reactor: usize) -> String {
    format!("reactor_{reactor}")
}

pub(super) fn shown(snapshot: &impl Snapshot) -> Value {
    let threads = Thread::all();
    let cores = fs::read_to_string("/proc/stat").unwrap_or_default();
    let elapsed_ns = snapshot.uptime().as_nanos() as u64;
    let reactors = snapshot.reactors().into_iter().enumerate();
    let reactors = reactors.map(|(index, reactor)| {
        let name = format!("reactor-{index}");
        let thread = threads.iter().find(|thread| thread.name == name);
        of(index, &reactor, thread, &cores, elapsed_ns)
    });
    json!({
        "tick_rate": TICK_RATE,
        "pid": std::process::id(),
        "reactors": reactors.collect::<Vec<_>>(),
    })
}

fn of(
    index: usize,
    reactor: &Reactor,
    thread: Option<&Thread>,
    cores: &str,
    elapsed_ns: u64,
) -> Value {
    let core = thread.map_or(0, |thread| thread.core);
    let times = CoreTimes::of(cores, core);
    json!({
        "lcore": core,
        "numa_id": numa_node(core),
        "tid": thread.map(|thread| thread.tid),
        "busy": reactor.busy_ns,
        // The idle time is derived, because a reactor counts a sleep only after the sleep.
        "idle": elapsed_ns.saturating_sub(reactor.busy_ns),
        "in_interrupt": reactor.sleeps,
        "irq": times.irq,
        "sys": times.sys,
        "usr": times.usr,
        "lw_threads": [{
            "name": self::thread(index),
            "id": index + 1,
            "cpumask": thread.map(|thread| &thread.allowed),
            "elapsed": elapsed_ns,
        }],
    })
}

struct Thread {
    tid: u32,
    name: String,
    core: u32,
    allowed: String,
}

impl Thread {
    fn all() -> Vec<Self> {
        let folder = fs::read_dir("/proc/self/task");
        let entries = folder.into_iter().flatten().flatten();
        entries
            .filter_map(|entry| Self::read(&entry.path()))
            .collect()
    }

    fn read(folder: &Path) -> Option<Self> {
        let tid = folder.file_name()?.to_str()?.parse().ok()?;
        let stat = fs::read_to_string(folder.join("stat")).ok()?;
        let (name, core) = name_and_core(&stat)?;
        let status = fs::read_to_string(folder.join("status")).ok()?;
        let allowed = status.lines().find_map(|line| {
            let mask = line.strip_prefix("Cpus_allowed:")?.trim().replace(',', "");
            Some(mask.trim_start_matches('0').to_owned())
        })?;
        Some(Self {
            tid,
            name,
            core,
            allowed,
        })
    }
}

/// Parses `stat` of a thread (proc(5)). The name is in parentheses, and may contain parentheses.
fn name_and_core(stat: &str) -> Option<(String, u32)> {
    let (before, after) = stat.rsplit_once(") ")?;
    let (_, name) = before.split_once(" (")?;
    // The core is field 39; `after` starts at field 3.
    let core = after.split_ascii_whitespace().nth(36)?.parse().ok()?;
    Some((name.to_owned(), core))
}

#[derive(Debug, Default, PartialEq, Eq)]
struct CoreTimes {
    usr: u64,
    sys: u64,
    irq: u64,
}

impl CoreTimes {
    fn of(stat: &str, core: u32) -> Self {
        let label = format!("cpu{core}");
        let line = stat.lines().find_map(|line| {
            let (name, times) = line.split_once(' ')?;
            (name == label).then_some(times)
        });
        let times = line.unwrap_or_default().split_ascii_whitespace();
        let times: Vec<u64> = times.map(|time| time.parse().unwrap_or(0)).collect();
        let at = |index: usize| times.get(index).copied().unwrap_or(0);
        Self {
            usr: at(0),
            sys: at(2),
            irq: at(5),
        }
    }
}

fn numa_node(core: u32) -> i32 {
    let folder = fs::read_dir(format!("/sys/devices/system/cpu/cpu{core}"));
    let names = folder.into_iter().flatten().flatten();
    let mut nodes = names.filter_map(|entry| {
        let name = entry.file_name();
        name.to_str()?.strip_prefix("node")?.parse().ok()
    });
    nodes.next().unwrap_or(-1)
}

pub(super) fn scheduler() -> Value {
    json!({
        "scheduler_name": "static",
        "scheduler_period": 0,
        "isolated_core_mask": "0",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_kernel_are_found() {
        let middle = vec!["0"; 35].join(" ");
        let stat = format!("7 (odd) name) S {middle} 5 0 0");
        assert_eq!(name_and_core(&stat), Some(("odd) name".to_owned(), 5)));
        let stat = "cpu  9 9 9 9 9 9 9\ncpu1 1 2 3 4 5 6 7\ncpu11 0 0 0 0 0 0 0\n";
        let (usr, sys, irq) = (1, 3, 6);
        assert_eq!(CoreTimes::of(stat, 1), CoreTimes { usr, sys, irq });
        assert_eq!(CoreTimes::of(stat, 2), CoreTimes::default());
    }
}
