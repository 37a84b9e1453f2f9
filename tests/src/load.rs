//! I/O by several paths, at depth, whose every block is checked, and which must not
//! see an error.

use std::time::{Duration, Instant};

use cairn_initiator::command;
use cairn_initiator::multipath::{Multipath, PathBuffer, PathTicket};

use cairn_sim::Random;

/// Bytes of a command's data.
const BYTES: usize = 8192;
/// Commands outstanding.
const DEPTH: usize = 16;
/// Places on the disk, each as large as a command.
const PLACES: u64 = 256;
/// How long a stretch of load may take: until then something has gone wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a command does.
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

/// Random reads and writes, and what the disk must contain.
#[derive(Debug)]
pub struct Load {
    /// The disk.
    pub disk: Multipath,
    /// By the part of a job; a command on its way has its buffer.
    buffers: Vec<Option<PathBuffer>>,
    random: Random,
    /// The seed of what is in each place; 0 for zeroes.
    contents: Vec<u64>,
    /// By slot of the ticket.
    jobs: Vec<Option<(PathTicket, Job)>>,
    /// Commands that were answered.
    pub done: u64,
}

impl Load {
    /// On a disk that reads as zeroes.
    ///
    /// # Panics
    /// If there is no memory for it.
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

    /// From here on, what is done follows from this seed.
    pub fn reseed(&mut self, seed: u64) {
        self.random = Random::new(seed);
    }

    /// Goes on until `enough`, for as many commands as it takes.
    ///
    /// # Panics
    /// If a command fails, a block has other contents than it must have, or it takes
    /// longer than a minute.
    pub fn run_until(&mut self, what: &str, mut enough: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !enough(self) {
            self.fill();
            self.step(what, deadline);
        }
    }

    /// Goes on for so many commands.
    ///
    /// # Panics
    /// If a command fails, a block has other contents than it must have, or it takes
    /// longer than a minute.
    pub fn run(&mut self, commands: u64) {
        let end = self.done + commands;
        self.run_until("commands", |load| load.done >= end);
    }

    /// Waits for all that is outstanding.
    ///
    /// # Panics
    /// If a command fails, a block has other contents than it must have, or it takes
    /// longer than a minute.
    pub fn drain(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while self.disk.outstanding() > 0 {
            self.step("the last commands", deadline);
        }
    }

    /// Reads everything, and ends.
    ///
    /// # Panics
    /// If a command fails, a block has other contents than it must have, or it takes
    /// longer than a minute.
    #[must_use]
    pub fn finish(mut self) -> Multipath {
        self.verify();
        self.disk
    }

    /// Waits for all that is outstanding, and reads everything.
    ///
    /// # Panics
    /// If a command fails, a block has other contents than it must have, or it takes
    /// longer than a minute.
    pub fn verify(&mut self) {
        self.drain();
        for place in 0..PLACES {
            self.begin(Job::Read { place });
            self.drain();
        }
    }

    /// Writes every place anew.
    ///
    /// # Panics
    /// If a command fails, a block has other contents than it must have, or it takes
    /// longer than a minute.
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
            // Two at a time in one place would leave open what is there after them.
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
        // A free slot's part of the buffer.
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
        let data = Some((buffer, 0, BYTES as u32));
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

    fn check(&mut self, ticket: PathTicket, buffer: PathBuffer) {
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
