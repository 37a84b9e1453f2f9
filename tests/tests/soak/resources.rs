//! Resources of a process: descriptors, threads, memory and, for a target, gauges.

use std::fs;

use cairn_tests::process::TargetProcess;

/// Permitted growth of resident memory in bytes. The allocator and the kernel keep memory that was
/// used once.
const MEMORY_SLACK: u64 = 48 << 20;

/// Permitted number of idle threads in thread pools.
const IDLE_THREADS: usize = 4;

/// Resources of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resources {
    descriptors: usize,
    threads: usize,
    /// Gauges of the target's reactors and subsystems.
    gauges: Vec<(&'static str, u64)>,
    resident_bytes: u64,
}

/// Gauges that depend only on the connected, idle hosts.
const GAUGES: [&str; 4] = [
    "cairn_reactor_requests",
    "cairn_reactor_buffer_used_bytes",
    "cairn_reactor_queue_pairs",
    "cairn_subsystem_controllers",
];

impl Resources {
    pub(crate) fn of_target(target: &TargetProcess) -> Self {
        let page = target.scrape();
        let gauges = GAUGES.map(|name| (name, page.count(name, &[])));
        Self {
            gauges: gauges.to_vec(),
            ..Self::of_process(&target.pid().to_string())
        }
    }

    /// Reads the resources of a process from its folder in /proc.
    pub(crate) fn of_process(pid: &str) -> Self {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
        // Exclude io_uring workers. The kernel starts and ends them.
        let names = tasks.flatten().filter_map(|task| {
            let name = fs::read_to_string(task.path().join("comm"));
            name.ok().filter(|name| !name.starts_with("iou-"))
        });
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let resident = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"))
            .and_then(|kib| kib.parse::<u64>().ok());
        Self {
            descriptors: descriptors.count(),
            threads: names.count(),
            gauges: Vec::new(),
            resident_bytes: resident.expect("a process has memory") * 1024,
        }
    }

    /// Returns true if no host uses the target.
    pub(crate) fn is_idle(&self) -> bool {
        self.gauges.iter().all(|(_, value)| *value == 0)
    }

    /// Returns true if the resources are back at the earlier level. Memory may grow within bounds.
    pub(crate) fn is_back_at(&self, before: &Self) -> bool {
        let Self {
            descriptors,
            threads,
            ref gauges,
            resident_bytes,
        } = *self;
        descriptors <= before.descriptors
            && threads <= before.threads + IDLE_THREADS
            && *gauges == before.gauges
            && resident_bytes <= before.resident_bytes + MEMORY_SLACK
    }
}
