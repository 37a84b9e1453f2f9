//! Two targets with disks, and a host with verified I/O through both.

use std::collections::BTreeMap;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use cairn_initiator::multipath::{Multipath, MultipathOptions, Policy};
use cairn_roce::Soft;
use cairn_tests::faulty_disk::FaultyDisk;
use cairn_tests::harness::{Scratch, namespace};
use cairn_tests::load::Load;
use cairn_tests::process::TargetProcess;

use crate::patience::Patience;
use crate::resources::Resources;

const DISK_BYTES: u64 = 4 << 20;
/// Time limit for the release of resources after a round, excluding time without CPU.
const PATIENCE: Duration = Duration::from_secs(40);

pub(crate) struct Bed {
    pub(crate) shared: FaultyDisk,
    pub(crate) troubled: FaultyDisk,
    _healthy: Scratch,
    pub(crate) targets: [TargetProcess; 2],
    pub(crate) load: Load,
    quiet: [Resources; 3],
}

impl Bed {
    pub(crate) fn new() -> Option<Self> {
        let shared = FaultyDisk::mount("soak-shared", DISK_BYTES)?;
        let troubled = FaultyDisk::mount("soak-troubled", DISK_BYTES)?;
        let healthy = Scratch::in_memory("soak-healthy", DISK_BYTES);
        let uuid = |n: u32| format!("uuid = \"00000000-0000-4000-8000-00000000000{n}\"\n");
        let of_both = namespace(1, &shared.export(4096)) + "shared = true\n" + &uuid(1);
        let of_first = namespace(2, &troubled.export(4096))
            + &uuid(2)
            + &namespace(3, &healthy.export(4096))
            + &uuid(3);
        let targets = [
            TargetProcess::start(1, &(of_both.clone() + &of_first)),
            TargetProcess::start(2, &of_both),
        ];
        let paths = targets.iter().map(|target| target.options("load"));
        let options = MultipathOptions {
            policy: Policy::RoundRobin,
            ..MultipathOptions::new(1)
        };
        let disk = Multipath::connect(&Soft::default(), paths, options).expect("a path");
        let mut load = Load::new(disk);
        load.run(500);
        load.drain();
        rest(&mut load, &mut Patience::new(Instant::now(), PATIENCE));
        let quiet = Self::resources(&targets);
        Some(Self {
            shared,
            troubled,
            _healthy: healthy,
            targets,
            load,
            quiet,
        })
    }

    fn resources(targets: &[TargetProcess; 2]) -> [Resources; 3] {
        let [first, second] = targets.each_ref().map(Resources::of_target);
        [first, second, Resources::of_process("self")]
    }

    fn resources_meanwhile(&mut self, patience: &mut Patience) -> [Resources; 3] {
        let Self { targets, load, .. } = self;
        let begun = Instant::now();
        let [first, second] = std::thread::scope(|scope| {
            let targets = &*targets;
            let worker = scope.spawn(move || targets.each_ref().map(Resources::of_target));
            poll_until(load, patience, |_| worker.is_finished());
            worker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        patience.answered_after(begun.elapsed());
        [first, second, Resources::of_process("self")]
    }

    pub(crate) fn meanwhile(load: &mut Load, work: impl FnOnce() + Send) {
        std::thread::scope(|scope: &Scope<'_, '_>| {
            let worker: ScopedJoinHandle<'_, ()> = scope.spawn(work);
            load.run_until("other hosts' work", |_| worker.is_finished());
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        });
    }

    pub(crate) fn run_for(&mut self, time: Duration) {
        let end = Instant::now() + time;
        self.load.run_until("some time", |_| Instant::now() >= end);
    }

    pub(crate) fn settle(&mut self) {
        self.shared.heal();
        self.troubled.heal();
        self.load.run_until("both paths", |load| {
            load.disk.paths().all(|path| path.usable)
        });
        self.load.run(100);
        self.load.verify();
        let mut patience = Patience::new(Instant::now(), PATIENCE);
        // Number of checks in which a resource exceeded its initial level; a leaked resource does
        // so in all checks.
        let mut found = BTreeMap::<&str, u32>::new();
        for looks in 1.. {
            rest(&mut self.load, &mut patience);
            let now = self.resources_meanwhile(&mut patience);
            let pairs = now.iter().zip(&self.quiet);
            let more: Vec<_> = pairs
                .flat_map(|(now, before)| now.more_than(before))
                .collect();
            if more.is_empty() {
                return;
            }
            for name in more {
                *found.entry(name).or_default() += 1;
            }
            assert!(
                !patience.is_over(),
                "not all came back, of {looks} looks: {found:?}; at last {now:#?}, and at first \
                 {:#?}; {patience}",
                self.quiet
            );
        }
    }

    pub(crate) fn end(self) {
        let Self {
            load, mut targets, ..
        } = self;
        load.finish().close().expect("the host can leave");
        for target in &mut targets {
            let status = target.terminate(Duration::from_secs(25));
            assert!(status.is_some_and(|status| status.success()), "{status:?}");
        }
    }
}

fn rest(load: &mut Load, patience: &mut Patience) {
    let end = Instant::now() + Duration::from_millis(100);
    poll_until(load, patience, |now| now >= end);
}

fn poll_until(load: &mut Load, patience: &mut Patience, mut is_over: impl FnMut(Instant) -> bool) {
    loop {
        let now = Instant::now();
        patience.look(now);
        if is_over(now) {
            return;
        }
        if !load.disk.poll(now) {
            let wake = now + Duration::from_millis(10);
            load.disk.sleep(wake).expect("the host can sleep");
        }
    }
}
