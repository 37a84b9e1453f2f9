//! Round of faults under load, chosen by a seed.

use std::thread;
use std::time::{Duration, Instant};

use cairn_initiator::{Data, Host, HostOptions, Recovery, command};
use cairn_roce::Soft;
use cairn_sim::Random;
use cairn_tests::faulty_disk::{Fault, Op, Rule};
use cairn_tests::harness::host_nqn;

use crate::bed::Bed;

const BLOCK: usize = 4096;
const BOUND: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy)]
enum Mishap {
    Pause,
    Kill,
    Reload,
    HoldWrites,
    DelayAll,
    DeadWriter,
    FailWrites,
    Visitors,
}

const MISHAPS: [Mishap; 8] = [
    Mishap::Pause,
    Mishap::Kill,
    Mishap::Reload,
    Mishap::HoldWrites,
    Mishap::DelayAll,
    Mishap::DeadWriter,
    Mishap::FailWrites,
    Mishap::Visitors,
];

pub(crate) struct Round<'a> {
    bed: &'a mut Bed,
    random: Random,
}

impl<'a> Round<'a> {
    pub(crate) fn new(bed: &'a mut Bed, seed: u64) -> Self {
        Self {
            bed,
            random: Random::new(seed),
        }
    }

    pub(crate) fn run(mut self) {
        self.bed.load.reseed(self.random.bits());
        for _ in 0..=self.random.below(3) {
            let mishap = MISHAPS[self.random.below(MISHAPS.len() as u64) as usize];
            let begun = Instant::now();
            self.befall(mishap);
            println!("    {mishap:?}, {:.1?}", begun.elapsed());
            self.bed.load.run(50);
        }
        let begun = Instant::now();
        self.bed.settle();
        println!("    all is back after {:.1?}", begun.elapsed());
    }

    fn befall(&mut self, mishap: Mishap) {
        match mishap {
            Mishap::Pause => self.pause(),
            Mishap::Kill => self.kill(),
            Mishap::Reload => self.reload(),
            Mishap::HoldWrites => self.hold_writes(),
            Mishap::DelayAll => self.delay_all(),
            Mishap::DeadWriter => self.dead_writer(),
            Mishap::FailWrites => self.fail_writes(),
            Mishap::Visitors => self.visitors(),
        }
    }

    fn time(&mut self, least_ms: u64, most_ms: u64) -> Duration {
        Duration::from_millis(least_ms + self.random.below(most_ms - least_ms))
    }

    fn either(&mut self) -> usize {
        self.random.below(2) as usize
    }

    fn pause(&mut self) {
        let (which, time) = (self.either(), self.time(100, 3500));
        self.bed.targets[which].pause();
        self.bed.run_for(time);
        self.bed.targets[which].go_on();
    }

    fn kill(&mut self) {
        let (which, time) = (self.either(), self.time(10, 1500));
        self.bed.targets[which].kill();
        self.bed.run_for(time);
        self.bed.targets[which].restart();
    }

    fn reload(&mut self) {
        let which = self.either();
        self.bed.targets[which].reload_unchanged();
    }

    fn hold_writes(&mut self) {
        let (times, time) = (1 + self.random.below(8), self.time(20, 1500));
        let rule = Rule::new(Op::Write, Fault::Hold).times(times);
        self.bed.shared.begin(rule);
        self.bed.run_for(time);
        self.bed.shared.heal();
    }

    fn delay_all(&mut self) {
        for op in [Op::Read, Op::Write, Op::Sync] {
            let delay = self.time(1, 40);
            let rule = Rule::new(op, Fault::Delay(delay)).times(50);
            self.bed.shared.begin(rule);
        }
        self.bed.run_for(Duration::from_millis(500));
        self.bed.shared.heal();
    }

    fn dead_writer(&mut self) {
        let count = 1 + self.random.below(8);
        let options = self.visitor("writer");
        let disk = &self.bed.troubled;
        Bed::meanwhile(&mut self.bed.load, || {
            disk.begin(Rule::new(Op::Write, Fault::Hold).times(count));
            let mut dead = connect(&options);
            for place in 0..count {
                let data = Data::whole(filled(&dead, 1));
                dead.submit(command::write(2, place, 1), data).unwrap();
            }
            until("the writes to reach the disk", || {
                dead.poll();
                disk.waiting(Op::Write) as u64 == count
            });
            drop(dead);
            let mut successor = connect(&options);
            disk.release();
            write_at_last(&mut successor, count, 2);
            expect(&mut successor, count, 2);
            successor.shutdown().unwrap();
        });
    }

    fn fail_writes(&mut self) {
        let faults = [
            Fault::Fail(libc::EIO),
            Fault::Fail(libc::ENOSPC),
            Fault::Short(512),
        ];
        let fault = faults[self.random.below(3) as usize];
        let options = self.visitor("unlucky");
        let disk = &self.bed.troubled;
        Bed::meanwhile(&mut self.bed.load, || {
            let mut host = connect(&options);
            let mut buffer = filled(&host, 3);
            disk.begin(Rule::new(Op::Write, fault).times(1));
            let data = Data::start_of(&mut buffer, BLOCK as u32);
            let outcome = host.run(command::write(2, 0, 1), data);
            assert!(outcome.is_err() || fault == Fault::Short(512), "{fault:?}");
            disk.heal();
            write_at_last(&mut host, 1, 3);
            expect(&mut host, 1, 3);
            host.shutdown().unwrap();
        });
    }

    fn visitors(&mut self) {
        let count = 1 + self.random.below(12);
        let options = self.visitor("bystander");
        let mut random = self.random.clone();
        Bed::meanwhile(&mut self.bed.load, || {
            for _ in 0..count {
                let before = Instant::now();
                let mut host = connect(&options);
                let mut buffer = host.buffer(BLOCK).unwrap();
                let (place, bytes) = (random.below(64), random.bytes(BLOCK));
                buffer.write(0, &bytes);
                let write = command::write(3, place, 1);
                host.run(write, Data::whole(&mut buffer)).unwrap();
                host.run(command::flush(3), Data::None).unwrap();
                let read = command::read(3, place, 1);
                host.run(read, Data::whole(&mut buffer)).unwrap();
                assert_eq!(buffer.bytes(0, BLOCK), bytes);
                assert!(before.elapsed() < BOUND, "{:?}", before.elapsed());
                if random.below(3) > 0 {
                    host.shutdown().unwrap();
                }
            }
        });
    }

    fn visitor(&self, name: &str) -> HostOptions {
        let options = self.bed.targets[0].options(name);
        let mut hostid = *b"soak............";
        hostid[15] = name.as_bytes()[0];
        HostOptions {
            kato_ms: 5000,
            hostid,
            hostnqn: host_nqn(name),
            recovery: Recovery::NONE,
            ..options
        }
    }
}

fn connect(options: &HostOptions) -> Host {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match Host::connect(&Soft::default(), options.clone()) {
            Ok(host) => return host,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    }
}

fn filled(host: &Host, byte: u8) -> cairn_initiator::Buffer {
    let mut buffer = host.buffer(BLOCK).unwrap();
    buffer.write(0, &[byte; BLOCK]);
    buffer
}

fn write_at_last(host: &mut Host, blocks: u64, byte: u8) {
    let mut buffer = filled(host, byte);
    for place in 0..blocks {
        until("a write to succeed", || {
            let data = Data::start_of(&mut buffer, BLOCK as u32);
            host.run(command::write(2, place, 1), data).is_ok()
        });
    }
}

fn expect(host: &mut Host, blocks: u64, byte: u8) {
    let mut buffer = host.buffer(BLOCK).unwrap();
    for place in 0..blocks {
        let data = Data::start_of(&mut buffer, BLOCK as u32);
        host.run(command::read(2, place, 1), data).unwrap();
        assert_eq!(buffer.bytes(0, BLOCK), [byte; BLOCK], "block {place}");
    }
}

fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(40);
    while !reached() {
        assert!(Instant::now() < deadline, "{what} did not come about");
        thread::sleep(Duration::from_millis(2));
    }
}
