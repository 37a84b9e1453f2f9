//! Verified random I/O over several paths.

use std::time::{Duration, Instant};

use cairn_initiator::multipath::{Multipath, PathTicket};
use cairn_initiator::{Buffer, Data, command};

use cairn_sim::Random;

const BYTES: usize = 8192;
const DEPTH: usize = 16;
const PLACES: u64 = 256;
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy)]
enum Job {
    Write { place: u64, seed: u64 },
    Read { place: u64 },
}

impl Job {
    fn place(self) -> u64 {
        match self {
            Self::Write { place, .. } | Self::Read { place } => place,
        }
    }
}

#[derive(Debug)]
pub struct Load {
    pub disk: Multipath,
    buffers: Vec<Option<Buffer>>,
    random: Random,
    /// Seed of each area's contents; seed 0 stands for zeroes.
    contents: Vec<u64>,
    jobs: Vec<Option<(PathTicket, Job)>>,
    pub done: u64,
}

impl Load {
    #[must_use]
    pub fn new(disk: Multipath) -> Self {
        Self {
            buffers: (0..128).map(|_| disk.buffer(BYTES).ok()).collect(),
            disk,
            random: Random::new(1),
            contents: vec![0; PLACES as usize],
            jobs: vec![None; 128],
            done: 0,
        }
    }

    pub fn reseed(&mut self, seed: u64) {
        self.random = Random::new(seed);
    }

    pub fn run_until(&mut self, what: &str, mut enough: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !enough(self) {
            self.fill();
            self.step(what, deadline);
        }
    }

    pub fn run(&mut self, commands: u64) {
        let end = self.done + commands;
        self.run_until("commands", |load| load.done >= end);
    }

    pub fn drain(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while self.disk.outstanding() > 0 {
            self.step("the last commands", deadline);
        }
    }

    #[must_use]
    pub fn finish(mut self) -> Multipath {
        self.verify();
        self.disk
    }

    pub fn verify(&mut self) {
        self.drain();
        for place in 0..PLACES {
            self.begin(Job::Read { place });
            self.drain();
        }
    }

    pub fn rewrite_all(&mut self) {
        self.drain();
        for place in 0..PLACES {
            let seed = self.random.bits();
            self.begin(Job::Write { place, seed });
            self.drain();
        }
    }

    fn fill(&mut self) {
        while self.disk.outstanding() < DEPTH {
            let place = self.random.below(PLACES);
            let jobs = self.jobs.iter().flatten();
            if jobs.into_iter().any(|(_, job)| job.place() == place) {
                continue;
            }
            let job = match self.random.below(2) {
                0 => Job::Read { place },
                _ => Job::Write {
                    place,
                    seed: self.random.bits(),
                },
            };
            self.begin(job);
        }
    }

    fn begin(&mut self, job: Job) {
        let block_bytes = self.disk.namespace().unwrap().block_bytes;
        let blocks = BYTES as u32 / block_bytes;
        let slba = job.place() * u64::from(blocks);
        let part = self.jobs.iter().position(Option::is_none).unwrap();
        let mut buffer = self.buffers[part].take().unwrap();
        let sqe = match job {
            Job::Write { seed, .. } => {
                buffer.write(0, &Random::new(seed).bytes(BYTES));
                command::write(0, slba, blocks)
            }
            Job::Read { .. } => {
                buffer.write(0, &[0xee; BYTES]);
                command::read(0, slba, blocks)
            }
        };
        let data = Data::start_of(buffer, BYTES as u32);
        let ticket = self.disk.submit(sqe, data).unwrap();
        self.jobs[part] = Some((ticket, job));
    }

    fn step(&mut self, what: &str, deadline: Instant) {
        let now = Instant::now();
        assert!(now < deadline, "{what} did not come about: {:?}", self.disk);
        let progress = self.disk.poll(now);
        while let Some((ticket, ended)) = self.disk.reap() {
            let answer = ended.answer;
            let status = answer
                .unwrap_or_else(|error| panic!("{error}"))
                .cqe
                .status();
            assert!(status.is_success(), "{status}");
            self.check(ticket, ended.buffer.unwrap());
        }
        if !progress {
            self.disk.sleep(now + Duration::from_millis(20)).unwrap();
        }
    }

    fn check(&mut self, ticket: PathTicket, buffer: Buffer) {
        let is = |job: &Option<(PathTicket, Job)>| job.is_some_and(|(other, _)| other == ticket);
        let part = self
            .jobs
            .iter()
            .position(is)
            .expect("a command of ours, once");
        let (_, job) = self.jobs[part].take().unwrap();
        self.done += 1;
        match job {
            Job::Write { place, seed } => self.contents[place as usize] = seed,
            Job::Read { place } => {
                let expected = match self.contents[place as usize] {
                    0 => vec![0; BYTES],
                    seed => Random::new(seed).bytes(BYTES),
                };
                let seen = buffer.bytes(0, BYTES);
                assert!(seen == expected, "place {place} has other contents");
            }
        }
        self.buffers[part] = Some(buffer);
    }
}
