//! Hosts that withhold write data or acknowledgements, on a simulated clock.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use cairn_initiator::{HostOptions, command};
use cairn_rdma::loopback::Withheld;
use cairn_target::Usage;
use nvme_proto::wire::Sqe;

use super::isolation::{BLOCK, Bed};

const STALLER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 66));
const QUEUES: u16 = 12;
const DEPTH: usize = 127;
const DATA_DEADLINE: Duration = Duration::from_secs(30);
/// Time after which the target drops an unacknowledged response of a host that acknowledges other
/// responses.
const RESPONSE_DEADLINE: Duration = Duration::from_secs(120);
/// Time after which the target drops its responses if the host acknowledges none.
const COMPLETION_DEADLINE: Duration = Duration::from_secs(30);
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

fn seldom(bed: &Bed) {
    for queue in 0..=usize::from(QUEUES) {
        bed.network.release_one(STALLER, queue);
    }
}

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

fn pass(bed: &mut Bed, time: Duration) {
    let end = bed.clock.now() + time;
    while bed.clock.now() < end {
        bed.clock
            .advance_to(bed.clock.now() + Duration::from_millis(20));
        bed.turn();
    }
}

fn slowest_read(bed: &mut Bed, host: usize) -> Duration {
    let times = (0..READS).map(|_| {
        let data = bed.block(host);
        let start = bed.clock.now();
        let response = bed.run(host, command::read(2, 0, 1), data).unwrap();
        assert!(response.cqe.status().is_success());
        bed.clock.now() - start
    });
    times.max().unwrap()
}
