//! Interface between a job and its queue to a namespace.

use std::fmt;
use std::time::Instant;

/// Block size and size of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// Logical block size in bytes.
    pub block_bytes: u32,
    /// Size in logical blocks.
    pub blocks: u64,
    /// Maximum data of a command in bytes.
    pub transfer_max: u64,
}

impl Format {
    /// Size of the namespace in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.block_bytes)
    }
}

/// Type of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Reads into the slot's memory.
    Read,
    /// Writes from the slot's memory.
    Write,
    /// Deallocates the range.
    Trim,
    /// Makes completed writes durable.
    Flush,
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "a read",
            Self::Write => "a write",
            Self::Trim => "a trim",
            Self::Flush => "a flush",
        })
    }
}

/// Command on a byte range of the namespace. Offset and length are multiples of the block size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// Type of the command.
    pub command: Command,
    /// Offset in the namespace in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
}

impl Operation {
    /// True if the two ranges overlap.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.offset < other.offset + u64::from(other.length)
            && other.offset < self.offset + u64::from(self.length)
    }
}

/// Completed command.
#[derive(Debug)]
pub struct Done {
    /// Slot number of the command.
    pub slot: usize,
    /// Time at which the completion was seen.
    pub at: Instant,
    /// Result of the command.
    pub result: Result<(), LaneError>,
}

/// Error of a command, or of the whole lane, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneError(pub String);

impl fmt::Display for LaneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Queue to a namespace with data memory for each slot. Slots are numbered from 0 to the depth minus 1.
pub trait Lane {
    /// Copies `bytes` into a slot's memory at offset `at`.
    fn load(&mut self, slot: usize, at: usize, bytes: &[u8]);

    /// Copies bytes from offset `at` of a slot's memory into `out`.
    fn unload(&self, slot: usize, at: usize, out: &mut [u8]);

    /// Submits a command that uses a slot's memory.
    ///
    /// # Errors
    /// The command cannot be sent; the lane is unusable.
    fn submit(&mut self, slot: usize, operation: Operation) -> Result<(), LaneError>;

    /// Appends completed commands to `done`. Blocks until there is at least one, or until `deadline`.
    ///
    /// # Errors
    /// The lane is unusable.
    fn reap(&mut self, deadline: Instant, done: &mut Vec<Done>) -> Result<(), LaneError>;

    /// Shuts the controller down and closes the lane.
    ///
    /// # Errors
    /// The controller did not confirm the shutdown.
    fn close(self: Box<Self>) -> Result<(), LaneError>;
}
