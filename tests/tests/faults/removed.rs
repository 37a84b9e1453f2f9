use cairn_initiator::{Data, Host, HostError, HostOptions, Recovery, Ticket, command};
use cairn_roce::Soft;
use cairn_tests::faulty_disk::{Fault, FaultyDisk, Op, Rule};
use cairn_tests::harness::{NQN, TestTarget, own_loopback_address, subsystem};
use nvme_proto::wire::Status;

use crate::until;

fn two_listeners(disk: &FaultyDisk) -> (TestTarget, [Host; 2], String) {
    let toml = subsystem(NQN, &[&disk.export(4096), "mem:1MiB"]);
    let second = own_loopback_address();
    let lines = format!("[[listener]]\naddress = \"{second}\"\n");
    let target = TestTarget::start_on_soft_as(Soft::default(), &toml, &lines);
    let options = target.options("stays");
    let stays = target.try_connect(options.clone()).unwrap();
    let goes = HostOptions {
        remote: (second, options.remote.port()).into(),
        recovery: Recovery::NONE,
        ..target.options("goes")
    };
    let goes = target.try_connect(goes).unwrap();
    (target, [stays, goes], toml)
}

fn flush(host: &mut Host, nsid: u32) -> Result<(), HostError> {
    host.run(command::flush(nsid), Data::None).map(drop)
}

fn begin_write(host: &mut Host, disk: &FaultyDisk) -> Ticket {
    disk.begin(Rule::new(Op::Write, Fault::Hold).times(1));
    let mut buffer = host.buffer(4096).unwrap();
    buffer.write(0, &[7; 4096]);
    let data = Data::whole(buffer);
    let write = host.submit(command::write(1, 0, 1), data).unwrap();
    until("the write to reach the disk", || {
        host.poll();
        disk.waiting(Op::Write) == 1
    });
    write
}

fn assert_inaccessible(refused: &Result<(), HostError>) {
    let Err(HostError::Status { status, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(status.code(), Status::ANA_INACCESSIBLE);
    assert!(!status.dnr(), "another path works");
}

#[test]
fn commands_under_way_are_answered_before_their_host_is_disconnected() {
    let Some(disk) = FaultyDisk::mount("leaving", 1 << 20) else {
        return;
    };
    let (target, [mut stays, mut goes], toml) = two_listeners(&disk);
    let write = begin_write(&mut goes, &disk);
    target.reload(&toml);
    assert_inaccessible(&flush(&mut goes, 2));
    disk.heal();
    goes.wait(write).answer.unwrap();
    until("the end", || {
        goes.poll();
        !goes.is_live()
    });
    assert_eq!(disk.bytes(0, 4096), [7; 4096]);
    flush(&mut stays, 1).unwrap();
    stays.shutdown().unwrap();
    target.stop();
}

#[test]
fn a_disk_that_hangs_does_not_keep_a_removed_listeners_hosts() {
    let Some(disk) = FaultyDisk::mount("kept", 1 << 20) else {
        return;
    };
    let (target, [mut stays, mut goes], toml) = two_listeners(&disk);
    begin_write(&mut goes, &disk);
    target.reload(&toml);
    assert_inaccessible(&flush(&mut goes, 2));
    until("the end", || {
        goes.poll();
        flush(&mut stays, 2).unwrap();
        !goes.is_live()
    });
    assert_eq!(disk.waiting(Op::Write), 1);
    disk.heal();
    flush(&mut stays, 1).unwrap();
    stays.shutdown().unwrap();
    target.stop();
}
