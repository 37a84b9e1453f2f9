//! A job: what fio's keys describe.

use std::fmt;
use std::time::Duration;

use super::keys;
use super::size::Size;

/// A direction that data takes, as fio distinguishes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Dataset Management that deallocates.
    Trim,
}

impl Direction {
    /// All of them, in the order in which fio reports them.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Trim];

    /// As fio's report calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Trim => "trim",
        }
    }
}

/// `rw`: in which directions data moves, and in which order over the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workload {
    /// As fio calls it.
    pub name: &'static str,
    /// It reads.
    pub reads: bool,
    /// It writes.
    pub writes: bool,
    /// It deallocates.
    pub trims: bool,
    /// In random order.
    pub random: bool,
}

const fn workload(name: &'static str, directions: &[Direction], random: bool) -> Workload {
    let mut workload = Workload {
        name,
        reads: false,
        writes: false,
        trims: false,
        random,
    };
    let mut at = 0;
    while at < directions.len() {
        match directions[at] {
            Direction::Read => workload.reads = true,
            Direction::Write => workload.writes = true,
            Direction::Trim => workload.trims = true,
        }
        at += 1;
    }
    workload
}

impl Workload {
    /// Those there are.
    pub const ALL: [Self; 8] = [
        workload("read", &[Direction::Read], false),
        workload("write", &[Direction::Write], false),
        workload("trim", &[Direction::Trim], false),
        workload("randread", &[Direction::Read], true),
        workload("randwrite", &[Direction::Write], true),
        workload("randtrim", &[Direction::Trim], true),
        workload("rw", &[Direction::Read, Direction::Write], false),
        workload("randrw", &[Direction::Read, Direction::Write], true),
    ];

    /// By fio's name.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn parse(name: &str) -> Result<Self, String> {
        let name = if name == "readwrite" { "rw" } else { name };
        let found = Self::ALL.into_iter().find(|w| w.name == name);
        found.ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|w| w.name).collect();
            format!("rw={name} is none of {}", names.join(", "))
        })
    }

    /// Whether what is on the disk changes.
    #[must_use]
    pub fn changes_data(self) -> bool {
        self.writes || self.trims
    }
}

/// A job. Its fields are fio's keys.
#[derive(Debug, Clone)]
pub struct Job {
    /// What it is called in reports.
    pub name: String,
    /// `rw`.
    pub rw: Workload,
    /// `bs`, or the lower end of `bsrange`.
    pub bs_min: u64,
    /// `bs`, or the upper end of `bsrange`.
    pub bs_max: u64,
    /// Commands outstanding at a time.
    pub iodepth: u16,
    /// Copies of the job, each on a thread and a queue pair of its own.
    pub numjobs: u16,
    /// How much of the namespace it goes to; `None`: all that follows `offset`.
    pub size: Option<Size>,
    /// How much it moves; `None`: as much as `size`.
    pub io_size: Option<u64>,
    /// Where in the namespace it begins.
    pub offset: Size,
    /// How much further each copy begins.
    pub offset_increment: Size,
    /// It ends after that long.
    pub runtime: Option<Duration>,
    /// It does not end sooner, but begins anew.
    pub time_based: bool,
    /// It runs that long before it counts.
    pub ramp_time: Duration,
    /// It begins that late.
    pub startdelay: Duration,
    /// Percent of a mixed job that are reads.
    pub rwmixread: u8,
    /// I/O commands a second at most: reads, writes, trims.
    pub rate_iops: [Option<u64>; 3],
    /// How often it goes over its region.
    pub loops: u32,
    /// `verify=crc32c`.
    pub verify: bool,
    /// What was written is read back at the end.
    pub do_verify: bool,
    /// Nothing is written: what an earlier job has written is checked.
    pub verify_only: bool,
    /// The first bad block ends the job.
    pub verify_fatal: bool,
    /// Seed of places, directions and data; `None`: another one each time.
    pub randseed: Option<u64>,
    /// Random places may repeat before all have been visited.
    pub norandommap: bool,
    /// A Flush after that many writes; 0 for none.
    pub fsync: u32,
    /// A Flush at the end.
    pub end_fsync: bool,
    /// Copies are reported as one.
    pub group_reporting: bool,
    /// It begins when all jobs before it have ended.
    pub stonewall: bool,
    /// The keys that were set, as they were given.
    pub options: Vec<(String, String)>,
}

impl Job {
    /// A job with fio's defaults.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            rw: Workload::ALL[0],
            bs_min: 4096,
            bs_max: 4096,
            iodepth: 1,
            numjobs: 1,
            size: None,
            io_size: None,
            offset: Size::Bytes(0),
            offset_increment: Size::Bytes(0),
            runtime: None,
            time_based: false,
            ramp_time: Duration::ZERO,
            startdelay: Duration::ZERO,
            rwmixread: 50,
            rate_iops: [None; 3],
            loops: 1,
            verify: false,
            do_verify: true,
            verify_only: false,
            verify_fatal: false,
            randseed: None,
            norandommap: false,
            fsync: 0,
            end_fsync: false,
            group_reporting: false,
            stonewall: false,
            options: Vec::new(),
        }
    }

    /// Sets a key. One that fio has for a choice that does not arise here is
    /// taken, and the note says so.
    ///
    /// # Errors
    /// There is no such key, or its value is wrong.
    pub fn set(&mut self, key: &str, value: Option<&str>) -> Result<Option<Note>, String> {
        let note = keys::apply(self, key, value)?;
        let value = value.unwrap_or("1");
        self.options.retain(|(known, _)| known != key);
        self.options.push((key.to_owned(), value.to_owned()));
        Ok(note)
    }

    /// Whether it writes or deallocates.
    #[must_use]
    pub fn changes_data(&self) -> bool {
        self.rw.changes_data() && !self.verify_only
    }
}

/// A key that changes nothing here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// As in fio.
    pub key: &'static str,
    /// Why it changes nothing.
    pub why: &'static str,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has no effect: {}", self.key, self.why)
    }
}
