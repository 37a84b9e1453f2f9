//! A verified benchmark that does not notice the death of a target.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cairn_bench::MultipathLanes;
use cairn_bench::{Audience, Direction, Glimpse, Job};
use cairn_initiator::multipath::MultipathOptions;
use cairn_roce::Soft;
use cairn_tests::harness::Scratch;

use crate::process::Process;
use crate::{DISK_BYTES, shared};

/// Kills the target once I/O is under way, and starts it again some seconds later.
struct Killer {
    target: Process,
    /// Commands that were done when it died, and when it was back.
    at_death: Option<u64>,
    at_return: Option<u64>,
    seconds: u32,
}

impl Audience for Killer {
    fn glimpse(&mut self, glimpse: &Glimpse) {
        let done: u64 = glimpse.counts.iter().map(|count| count.ios).sum();
        match (self.at_death, self.at_return) {
            (None, _) if done > 0 => {
                self.target.kill();
                self.at_death = Some(done);
                self.seconds = 0;
            }
            (Some(before), None) if self.seconds >= 3 && done > before => {
                self.target.resume();
                self.at_return = Some(done);
            }
            _ => self.seconds += 1,
        }
    }
}

#[test]
fn a_target_is_killed_during_a_verified_bench_and_no_error_is_seen() {
    let disk = Scratch::new("bench", DISK_BYTES);
    let (one, two) = (
        Process::start(1, &shared(&disk)),
        Process::start(2, &shared(&disk)),
    );
    let paths = vec![one.options(), two.options()];
    let provider = Arc::new(Soft::default());
    let lanes = MultipathLanes::find(provider, paths, MultipathOptions::new(1)).unwrap();
    let mut job = Job::new("killed");
    for (key, value) in [
        ("rw", "randrw"),
        ("bsrange", "4k-32k"),
        ("iodepth", "16"),
        ("size", "4m"),
        ("runtime", "12"),
        ("time_based", "1"),
        ("verify", "crc32c"),
    ] {
        job.set(key, Some(value)).unwrap();
    }
    let mut killer = Killer {
        target: one,
        at_death: None,
        at_return: None,
        seconds: 0,
    };
    let result = cairn_bench::run(&[job], &lanes, &AtomicBool::new(false), &mut killer).unwrap();
    let [job] = &result.jobs[..] else {
        panic!("one job")
    };
    assert_eq!((job.error.as_ref(), &job.mismatches), (None, &vec![]));
    assert!(job.stats.verified > 0);
    let done: u64 = Direction::ALL.iter().map(|&d| job.stats.of(d).ios).sum();
    let back = killer.at_return.expect("I/O went on without the target");
    assert!(
        done >= back,
        "{done} commands, {back} of them before it was back"
    );
}
