use cairn_initiator::{Data, Host, HostError, command};
use cairn_roce::Soft;
use cairn_tests::faulty_disk::{Fault, FaultyDisk, Op, Rule};
use cairn_tests::harness::{NQN, TestTarget, subsystem};
use nvme_proto::wire::Status;

use crate::smart;

fn write(host: &mut Host) -> Result<(), HostError> {
    let mut buffer = host.buffer(4096)?;
    let data = Data::start_of(&mut buffer, 4096);
    host.run(command::write(1, 0, 1), data).map(drop)
}

#[test]
fn a_disk_without_space_says_so_until_it_has_some() {
    let Some(disk) = FaultyDisk::mount("full", 1 << 20) else {
        return;
    };
    let toml = subsystem(NQN, &[&disk.export(4096)]);
    let target = TestTarget::start_on_soft(Soft::default(), &toml);
    let mut host = target.connect("one");
    for errno in [libc::ENOSPC, libc::EDQUOT] {
        disk.begin(Rule::new(Op::Write, Fault::Fail(errno)).times(1));
        let Err(HostError::Status { status, .. }) = write(&mut host) else {
            panic!("the disk has no space");
        };
        assert_eq!(status.code(), Status::CAPACITY_EXCEEDED);
        write(&mut host).unwrap();
        host.run(command::flush(1), Data::None).unwrap();
    }
    assert_eq!(smart(&mut host).media_errors.get(), 0);
    disk.begin(Rule::new(Op::Write, Fault::Fail(libc::EIO)).times(1));
    write(&mut host).unwrap_err();
    assert_eq!(smart(&mut host).media_errors.get(), 1);
    drop(host);
    target.stop();
}
