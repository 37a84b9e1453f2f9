use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use cairn_bench::{Audience, Direction, Format, Glimpse, Job, MultipathLanes, NvmeLanes};
use cairn_initiator::Host;
use cairn_initiator::multipath::MultipathOptions;
use cairn_roce::Soft;
use cairn_tests::harness::Scratch;

use crate::process::Process;
use crate::{DISK_BYTES, shared};

struct Killer {
    target: Process,
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

static CHANGES: Mutex<Vec<(SocketAddr, bool)>> = Mutex::new(Vec::new());

#[test]
fn a_target_is_killed_during_a_verified_bench_and_no_error_is_seen() {
    let disk = Scratch::new("bench", DISK_BYTES);
    let (one, two) = (
        Process::start(1, &shared(&disk)),
        Process::start(2, &shared(&disk)),
    );
    let paths = vec![one.options(), two.options()];
    let killed = one.options().remote;
    let provider = Arc::new(Soft::default());
    let mut lanes = MultipathLanes::find(provider, paths, MultipathOptions::new(1)).unwrap();
    lanes.on_path = |remote, usable| CHANGES.lock().unwrap().push((remote, usable));
    let job = Job::with(&[
        ("rw", "randrw"),
        ("bsrange", "4k-32k"),
        ("iodepth", "16"),
        ("size", "4m"),
        ("runtime", "12"),
        ("time_based", "1"),
        ("verify", "crc32c"),
    ])
    .unwrap();
    let mut killer = Killer {
        target: one,
        at_death: None,
        at_return: None,
        seconds: 0,
    };
    let result = cairn_bench::run(&job, &lanes, &AtomicBool::new(false), &mut killer).unwrap();
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
    let changes = CHANGES.lock().unwrap();
    assert_eq!(changes[..], [(killed, false), (killed, true)]);
}

struct Swapper {
    target: Process,
    disk: Scratch,
    other: Option<Scratch>,
}

impl Audience for Swapper {
    fn glimpse(&mut self, glimpse: &Glimpse) {
        let done: u64 = glimpse.counts.iter().map(|count| count.ios).sum();
        if done == 0 {
            return;
        }
        if let Some(other) = self.other.take() {
            self.target.kill();
            std::fs::rename(other.path(), self.disk.path()).unwrap();
            self.target.resume();
        }
    }
}

#[test]
fn a_bench_ends_when_the_disk_is_another_and_writes_nothing_there() {
    let disk = Scratch::new("bench-before", DISK_BYTES);
    let other = Scratch::new("bench-after", DISK_BYTES);
    let target = Process::start(1, &shared(&disk));
    let options = target.options();
    let mut host = Host::connect(&Soft::default(), options.clone()).unwrap();
    let namespace = host.open_namespace(1).unwrap();
    let lanes = NvmeLanes {
        device: Arc::clone(host.device()),
        options,
        format: Format::of(&namespace, &host),
        namespace,
        reset_interval: None,
        on_event: |_| {},
    };
    host.shutdown().unwrap();
    let job = Job::with(&[
        ("rw", "randwrite"),
        ("bs", "4k"),
        ("iodepth", "8"),
        ("runtime", "30"),
        ("time_based", "1"),
    ])
    .unwrap();
    let mut swapper = Swapper {
        target,
        disk,
        other: Some(other),
    };
    let result = cairn_bench::run(&job, &lanes, &AtomicBool::new(false), &mut swapper).unwrap();
    assert!(!result.is_success());
    let error = result.jobs[0]
        .error
        .as_ref()
        .expect("the job ends")
        .to_string();
    assert!(
        error.contains("not the disk any more that was opened"),
        "{error}"
    );
    let written = std::fs::read(swapper.disk.path()).unwrap();
    assert!(
        written.iter().all(|&byte| byte == 0),
        "the other disk was written"
    );
    let again = cairn_bench::run(
        &Job::default(),
        &lanes,
        &AtomicBool::new(false),
        &mut swapper,
    );
    assert!(again.unwrap_err().contains("not the disk any more"));
}
