//! A target that is suspended repeatedly, each time for almost KATO.
//!
//! After twice KATO, the host sends its write again on another path. The target must not execute
//! the original write afterwards.

use super::*;

const KATO: Duration = Duration::from_secs(5);
const STOP: Duration = Duration::from_millis(4900);
const MORE: Duration = Duration::from_millis(10);
const WRITES: u64 = 400;
const STOPS: usize = 6;

fn stopped_after(rounds: usize, moment: Duration, in_capsule: bool) {
    let mut bed = Bed::new("many-stops");
    let options = HostOptions {
        queue_entries: 512,
        ..bed.options("gone", KATO.as_millis() as u32)
    };
    let mut host = bed.begin(options);
    bed.until(&mut host, Controller::is_live);
    bed.pass(Duration::from_millis(100));
    bed.disk.hold(Operation::Write);
    let buffer = [7; BLOCK];
    let sent_at = bed.clock.now();
    for number in 0..WRITES {
        let block = number % BLOCKS as u64;
        if in_capsule {
            let data = Data::InCapsule(&[7; BLOCK]);
            host.submit(command::write(1, block, 1), data).unwrap();
        } else {
            write(&mut host, 1, block, &buffer);
        }
    }
    for _ in 0..STOPS {
        bed.jump(STOP);
        for _ in 0..rounds {
            bed.target.round();
            bed.jump(moment);
        }
    }
    bed.pass(Duration::from_millis(500));
    let last = sent_at + 2 * KATO + MORE;
    let got = bed.disk.waiting_since(Operation::Write);
    let late = got.iter().filter(|&&at| at > last).count();
    assert_eq!(
        late,
        0,
        "of {} writes, by {rounds} rounds of {moment:?}",
        got.len()
    );
    bed.disk.release_all();
    bed.pass(Duration::from_secs(6));
    assert!(bed.is_alone(), "{:?}", bed.target);
}

#[test]
fn many_stops_of_nearly_kato_give_a_stale_write_no_more_time() {
    for in_capsule in [true, false] {
        for rounds in [1, 2, 3, 5, 8] {
            for moment_us in [1, 500, 5_000, 30_000] {
                stopped_after(rounds, Duration::from_micros(moment_us), in_capsule);
            }
        }
    }
}
