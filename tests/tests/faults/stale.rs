use std::time::{Duration, Instant};

use cairn_initiator::{Data, Host, Ticket, command};
use cairn_roce::Soft;
use cairn_tests::faulty_disk::{Fault, FaultyDisk, Op, Rule};
use cairn_tests::harness::{NQN, TestTarget, subsystem};

use crate::until;

const BLOCK: usize = 4096;

fn write(host: &mut Host, nsid: u32, byte: u8) -> Ticket {
    let mut buffer = host.buffer(BLOCK).unwrap();
    buffer.write(0, &[byte; BLOCK]);
    let data = Data::whole(buffer);
    host.submit(command::write(nsid, 0, 1), data).unwrap()
}

fn read(host: &mut Host) -> Vec<u8> {
    let mut buffer = host.buffer(BLOCK).unwrap();
    let data = Data::whole(&mut buffer);
    host.run(command::read(1, 0, 1), data).unwrap();
    buffer.bytes(0, BLOCK)
}

fn a_held_write_lands_first(has_path: bool) {
    let Some(disk) = FaultyDisk::mount("stale", 1 << 20) else {
        return;
    };
    let toml = subsystem(
        NQN,
        &[&disk.export(BLOCK as u32), "mem:1MiB block_size = 4096"],
    );
    let target = TestTarget::start_on_soft(Soft::default(), &toml);
    disk.begin(Rule::new(Op::Write, Fault::Hold).times(1));

    let second = has_path.then(|| target.connect("a"));
    let mut first = target.connect("a");
    write(&mut first, 1, 1);
    until("the write to reach the disk", || {
        first.poll();
        disk.waiting(Op::Write) == 1
    });
    drop(first);

    let mut second = second.unwrap_or_else(|| target.connect("a"));
    let again = write(&mut second, 1, 1);
    let other = write(&mut second, 2, 2);
    assert!(second.wait(other).answer.unwrap().cqe.status().is_success());
    let end = Instant::now() + Duration::from_millis(300);
    while Instant::now() < end {
        second.poll();
    }
    assert_eq!(disk.done(Op::Write), 0, "the disk has an older one");
    disk.release();
    assert!(second.wait(again).answer.unwrap().cqe.status().is_success());
    let newer = write(&mut second, 1, 2);
    assert!(second.wait(newer).answer.unwrap().cqe.status().is_success());
    second.run(command::flush(1), Data::None).unwrap();
    until("all writes to end", || disk.done(Op::Write) == 3);
    let end = Instant::now() + Duration::from_millis(200);
    while Instant::now() < end {
        assert_eq!(read(&mut second), [2; BLOCK]);
    }
    second.shutdown().unwrap();
    target.stop();
}

#[test]
fn a_dead_hosts_write_never_lands_after_its_successors() {
    a_held_write_lands_first(false);
}

#[test]
fn a_lost_paths_write_never_lands_after_newer_ones_by_another_path() {
    a_held_write_lands_first(true);
}
