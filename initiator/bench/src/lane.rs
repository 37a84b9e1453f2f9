//! Interface between a job and its queue to a namespace.

use std::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    pub block_bytes: u32,
    pub blocks: u64,
    /// Maximum data of a command in bytes.
    pub transfer_max: u64,
}

impl Format {
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.block_bytes)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Read,
    Write,
}

impl Direction {
    /// Both directions in the order of fio's reports.
    pub const ALL: [Self; 2] = [Self::Read, Self::Write];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// Command on a byte range of the namespace, in multiples of the block size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    pub direction: Direction,
    pub offset: u64,
    pub length: u32,
}

impl Operation {
    /// True if the order of the two commands matters: their ranges overlap and one is a write.
    #[must_use]
    pub fn conflicts(&self, other: &Self) -> bool {
        (self.direction == Direction::Write || other.direction == Direction::Write)
            && self.offset < other.offset + u64::from(other.length)
            && other.offset < self.offset + u64::from(self.length)
    }
}

#[derive(Debug)]
pub struct Done {
    pub slot: usize,
    pub at: Instant,
    pub result: Result<(), String>,
}

/// Opens a [`Lane`] for each copy of a job.
pub trait Lanes: Sync {
    fn format(&self) -> Format;

    fn open(&self, depth: u16, slot_bytes: usize) -> Result<Box<dyn Lane>, String>;
}

/// Queue to a namespace, with data memory for each slot. Slots are numbered 0 to depth - 1.
pub trait Lane {
    fn load(&mut self, slot: usize, at: usize, bytes: &[u8]);

    /// Copies bytes from offset `at` of a slot's memory to `out`.
    fn unload(&self, slot: usize, at: usize, out: &mut [u8]);

    /// Submits a command with a slot's memory.
    ///
    /// # Errors
    /// The command cannot be sent. The lane is then unusable.
    fn submit(&mut self, slot: usize, operation: Operation) -> Result<(), String>;

    /// Appends completed commands to `done`. Blocks until a command completes, or until `deadline`.
    fn reap(&mut self, deadline: Instant, done: &mut Vec<Done>) -> Result<(), String>;

    fn close(self: Box<Self>) -> Result<(), String>;
}
