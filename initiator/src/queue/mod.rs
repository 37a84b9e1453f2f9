//! Admin or I/O queue with its commands and capsules.
//!
//! A queue persists over reconnections. When a connection breaks, sent commands keep their buffers
//! until the fabric reports the connection as closed. The commands are then parked for the next
//! connection, or end.

mod capsules;
mod done;
mod handle;
mod slot;
mod spread;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use cairn_rdma::{Device, FabricError, QpId, SendWork, Trains};
use nvme_proto::host::{Duty, OWN_COMMANDS, QueueSpec, requeue};
use nvme_proto::wire::sqe::SQE_BYTES;
use nvme_proto::wire::{AdminOpcode, Cqe, FromBytes, SglDescriptor, Sqe, Status, U16};

use crate::buffer::{Buffer, Data};
use crate::error::{HostError, Loss};

use capsules::Capsules;
use done::Done;
use slot::{Phase, Slot};
use spread::Spread;

pub use handle::IoQueue;
pub(crate) use slot::Owner;
pub use slot::{Ended, Response, Ticket, Unsent};

#[derive(Debug, Clone)]
pub(crate) enum Link {
    Connecting(QpId),
    Up(QpId),
    /// The connection is broken, but not yet closed. The controller may still access memory.
    Broken(QpId, Loss),
    Down(Loss),
}

pub(crate) struct Queue {
    pub(crate) qid: u16,
    pub(crate) link: Link,
    pub(crate) released: bool,
    capsules: Capsules,
    capsule_bytes: usize,
    depth: u16,
    slots: Vec<Slot>,
    free: Vec<u16>,
    done: Done,
    /// Answered commands that wait for SENDs to complete.
    waiting: VecDeque<u16>,
    unanswered: usize,
    spread: Spread,
}

pub(crate) type Outcome = (Result<Response, Loss>, Option<Buffer>);

#[derive(Debug, Clone, Copy)]
pub(crate) enum Effect {
    /// The command has not ended, or its caller abandoned it.
    No,
    /// A caller's command ended.
    ForCaller,
    /// A caller's command failed and must be sent again.
    Again { qid: u16, cid: u16, status: Status },
    /// A command of the association ended.
    ForDuty(Duty, Response),
    /// An identification command of `Guard` ended.
    ForGuard(Response),
}

impl Queue {
    pub(crate) fn new(
        device: &dyn Device,
        spec: &QueueSpec,
        qp: QpId,
    ) -> Result<Self, FabricError> {
        let slots = spec.depth + 1;
        Ok(Self {
            qid: spec.qid,
            link: Link::Connecting(qp),
            released: false,
            capsules: Capsules::new(device, slots, spec.capsule_bytes)?,
            capsule_bytes: spec.capsule_bytes,
            depth: spec.depth,
            slots: (0..slots).map(|_| Slot::default()).collect(),
            free: (0..spec.depth).rev().collect(),
            done: Done::default(),
            waiting: VecDeque::with_capacity(slots.into()),
            unanswered: 0,
            spread: Spread::default(),
        })
    }

    /// Prepares for a new connection. Parked commands that exceed its depth or capsule size end
    /// with `loss`.
    pub(crate) fn reconnect(&mut self, spec: &QueueSpec, qp: QpId, loss: &Loss) {
        self.link = Link::Connecting(qp);
        self.depth = spec.depth.min(self.slots.len() as u16 - 1);
        self.capsule_bytes = spec.capsule_bytes.min(self.capsules.stride());
        for cid in 0..self.slots.len() as u16 {
            let slot = &self.slots[usize::from(cid)];
            let fits = cid < self.depth && slot.capsule_bytes as usize <= self.capsule_bytes;
            if matches!(slot.phase, Phase::Parked) && !fits {
                self.finish(cid, Err(loss.clone()));
            }
        }
        let slots = &self.slots;
        let is_free = |cid: &u16| matches!(slots[usize::from(*cid)].phase, Phase::Free);
        self.free.clear();
        self.free.extend((0..self.depth).rev().filter(is_free));
    }

    #[expect(
        clippy::result_large_err,
        reason = "the buffer comes back without an allocation"
    )]
    pub(crate) fn prepare(
        &mut self,
        mut sqe: Sqe,
        data: Data<'_>,
        owner: Owner,
    ) -> Result<Ticket, Unsent> {
        let qid = self.qid;
        if let Data::InCapsule(bytes) = data
            && SQE_BYTES + bytes.len() > self.capsule_bytes
        {
            return Err(self.too_long(bytes.len()));
        }
        let Some(cid) = self.free_slot(owner) else {
            return Err(Unsent {
                error: HostError::QueueFull { qid },
                buffer: data.into_buffer(),
            });
        };
        sqe.cid = U16::new(cid);
        sqe.flags |= Sqe::FLAGS_SGL;
        sqe.dptr = descriptor(&data);
        let place = self.capsules.take(cid);
        self.capsules.write_sqe(place, &sqe);
        let mut length = SQE_BYTES;
        let mut held = None;
        match data {
            Data::None => {}
            Data::Registered(part) => held = Some(part.buffer),
            Data::InCapsule(bytes) => {
                self.capsules.write_data(place, bytes);
                length += bytes.len();
            }
        }
        let waits_for_ever = qid == 0 && AdminOpcode(sqe.opc) == AdminOpcode::ASYNC_EVENT_REQUEST;
        let slot = &mut self.slots[usize::from(cid)];
        slot.generation = slot.generation.wrapping_add(1);
        slot.phase = Phase::Parked;
        slot.owner = owner;
        slot.held = held;
        slot.place = Some(place);
        slot.capsule_bytes = length as u32;
        (slot.retries, slot.not_before) = (0, Duration::ZERO);
        slot.requeue = qid != 0 && owner == Owner::Caller && requeue::is_safe(&sqe);
        slot.timed = matches!(owner, Owner::Caller | Owner::Guard) && !waits_for_ever;
        Ok(Ticket {
            qid,
            cid,
            generation: slot.generation,
        })
    }

    fn too_long(&self, bytes: usize) -> Unsent {
        let most = self.in_capsule_max();
        Unsent {
            error: HostError::Unsupported(format!(
                "{bytes} bytes of data do not fit a capsule, which takes {most}: use a buffer"
            )),
            buffer: None,
        }
    }

    pub(crate) fn allow_retries(&mut self, ticket: Ticket) {
        self.slots[usize::from(ticket.cid)].retries = requeue::RETRIES_MAX;
    }

    pub(crate) fn pause_until(&mut self, cid: u16, moment: Duration) {
        self.slots[usize::from(cid)].not_before = moment;
    }

    pub(crate) fn next_pause(&self, now: Duration) -> Option<Duration> {
        let parked = |slot: &&Slot| matches!(slot.phase, Phase::Parked);
        let pauses = self.slots.iter().filter(parked).map(|slot| slot.not_before);
        pauses.filter(|&end| end > now).min()
    }

    pub(crate) fn send(&mut self, cid: u16) -> SendWork {
        let slot = &mut self.slots[usize::from(cid)];
        slot.phase = Phase::Outstanding { response: None };
        slot.age = 0;
        slot.aborted = false;
        self.unanswered += 1;
        let (place, length) = (slot.place(), slot.capsule_bytes);
        self.capsules.post(place, length)
    }

    pub(crate) fn parked(&self, now: Duration, which: impl Fn(&Sqe) -> bool) -> Option<u16> {
        let parked = |slot: &Slot| {
            matches!(slot.phase, Phase::Parked)
                && slot.not_before <= now
                && which(&self.capsules.sqe(slot.place()))
        };
        self.slots.iter().position(parked).map(|cid| cid as u16)
    }

    pub(crate) fn is_parked(&self, ticket: Ticket) -> bool {
        let slot = &self.slots[usize::from(ticket.cid)];
        slot.generation == ticket.generation && matches!(slot.phase, Phase::Parked)
    }

    pub(crate) fn may_wait(&self, cid: u16) -> bool {
        self.slots[usize::from(cid)].requeue
    }

    pub(crate) fn sent(&mut self, place: u16) {
        self.capsules.sent(place);
    }

    pub(crate) fn next_over(&mut self) -> Option<Effect> {
        let cid = *self.waiting.front()?;
        let slot = &self.slots[usize::from(cid)];
        if !self.capsules.may_leave(slot.place()) {
            return None;
        }
        self.waiting.pop_front();
        Some(self.end(cid))
    }

    pub(crate) fn responded(
        &mut self,
        capsule: &[u8],
        invalidated_rkey: Option<u32>,
    ) -> Result<Effect, Loss> {
        let Ok((cqe, _)) = Cqe::read_from_prefix(capsule) else {
            let length = capsule.len();
            return Err(Loss::Protocol(format!("a response of {length} bytes")));
        };
        let cid = cqe.cid.get();
        let slot = self.slots.get_mut(usize::from(cid));
        let Some(slot) = slot.filter(|slot| slot.unanswered()) else {
            return Err(Loss::Protocol(format!(
                "a response to command {cid:#x}, which is not outstanding"
            )));
        };
        let response = Some(Response {
            cqe,
            invalidated_rkey,
        });
        slot.phase = Phase::Outstanding { response };
        self.unanswered -= 1;
        if self.capsules.may_leave(slot.place()) {
            return Ok(self.end(cid));
        }
        self.waiting.push_back(cid);
        Ok(Effect::No)
    }

    /// Ends or parks all sent commands. Calls `unanswered` for each I/O command that the controller
    /// may have executed.
    pub(crate) fn closed(&mut self, loss: Loss, park: bool, mut unanswered: impl FnMut(&Sqe)) {
        self.capsules.closed();
        self.waiting.clear();
        for cid in 0..self.slots.len() as u16 {
            let slot = &mut self.slots[usize::from(cid)];
            let Phase::Outstanding { response } = slot.phase else {
                continue;
            };
            if response.is_none() && self.qid != 0 && !matches!(slot.owner, Owner::Duty(_)) {
                unanswered(&self.capsules.sqe(slot.place()));
            }
            match (slot.owner, response) {
                (Owner::Duty(_) | Owner::Guard | Owner::Abandoned, _) => self.release(cid),
                (Owner::Caller, Some(response)) => self.finish(cid, Ok(response)),
                (Owner::Caller, None) if park && slot.requeue => slot.phase = Phase::Parked,
                (Owner::Caller, None) => self.finish(cid, Err(loss.clone())),
            }
        }
        self.unanswered = 0;
        self.link = Link::Down(loss);
    }

    pub(crate) fn end_parked(&mut self, loss: &Loss, which: impl Fn(&Sqe) -> bool) {
        while let Some(cid) = self.parked(Duration::MAX, &which) {
            self.finish(cid, Err(loss.clone()));
        }
    }

    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<Outcome> {
        self.check(ticket);
        let slot = &mut self.slots[usize::from(ticket.cid)];
        if !matches!(slot.phase, Phase::Done(_)) {
            return None;
        }
        let Phase::Done(result) = std::mem::take(&mut slot.phase) else {
            unreachable!("it was just looked at");
        };
        let buffer = slot.held.take();
        self.done.remove(&mut self.slots, ticket.cid);
        self.release(ticket.cid);
        Some((result, buffer))
    }

    pub(crate) fn take_oldest(&mut self) -> Option<(Ticket, Outcome)> {
        let cid = self.done.oldest()?;
        let ticket = Ticket {
            qid: self.qid,
            cid,
            generation: self.slots[usize::from(cid)].generation,
        };
        Some((ticket, self.take(ticket)?))
    }

    pub(crate) fn withdraw(&mut self, ticket: Ticket) -> Option<Buffer> {
        let buffer = self.slots[usize::from(ticket.cid)].held.take();
        self.forget(ticket);
        buffer
    }

    pub(crate) fn forget(&mut self, ticket: Ticket) {
        self.check(ticket);
        let slot = &mut self.slots[usize::from(ticket.cid)];
        match slot.phase {
            Phase::Outstanding { .. } => slot.owner = Owner::Abandoned,
            Phase::Done(_) => {
                self.done.remove(&mut self.slots, ticket.cid);
                self.release(ticket.cid);
            }
            Phase::Parked | Phase::Free => self.release(ticket.cid),
        }
    }

    /// Ends a parked command with `why`. Returns true if the command is in flight; it is then not
    /// sent again.
    pub(crate) fn give_up(&mut self, ticket: Ticket, why: &Loss) -> bool {
        self.check(ticket);
        let slot = &mut self.slots[usize::from(ticket.cid)];
        slot.requeue = false;
        match slot.phase {
            Phase::Outstanding { .. } => return true,
            Phase::Parked => self.finish(ticket.cid, Err(why.clone())),
            Phase::Done(_) | Phase::Free => {}
        }
        false
    }

    /// Increments the age of commands in flight. Returns the CIDs of commands older than `age_max`,
    /// and whether their abort is requested.
    pub(crate) fn sweep(&mut self, age_max: u8) -> impl Iterator<Item = (u16, bool)> {
        self.slots
            .iter_mut()
            .enumerate()
            .filter(|(_, slot)| slot.timed && slot.unanswered())
            .filter_map(move |(cid, slot)| {
                slot.age = slot.age.saturating_add(1);
                (slot.age > age_max).then_some((cid as u16, slot.aborted))
            })
    }

    pub(crate) fn note_abort(&mut self, cid: u16) {
        let slot = &mut self.slots[usize::from(cid)];
        slot.aborted = true;
        slot.age = 0;
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.slots
            .iter()
            .filter(|slot| !matches!(slot.phase, Phase::Free | Phase::Done(_)))
            .count()
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.link, Link::Up(_))
    }

    pub(crate) fn unanswered(&self) -> usize {
        self.unanswered
    }

    pub(crate) fn send_work(depth: u16) -> u32 {
        Capsules::places(depth + 1)
    }

    pub(crate) fn depth(&self) -> u16 {
        self.depth
    }

    pub(crate) fn in_capsule_max(&self) -> usize {
        self.capsule_bytes - SQE_BYTES
    }

    pub(crate) fn prefers_capsule(&mut self, bytes: usize, trains: Option<Trains>) -> bool {
        if bytes > self.in_capsule_max() {
            return false;
        }
        let Some(trains) = trains else {
            return true;
        };
        let packet = trains.packet_bytes as usize;
        let splits = bytes <= packet && SQE_BYTES + bytes > packet;
        !splits || !self.spread.next(self.unanswered, trains.round_trip)
    }

    pub(crate) fn room(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        let own = if self.qid == 0 { OWN_COMMANDS } else { 0 };
        self.free.len() <= usize::from(own)
    }

    /// Takes a free slot. For the association, the admin queue reserves [`OWN_COMMANDS`] slots, and
    /// an I/O queue its last slot.
    fn free_slot(&mut self, owner: Owner) -> Option<u16> {
        match (self.qid, owner) {
            (0, Owner::Caller | Owner::Guard) if self.is_full() => None,
            (0, _) | (_, Owner::Caller | Owner::Abandoned) => self.free.pop(),
            _ => Some(self.slots.len() as u16 - 1),
        }
    }

    fn end(&mut self, cid: u16) -> Effect {
        let slot = &self.slots[usize::from(cid)];
        let Phase::Outstanding {
            response: Some(response),
        } = slot.phase
        else {
            unreachable!("only a response ends a command on a connection")
        };
        match slot.owner {
            Owner::Caller if self.is_to_retry(slot, response.cqe.status()) => {
                self.retry(cid, response.cqe.status())
            }
            Owner::Caller => {
                self.finish(cid, Ok(response));
                Effect::ForCaller
            }
            Owner::Duty(duty) => {
                self.release(cid);
                Effect::ForDuty(duty, response)
            }
            Owner::Guard => {
                self.release(cid);
                Effect::ForGuard(response)
            }
            Owner::Abandoned => {
                self.release(cid);
                Effect::No
            }
        }
    }

    fn is_to_retry(&self, slot: &Slot, status: Status) -> bool {
        slot.retries > 0
            && slot.requeue
            && requeue::may_pass(status, &self.capsules.sqe(slot.place()))
    }

    fn retry(&mut self, cid: u16, status: Status) -> Effect {
        let qid = self.qid;
        let slot = &mut self.slots[usize::from(cid)];
        slot.retries -= 1;
        slot.phase = Phase::Parked;
        let (place, length) = (slot.place(), slot.capsule_bytes as usize);
        self.slots[usize::from(cid)].place = Some(self.capsules.renew(cid, place, length));
        Effect::Again { qid, cid, status }
    }

    fn finish(&mut self, cid: u16, result: Result<Response, Loss>) {
        let slot = &mut self.slots[usize::from(cid)];
        slot.phase = Phase::Done(result);
        if let Some(place) = slot.place.take() {
            self.capsules.leave(place);
        }
        self.done.push(&mut self.slots, cid);
    }

    fn release(&mut self, cid: u16) {
        let slot = &mut self.slots[usize::from(cid)];
        slot.phase = Phase::Free;
        slot.held = None;
        if let Some(place) = slot.place.take() {
            self.capsules.leave(place);
        }
        if cid < self.depth {
            self.free.push(cid);
        }
    }

    fn check(&self, ticket: Ticket) {
        let slot = &self.slots[usize::from(ticket.cid)];
        assert!(
            slot.generation == ticket.generation && !matches!(slot.phase, Phase::Free),
            "{ticket:?} was taken before"
        );
    }
}

fn descriptor(data: &Data<'_>) -> SglDescriptor {
    match data {
        Data::None => SglDescriptor::none(),
        Data::Registered(part) => part.descriptor(),
        Data::InCapsule(bytes) => SglDescriptor::in_capsule(0, bytes.len() as u32),
    }
}
