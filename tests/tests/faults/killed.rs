use std::time::Duration;

use cairn_initiator::{Data, Host, HostError, HostOptions, Recovery, command};
use cairn_roce::Soft;
use cairn_tests::faulty_disk::{Fault, FaultyDisk, Op, Rule};
use cairn_tests::process::TargetProcess;

use crate::freezer::Freezer;
use crate::until;

const BLOCK: usize = 4096;

struct File {
    system: Freezer,
    disk: FaultyDisk,
}

impl Drop for File {
    fn drop(&mut self) {
        self.disk.heal();
    }
}

fn connect(target: &TargetProcess) -> Host {
    let options = HostOptions {
        kato_ms: 30_000,
        recovery: Recovery::NONE,
        ..target.options("host")
    };
    Host::connect(&Soft::default(), options).unwrap()
}

fn write(host: &mut Host, byte: u8) -> Result<(), HostError> {
    let block = [byte; BLOCK];
    let data = Data::InCapsule(&block);
    host.run(command::write(1, 0, 1), data).map(drop)
}

fn assert_reads_two(host: &mut Host) {
    let mut buffer = host.buffer(BLOCK).unwrap();
    let data = Data::start_of(&mut buffer, BLOCK as u32);
    host.run(command::read(1, 0, 1), data).unwrap();
    assert_eq!(buffer.bytes(0, BLOCK), [2; BLOCK]);
}

fn its_write_does_not_land(name: &str, end: impl FnOnce(&mut TargetProcess)) {
    let Some(disk) = FaultyDisk::mount(name, 32 << 20) else {
        return;
    };
    let Some(system) = Freezer::mount_on(disk.path()) else {
        return;
    };
    let file = File { system, disk };
    let (path, block_size) = file.system.disk.split_once(' ').expect("a block size");
    let namespace =
        format!("[[subsystem.namespace]]\nnsid = 1\nexport = \"{path}\"\n{block_size}\n");
    let mut first = TargetProcess::start(1, &namespace);
    let mut host = connect(&first);
    write(&mut host, 9).unwrap();
    file.system.sync();
    file.disk.begin(Rule::new(Op::Write, Fault::Hold).times(1));
    let data = Data::InCapsule(&[1; BLOCK]);
    host.submit(command::write(1, 0, 1), data).unwrap();
    until("the write to reach the disk", || {
        host.poll();
        file.disk.waiting(Op::Write) == 1
    });
    end(&mut first);
    drop(host);

    let second = TargetProcess::start(2, &namespace);
    let mut host = connect(&second);
    if write(&mut host, 2).is_ok() {
        host.run(command::flush(1), Data::None).unwrap();
        assert_reads_two(&mut host);
        file.disk.release();
    } else {
        assert_eq!(file.disk.waiting(Op::Write), 1, "nothing keeps the disk");
        file.disk.release();
        until("the namespace to be there", || {
            std::thread::sleep(Duration::from_millis(20));
            write(&mut host, 2).is_ok()
        });
    }
    until("the old write to end", || file.disk.waiting(Op::Write) == 0);
    file.system.sync();
    assert_reads_two(&mut host);
    host.shutdown().unwrap();
}

#[test]
fn a_killed_targets_write_does_not_land_over_those_of_the_next() {
    its_write_does_not_land("killed", TargetProcess::kill);
}

#[test]
fn a_terminated_targets_write_does_not_land_over_those_of_the_next() {
    its_write_does_not_land("terminated", |target| {
        let ended = target.terminate(Duration::from_secs(60));
        assert!(ended.is_some(), "it waits for the disk");
    });
}
