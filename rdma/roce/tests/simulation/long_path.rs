//! Path with a round trip of 100 ms that loses one packet in a thousand.

use super::*;

const ROUND_TRIP: Duration = Duration::from_millis(100);
const OUTSTANDING: u64 = 256;
const LENGTH: u64 = 5 * 4096;
const MINUTES: u64 = 2;

fn moved(operation: fn(RemoteBuffer) -> Operation, loss: u64, seed: u64) -> f64 {
    let start = Instant::START;
    let mut now = start;
    let configs = configs(&mut Random::new(seed)).map(|config| QpConfig {
        mtu: 4096,
        send_work: OUTSTANDING as u32,
        initiator_depth: 128,
        responder_resources: 128,
        ..config
    });
    let mut ends = configs.map(|config| End::new(&config, now));
    ends[0].completions = CompletionQueue::new(OUTSTANDING as usize, 1);
    let weather = Weather {
        loss,
        latency: ROUND_TRIP / 2,
        ..Weather::FAIR
    };
    let mut network = Network::new(weather, Random::new(!seed));
    let (mut posted, mut ended) = (0, 0);
    while now < start + Duration::from_secs(60 * MINUTES) {
        while posted - ended < OUTSTANDING {
            let work = SendWork {
                id: posted,
                op: operation(ends[1].remote(0)),
                sges: ends[0].sge(0, LENGTH).into(),
                signaled: true,
            };
            ends[0]
                .with(|qp, cx| qp.post([work].into_iter(), cx))
                .unwrap();
            posted += 1;
        }
        for from in 0..2 {
            transmit(&mut ends, from, now, &mut network);
        }
        let timers = ends.iter().filter_map(|end| end.qp.poll_timeout());
        let next = timers.chain(network.next_arrival()).min();
        now = next.expect("something is under way").max(now);
        while let Some(Datagram { to, bytes }) = network.receive(now) {
            let transport = icrc::open(&route(1 - to), Identity::of_segment(0), &bytes);
            let packet = Packet::parse(transport.unwrap()).unwrap();
            ends[to].with(|qp, cx| qp.handle_packet(&packet, false, now, cx));
        }
        for end in &mut ends {
            if end.qp.poll_timeout().is_some_and(|at| at <= now) {
                end.with(|qp, cx| qp.handle_timeout(now, cx));
            }
        }
        while let Some(completion) = ends[0].completions.pop() {
            assert_eq!(completion.status, WorkStatus::Success);
            ended += 1;
        }
    }
    let packets = (ended * LENGTH / 4096) as f64;
    packets * ROUND_TRIP.as_secs_f64() / now.duration_since(start).as_secs_f64()
}

#[test]
fn a_path_that_is_long_and_loses_is_used() {
    let directions: [fn(RemoteBuffer) -> Operation; 2] = [Operation::Write, Operation::Read];
    for seed in 0..2 {
        for operation in directions {
            let rate = moved(operation, 1, seed);
            assert!(rate >= 60.0, "{rate:.1} packets a round trip, seed {seed}");
            let without_loss = moved(operation, 0, seed);
            assert!(
                without_loss >= 350.0,
                "{without_loss:.1} packets without loss"
            );
        }
    }
}
