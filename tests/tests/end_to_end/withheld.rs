//! Hosts that keep the target waiting: for the data of their writes, or until they take
//! their responses. Target and hosts are moved along by hand, on a clock that only the
//! test moves.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use cairn_initiator::{Data, HostOptions, command};
use cairn_rdma::loopback::Withheld;
use cairn_target::Usage;
use nvme_proto::wire::Sqe;

use super::isolation::{BLOCK, Bed};

const STALLER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 66));
/// What the staller has of queues, and of commands in each.
const QUEUES: u16 = 12;
const DEPTH: usize = 127;
/// How long the target waits for the data of a command.
const DATA_DEADLINE: Duration = Duration::from_secs(30);
/// How long for a host to take a response while it takes others.
const RESPONSE_DEADLINE: Duration = Duration::from_secs(120);
/// How long for a host to take all responses that one completion ends. One response in five seconds
/// is too few for that.
const COMPLETION_DEADLINE: Duration = Duration::from_secs(30);
/// Reads of a bystander, to know how long they take.
const READS: usize = 100;

#[test]
fn a_host_that_answers_no_read_is_noticed_by_no_other() {
    stall(
        "no-read",
        [DATA_DEADLINE; 2],
        Withheld::Reads,
        &command::write(1, 0, 1),
        |_| {},
    );
}

/// Each answer is one command's, and renews the deadline of no other.
#[test]
fn a_host_that_answers_few_reads_has_no_longer() {
    stall(
        "few-reads",
        [DATA_DEADLINE; 2],
        Withheld::Reads,
        &command::write(1, 0, 1),
        seldom,
    );
}

#[test]
fn a_host_that_takes_few_responses_has_no_longer() {
    stall(
        "few-responses",
        [COMPLETION_DEADLINE, RESPONSE_DEADLINE],
        Withheld::Sends,
        &command::read(1, 0, 1),
        seldom,
    );
}

/// One answer of each queue in five seconds, of the admin queue, too.
fn seldom(bed: &Bed) {
    for queue in 0..=usize::from(QUEUES) {
        bed.network.release_one(STALLER, queue);
    }
}

/// A host fills all of its queues and withholds what the target waits for. Another host's
/// small reads go on meanwhile, and once the deadlines are over, the earliest and the latest,
/// nothing is held for the first one, while it is still connected and tries again.
fn stall(
    name: &str,
    [earliest, latest]: [Duration; 2],
    withheld: Withheld,
    sqe: &Sqe,
    answer: impl Fn(&Bed),
) {
    let settings = "in_capsule_data = \"0\"\nqueue_depth = 128";
    let mut bed = Bed::new(name, settings);
    let bystander = bed.connect_as(bed.options("bystander", 1, 32));
    let alone = slowest_read(&mut bed, bystander);
    let baseline = held(&bed);
    // Its queues end by the target's deadlines, and not by a Keep Alive without an answer.
    let staller = bed.connect_as(HostOptions {
        local: Some(STALLER),
        kato_ms: 0,
        command_timeout: 100 * RESPONSE_DEADLINE,
        ..bed.options("staller", QUEUES, 128)
    });
    bed.network.withhold(STALLER, withheld);
    bed.flood(staller, QUEUES, DEPTH, *sqe, BLOCK);
    let begun = bed.clock.now();
    let mut stalled = held(&bed).0;
    assert!(stalled > 200, "{:?}", bed.target);
    // Commands that had no place at first have one once the first are given up.
    while stalled > 0 && bed.clock.now() - begun < 4 * latest {
        let slowest = slowest_read(&mut bed, bystander);
        assert!(slowest <= 4 * alone, "{slowest:?}, alone {alone:?}");
        pass(&mut bed, Duration::from_secs(5));
        answer(&bed);
        for _ in 0..50 {
            bed.turn();
        }
        stalled = held(&bed).0;
    }
    assert_eq!(held(&bed), baseline, "{:?}", bed.target);
    let took = bed.clock.now() - begun;
    assert!(took >= earliest, "given up after {took:?}");
    assert!(took < 3 * latest, "held for {took:?}");
    bed.check_io(bystander, 1);
    bed.network.release_all(STALLER);
    bed.quiet();
}

/// Requests, buffers and what waits for them.
fn held(bed: &Bed) -> (usize, usize, usize, usize) {
    let Usage {
        requests,
        buffer_bytes,
        capsules,
        receives,
        ..
    } = bed.target.usage();
    (requests, buffer_bytes, capsules, receives)
}

/// So much time goes by.
fn pass(bed: &mut Bed, time: Duration) {
    let end = bed.clock.now() + time;
    while bed.clock.now() < end {
        bed.clock
            .advance_to(bed.clock.now() + Duration::from_millis(20));
        bed.turn();
    }
}

/// Of small reads one after the other.
fn slowest_read(bed: &mut Bed, host: usize) -> Duration {
    let buffer = bed.host(host).buffer(BLOCK as usize).unwrap();
    let times = (0..READS).map(|_| {
        let start = bed.clock.now();
        let data = Data::start_of(&buffer, BLOCK);
        let response = bed.run(host, command::read(2, 0, 1), data).unwrap();
        assert!(response.cqe.status().is_success());
        bed.clock.now() - start
    });
    times.max().unwrap()
}
