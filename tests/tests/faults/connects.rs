use cairn_initiator::{Data, command};
use cairn_roce::Soft;
use cairn_tests::faulty_disk::{Fault, FaultyDisk, Op, Rule};
use cairn_tests::harness::{NQN, TestTarget, namespace};

use crate::until;

const BLOCK: usize = 4096;

#[test]
fn ids_are_used_again_only_when_all_of_the_old_one_is_gone() {
    let Some(disk) = FaultyDisk::mount("ids", 1 << 20) else {
        return;
    };
    let toml = format!(
        "[[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\ncontroller_ids = \"1-4\"\n{}{}",
        namespace(1, &disk.export(4096)),
        namespace(2, "mem:1MiB")
    );
    let target = TestTarget::start_on_soft(Soft::default(), &toml);
    disk.begin(Rule::new(Op::Write, Fault::Hold).times(2));
    for place in 0..2 {
        let mut dead = target.connect(&format!("dead-{place}"));
        let data = Data::whole(dead.buffer(BLOCK).unwrap());
        dead.submit(command::write(1, place, 1), data).unwrap();
        until("the write to reach the disk", || {
            dead.poll();
            disk.waiting(Op::Write) as u64 == place + 1
        });
        drop(dead);
    }
    for n in 0..100 {
        let mut host = target.connect("visitor");
        host.run(command::flush(2), Data::None).unwrap();
        if n % 2 == 0 {
            host.shutdown().unwrap();
        }
    }
    disk.heal();
    until("the held writes to land", || disk.done(Op::Write) == 2);
    target.connect("last").shutdown().unwrap();
    target.stop();
}
