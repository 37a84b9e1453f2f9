//! Resources of a process: descriptors, threads, memory, and gauges of a target.

use std::fs;

use cairn_tests::process::TargetProcess;

/// Permitted growth of resident memory in bytes: allocator and kernel keep some freed memory.
const MEMORY_SLACK: u64 = 48 << 20;

const IDLE_THREADS: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resources {
    descriptors: usize,
    threads: usize,
    gauges: Vec<(&'static str, u64)>,
    resident_bytes: u64,
}

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

    pub(crate) fn of_process(pid: &str) -> Self {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
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

    pub(crate) fn is_idle(&self) -> bool {
        self.gauges.iter().all(|(_, value)| *value == 0)
    }

    pub(crate) fn is_back_at(&self, before: &Self) -> bool {
        self.more_than(before).is_empty()
    }

    pub(crate) fn more_than(&self, before: &Self) -> Vec<&'static str> {
        let own = [
            ("descriptors", self.descriptors <= before.descriptors),
            ("threads", self.threads <= before.threads + IDLE_THREADS),
            (
                "resident_bytes",
                self.resident_bytes <= before.resident_bytes + MEMORY_SLACK,
            ),
        ];
        let gauges = self.gauges.iter().zip(&before.gauges);
        let gauges = gauges.map(|(now, before)| (now.0, now.1 == before.1));
        let all = own.into_iter().chain(gauges);
        all.filter(|(_, is_back)| !is_back)
            .map(|(name, _)| name)
            .collect()
    }
}
