//! Fused Compare and Write (Base, 3.4.2; NVM, 3.2.1): pairing of the two commands.
//!
//! The Compare (FUSE 01b) and the Write (FUSE 10b) are adjacent in a queue. A target passes each
//! command with FUSE to the [`Pairing`] of its queue, and commands without FUSE while a Compare
//! waits there. It executes a pair with FUSE cleared ([`Sqe::unfuse`]).
//! [`IoCommand::parse`](crate::io::IoCommand::parse) aborts a command that still has FUSE, because
//! its partner is missing.

use crate::wire::{NvmOpcode, Sqe, Status};

/// Maximum logical blocks of a Compare and Write (ACWU 0 is one block).
pub const BLOCKS_MAX: u32 = 1;

/// Position in a Compare and Write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Compare with FUSE 01b.
    First,
    /// Write with FUSE 10b.
    Second,
}

impl Part {
    /// Returns a command's position in its pair; `None` if the command cannot be fused.
    #[must_use]
    pub fn of(sqe: &Sqe) -> Option<Self> {
        match (sqe.fuse(), NvmOpcode(sqe.opc)) {
            (0b01, NvmOpcode::COMPARE) => Some(Self::First),
            (0b10, NvmOpcode::WRITE) => Some(Self::Second),
            _ => None,
        }
    }
}

#[cold]
pub(crate) fn refusal(sqe: &Sqe, otherwise: Status) -> Status {
    match Part::of(sqe) {
        Some(_) => Status::ABORTED_MISSING_FUSED.with_dnr(),
        None => otherwise,
    }
}

/// Checks that both commands address the same blocks, and at most [`BLOCKS_MAX`] blocks.
///
/// # Errors
/// The status of both commands.
pub fn check(first: &Sqe, second: &Sqe) -> Result<(), Status> {
    const NLB: u32 = 0xffff;
    let blocks = |sqe: &Sqe| {
        let count = (sqe.cdw12.get() & NLB) + 1;
        (sqe.nsid.get(), sqe.cdw10_11(), count)
    };
    if blocks(first) != blocks(second) {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    match blocks(first) {
        (_, _, count) if count > BLOCKS_MAX => Err(Status::ATOMIC_WRITE_UNIT_EXCEEDED.with_dnr()),
        _ => Ok(()),
    }
}

/// First command of a pair, while it waits for the second command.
#[derive(Debug)]
pub struct Pairing<T> {
    first: Option<T>,
}

/// Result of [`Pairing::arrive`] for the new command.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrived<T> {
    /// The command waits for its partner.
    Waits,
    /// The command has no partner.
    Alone(T),
    /// The command completes a pair: its first and second command.
    Pair(T, T),
}

impl<T> Default for Pairing<T> {
    fn default() -> Self {
        Self { first: None }
    }
}

impl<T> Pairing<T> {
    /// Handles the queue's next command. Also returns an earlier first command whose partner is
    /// missing.
    pub fn arrive(&mut self, part: Option<Part>, command: T) -> (Option<T>, Arrived<T>) {
        let first = self.first.take();
        match (part, first) {
            (Some(Part::First), first) => {
                self.first = Some(command);
                (first, Arrived::Waits)
            }
            (Some(Part::Second), Some(first)) => (None, Arrived::Pair(first, command)),
            (_, first) => (first, Arrived::Alone(command)),
        }
    }

    /// First command that waits for its partner, if any.
    #[must_use]
    #[inline]
    pub const fn waiting(&self) -> Option<&T> {
        self.first.as_ref()
    }

    /// Removes the waiting command, after a timeout or because the queue closes.
    pub const fn take(&mut self) -> Option<T> {
        self.first.take()
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn sqe(opcode: NvmOpcode, fuse: u8) -> Sqe {
        let mut sqe = Sqe::new(1, opcode.0, 1);
        sqe.flags |= fuse;
        sqe
    }

    #[test]
    fn opcode_and_fuse_make_the_part() {
        let (compare, write) = (NvmOpcode::COMPARE, NvmOpcode::WRITE);
        assert_eq!(Part::of(&sqe(compare, 1)), Some(Part::First));
        assert_eq!(Part::of(&sqe(write, 2)), Some(Part::Second));
        for (opcode, fuse) in [(compare, 0), (compare, 2), (compare, 3), (write, 1)] {
            assert_eq!(Part::of(&sqe(opcode, fuse)), None);
            let otherwise = Status::INVALID_FIELD;
            assert_eq!(refusal(&sqe(opcode, fuse), otherwise), otherwise);
        }
        let missing = refusal(&sqe(write, 2), Status::INVALID_FIELD);
        assert_eq!(missing.code(), Status::ABORTED_MISSING_FUSED);
        let mut paired = sqe(compare, 1);
        paired.unfuse();
        assert_eq!(paired, sqe(compare, 0));
    }

    #[test]
    fn both_parts_address_the_same_block() {
        let (first, mut second) = (sqe(NvmOpcode::COMPARE, 1), sqe(NvmOpcode::WRITE, 2));
        second.cdw12.set(1 << 30);
        assert_eq!(check(&first, &second), Ok(()));
        let differ = |change: fn(&mut Sqe)| {
            let mut other = second;
            change(&mut other);
            check(&first, &other).unwrap_err().code()
        };
        assert_eq!(differ(|sqe| sqe.nsid.set(2)), Status::INVALID_FIELD);
        assert_eq!(differ(|sqe| sqe.cdw10.set(1)), Status::INVALID_FIELD);
        assert_eq!(differ(|sqe| sqe.cdw11.set(1)), Status::INVALID_FIELD);
        assert_eq!(differ(|sqe| sqe.cdw12.set(1)), Status::INVALID_FIELD);
        let (mut first, mut second) = (first, second);
        first.cdw12.set(1);
        second.cdw12.set(1);
        let long = check(&first, &second).unwrap_err();
        assert_eq!(long.code(), Status::ATOMIC_WRITE_UNIT_EXCEEDED);
    }

    fn part() -> impl Strategy<Value = Option<Part>> {
        prop_oneof![
            Just(None),
            Just(Some(Part::First)),
            Just(Some(Part::Second))
        ]
    }

    proptest! {
        #[test]
        fn each_command_leaves_once_and_only_neighbours_pair(
            parts in prop::collection::vec(part(), 0..40),
        ) {
            let mut pairing = Pairing::default();
            let mut left = Vec::new();
            for (at, part) in parts.iter().copied().enumerate() {
                let (missing, arrived) = pairing.arrive(part, at);
                if let Some(missing) = missing {
                    prop_assert_eq!(missing + 1, at);
                    left.push(missing);
                }
                match arrived {
                    Arrived::Waits => prop_assert_eq!(part, Some(Part::First)),
                    Arrived::Alone(alone) => left.push(alone),
                    Arrived::Pair(first, second) => {
                        prop_assert_eq!((first + 1, second), (at, at));
                        prop_assert_eq!(parts[first], Some(Part::First));
                        prop_assert_eq!(part, Some(Part::Second));
                        left.extend([first, second]);
                    }
                }
            }
            left.extend(pairing.take());
            prop_assert!(pairing.waiting().is_none());
            prop_assert_eq!(left, (0..parts.len()).collect::<Vec<_>>());
        }
    }
}
