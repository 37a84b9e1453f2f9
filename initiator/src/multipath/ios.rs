//! The commands of a [`Multipath`](super::Multipath): each in a slot of its own from
//! its submission until its answer is taken, whichever paths it takes meanwhile.

use std::collections::VecDeque;

use nvme_proto::wire::{FromZeros, Sqe};

use super::buffer::Part;
use crate::error::HostError;
use crate::queue::Response;

/// A submitted command. Good for one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PathTicket {
    slot: u16,
    generation: u32,
}

impl PathTicket {
    /// Less than the depth, and of no other command until this one's answer is
    /// taken: good for indexing a table of one's own.
    #[must_use]
    pub fn slot(&self) -> u16 {
        self.slot
    }
}

/// An answer, or why there will be none.
pub(super) type Answer = Result<Response, HostError>;

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Free,
    /// Waits for a path.
    Waiting,
    /// Is on its way.
    Sent,
    /// Was answered.
    Done(Answer),
}

#[derive(Debug)]
pub(super) struct Io {
    pub(super) sqe: Sqe,
    pub(super) part: Part,
    /// How often a path that was there refused it, other than by its ANA state.
    pub(super) failovers: u8,
    phase: Phase,
    generation: u32,
    /// Its owner has given up: the answer frees it.
    orphan: bool,
}

/// All of them. Nothing is allocated after they are made.
#[derive(Debug)]
pub(super) struct Ios {
    slots: Vec<Io>,
    free: Vec<u16>,
    /// Those that wait for a path, longest first.
    waiting: VecDeque<u16>,
    /// Those that are answered and not taken, oldest first.
    done: VecDeque<u16>,
}

impl Ios {
    pub(super) fn new(depth: u16) -> Self {
        let capacity = usize::from(depth);
        let empty = |_| Io {
            sqe: Sqe::new_zeroed(),
            part: Part::default(),
            failovers: 0,
            phase: Phase::Free,
            generation: 0,
            orphan: false,
        };
        Self {
            slots: (0..depth).map(empty).collect(),
            free: (0..depth).rev().collect(),
            waiting: VecDeque::with_capacity(capacity),
            done: VecDeque::with_capacity(capacity),
        }
    }

    /// A place for a command, which waits for a path from now on; `None` if all are
    /// taken.
    pub(super) fn add(&mut self, sqe: Sqe, part: Part) -> Option<PathTicket> {
        let slot = self.free.pop()?;
        let io = &mut self.slots[usize::from(slot)];
        (io.sqe, io.part, io.failovers, io.orphan) = (sqe, part, 0, false);
        io.phase = Phase::Waiting;
        self.waiting.push_back(slot);
        let generation = io.generation;
        Some(PathTicket { slot, generation })
    }

    pub(super) fn get(&self, slot: u16) -> &Io {
        &self.slots[usize::from(slot)]
    }

    pub(super) fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len() - self.done.len()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The one that has waited longest, of those that may go.
    pub(super) fn next(&self, may_go: impl Fn(&Sqe) -> bool) -> Option<u16> {
        let mut waiting = self.waiting.iter().copied();
        waiting.find(|&slot| may_go(&self.get(slot).sqe))
    }

    /// One that waited is on its way.
    pub(super) fn sent(&mut self, slot: u16) {
        self.wait_no_more(slot);
        self.slots[usize::from(slot)].phase = Phase::Sent;
    }

    /// One that was on its way needs another path, and goes first.
    pub(super) fn wait_again(&mut self, slot: u16, failed_over: bool) {
        let io = &mut self.slots[usize::from(slot)];
        assert!(matches!(io.phase, Phase::Sent), "{io:?}");
        io.failovers += u8::from(failed_over);
        io.phase = Phase::Waiting;
        self.waiting.push_front(slot);
    }

    fn wait_no_more(&mut self, slot: u16) {
        let place = self.waiting.iter().position(|&waiting| waiting == slot);
        self.waiting.remove(place.expect("one that waits"));
    }

    /// One that waits does so in vain.
    pub(super) fn fail(&mut self, slot: u16, error: HostError) {
        self.wait_no_more(slot);
        self.finish(slot, Err(error));
    }

    /// One that was on its way is answered.
    pub(super) fn answer(&mut self, slot: u16, answer: Answer) {
        let io = &self.slots[usize::from(slot)];
        assert!(matches!(io.phase, Phase::Sent), "{io:?}");
        self.finish(slot, answer);
    }

    fn finish(&mut self, slot: u16, answer: Answer) {
        let io = &mut self.slots[usize::from(slot)];
        io.part = Part::default();
        if io.orphan {
            self.release(slot);
        } else {
            io.phase = Phase::Done(answer);
            self.done.push_back(slot);
        }
    }

    /// The answer to a command, if it is there.
    pub(super) fn take(&mut self, ticket: PathTicket) -> Option<Answer> {
        self.check(ticket);
        let place = self.done.iter().position(|&slot| slot == ticket.slot)?;
        self.done.remove(place);
        Some(self.take_done(ticket.slot))
    }

    /// The oldest answer that was not taken.
    pub(super) fn take_oldest(&mut self) -> Option<(PathTicket, Answer)> {
        let slot = self.done.pop_front()?;
        let generation = self.slots[usize::from(slot)].generation;
        Some((PathTicket { slot, generation }, self.take_done(slot)))
    }

    /// No caller waits for this command's answer any more.
    pub(super) fn forget(&mut self, ticket: PathTicket) {
        if self.take(ticket).is_none() {
            self.slots[usize::from(ticket.slot)].orphan = true;
        }
    }

    fn take_done(&mut self, slot: u16) -> Answer {
        let phase = std::mem::take(&mut self.slots[usize::from(slot)].phase);
        let Phase::Done(answer) = phase else {
            unreachable!("slot {slot} is among those that are answered: {phase:?}")
        };
        self.release(slot);
        answer
    }

    fn release(&mut self, slot: u16) {
        let io = &mut self.slots[usize::from(slot)];
        io.phase = Phase::Free;
        io.generation = io.generation.wrapping_add(1);
        self.free.push(slot);
    }

    fn check(&self, ticket: PathTicket) {
        let io = &self.slots[usize::from(ticket.slot)];
        assert!(
            io.generation == ticket.generation && !matches!(io.phase, Phase::Free) && !io.orphan,
            "the ticket is void: {ticket:?}"
        );
    }
}

#[cfg(test)]
mod tests {
    use nvme_proto::wire::{Cqe, Status};

    use super::*;

    fn response() -> Response {
        Response {
            cqe: Cqe::new(0, 0, Status::SUCCESS, 0),
            invalidated_rkey: None,
        }
    }

    #[test]
    fn a_command_has_one_answer_however_many_paths_it_takes() {
        let mut ios = Ios::new(2);
        let one = ios.add(Sqe::new_zeroed(), Part::default()).unwrap();
        let two = ios.add(Sqe::new_zeroed(), Part::default()).unwrap();
        assert_eq!(ios.add(Sqe::new_zeroed(), Part::default()), None, "full");
        assert_eq!(ios.next(|_| true), Some(one.slot()));
        assert_eq!(ios.next(|_| false), None);
        ios.sent(two.slot());
        ios.sent(one.slot());
        ios.wait_again(one.slot(), true);
        assert_eq!(ios.get(one.slot()).failovers, 1);
        assert!(ios.take(one).is_none());
        ios.sent(one.slot());
        ios.answer(one.slot(), Ok(response()));
        ios.answer(two.slot(), Err(no_path()));
        assert!(ios.take(two).unwrap().is_err());
        let (ticket, answer) = ios.take_oldest().unwrap();
        assert_eq!(ticket, one);
        assert!(answer.is_ok() && ios.take_oldest().is_none());
        assert_eq!((ios.outstanding(), ios.waiting()), (0, 0));
    }

    fn no_path() -> HostError {
        HostError::NoPath {
            paths: 1,
            why: String::new(),
        }
    }

    #[test]
    fn who_gave_up_gets_no_answer_and_the_place_is_free_again() {
        let mut ios = Ios::new(1);
        let ticket = ios.add(Sqe::new_zeroed(), Part::default()).unwrap();
        ios.sent(ticket.slot());
        ios.forget(ticket);
        ios.answer(ticket.slot(), Ok(response()));
        assert!(ios.take_oldest().is_none());
        assert!(ios.add(Sqe::new_zeroed(), Part::default()).is_some());
    }

    #[test]
    #[should_panic(expected = "void")]
    fn a_ticket_is_good_once() {
        let mut ios = Ios::new(1);
        let ticket = ios.add(Sqe::new_zeroed(), Part::default()).unwrap();
        ios.fail(ticket.slot(), no_path());
        let _ = ios.take(ticket);
        let _ = ios.take(ticket);
    }
}
