//! Submitted commands. A command keeps its slot until its result is taken, even if it moves to
//! another path.

use std::collections::VecDeque;
use std::time::Duration;

use cairn_base::slab::{Key, Reuse, Slab};
use nvme_proto::wire::Sqe;

use crate::buffer::{Data, Part};
use crate::error::HostError;
use crate::queue::{Ended, Response, Ticket};

/// Handle of a submitted command, valid for one result. Calls with a void ticket panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PathTicket(Key);

impl PathTicket {
    /// Slot, unique until the result is taken. Less than
    /// [`MultipathOptions::depth`](super::MultipathOptions::depth), so it can index a table.
    #[must_use]
    pub fn slot(&self) -> u16 {
        self.0.index as u16
    }
}

pub(super) type Answer = Result<Response, HostError>;

#[derive(Debug)]
enum Phase {
    Waiting,
    Sent(usize, Ticket),
    Done(Answer),
}

#[derive(Debug)]
pub(super) struct Io {
    pub(super) sqe: Sqe,
    /// Registered data, if any. In-capsule data is not possible: a retry would need a copy.
    part: Option<Part>,
    /// Number of retries after error statuses other than ANA statuses.
    pub(super) failovers: u8,
    not_before: Duration,
    phase: Phase,
    given_up: bool,
    /// True if the caller has abandoned the result. The slot becomes free when the command ends.
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
    slots: Slab<Io>,
    waiting: VecDeque<u16>,
    done: VecDeque<u16>,
}

impl Ios {
    pub(super) fn new(depth: u16) -> Self {
        let capacity = usize::from(depth);
        Self {
            slots: Slab::with_limit(depth.into(), Reuse::Latest),
            waiting: VecDeque::with_capacity(capacity),
            done: VecDeque::with_capacity(capacity),
        }
    }

    pub(super) fn add(&mut self, sqe: Sqe, part: Option<Part>) -> Option<PathTicket> {
        self.slots.vacant()?;
        let key = self.slots.insert(Io {
            sqe,
            part,
            failovers: 0,
            not_before: Duration::ZERO,
            phase: Phase::Waiting,
            given_up: false,
            orphan: false,
        });
        let ticket = PathTicket(key);
        self.waiting.push_back(ticket.slot());
        Some(ticket)
    }

    pub(super) fn get(&self, slot: u16) -> &Io {
        let (_, io) = self.slots.at(slot.into()).expect("the slot of a command");
        io
    }

    fn get_mut(&mut self, slot: u16) -> &mut Io {
        let io = self.slots.at_mut(slot.into());
        io.expect("the slot of a command").1
    }

    pub(super) fn outstanding(&self) -> usize {
        self.slots.len() - self.done.len()
    }

    pub(super) fn has_room(&self) -> bool {
        self.slots.vacant().is_some()
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
        self.get_mut(slot).not_before = moment;
    }

    pub(super) fn sent(&mut self, slot: u16, path: usize, ticket: Ticket) {
        self.wait_no_more(slot);
        self.get_mut(slot).phase = Phase::Sent(path, ticket);
    }

    /// Keeps the command from being sent on another path. A waiting command ends with `why`. If the
    /// command is in flight, returns its path and its ticket there.
    pub(super) fn give_up(
        &mut self,
        ticket: PathTicket,
        why: HostError,
    ) -> Option<(usize, Ticket)> {
        self.check(ticket);
        let io = self.get_mut(ticket.slot());
        io.given_up = true;
        match io.phase {
            Phase::Sent(path, there) => return Some((path, there)),
            Phase::Waiting => self.fail(ticket.slot(), why),
            Phase::Done(_) => {}
        }
        None
    }

    pub(super) fn wait_again(&mut self, slot: u16, failed_over: bool, answer: Answer) {
        let io = self.get_mut(slot);
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
        let io = self.get(slot);
        assert!(matches!(io.phase, Phase::Sent(..)), "{io:?}");
        self.finish(slot, answer);
    }

    fn finish(&mut self, slot: u16, answer: Answer) {
        let io = self.get_mut(slot);
        if io.orphan {
            let (key, _) = self.slots.at(slot.into()).expect("the slot of a command");
            self.slots.remove(key);
        } else {
            io.phase = Phase::Done(answer);
            self.done.push_back(slot);
        }
    }

    pub(super) fn take(&mut self, ticket: PathTicket) -> Option<Ended> {
        self.check(ticket);
        let slot = ticket.slot();
        let place = self.done.iter().position(|&done| done == slot)?;
        self.done.remove(place);
        Some(self.take_done(ticket))
    }

    pub(super) fn take_oldest(&mut self) -> Option<(PathTicket, Ended)> {
        let slot = self.done.pop_front()?;
        let (key, _) = self.slots.at(slot.into())?;
        let ticket = PathTicket(key);
        Some((ticket, self.take_done(ticket)))
    }

    pub(super) fn forget(&mut self, ticket: PathTicket) {
        if self.take(ticket).is_some() {
            return;
        }
        let io = self.get_mut(ticket.slot());
        (io.given_up, io.orphan) = (true, true);
        if matches!(io.phase, Phase::Waiting) {
            self.wait_no_more(ticket.slot());
            self.slots.remove(ticket.0);
        }
    }

    fn take_done(&mut self, ticket: PathTicket) -> Ended {
        match self.slots.remove(ticket.0) {
            Some(Io {
                phase: Phase::Done(answer),
                part,
                ..
            }) => Ended {
                answer,
                buffer: part.map(|part| part.buffer),
            },
            io => unreachable!("{ticket:?} is of an answered command: {io:?}"),
        }
    }

    fn check(&self, ticket: PathTicket) {
        let io = self.slots.get(ticket.0);
        assert!(
            io.is_some_and(|io| !io.orphan),
            "the ticket is void: {ticket:?}"
        );
    }
}

#[cfg(test)]
mod tests {
    use nvme_proto::wire::{Cqe, FromZeros, Status};

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
