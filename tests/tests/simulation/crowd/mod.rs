//! Several hosts use the same blocks while targets, disks and the network fail.
//!
//! The results of their commands must be possible with a correct disk ([`crate::history`]).
//! Finally, the target must hold no resources of the hosts.

mod guest;
mod ledger;
pub(crate) mod stage;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cairn_disk::{CacheFate, Habits, Lie, Operation, SimulatedDisk};
use cairn_sim::Random;
use cairn_target::Usage;
use cairn_tests::harness::{NQN, Scratch, namespace};

use cairn_sim::network::Weather;
use cairn_sim::seeds::is_replay;
use guest::{Guest, TRANSFER_BYTES, Traits};
use ledger::Ledger;
use stage::Stage;

const PATIENCE: Duration = Duration::from_secs(900);
/// Maximum latency for a host that no fault may affect.
const BYSTANDERS_PATIENCE: Duration = Duration::from_millis(100);
/// Time after KATO within which a target ends the commands of a lost host.
const QUIESCE: Duration = Duration::from_secs(2);

const LIES: u64 = 300;

const BLOCK_BYTES: usize = 512;
const BLOCKS: usize = 32;
const MS: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    Disks,
    Dying,
    HostPause,
    TargetPause,
    Restart,
    PowerCut,
    ClockJump,
    TwoTargets,
    Hang,
}

pub(crate) struct Crowd {
    trouble: Trouble,
    random: Random,
    stage: Stage,
    disks: Vec<SimulatedDisk>,
    _files: Vec<Scratch>,
    ledgers: Vec<Ledger>,
    guests: Vec<Guest>,
    pauses: Vec<(Instant, Paused)>,
    lie: Option<Lie>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Paused {
    Guest(usize),
    Target(usize),
    Killed(usize),
}

impl Crowd {
    pub(crate) fn new(seed: u64, trouble: Trouble) -> Self {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let mut random = Random::new(seed);
        let weather = match trouble {
            Trouble::Hang => Weather::FAIR,
            _ if random.below(2) == 0 => Weather::FAIR,
            _ => Weather::foul(&mut random),
        };
        let stage = Stage::new(weather, Random::new(random.bits()), is_replay());
        stage.note(|| format!("seed {seed}: {trouble:?} in {weather:?}"));
        let mut this = Self {
            trouble,
            stage,
            disks: Vec::new(),
            _files: Vec::new(),
            ledgers: Vec::new(),
            guests: Vec::new(),
            pauses: Vec::new(),
            lie: None,
            random,
        };
        for nsid in 1..=2 {
            let run = RUNS.fetch_add(1, Ordering::Relaxed);
            let bytes = (BLOCKS * BLOCK_BYTES) as u64;
            let file = Scratch::in_memory(&format!("crowd-{run}"), bytes);
            let disk = SimulatedDisk::register(file.path(), &this.stage.clock, this.random.bits());
            this.disks.push(disk.expect("the file is there"));
            this._files.push(file);
            let hangs = trouble == Trouble::Hang && nsid == 1;
            this.ledgers
                .push(Ledger::new(nsid, BLOCK_BYTES, BLOCKS, hangs));
        }
        this
    }

    pub(crate) fn with_lie(mut self, lie: Lie) -> Self {
        self.lie = Some(lie);
        self
    }

    pub(crate) fn run(mut self) -> Result<(), String> {
        self.start();
        let steps = 80 + self.random.below(120);
        for _ in 0..steps {
            let guest = self.random.below(self.guests.len() as u64) as usize;
            self.use_guest(guest);
            if self.random.below(3) == 0 {
                let time = Duration::from_micros(self.random.below(4000));
                self.turn(self.stage.now() + time);
            }
            if self.random.below(12) == 0 || !self.guests.iter().any(Guest::is_live) {
                let time = Duration::from_millis(self.random.below(3000));
                self.pass(time);
            }
            if self.random.below(20) == 0 {
                self.make_trouble();
            }
        }
        self.finish();
        self.ledgers.iter().try_for_each(Ledger::check)
    }

    fn start(&mut self) {
        let targets = if self.trouble == Trouble::TwoTargets {
            2
        } else {
            1
        };
        for target in 0..targets {
            let config = self.config(target);
            self.stage.add_target(&config);
        }
        let guests = 2 + self.random.below(2) as u8;
        let one_identity = self.random.below(4) == 0;
        for number in 1..=guests {
            let traits = Traits {
                number,
                identity: if one_identity { 1 } else { number },
                io_queues: 1 + self.random.below(2) as u16,
                kato_ms: 2000 << self.random.below(3),
                only: match self.trouble {
                    Trouble::Hang => Some(usize::from(number == 1)),
                    _ => None,
                },
            };
            let mut guest = Guest::new(traits, &mut self.stage);
            guest.target = self.random.below(targets as u64) as usize;
            guest.connect(&self.stage);
            self.guests.push(guest);
        }
        while !self.guests.iter().all(Guest::is_live) {
            self.come_again();
            self.turn(self.stage.now() + Duration::from_secs(1));
        }
        let habits = self.habits();
        self.disks
            .iter()
            .for_each(|disk| disk.set_habits(habits.clone()));
        if self.trouble == Trouble::Hang {
            for operation in [Operation::Read, Operation::Write, Operation::Flush] {
                self.disks[0].hold(operation);
            }
        }
    }

    fn config(&mut self, target: usize) -> String {
        let random = &mut self.random;
        let in_capsule = [0, 4, 8][random.below(3) as usize];
        let (first, last) = (1 + 1000 * target, 1000 + 1000 * target);
        let mut config = format!(
            "[target]\nreactors = {}\npoll_idle_us = 0\nreceives = 128\nqueue_depth = 16\n\
             io_queues = 4\nmdts = \"{}KiB\"\ndata_buffers = \"1MiB\"\n\
             in_capsule_data = \"{in_capsule}KiB\"\n\
             [[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
             controller_ids = \"{first}-{last}\"\n",
            1 + random.below(2),
            TRANSFER_BYTES / 1024,
        );
        let shared = self.trouble == Trouble::TwoTargets;
        for (ledger, file) in self.ledgers.iter().zip(&self._files) {
            let export = format!("{}\nshared = {shared}", file.export(BLOCK_BYTES as u32));
            config += &namespace(ledger.nsid, &export);
        }
        config
    }

    fn habits(&mut self) -> Habits {
        let random = &mut self.random;
        let delay = match (self.trouble, random.below(3)) {
            (Trouble::Hang, _) => Duration::ZERO..MS,
            (_, 0) => Duration::ZERO..Duration::ZERO,
            (_, 1) => Duration::ZERO..MS,
            _ => MS..20 * MS,
        };
        let mut up_to = |most: u64| match random.below(2) {
            0 => 0,
            _ => random.below(most + 1),
        };
        let fails = self.trouble == Trouble::Disks;
        Habits {
            delay,
            error: if fails { up_to(60) } else { 0 },
            no_space: if fails { up_to(30) } else { 0 },
            short: up_to(200),
            again: if fails { up_to(20) } else { 0 },
            hang: 0,
            flush_error: match self.trouble {
                Trouble::Disks | Trouble::PowerCut => up_to(60),
                _ => 0,
            },
            lie: self.lie.map(|lie| (lie, LIES)),
        }
    }

    fn use_guest(&mut self, guest: usize) {
        let Self {
            stage,
            ledgers,
            guests,
            random,
            ..
        } = self;
        let guest = &mut guests[guest];
        if guest.is_live() && !guest.paused {
            guest.begin(stage, ledgers, random);
        } else if self.random.below(4) == 0 {
            self.come_again();
        }
    }

    fn come_again(&mut self) {
        for guest in &mut self.guests {
            let patience = Duration::from_millis(guest.traits.kato_ms.into()) + QUIESCE;
            let may = match (self.trouble, guest.ended) {
                (Trouble::TwoTargets, Some(ended)) => self.stage.now() >= ended + patience,
                _ => true,
            };
            if guest.is_away() && !guest.paused && may {
                if self.trouble == Trouble::TwoTargets {
                    guest.target = self.random.below(2) as usize;
                }
                guest.connect(&self.stage);
            }
        }
    }

    fn make_trouble(&mut self) {
        let guest = self.random.below(self.guests.len() as u64) as usize;
        let long = match self.random.below(3) {
            0 => Duration::from_millis(self.random.below(300)),
            1 => Duration::from_millis(self.random.below(3000)),
            _ => Duration::from_millis(self.random.below(30_000)),
        };
        match self.trouble {
            Trouble::Disks => {}
            Trouble::Dying => self.kill_guest(guest),
            Trouble::Hang if guest > 0 && self.random.below(2) == 0 => self.kill_guest(guest),
            Trouble::Hang => {}
            Trouble::HostPause => {
                self.guests[guest].paused = true;
                self.pauses
                    .push((self.stage.now() + long, Paused::Guest(guest)));
            }
            Trouble::TargetPause => self.pause_target(0, long),
            Trouble::TwoTargets => {
                let target = self.random.below(2) as usize;
                self.pause_target(target, long);
            }
            Trouble::Restart => _ = self.kill_target(long),
            Trouble::PowerCut => {
                if self.kill_target(long) {
                    self.cut_power();
                }
            }
            Trouble::ClockJump => self.stage.jump(long),
        }
    }

    fn kill_guest(&mut self, guest: usize) {
        let Self {
            stage,
            ledgers,
            guests,
            random,
            ..
        } = self;
        let guest = &mut guests[guest];
        guest.kill(stage, ledgers);
        if random.below(4) > 0 {
            guest.connect(stage);
        }
    }

    fn pause_target(&mut self, target: usize, time: Duration) {
        self.stage.pause_target(target, true);
        let until = self.stage.now() + time;
        self.pauses.push((until, Paused::Target(target)));
    }

    fn kill_target(&mut self, time: Duration) -> bool {
        let there = self.stage.has_target(0);
        if there {
            self.stage.kill_target(0);
            let until = self.stage.now() + 30 * MS + time;
            self.pauses.push((until, Paused::Killed(0)));
        }
        there
    }

    fn cut_power(&mut self) {
        let fates = [CacheFate::Kept, CacheFate::Lost, CacheFate::Mixed];
        let fate = fates[self.random.below(3) as usize];
        self.stage
            .note(|| format!("the power fails, the cache is {fate:?}"));
        self.disks.iter().for_each(|disk| disk.crash(fate));
        self.ledgers
            .iter_mut()
            .for_each(|ledger| ledger.history.crash());
    }

    fn turn(&mut self, latest: Instant) {
        self.end_pauses(self.stage.now());
        let mut next = latest;
        for (until, _) in &self.pauses {
            next = next.min(*until);
        }
        for guest in self.guests.iter_mut().filter(|guest| !guest.paused) {
            let own = guest.poll(&self.stage, &mut self.ledgers);
            next = own.into_iter().fold(next, Instant::min);
        }
        self.stage.advance(next);
    }

    fn pass(&mut self, time: Duration) {
        let until = self.stage.now() + time;
        while self.stage.now() < until {
            self.come_again();
            self.turn(until);
        }
    }

    fn end_pauses(&mut self, now: Instant) {
        let (over, rest) = self.pauses.drain(..).partition(|(until, _)| *until <= now);
        let over: Vec<(Instant, Paused)> = over;
        self.pauses = rest;
        for (_, paused) in over {
            if self.pauses.iter().any(|(_, other)| *other == paused) {
                continue;
            }
            match paused {
                Paused::Guest(guest) => self.guests[guest].paused = false,
                Paused::Target(target) => self.stage.pause_target(target, false),
                Paused::Killed(target) => self.stage.start_target(target),
            }
        }
    }

    fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let until = self.stage.now() + PATIENCE;
        while !holds(self) {
            let now = self.stage.now();
            assert!(
                now < until,
                "after {PATIENCE:?}: {what}: {:?}",
                self.stage.usage()
            );
            self.come_again();
            self.turn(now + Duration::from_secs(1));
        }
    }

    fn finish(&mut self) {
        self.check_bystander();
        self.stage.note(|| "trouble ends".to_owned());
        let lie = self.lie.map(|lie| (lie, LIES));
        for disk in &self.disks {
            disk.set_habits(Habits {
                lie,
                ..Habits::default()
            });
            disk.release_all();
        }
        self.stage.network.weather = Weather::FAIR;
        if self.trouble == Trouble::PowerCut && self.kill_target(Duration::ZERO) {
            self.cut_power();
        }
        let forever = self.stage.now() + PATIENCE;
        self.end_pauses(forever);
        self.until("hosts are away", |this| {
            this.guests
                .iter()
                .all(|guest| guest.is_live() && guest.pending() == 0)
        });
        self.pass(Duration::from_secs(1));
        for namespace in 0..self.ledgers.len() {
            for first in (0..BLOCKS).step_by(TRANSFER_BYTES / BLOCK_BYTES) {
                while !self.read_back(namespace, first) {}
            }
        }
        self.guests.iter_mut().for_each(Guest::shut_down);
        let until = self.stage.now() + PATIENCE;
        let usage = |this: &Self| {
            let held = this.stage.usage();
            held.into_iter().any(|held| held != (Usage::default(), 0))
        };
        while self.guests.iter().any(|guest| !guest.is_away()) || usage(self) {
            let now = self.stage.now();
            assert!(now < until, "still there: {:?}", self.stage.usage());
            self.turn(now + Duration::from_secs(1));
        }
    }

    fn read_back(&mut self, namespace: usize, first: usize) -> bool {
        self.until("a host is away", |this| this.guests[0].is_live());
        let Self {
            stage,
            ledgers,
            guests,
            ..
        } = self;
        let read = guests[0].read(stage, ledgers, namespace, first);
        self.until("a read does not end", |this| this.guests[0].pending() == 0);
        read.is_some_and(|id| self.ledgers[namespace].history.is_done(id))
    }

    fn check_bystander(&self) {
        if self.trouble != Trouble::Hang {
            return;
        }
        let bystander = &self.guests[0];
        assert!(bystander.ended.is_none(), "a bystander's connection ended");
        let slowest = bystander.slowest;
        assert!(
            slowest < BYSTANDERS_PATIENCE,
            "a bystander's command took {slowest:?}"
        );
    }
}
