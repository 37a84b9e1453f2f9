//! A failed flush loses data, so later flushes must also fail.

use cairn_initiator::{Data, Host, HostError, command};
use cairn_roce::Soft;
use cairn_tests::faulty_disk::{Fault, FaultyDisk, Op, Rule};
use cairn_tests::harness::{NQN, TestTarget, subsystem};

fn flush(host: &mut Host) -> Result<(), HostError> {
    host.run(command::flush(1), Data::None).map(drop)
}

#[test]
fn a_failed_flush_stays_failed_for_all_hosts() {
    let Some(disk) = FaultyDisk::mount("sync", 1 << 20) else {
        return;
    };
    let toml = subsystem(NQN, &[&disk.export(4096)]);
    let target = TestTarget::start_on_soft(Soft::default(), &toml);
    let (mut one, mut other) = (target.connect("one"), target.connect("other"));
    flush(&mut one).unwrap();
    disk.begin(Rule::new(Op::Sync, Fault::Fail(libc::EIO)).times(1));
    flush(&mut one).unwrap_err();
    for _ in 0..3 {
        flush(&mut one).unwrap_err();
        flush(&mut other).unwrap_err();
    }
    flush(&mut target.connect("third")).unwrap_err();
    drop((one, other));
    target.stop();
}
