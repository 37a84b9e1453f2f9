use std::time::{Duration, Instant};

use cairn_initiator::{Data, command};
use cairn_tests::faulty_disk::{Fault, FaultyDisk, Nature, Op, Rule};
use cairn_tests::harness::{METRICS, NQN, TestTarget, subsystem};

use crate::until;

const BOUND: Duration = Duration::from_secs(75);

#[test]
fn an_audit_log_whose_disk_hangs_holds_up_no_host_and_no_end() {
    let Some(disk) = FaultyDisk::mount_as(Nature::FileSystem, "audit", 4096) else {
        return;
    };
    disk.begin(Rule::new(Op::Read, Fault::Hold));
    let path = disk.path().display();
    let audit = format!("[audit]\nfile = \"{path}\"\n");
    let target = TestTarget::start(&(METRICS.to_owned() + &audit + &subsystem(NQN, &["mem:1MiB"])));
    disk.wait_until_waiting(Op::Read, 1);
    let missing = || target.scrape().count("cairn_missing", &[("kind", "audit")]);
    until("a trouble of the audit log", || {
        let mut host = target.connect("a");
        let last = host.io_queues().last().unwrap();
        let ticket = host.submit_on(last, command::flush(1), Data::None).unwrap();
        let answer = host.wait(ticket).answer.unwrap();
        assert!(answer.cqe.status().is_success());
        missing() == 1
    });
    let begun = Instant::now();
    target.stop();
    assert!(begun.elapsed() < BOUND);
    disk.heal();
}
