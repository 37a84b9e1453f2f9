//! A write of a host that died, held at the disk, does not undo what its successor wrote.

use std::thread;
use std::time::{Duration, Instant};

use cairn_initiator::{Data, Host, HostError, command};
use cairn_roce::Soft;
use cairn_tests::faulty_disk::{Fault, FaultyDisk, Op, Rule};
use cairn_tests::harness::{NQN, TestTarget, subsystem};

use crate::until;

const BLOCK: usize = 4096;

/// Writes block 0 of namespace 1 full of `byte`.
fn write(host: &mut Host, byte: u8) -> Result<(), HostError> {
    let buffer = host.buffer(BLOCK).unwrap();
    buffer.write(0, &[byte; BLOCK]);
    let data = Data::start_of(&buffer, BLOCK as u32);
    host.run(1, command::write(1, 0, 1), data).map(drop)
}

fn read(host: &mut Host) -> Vec<u8> {
    let buffer = host.buffer(BLOCK).unwrap();
    let data = Data::start_of(&buffer, BLOCK as u32);
    host.run(1, command::read(1, 0, 1), data).unwrap();
    buffer.bytes(0, BLOCK)
}

#[test]
fn a_dead_hosts_write_never_lands_after_its_successors() {
    let Some(disk) = FaultyDisk::mount("stale", 1 << 20) else {
        return;
    };
    let toml = subsystem(
        NQN,
        &[&disk.export(BLOCK as u32), "mem:1MiB block_size = 4096"],
    );
    let target = TestTarget::start_on_soft(Soft::default(), &toml);
    disk.begin(Rule::new(Op::Write, Fault::Hold).times(1));

    let mut dead = target.connect("a");
    let buffer = dead.buffer(BLOCK).unwrap();
    buffer.write(0, &[1; BLOCK]);
    let data = Data::start_of(&buffer, BLOCK as u32);
    dead.submit(1, command::write(1, 0, 1), data).unwrap();
    until("the write to reach the disk", || {
        dead.poll();
        disk.waiting(Op::Write) == 1
    });
    drop(dead);

    let mut successor = target.connect("a");
    let buffer = successor.buffer(BLOCK).unwrap();
    // The hung disk does not keep the host from its other namespace.
    let data = Data::start_of(&buffer, BLOCK as u32);
    successor.run(1, command::write(2, 0, 1), data).unwrap();
    // Either the write is not done while the old one may land, or the old one never lands.
    if write(&mut successor, 2).is_ok() {
        successor.run(1, command::flush(1), Data::None).unwrap();
        assert_eq!(read(&mut successor), [2; BLOCK]);
        disk.release();
    } else {
        disk.release();
        until("the namespace to take writes again", || {
            thread::sleep(Duration::from_millis(20));
            write(&mut successor, 2).is_ok()
        });
    }
    until("all writes to end", || disk.done(Op::Write) == 2);
    // What the disk did last may be on its way to us.
    let end = Instant::now() + Duration::from_millis(200);
    while Instant::now() < end {
        assert_eq!(read(&mut successor), [2; BLOCK]);
    }
    successor.shutdown().unwrap();
    target.stop();
}
