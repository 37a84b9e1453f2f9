//! Operations on a namespace, and a check that a correct disk can produce their results.
//!
//! Each block is a register. A write takes effect at one moment between its begin and its end, and
//! a read returns the value at one such moment. A failed write may have taken effect or not. An
//! unanswered write ends when it is [`dead`](History::dead). A [`crash`](History::crash) may undo
//! writes that are neither durable nor flushed.
//!
//! [`History::check`] follows all possible orders of operations on each block (just-in-time
//! linearization; G. Lowe, "Testing for linearizability", 2017).

mod register;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;

use register::Register;

/// Contents of a block: [`ZEROES`], [`GARBAGE`], or a number from which the bytes are derived.
pub(crate) type Value = u64;

pub(crate) const ZEROES: Value = 0;
pub(crate) const GARBAGE: Value = u64::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Id(usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    /// Writes consecutive values, starting with `first`.
    Write {
        first: Value,
        durable: bool,
    },
    WriteZeroes {
        durable: bool,
    },
    Flush,
}

impl Kind {
    pub(crate) fn writes(self) -> bool {
        matches!(self, Self::Write { .. } | Self::WriteZeroes { .. })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Done,
    Read(Vec<Value>),
    /// The write failed, but may have taken effect in part.
    Failed,
}

#[derive(Debug)]
struct Operation {
    kind: Kind,
    blocks: Range<usize>,
    end: Option<End>,
    who: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Begin(Id),
    End(Id),
    Dead(Id),
    Crash,
}

#[derive(Debug, Default)]
pub(crate) struct History {
    operations: Vec<Operation>,
    events: Vec<Event>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) block: usize,
    pub(crate) story: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}: no order of its writes explains", self.block)?;
        self.story
            .iter()
            .try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl History {
    pub(crate) fn begin(&mut self, who: &str, kind: Kind, blocks: Range<usize>) -> Id {
        let id = Id(self.operations.len());
        self.operations.push(Operation {
            kind,
            blocks,
            end: None,
            who: who.to_owned(),
        });
        self.events.push(Event::Begin(id));
        id
    }

    pub(crate) fn end(&mut self, id: Id, end: End) {
        self.operations[id.0].end = Some(end);
        self.events.push(Event::End(id));
    }

    pub(crate) fn dead(&mut self, id: Id) {
        self.events.push(Event::Dead(id));
    }

    pub(crate) fn crash(&mut self) {
        self.events.push(Event::Crash);
    }

    pub(crate) fn operation(&self, id: Id) -> (Kind, Range<usize>) {
        let operation = &self.operations[id.0];
        (operation.kind, operation.blocks.clone())
    }

    pub(crate) fn is_done(&self, id: Id) -> bool {
        let end = self.operations[id.0].end.as_ref();
        end.is_some_and(|end| *end != End::Failed)
    }

    pub(crate) fn check(&self, blocks: usize) -> Result<(), Violation> {
        (0..blocks).try_for_each(|block| self.check_block(block))
    }

    fn touches(&self, event: Event, block: usize) -> bool {
        match event {
            Event::Begin(id) | Event::End(id) | Event::Dead(id) => {
                let operation = &self.operations[id.0];
                operation.kind == Kind::Flush || operation.blocks.contains(&block)
            }
            Event::Crash => true,
        }
    }

    fn check_block(&self, block: usize) -> Result<(), Violation> {
        let of_block = |event: &&Event| self.touches(**event, block);
        let events: Vec<Event> = self.events.iter().filter(of_block).copied().collect();
        let last_crash = events.iter().rposition(|event| *event == Event::Crash);
        let mut register = Register::new();
        for (at, &event) in events.iter().enumerate() {
            register.crash_ahead = last_crash.is_some_and(|crash| at < crash);
            self.apply(&mut register, event, block);
            if register.is_impossible() {
                let story = events[..=at]
                    .iter()
                    .map(|event| self.describe(*event, block));
                return Err(Violation {
                    block,
                    story: story.collect(),
                });
            }
        }
        Ok(())
    }

    fn apply(&self, register: &mut Register, event: Event, block: usize) {
        match event {
            Event::Begin(id) => match self.operations[id.0].kind {
                Kind::Flush => register.flush_begins(id),
                kind if kind.writes() => {
                    let (value, durable) = self.written(id, block);
                    register.write_begins(id, value, durable);
                }
                _ => {
                    if let Some(value) = self.read(id, block) {
                        register.read_begins(id, value);
                    }
                }
            },
            Event::End(id) => {
                let operation = &self.operations[id.0];
                let failed = operation.end == Some(End::Failed);
                match operation.kind {
                    Kind::Flush => register.flush_ends(id, !failed),
                    Kind::Read if failed => {}
                    _ => register.ends(id, !failed),
                }
            }
            Event::Dead(id) => register.ends(id, false),
            Event::Crash => register.crash(),
        }
    }

    fn written(&self, id: Id, block: usize) -> (Value, bool) {
        let operation = &self.operations[id.0];
        match operation.kind {
            Kind::Write { first, durable } => {
                (first + (block - operation.blocks.start) as u64, durable)
            }
            Kind::WriteZeroes { durable } => (ZEROES, durable),
            Kind::Read | Kind::Flush => unreachable!("{operation:?} writes nothing"),
        }
    }

    fn read(&self, id: Id, block: usize) -> Option<Value> {
        let operation = &self.operations[id.0];
        match &operation.end {
            Some(End::Read(values)) => Some(values[block - operation.blocks.start]),
            _ => None,
        }
    }

    fn describe(&self, event: Event, block: usize) -> String {
        let of = |id: Id| {
            let operation = &self.operations[id.0];
            let value = match operation.kind {
                Kind::Read => self.read(id, block).map(|value| format!(" of {value:#x}")),
                Kind::Flush => None,
                _ => Some(format!(" of {:#x}", self.written(id, block).0)),
            };
            let durable = match operation.kind {
                Kind::Write { durable: true, .. } | Kind::WriteZeroes { durable: true } => {
                    " (durable)"
                }
                _ => "",
            };
            let what = match operation.kind {
                Kind::Read => "read",
                Kind::Flush => "flush",
                _ => "write",
            };
            let (who, value) = (&operation.who, value.unwrap_or_default());
            format!("{what}{value}{durable}, number {} by {who}", id.0)
        };
        match event {
            Event::Begin(id) => format!("begins: {}", of(id)),
            Event::End(id) if self.operations[id.0].end == Some(End::Failed) => {
                format!("fails:  {}", of(id))
            }
            Event::End(id) => format!("ends:   {}", of(id)),
            Event::Dead(id) => format!("dead:   {}", of(id)),
            Event::Crash => "the disk loses its power".to_owned(),
        }
    }
}
