//! Job description in terms of fio's keys.

use std::fmt;
use std::time::Duration;

use super::keys;
use super::size::Size;

/// Data direction, as fio distinguishes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Dataset Management with deallocation.
    Trim,
}

impl Direction {
    /// All directions in the order of fio's report.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Trim];

    /// Name in fio's report.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Trim => "trim",
        }
    }
}

/// `rw`: data directions, and sequential or random order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workload {
    /// Name in fio.
    pub name: &'static str,
    /// True if the workload reads.
    pub reads: bool,
    /// True if the workload writes.
    pub writes: bool,
    /// True if the workload deallocates.
    pub trims: bool,
    /// True if the order is random.
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
    /// Supported workloads, by fio's names.
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

    /// Finds a workload by fio's name.
    ///
    /// # Errors
    /// No workload has this name.
    pub fn parse(name: &str) -> Result<Self, String> {
        let name = if name == "readwrite" { "rw" } else { name };
        let found = Self::ALL.into_iter().find(|w| w.name == name);
        found.ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|w| w.name).collect();
            format!("rw={name} is not one of {}", names.join(", "))
        })
    }

    /// True if the workload changes data on the disk.
    #[must_use]
    pub fn changes_data(self) -> bool {
        self.writes || self.trims
    }
}

/// Benchmark job. The fields are fio's keys.
#[derive(Debug, Clone)]
pub struct Job {
    /// Name in reports.
    pub name: String,
    /// `rw`.
    pub rw: Workload,
    /// `bs`, or the lower end of `bsrange`.
    pub bs_min: u64,
    /// `bs`, or the upper end of `bsrange`.
    pub bs_max: u64,
    /// Queue depth: commands in flight.
    pub iodepth: u16,
    /// Number of copies, each on a separate thread and queue pair.
    pub numjobs: u16,
    /// Size of the region; `None` for everything from `offset`.
    pub size: Option<Size>,
    /// Amount of data to transfer; `None` for `size`.
    pub io_size: Option<u64>,
    /// Start of the region in the namespace.
    pub offset: Size,
    /// Additional offset of each further copy.
    pub offset_increment: Size,
    /// Time limit.
    pub runtime: Option<Duration>,
    /// If true, the job repeats until the time limit.
    pub time_based: bool,
    /// Time at the start that is not measured.
    pub ramp_time: Duration,
    /// Delay of the start.
    pub startdelay: Duration,
    /// Percentage of reads in a mixed workload.
    pub rwmixread: u8,
    /// Maximum commands per second: reads, writes, trims.
    pub rate_iops: [Option<u64>; 3],
    /// Number of passes over the region.
    pub loops: u32,
    /// `verify=crc32c`.
    pub verify: bool,
    /// If true, written data is read back at the end.
    pub do_verify: bool,
    /// If true, the job only verifies data of an earlier job.
    pub verify_only: bool,
    /// If true, the first bad block ends the job.
    pub verify_fatal: bool,
    /// Seed of places, directions and data; `None` for a random one.
    pub randseed: Option<u64>,
    /// If true, random places may repeat before all have been visited.
    pub norandommap: bool,
    /// Number of writes between Flush commands; 0 for none.
    pub fsync: u32,
    /// If true, the job ends with a Flush.
    pub end_fsync: bool,
    /// If true, copies are reported together.
    pub group_reporting: bool,
    /// If true, the job starts after all earlier jobs have ended.
    pub stonewall: bool,
    /// Keys that were set, as given.
    pub options: Vec<(String, String)>,
}

impl Job {
    /// Creates a job with fio's defaults.
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

    /// Sets a key. Returns a note for a fio key that has no effect here.
    ///
    /// # Errors
    /// The key is unknown, or its value is invalid.
    pub fn set(&mut self, key: &str, value: Option<&str>) -> Result<Option<Note>, String> {
        let note = keys::apply(self, key, value)?;
        let value = value.unwrap_or("1");
        self.options.retain(|(known, _)| known != key);
        self.options.push((key.to_owned(), value.to_owned()));
        Ok(note)
    }

    /// True if the job writes or deallocates.
    #[must_use]
    pub fn changes_data(&self) -> bool {
        self.rw.changes_data() && !self.verify_only
    }
}

/// Key without effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Name in fio.
    pub key: &'static str,
    /// Reason why the key has no effect.
    pub why: &'static str,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has no effect: {}", self.key, self.why)
    }
}
