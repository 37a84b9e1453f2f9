//! Benchmark jobs, described by fio's keys.

use std::fmt;
use std::time::Duration;

use super::keys;
use super::size::Size;

/// Data directions distinguished by fio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Dataset Management with deallocation (fio's `trim`).
    Trim,
}

impl Direction {
    /// All directions in the order of fio's reports.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Trim];

    /// Name in fio's reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Trim => "trim",
        }
    }
}

/// Value of fio's key `rw`: directions, and sequential or random order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workload {
    /// Name in fio.
    pub name: &'static str,
    /// True if the workload reads.
    pub reads: bool,
    /// True if the workload writes.
    pub writes: bool,
    /// True if the workload trims.
    pub trims: bool,
    /// True if offsets are random.
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
    /// Supported workloads.
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

    /// True if the workload writes or trims.
    #[must_use]
    pub fn changes_data(self) -> bool {
        self.writes || self.trims
    }
}

/// Benchmark job. Fields are fio's keys.
#[derive(Debug, Clone)]
pub struct Job {
    /// Name in reports.
    pub name: String,
    /// Directions and order of commands (`rw`).
    pub rw: Workload,
    /// Minimum block size in bytes (`bs` or `bsrange`).
    pub bs_min: u64,
    /// Maximum block size in bytes (`bs` or `bsrange`).
    pub bs_max: u64,
    /// Maximum number of commands in flight.
    pub iodepth: u16,
    /// Number of copies, each on a separate thread and queue pair.
    pub numjobs: u16,
    /// Size of the region; `None` for the rest of the namespace after `offset`.
    pub size: Option<Size>,
    /// Number of bytes to transfer; `None` for the size of the region.
    pub io_size: Option<u64>,
    /// Start of the region.
    pub offset: Size,
    /// Distance between the regions of consecutive copies.
    pub offset_increment: Size,
    /// Time limit.
    pub runtime: Option<Duration>,
    /// True if the job repeats its region until `runtime` is over.
    pub time_based: bool,
    /// Duration at the start that is excluded from measurements.
    pub ramp_time: Duration,
    /// Delay before the start.
    pub startdelay: Duration,
    /// Percentage of reads in a mixed workload.
    pub rwmixread: u8,
    /// Maximum commands per second, indexed by [`Direction`]; `None` for no limit.
    pub rate_iops: [Option<u64>; 3],
    /// Number of passes over the region.
    pub loops: u32,
    /// True if written blocks have headers to verify (`verify=crc32c`).
    pub verify: bool,
    /// True if written blocks are read back and verified at the end.
    pub do_verify: bool,
    /// True if the job only verifies blocks written by an earlier run.
    pub verify_only: bool,
    /// True if the job ends at the first bad block.
    pub verify_fatal: bool,
    /// Seed of offsets, directions and data; `None` for a random seed.
    pub randseed: Option<u64>,
    /// True if random offsets may repeat before the whole region was accessed.
    pub norandommap: bool,
    /// Number of writes between Flush commands; 0 for none.
    pub fsync: u32,
    /// True if the job ends with a Flush.
    pub end_fsync: bool,
    /// True if the copies are combined in the report.
    pub group_reporting: bool,
    /// True if the job starts only after all earlier jobs have ended.
    pub stonewall: bool,
    /// All keys set, with their values as text.
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

    /// Sets a key. Returns a note if the key is accepted but has no effect.
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

    /// True if the job writes or trims.
    #[must_use]
    pub fn changes_data(&self) -> bool {
        self.rw.changes_data() && !self.verify_only
    }
}

/// Accepted key that has no effect.
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
