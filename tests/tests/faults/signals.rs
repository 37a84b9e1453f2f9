use std::time::{Duration, Instant};

use cairn_initiator::{Data, Host, command};
use cairn_roce::Soft;
use cairn_tests::faulty_disk::{Fault, FaultyDisk, Op, Rule};
use cairn_tests::harness::{Scratch, namespace};
use cairn_tests::process::TargetProcess;

use crate::until;

const END: Duration = Duration::from_secs(70);

#[test]
fn sigterm_ends_a_target_whose_disk_hangs() {
    let Some(disk) = FaultyDisk::mount("sigterm", 1 << 20) else {
        return;
    };
    let mut target = TargetProcess::start(1, &namespace(1, &disk.export(4096)));
    disk.begin(Rule::new(Op::Sync, Fault::HoldUntilInterrupted));
    let mut host = Host::connect(&Soft::default(), target.options("a")).unwrap();
    host.submit(command::flush(1), Data::None).unwrap();
    until("the flush to reach the disk", || {
        host.poll();
        disk.waiting(Op::Sync) == 1
    });
    let ended = target.terminate(END);
    disk.heal();
    assert!(ended.is_some(), "it has not ended after {END:?}");
}

#[test]
fn sigterm_ends_a_target_that_flushes_for_a_host_in_vain() {
    let Some(disk) = FaultyDisk::mount("shutdown", 1 << 20) else {
        return;
    };
    let mut target = TargetProcess::start(1, &namespace(1, &disk.export(4096)));
    disk.begin(Rule::new(Op::Sync, Fault::HoldUntilInterrupted));
    let mut host = Host::connect(&Soft::default(), target.options("a")).unwrap();
    let mut buffer = host.buffer(4096).unwrap();
    let data = Data::start_of(&mut buffer, 4096);
    host.run(command::write(1, 0, 1), data).unwrap();
    let mut host = host.into_controller();
    host.shutdown();
    until("the flush to reach the disk", || {
        host.poll(Instant::now());
        disk.waiting(Op::Sync) == 1
    });
    let ended = target.terminate(END);
    disk.heal();
    assert!(ended.is_some(), "it has not ended after {END:?}");
}

#[test]
fn sighup_with_a_disk_that_does_not_open_leaves_all_hosts_connected() {
    let Some(disk) = FaultyDisk::mount("sighup", 1 << 20) else {
        return;
    };
    let healthy = Scratch::new("sighup", 1 << 20);
    let first = namespace(1, &healthy.export(4096));
    let mut target = TargetProcess::start(1, &first);
    let mut host = Host::connect(&Soft::default(), target.options("a")).unwrap();
    disk.begin(Rule::new(Op::Open, Fault::Hold));
    target.reload(&(first + &namespace(2, &disk.export(4096))));
    disk.wait_until_waiting(Op::Open, 1);
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        host.run(command::flush(1), Data::None).unwrap();
        let late = Host::connect(&Soft::default(), target.options("late")).unwrap();
        late.shutdown().unwrap();
    }
    let associations = |target: &TargetProcess| {
        let page = target.scrape();
        page.count("cairn_subsystem_controllers", &[])
    };
    let silent = Host::connect(&Soft::default(), target.options("silent")).unwrap();
    assert_eq!(associations(&target), 2);
    until("a silent host's end", || {
        let _ = host.run(command::flush(1), Data::None);
        associations(&target) == 1
    });
    drop(silent);
    disk.heal();
    host.run(command::flush(1), Data::None).unwrap();
    assert!(target.runs());
}
