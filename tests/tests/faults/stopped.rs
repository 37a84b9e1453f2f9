use std::thread;
use std::time::Duration;

use cairn_initiator::{Data, Host, command};
use cairn_roce::Soft;
use cairn_tests::faulty_disk::{Fault, FaultyDisk, Nature, Op, Rule};
use cairn_tests::harness::{Scratch, namespace};
use cairn_tests::process::TargetProcess;

use crate::until;

const BLOCK: usize = 4096;
const DISK_BYTES: u64 = 1 << 20;
const COUNT: u64 = 40;

fn in_progress(target: &TargetProcess) -> u64 {
    target.scrape().count("cairn_namespace_in_progress", &[])
}

/// Checks that a stopped target does not execute old writes when it continues, because the host may
/// have resent them on another path.
fn stop_with(name: &str, change: impl Fn(&mut Host, u64), op: Op) {
    let Some(disk) = FaultyDisk::mount_as(Nature::FileSystem, name, DISK_BYTES) else {
        return;
    };
    let target = TargetProcess::start(1, &namespace(1, &disk.export(BLOCK as u32)));
    let mut host = Host::connect(&Soft::default(), target.options("stopped")).unwrap();
    change(&mut host, 0);
    until("the first change", || {
        host.poll();
        disk.done(op) == 1 && in_progress(&target) == 0
    });
    disk.begin(Rule::new(op, Fault::Hold));
    for lba in 0..COUNT {
        change(&mut host, lba);
    }
    until("the target to have all of them", || {
        host.poll();
        in_progress(&target) == COUNT && disk.waiting(op) > 0
    });
    target.pause();
    until("its threads to stop", || target.is_stopped());
    disk.heal();
    thread::sleep(Duration::from_millis(2500));
    let (done, bytes) = (disk.done(op), disk.bytes(0, DISK_BYTES as usize));
    assert!(done < COUNT, "all had reached the disk");
    target.go_on();
    until("the target to give them up", || in_progress(&target) == 0);
    assert_eq!(disk.done(op), done, "stale changes");
    assert!(bytes == disk.bytes(0, DISK_BYTES as usize), "stale bytes");
}

#[test]
fn writes_that_wait_for_a_disk_are_not_made_after_a_stop() {
    let write = |host: &mut Host, lba| {
        let mut buffer = host.buffer(BLOCK).unwrap();
        buffer.write(0, &[7; BLOCK]);
        let data = Data::whole(buffer);
        host.submit(command::write(1, lba, 1), data).unwrap();
    };
    stop_with("stopped-writes", write, Op::Write);
}

#[test]
fn zeroing_that_waits_for_a_disk_is_not_done_after_a_stop() {
    let zero = |host: &mut Host, lba| {
        let zero = command::write_zeroes(1, lba, 1, false);
        host.submit(zero, Data::None).unwrap();
    };
    stop_with("stopped-zeroing", zero, Op::Allocate);
}

fn threads(pid: u32) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let name = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("comm"));
    let names = threads.flatten().filter_map(|thread| name(thread).ok());
    names.map(|name| name.trim_end().to_owned()).collect()
}

#[test]
fn no_change_of_a_file_goes_to_a_worker_of_the_kernel() {
    let holes = Scratch::new("holes", DISK_BYTES);
    changes_go_to_own_threads(&holes.export(BLOCK as u32));
}

fn changes_go_to_own_threads(export: &str) {
    let target = TargetProcess::start(1, &namespace(1, export));
    let mut host = Host::connect(&Soft::default(), target.options("ways")).unwrap();
    let mut buffer = host.buffer(BLOCK).unwrap();
    buffer.write(0, &[7; BLOCK]);
    for lba in (0..DISK_BYTES / BLOCK as u64).step_by(2) {
        let data = Data::whole(&mut buffer);
        host.run(command::write(1, lba, 1), data).unwrap();
    }
    let zero = command::write_zeroes(1, 0, 8, false);
    host.run(zero, Data::None).unwrap();
    let names = threads(target.pid());
    let is_kernels = |name: &&String| name.starts_with("iou-wrk");
    assert_eq!(names.iter().find(is_kernels), None, "{names:?}");
    assert!(names.iter().any(|name| name == "worker"), "{names:?}");
    host.shutdown().unwrap();
}

#[test]
fn nor_does_one_of_a_file_on_fuse() {
    for nature in [Nature::Disk, Nature::FileSystem] {
        let Some(disk) = FaultyDisk::mount_as(nature, "stopped-ways", DISK_BYTES) else {
            return;
        };
        changes_go_to_own_threads(&disk.export(BLOCK as u32));
    }
}
