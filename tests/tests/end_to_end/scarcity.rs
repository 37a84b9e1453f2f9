//! Shortage of receives and buffers: commands must wait, but all hosts must make progress.

use cairn_initiator::{Data, HostError, command};
use cairn_sim::Random;
use cairn_tests::harness::{NQN, Scratch, TestTarget, subsystem};
use nvme_proto::wire::Status;

const BLOCK: u32 = 512;
const HOSTS: u64 = 4;
const QUEUES: u16 = 3;
const IN_FLIGHT: u64 = 60;
const ROUNDS: usize = 6;

const SIZES: [u32; 6] = [1, 8, 9, 128, 1024, 2048];

#[test]
fn few_buffers_and_few_receives_for_many_commands() {
    let disk = Scratch::new("scarcity", 64 << 20);
    let target = TestTarget::start(&format!(
        "[target]\nreceives = 64\ndata_buffers = \"2MiB\"\nreactors = 2\n{}",
        subsystem(NQN, &[&disk.export(BLOCK), "mem:64MiB", "null:64MiB"])
    ));
    std::thread::scope(|scope| {
        for number in 0..HOSTS {
            let target = &target;
            scope.spawn(move || crowd(target, number));
        }
    });
    target.stop();
}

fn crowd(target: &TestTarget, number: u64) {
    let mut options = target.options(&format!("{number}"));
    options.io_queues = QUEUES;
    let mut host = target.try_connect(options).unwrap();
    let mut random = Random::new(number);
    for _ in 0..ROUNDS {
        let mut in_flight = Vec::new();
        for number in 0..IN_FLIGHT {
            let blocks = SIZES[random.below(SIZES.len() as u64) as usize];
            let (nsid, slba) = (1 + random.below(3) as u32, random.below(100_000));
            let sqe = match random.below(5) {
                0 | 1 => command::read(nsid, slba, blocks),
                2 | 3 => command::write(nsid, slba, blocks),
                _ => command::compare(nsid, slba, blocks),
            };
            let buffer = host.buffer((blocks * BLOCK) as usize).unwrap();
            let queue = host.io_queue(number as usize);
            in_flight.push(host.submit_on(queue, sqe, Data::whole(buffer)).unwrap());
        }
        for ticket in in_flight {
            match host.wait(ticket).answer {
                Ok(_) => {}
                Err(HostError::Status { status, .. }) => {
                    assert_eq!(status.code(), Status::COMPARE_FAILURE);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    host.shutdown().unwrap();
}
