//! Submitted commands. A command keeps its slot until its result is taken, even if it moves to another path.

use std::collections::VecDeque;
use std::time::Duration;

use nvme_proto::wire::{FromZeros, Sqe};

use crate::buffer::{Data, Part};
use crate::error::HostError;
use crate::queue::{Ended, Response, Ticket};

/// Handle of a submitted command, valid for one result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PathTicket {
    slot: u16,
    generation: u32,
}

impl PathTicket {
    /// Slot, unique until the result is taken, and less than
    /// [`MultipathOptions::depth`](super::MultipathOptions::depth): usable as an index.
    #[must_use]
    pub fn slot(&self) -> u16 {
        self.slot
    }
}

pub(super) type Answer = Result<Response, HostError>;

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Free,
    Waiting,
    Sent(usize, Ticket),
    Done(Answer),
}

#[derive(Debug)]
pub(super) struct Io {
    pub(super) sqe: Sqe,
    /// Registered data, if any. In-capsule data is not allowed, because a retry would need a copy of it.
    part: Option<Part>,
    /// Failures on connected paths, without failures by ANA status.
    pub(super) failovers: u8,
    not_before: Duration,
    phase: Phase,
    generation: u32,
    /// True if the owner gave the command up: it is not sent on another path.
    given_up: bool,
    /// True if the owner abandoned the result: the slot is freed when the command ends.
    orphan: bool,
}

impl Io {
    pub(super) fn data_on(&self, path: usize) -> Data<'static> {
        let part = self.part.as_ref();
        part.map_or(Data::None, |part| Data::Registered(part.on_path(path)))
    }
}

#[derive(Debug)]
pub(super) struct Ios {
    slots: Vec<Io>,
    free: Vec<u16>,
    /// Slots of commands waiting for a path, oldest first.
    waiting: VecDeque<u16>,
    /// Slots of ended commands, oldest first.
    done: VecDeque<u16>,
}

impl Ios {
    pub(super) fn new(depth: u16) -> Self {
        let capacity = usize::from(depth);
        let empty = |_| Io {
            sqe: Sqe::new_zeroed(),
            part: None,
            failovers: 0,
            not_before: Duration::ZERO,
            phase: Phase::Free,
            generation: 0,
            given_up: false,
            orphan: false,
        };
        Self {
            slots: (0..depth).map(empty).collect(),
            free: (0..depth).rev().collect(),
            waiting: VecDeque::with_capacity(capacity),
            done: VecDeque::with_capacity(capacity),
        }
    }

    pub(super) fn add(&mut self, sqe: Sqe, part: Option<Part>) -> Option<PathTicket> {
        let slot = self.free.pop()?;
        let io = &mut self.slots[usize::from(slot)];
        (io.sqe, io.part, io.failovers) = (sqe, part, 0);
        (io.given_up, io.orphan, io.not_before) = (false, false, Duration::ZERO);
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

    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn next(&self, now: Duration, may_go: impl Fn(&Sqe) -> bool) -> Option<u16> {
        let mut waiting = self.waiting.iter().copied();
        waiting.find(|&slot| {
            let io = self.get(slot);
            io.not_before <= now && may_go(&io.sqe)
        })
    }

    pub(super) fn next_pause(&self, now: Duration) -> Option<Duration> {
        let pauses = self.waiting.iter().map(|&slot| self.get(slot).not_before);
        pauses.filter(|&end| end > now).min()
    }

    pub(super) fn pause_until(&mut self, slot: u16, moment: Duration) {
        self.slots[usize::from(slot)].not_before = moment;
    }

    pub(super) fn sent(&mut self, slot: u16, path: usize, ticket: Ticket) {
        self.wait_no_more(slot);
        self.slots[usize::from(slot)].phase = Phase::Sent(path, ticket);
    }

    /// Gives a command up: no path sends it again. A waiting command ends with `why`; for a command in flight, returns
    /// its path and the ticket of the path's controller.
    pub(super) fn give_up(
        &mut self,
        ticket: PathTicket,
        why: HostError,
    ) -> Option<(usize, Ticket)> {
        self.check(ticket);
        let io = &mut self.slots[usize::from(ticket.slot)];
        io.given_up = true;
        match io.phase {
            Phase::Sent(path, there) => return Some((path, there)),
            Phase::Waiting => self.fail(ticket.slot, why),
            Phase::Done(_) | Phase::Free => {}
        }
        None
    }

    /// Moves a command in flight to the front of the waiting commands; a given-up command ends with `answer`.
    pub(super) fn wait_again(&mut self, slot: u16, failed_over: bool, answer: Answer) {
        let io = &mut self.slots[usize::from(slot)];
        assert!(matches!(io.phase, Phase::Sent(..)), "{io:?}");
        if io.given_up {
            return self.finish(slot, answer);
        }
        io.failovers += u8::from(failed_over);
        io.phase = Phase::Waiting;
        self.waiting.push_front(slot);
    }

    fn wait_no_more(&mut self, slot: u16) {
        let place = self.waiting.iter().position(|&waiting| waiting == slot);
        self.waiting.remove(place.expect("one that waits"));
    }

    pub(super) fn fail(&mut self, slot: u16, error: HostError) {
        self.wait_no_more(slot);
        self.finish(slot, Err(error));
    }

    pub(super) fn answer(&mut self, slot: u16, answer: Answer) {
        let io = &self.slots[usize::from(slot)];
        assert!(matches!(io.phase, Phase::Sent(..)), "{io:?}");
        self.finish(slot, answer);
    }

    fn finish(&mut self, slot: u16, answer: Answer) {
        let io = &mut self.slots[usize::from(slot)];
        if io.orphan {
            self.release(slot);
        } else {
            io.phase = Phase::Done(answer);
            self.done.push_back(slot);
        }
    }

    pub(super) fn take(&mut self, ticket: PathTicket) -> Option<Ended> {
        self.check(ticket);
        let place = self.done.iter().position(|&slot| slot == ticket.slot)?;
        self.done.remove(place);
        Some(self.take_done(ticket.slot))
    }

    pub(super) fn take_oldest(&mut self) -> Option<(PathTicket, Ended)> {
        let slot = self.done.pop_front()?;
        let generation = self.slots[usize::from(slot)].generation;
        Some((PathTicket { slot, generation }, self.take_done(slot)))
    }

    pub(super) fn forget(&mut self, ticket: PathTicket) {
        if self.take(ticket).is_some() {
            return;
        }
        let io = &mut self.slots[usize::from(ticket.slot)];
        (io.given_up, io.orphan) = (true, true);
        if matches!(io.phase, Phase::Waiting) {
            self.wait_no_more(ticket.slot);
            self.release(ticket.slot);
        }
    }

    fn take_done(&mut self, slot: u16) -> Ended {
        let io = &mut self.slots[usize::from(slot)];
        let phase = std::mem::take(&mut io.phase);
        let Phase::Done(answer) = phase else {
            unreachable!("slot {slot} is among those that are answered: {phase:?}")
        };
        let buffer = io.part.take().map(|part| part.buffer);
        self.release(slot);
        Ended { answer, buffer }
    }

    fn release(&mut self, slot: u16) {
        let io = &mut self.slots[usize::from(slot)];
        io.phase = Phase::Free;
        io.part = None;
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

    const NOW: Duration = Duration::ZERO;
    const SENT: Ticket = Ticket::of_tests(1, 7);

    fn response() -> Response {
        Response {
            cqe: Cqe::new(0, 0, Status::SUCCESS, 0),
            invalidated_rkey: None,
        }
    }

    #[test]
    fn a_command_has_one_answer_however_many_paths_it_takes() {
        let mut ios = Ios::new(2);
        let one = ios.add(Sqe::new_zeroed(), None).unwrap();
        let two = ios.add(Sqe::new_zeroed(), None).unwrap();
        assert_eq!(ios.add(Sqe::new_zeroed(), None), None, "full");
        assert_eq!(ios.next(NOW, |_| true), Some(one.slot()));
        assert_eq!(ios.next(NOW, |_| false), None);
        ios.sent(two.slot(), 0, SENT);
        ios.sent(one.slot(), 0, SENT);
        ios.wait_again(one.slot(), true, Err(no_path()));
        assert_eq!(ios.get(one.slot()).failovers, 1);
        assert!(ios.take(one).is_none());
        ios.sent(one.slot(), 0, SENT);
        ios.answer(one.slot(), Ok(response()));
        ios.answer(two.slot(), Err(no_path()));
        assert!(ios.take(two).unwrap().answer.is_err());
        let (ticket, ended) = ios.take_oldest().unwrap();
        assert_eq!(ticket, one);
        assert!(ended.answer.is_ok() && ios.take_oldest().is_none());
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
        let ticket = ios.add(Sqe::new_zeroed(), None).unwrap();
        ios.sent(ticket.slot(), 0, SENT);
        ios.forget(ticket);
        ios.answer(ticket.slot(), Ok(response()));
        assert!(ios.take_oldest().is_none());
        assert!(ios.add(Sqe::new_zeroed(), None).is_some());
    }

    #[test]
    fn a_command_that_was_given_up_is_sent_by_no_path() {
        let add = |ios: &mut Ios| ios.add(Sqe::new_zeroed(), None).unwrap();
        let mut ios = Ios::new(1);
        let ticket = add(&mut ios);
        ios.forget(ticket);
        assert_eq!((ios.outstanding(), ios.next(NOW, |_| true)), (0, None));
        let ticket = add(&mut ios);
        assert_eq!(ios.give_up(ticket, no_path()), None);
        assert_eq!(ios.next(NOW, |_| true), None);
        assert!(ios.take(ticket).unwrap().answer.is_err());
        let ticket = add(&mut ios);
        ios.sent(ticket.slot(), 3, SENT);
        assert_eq!(ios.give_up(ticket, no_path()), Some((3, SENT)));
        ios.wait_again(ticket.slot(), false, Err(no_path()));
        assert_eq!(ios.next(NOW, |_| true), None);
        assert!(ios.take(ticket).unwrap().answer.is_err());
        let ticket = add(&mut ios);
        ios.sent(ticket.slot(), 3, SENT);
        ios.forget(ticket);
        ios.wait_again(ticket.slot(), false, Err(no_path()));
        assert_eq!((ios.outstanding(), ios.next(NOW, |_| true)), (0, None));
    }

    #[test]
    #[should_panic(expected = "void")]
    fn a_ticket_is_good_once() {
        let mut ios = Ios::new(1);
        let ticket = ios.add(Sqe::new_zeroed(), None).unwrap();
        ios.fail(ticket.slot(), no_path());
        let _ = ios.take(ticket);
        let _ = ios.take(ticket);
    }
}
