//! What a job drives: one queue to one namespace.

use std::fmt;
use std::time::Instant;

/// The namespace, as far as a job cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// Bytes of a logical block.
    pub block_bytes: u32,
    /// Logical blocks.
    pub blocks: u64,
    /// Bytes that a command moves at most.
    pub transfer_max: u64,
}

impl Format {
    /// Bytes of the namespace.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.block_bytes)
    }
}

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Read into the slot's memory.
    Read,
    /// Write from the slot's memory.
    Write,
    /// Deallocate.
    Trim,
    /// Make all that was written durable.
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

/// A command to a stretch of the namespace. Bytes, whole blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// What it does.
    pub command: Command,
    /// Where, from the start of the namespace.
    pub offset: u64,
    /// How much.
    pub length: u32,
}

impl Operation {
    /// Whether two stretches have a byte in common.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.offset < other.offset + u64::from(other.length)
            && other.offset < self.offset + u64::from(self.length)
    }
}

/// A command has ended.
#[derive(Debug)]
pub struct Done {
    /// Which.
    pub slot: usize,
    /// When it was seen to have ended.
    pub at: Instant,
    /// How.
    pub result: Result<(), LaneError>,
}

/// A command failed, or all that are outstanding are lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneError(pub String);

impl fmt::Display for LaneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One queue to one namespace, with memory for each command that can be
/// outstanding. Slots are numbered from 0 up to the depth it was made for.
pub trait Lane {
    /// Copies bytes into a slot's memory.
    fn load(&mut self, slot: usize, at: usize, bytes: &[u8]);

    /// Copies bytes out of a slot's memory.
    fn unload(&self, slot: usize, at: usize, out: &mut [u8]);

    /// Begins a command.
    ///
    /// # Errors
    /// It could not be sent; the lane is of no further use.
    fn submit(&mut self, slot: usize, operation: Operation) -> Result<(), LaneError>;

    /// Appends the commands that have ended. If none has, waits until one does,
    /// or until `deadline`.
    ///
    /// # Errors
    /// The lane is of no further use.
    fn reap(&mut self, deadline: Instant, done: &mut Vec<Done>) -> Result<(), LaneError>;

    /// Ends it in order.
    ///
    /// # Errors
    /// The other end did not agree.
    fn close(self: Box<Self>) -> Result<(), LaneError>;
}
