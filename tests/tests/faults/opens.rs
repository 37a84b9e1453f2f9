use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cairn_initiator::{Data, Host, command};
use cairn_roce::Soft;
use cairn_tests::faulty_disk::{Fault, FaultyDisk, Op, Rule};
use cairn_tests::harness::{NQN, Scratch, namespace, own_loopback_address};
use cairn_tests::process::{TargetProcess, program, signal};
use rustix::process::Signal;

use crate::{smart, until};

const END: Duration = Duration::from_millis(22_500);

fn is_served(host: &mut Host, nsid: u32) -> bool {
    host.run(command::flush(nsid), Data::None).is_ok()
}

fn held_now(target: &TargetProcess) -> [usize; 2] {
    let entries = |name| {
        let folder = format!("/proc/{}/{name}", target.pid());
        std::fs::read_dir(folder).unwrap().flatten()
    };
    let is_tokios = |thread: &std::fs::DirEntry| {
        let name = std::fs::read_to_string(thread.path().join("comm"));
        name.is_ok_and(|name| name.starts_with("tokio"))
    };
    let threads = entries("task").filter(|thread| !is_tokios(thread)).count();
    [entries("fd").count(), threads]
}

/// Returns the lowest numbers of open files and threads during one second. A target briefly uses
/// more, for example to query a disk.
fn held(target: &TargetProcess) -> [usize; 2] {
    let least = |[files, threads]: [usize; 2], now: [usize; 2]| {
        thread::sleep(Duration::from_millis(50));
        [files.min(now[0]), threads.min(now[1])]
    };
    let looks = std::iter::repeat_with(|| held_now(target)).take(20);
    looks.fold([usize::MAX; 2], least)
}

#[test]
fn a_disk_that_opens_late_is_left_out_and_closed() {
    let Some(disk) = FaultyDisk::mount("late", 1 << 20) else {
        return;
    };
    let healthy = Scratch::new("late", 1 << 20);
    let first = namespace(1, &healthy.export(4096));
    let late = namespace(2, &disk.export(4096));
    let mut target = TargetProcess::start(1, &first);
    let mut host = Host::connect(&Soft::default(), target.options("a")).unwrap();
    let before = held(&target);
    disk.begin(Rule::new(Op::Open, Fault::Hold));
    target.reload(&(first.clone() + &late));
    disk.wait_until_waiting(Op::Open, 1);
    for nsid in [3, 4] {
        target.reload(&(first.clone() + &late + &namespace(nsid, "mem:1MiB")));
        until("the next reload", || is_served(&mut host, nsid));
        assert!(!is_served(&mut host, 2), "its disk has not opened");
        assert_eq!(disk.waiting(Op::Open), 1);
    }
    target.reload(&(first.clone() + &namespace(5, "mem:1MiB")));
    until("the next reload", || is_served(&mut host, 5));
    until("one thread to wait for the disk", || {
        let [files, threads] = held(&target);
        threads == before[1] + 1 && files <= before[0] + 1
    });
    disk.heal();
    until("all to be given back", || held(&target) == before);
    target.reload(&(first + &late));
    until("the disk to be served", || is_served(&mut host, 2));
    assert!(target.runs());
}

#[test]
fn a_disk_that_opens_late_at_the_place_of_another_is_missing_until_it_has() {
    let Some(disk) = FaultyDisk::mount("late-other", 1 << 20) else {
        return;
    };
    let former = Scratch::new("late-former", 1 << 20);
    let mut target = TargetProcess::start(1, &namespace(1, &former.export(4096)));
    let mut host = Host::connect(&Soft::default(), target.options("a")).unwrap();
    disk.begin(Rule::new(Op::Open, Fault::Hold));
    target.reload(&(namespace(1, &disk.export(4096)) + &namespace(2, "mem:1MiB")));
    disk.wait_until_waiting(Op::Open, 1);
    assert!(is_served(&mut host, 1), "the former one, meanwhile");
    until("the reload", || is_served(&mut host, 2));
    assert!(!is_served(&mut host, 1), "neither");
    disk.heal();
    until("the new disk to be served", || is_served(&mut host, 1));
    assert!(target.runs());
}

#[test]
fn a_size_that_is_not_reported_does_not_hide_another_file_that_is_cut() {
    let Some(disk) = FaultyDisk::mount("unseen", 1 << 20) else {
        return;
    };
    let healthy = Scratch::new("unseen", 1 << 20);
    let both = namespace(1, &disk.export(4096)) + &namespace(2, &healthy.export(4096));
    let target = TargetProcess::start(1, &both);
    disk.begin(Rule::new(Op::Look, Fault::Hold));
    disk.wait_until_waiting(Op::Look, 1);
    let mut host = Host::connect(&Soft::default(), target.options("a")).unwrap();
    let file = std::fs::File::options().write(true).open(healthy.path());
    file.unwrap().set_len(4096).unwrap();
    until("SMART's word for it", || {
        smart(&mut host).critical_warning != 0
    });
    assert_eq!(disk.waiting(Op::Look), 1, "and no thread more waits there");
    disk.heal();
}

#[test]
fn of_two_reloads_during_a_third_the_last_counts() {
    let Some(disk) = FaultyDisk::mount("reloads", 1 << 20) else {
        return;
    };
    let first = namespace(1, "mem:1MiB");
    let mut target = TargetProcess::start(1, &first);
    let mut host = Host::connect(&Soft::default(), target.options("a")).unwrap();
    disk.begin(Rule::new(Op::Open, Fault::Hold));
    target.reload(&(first.clone() + &namespace(2, &disk.export(4096))));
    disk.wait_until_waiting(Op::Open, 1);
    target.reload(&(first.clone() + &namespace(3, "mem:1MiB")));
    target.reload(&(first + &namespace(4, "mem:1MiB")));
    assert!(!is_served(&mut host, 4), "the first has not ended");
    disk.heal();
    until("the last reload", || is_served(&mut host, 4));
    assert!(!is_served(&mut host, 2));
    assert!(!is_served(&mut host, 3));
    assert!(target.runs());
}

#[test]
fn sigterm_ends_a_target_whose_disk_does_not_open() {
    let Some(disk) = FaultyDisk::mount("unopened", 1 << 20) else {
        return;
    };
    let first = namespace(1, "mem:1MiB");
    let mut target = TargetProcess::start(1, &first);
    let host = Host::connect(&Soft::default(), target.options("a")).unwrap();
    disk.begin(Rule::new(Op::Open, Fault::HoldUntilInterrupted));
    target.reload(&(first + &namespace(2, &disk.export(4096))));
    disk.wait_until_waiting(Op::Open, 1);
    let ended = target.terminate(END);
    disk.heal();
    let status = ended.unwrap_or_else(|| panic!("it has not ended after {END:?}"));
    assert!(status.success(), "{status}");
    drop(host);
}

#[test]
fn sizes_that_are_not_reported_and_files_that_do_not_close_hold_up_nothing() {
    let Some(disk) = FaultyDisk::mount("unclosed", 1 << 20) else {
        return;
    };
    let first = namespace(1, "mem:1MiB");
    let slow = namespace(2, &disk.export(4096));
    let mut target = TargetProcess::start(1, &(first.clone() + &slow));
    let mut host = Host::connect(&Soft::default(), target.options("a")).unwrap();
    assert!(is_served(&mut host, 2));
    disk.begin(Rule::new(Op::Look, Fault::Hold));
    target.reload(&(first.clone() + &slow + &namespace(3, "mem:1MiB")));
    disk.wait_until_waiting(Op::Look, 1);
    until("the reload", || {
        drop(Host::connect(&Soft::default(), target.options("b")).unwrap());
        is_served(&mut host, 3)
    });
    disk.heal();
    assert!(is_served(&mut host, 2), "it stays as it was");
    // The fault applies once: the process closes the file again when it ends, and no signal can
    // interrupt that close.
    disk.begin(Rule::new(Op::Close, Fault::HoldUntilInterrupted).times(1));
    target.reload(&first);
    disk.wait_until_waiting(Op::Close, 1);
    until("the reload", || !is_served(&mut host, 2));
    target.reload(&(first + &namespace(4, "mem:1MiB")));
    until("the next reload", || is_served(&mut host, 4));
    host.shutdown().unwrap();
    let ended = target.terminate(END);
    disk.heal();
    assert!(ended.is_some(), "it has not ended after {END:?}");
}

#[test]
fn a_flush_that_hangs_takes_one_thread_and_none_after_its_disk_is_removed() {
    let Some(disk) = FaultyDisk::mount("unflushed", 1 << 20) else {
        return;
    };
    let first = namespace(1, "mem:1MiB");
    let mut target = TargetProcess::start(1, &(first.clone() + &namespace(2, &disk.export(4096))));
    let [_, before] = held(&target);
    disk.begin(Rule::new(Op::Sync, Fault::HoldUntilInterrupted));
    for number in 0..24 {
        let options = target.options(&format!("leaves-{number}"));
        let mut host = Host::connect(&Soft::default(), options)
            .unwrap()
            .into_controller();
        host.shutdown();
        let enough = Instant::now() + Duration::from_millis(100);
        until("the flush to reach the disk", || {
            host.poll(Instant::now());
            disk.waiting(Op::Sync) > 0 && Instant::now() > enough
        });
    }
    until("at most two threads more", || {
        held(&target)[1] <= before + 2
    });
    target.reload(&(first + &namespace(3, "mem:1MiB")));
    let mut host = Host::connect(&Soft::default(), target.options("stays")).unwrap();
    until("the reload", || is_served(&mut host, 3));
    host.shutdown().unwrap();
    let ended = target.terminate(END);
    disk.heal();
    assert!(ended.is_some(), "it has not ended after {END:?}");
}

#[test]
fn a_failed_disk_that_hangs_when_it_is_tried_again_takes_one_thread() {
    let Some(disk) = FaultyDisk::mount("tried", 1 << 20) else {
        return;
    };
    let first = namespace(1, "mem:1MiB") + &namespace(2, &disk.export(4096));
    let mut target = TargetProcess::start(1, &first);
    let mut host = Host::connect(&Soft::default(), target.options("a")).unwrap();
    disk.begin(Rule::new(Op::Sync, Fault::Fail(libc::EIO)).times(1));
    assert!(!is_served(&mut host, 2));
    disk.begin(Rule::new(Op::Sync, Fault::Hold));
    let [_, before] = held(&target);
    for nsid in 3..9 {
        target.reload(&(first.clone() + &namespace(nsid, "mem:1MiB")));
        until("the reload", || is_served(&mut host, nsid));
    }
    disk.wait_until_waiting(Op::Sync, 1);
    until("at most two threads more", || {
        held(&target)[1] <= before + 2
    });
    disk.heal();
    until("the disk to be served", || is_served(&mut host, 2));
    assert!(target.runs());
}

fn start_in_vain(disk: &FaultyDisk, end: Option<Signal>) -> (bool, String) {
    disk.begin(Rule::new(Op::Open, Fault::HoldUntilInterrupted));
    let mut child = Command::new(program("cairn-target-process"))
        .args(["serve", "--provider", "soft", "--reactors", "1", "--nqn"])
        .args([NQN, "--listen", &own_loopback_address().to_string()])
        .arg("--export")
        .arg(disk.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    disk.wait_until_waiting(Op::Open, 1);
    if let Some(end) = end {
        signal(&child, end);
    }
    let deadline = Instant::now() + END;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() >= deadline {
            disk.heal();
            let _ = child.kill();
            panic!("it has not ended after {END:?}");
        }
        thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), said)
}

#[test]
fn a_target_whose_disk_does_not_open_says_so_and_ends() {
    let Some(disk) = FaultyDisk::mount("start", 1 << 20) else {
        return;
    };
    let (has_started, said) = start_in_vain(&disk, None);
    assert!(!has_started);
    assert!(said.contains("seconds for a disk to respond"), "{said}");
    let path = disk.path().display();
    let error = format!("{path} has not opened for 10 seconds: look in");
    assert!(said.contains(&error), "{said}");
}

#[test]
fn sigterm_ends_a_target_that_waits_for_its_disk_to_start() {
    let Some(disk) = FaultyDisk::mount("stop", 1 << 20) else {
        return;
    };
    let (ended_well, said) = start_in_vain(&disk, Some(Signal::TERM));
    assert!(ended_well, "{said}");
}
