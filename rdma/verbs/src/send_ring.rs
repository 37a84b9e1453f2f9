//! Ring of the outstanding work of one send queue.
//!
//! A send queue completes its work in order, so a signaled completion also ends earlier unsignaled
//! work.

use cairn_rdma::{CompletionKind, Operation, SendWork};

pub(crate) struct SendRing {
    entries: Box<[SendEntry]>,
    limit: u32,
    head: u32,
    tail: u32,
}

#[derive(Clone, Copy)]
pub(crate) struct SendEntry {
    pub(crate) id: u64,
    pub(crate) kind: CompletionKind,
}

impl SendEntry {
    pub(crate) fn of(work: &SendWork) -> Self {
        let kind = match work.op {
            Operation::Send | Operation::SendWithInvalidate { .. } => CompletionKind::Send,
            Operation::Write(_) => CompletionKind::Write,
            Operation::Read(_) => CompletionKind::Read,
        };
        Self { id: work.id, kind }
    }
}

impl SendRing {
    pub(crate) fn new(limit: u32) -> Self {
        let empty = SendEntry {
            id: 0,
            kind: CompletionKind::Unknown,
        };
        Self {
            // Sequence numbers wrap around, so the length must be a power of two.
            entries: vec![empty; limit.next_power_of_two() as usize].into(),
            limit,
            head: 0,
            tail: 0,
        }
    }

    pub(crate) fn room(&self) -> u32 {
        self.limit - self.outstanding()
    }

    pub(crate) fn outstanding(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    pub(crate) fn push(&mut self, work: &SendWork) -> u32 {
        assert!(self.room() > 0, "the caller asked for room");
        let sequence = self.tail;
        *self.entry(sequence) = SendEntry::of(work);
        self.tail = sequence.wrapping_add(1);
        sequence
    }

    pub(crate) fn unpush(&mut self, count: u32) {
        assert!(count <= self.outstanding());
        self.tail = self.tail.wrapping_sub(count);
    }

    pub(crate) fn complete(&mut self, sequence: u32) -> Option<SendEntry> {
        if sequence.wrapping_sub(self.head) >= self.outstanding() {
            return None;
        }
        self.head = sequence.wrapping_add(1);
        Some(*self.entry(sequence))
    }

    pub(crate) fn next(&self) -> u32 {
        self.tail
    }

    pub(crate) fn complete_oldest(&mut self) -> Option<SendEntry> {
        self.complete(self.head)
    }

    fn entry(&mut self, sequence: u32) -> &mut SendEntry {
        let mask = self.entries.len() - 1;
        &mut self.entries[sequence as usize & mask]
    }
}

#[cfg(test)]
mod tests {
    use cairn_rdma::SgeList;

    use super::*;

    fn send(id: u64) -> SendWork {
        SendWork {
            id,
            op: Operation::Send,
            sges: SgeList::EMPTY,
            signaled: true,
        }
    }

    #[test]
    fn a_completion_ends_what_came_before_it() {
        let mut ring = SendRing::new(3);
        ring.push(&send(1));
        ring.push(&send(2));
        let last = ring.push(&send(3));
        assert_eq!(ring.room(), 0);
        assert_eq!(ring.complete(last).unwrap().id, 3);
        assert_eq!(ring.room(), 3);
        assert!(ring.complete(last).is_none(), "work completes once");
    }

    #[test]
    fn sequence_numbers_wrap() {
        let mut ring = SendRing::new(4);
        (ring.head, ring.tail) = (u32::MAX, u32::MAX);
        let before = ring.push(&send(1));
        let after = ring.push(&send(2));
        assert_eq!((before, after), (u32::MAX, 0));
        assert_eq!(ring.complete(before).unwrap().id, 1);
        assert_eq!(ring.outstanding(), 1);
        assert_eq!(ring.complete(after).unwrap().id, 2);
    }

    #[test]
    fn work_that_was_not_posted_is_forgotten() {
        let mut ring = SendRing::new(2);
        let first = ring.push(&send(1));
        ring.push(&send(2));
        ring.unpush(1);
        assert_eq!(ring.complete(first).unwrap().id, 1);
        assert_eq!(ring.outstanding(), 0);
    }
}
