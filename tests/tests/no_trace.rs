//! After many hosts have disconnected, the process must use as many resources as before. A separate
//! executable, because the test measures the whole process.

use cairn_initiator::{Data, command};
use cairn_tests::harness::TestTarget;

#[test]
fn hosts_that_come_and_go_leave_nothing() {
    let target = TestTarget::with_namespaces(&["mem:4MiB block_size = 512"]);
    let visit = |n: u32| {
        let mut host = target.connect("a");
        let mut buffer = host.buffer(65_536).unwrap();
        let data = Data::start_of(&mut buffer, 65_536);
        host.run(command::write(1, 8, 128), data).unwrap();
        if n.is_multiple_of(3) {
            drop(host);
        } else {
            host.shutdown().unwrap();
        }
    };
    (0..20).for_each(visit);
    let before = Usage::now();
    (0..200).for_each(visit);
    let after = Usage::now();
    assert_eq!(before.descriptors, after.descriptors);
    assert_eq!(before.threads, after.threads);
    let growth = after.resident_bytes.saturating_sub(before.resident_bytes);
    assert!(growth < 4 << 20, "200 visits left {growth} bytes");
    target.stop();
}

struct Usage {
    descriptors: usize,
    threads: usize,
    resident_bytes: usize,
}

impl Usage {
    fn now() -> Self {
        let count = |path| std::fs::read_dir(path).unwrap().count();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let resident = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|rest| rest.trim().strip_suffix(" kB"))
            .unwrap();
        Self {
            descriptors: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
            resident_bytes: resident.parse::<usize>().unwrap() * 1024,
        }
    }
}
