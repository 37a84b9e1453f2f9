//! One queue of the association: a connection, its capsules, and what is
//! outstanding on it.

use std::sync::Arc;

use cairn_rdma::{
    Access, Device, FabricError, Operation, PrivateData, QpId, Region, SendWork, Sge, WorkStatus,
};
use nvme_proto::wire::sqe::SQE_BYTES;
use nvme_proto::wire::{Cqe, FromBytes, IntoBytes, SglDescriptor, Sqe, U16};

use crate::buffer::{Buffer, Data};
use crate::error::{HostError, Loss};
use crate::host::Response;

/// A submitted command. Good for one [`take`](crate::Host::take).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    qid: u16,
    cid: u16,
    generation: u32,
}

impl Ticket {
    /// The queue the command went to.
    #[must_use]
    pub fn qid(&self) -> u16 {
        self.qid
    }

    /// The command's identifier, as Abort wants it.
    #[must_use]
    pub fn cid(&self) -> u16 {
        self.cid
    }
}

/// How far the connection of a queue is.
#[derive(Debug, Clone)]
pub(crate) enum Link {
    /// Waits for the target's answer.
    Connecting,
    /// Takes capsules.
    Established,
    /// The target said no.
    Refused(PrivateData, u16),
    /// Nobody answered.
    Failed(String),
    /// It was there, and ended.
    Lost(Loss),
}

/// A queue of the association.
pub(crate) struct Queue {
    pub(crate) qid: u16,
    pub(crate) qp: QpId,
    pub(crate) link: Link,
    /// Whether the fabric has said `Closed`: nothing is in flight any more.
    pub(crate) closed: bool,
    capsules: Buffer,
    capsule_bytes: usize,
    slots: Vec<Slot>,
    /// Slots without a command; the next to use is last.
    free: Vec<u16>,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    phase: Phase,
}

#[derive(Default)]
enum Phase {
    #[default]
    Free,
    Outstanding(Outstanding),
    Done(Result<Response, Loss>),
    /// Its owner has given up; the answer frees it.
    Forgotten(Outstanding),
}

/// A command is over when its capsule has left *and* its response has come:
/// only then is the capsule's memory ours again.
#[derive(Default)]
struct Outstanding {
    sent: bool,
    response: Option<Response>,
    _data: Option<Arc<Region>>,
}

impl Queue {
    /// A queue whose connection has been begun: `depth` commands with
    /// `capsule_bytes` each.
    pub(crate) fn new(
        device: &dyn Device,
        qid: u16,
        qp: QpId,
        depth: u16,
        capsule_bytes: usize,
    ) -> Result<Self, FabricError> {
        let bytes = usize::from(depth) * capsule_bytes;
        Ok(Self {
            qid,
            qp,
            link: Link::Connecting,
            closed: false,
            capsules: Buffer::with_access(device, bytes, Access::LOCAL_READ)?,
            capsule_bytes,
            slots: (0..depth).map(|_| Slot::default()).collect(),
            free: (0..depth).rev().collect(),
        })
    }

    /// Makes the capsule and the work that sends it. The slot is taken.
    pub(crate) fn prepare(
        &mut self,
        mut sqe: Sqe,
        data: Data<'_>,
    ) -> Result<(Ticket, SendWork), HostError> {
        if let Link::Lost(loss) = &self.link {
            return Err(self.lost(loss.clone()));
        }
        let qid = self.qid;
        let cid = self.free.pop().ok_or(HostError::QueueFull { qid })?;
        sqe.cid = U16::new(cid);
        sqe.flags |= Sqe::FLAGS_SGL;
        sqe.dptr = descriptor(&data);
        let start = usize::from(cid) * self.capsule_bytes;
        self.capsules.write(start, sqe.as_bytes());
        let mut length = SQE_BYTES;
        let mut held = None;
        match data {
            Data::None => {}
            Data::Keyed { buffer, .. } => held = Some(Arc::clone(buffer.region())),
            Data::InCapsule(bytes) => {
                assert!(
                    SQE_BYTES + bytes.len() <= self.capsule_bytes,
                    "{} bytes of data do not fit a capsule of {} bytes",
                    bytes.len(),
                    self.capsule_bytes
                );
                self.capsules.write(start + SQE_BYTES, bytes);
                length += bytes.len();
            }
        }
        let slot = &mut self.slots[usize::from(cid)];
        slot.generation = slot.generation.wrapping_add(1);
        slot.phase = Phase::Outstanding(Outstanding {
            _data: held,
            ..Outstanding::default()
        });
        let generation = slot.generation;
        let work = SendWork {
            id: u64::from(cid),
            op: Operation::Send,
            sges: self.capsule_sge(start, length).into(),
            signaled: true,
        };
        Ok((
            Ticket {
                qid,
                cid,
                generation,
            },
            work,
        ))
    }

    /// The capsule of command `cid` has left, or never will.
    pub(crate) fn sent(&mut self, cid: u16, status: WorkStatus) {
        if !status.is_success() {
            self.lose(Loss::Transport(status));
        }
        self.advance(cid, |outstanding| outstanding.sent = true);
    }

    /// A response capsule has come.
    pub(crate) fn responded(&mut self, capsule: &[u8], invalidated_rkey: Option<u32>) {
        let Ok((cqe, _)) = Cqe::read_from_prefix(capsule) else {
            let length = capsule.len();
            return self.lose(Loss::Protocol(format!("a response of {length} bytes")));
        };
        let cid = cqe.cid.get();
        let waits = self.slots.get(usize::from(cid)).is_some_and(|slot| {
            matches!(&slot.phase, Phase::Outstanding(o) | Phase::Forgotten(o) if o.response.is_none())
        });
        if !waits {
            return self.lose(Loss::Protocol(format!(
                "a response to command {cid:#x}, which is not outstanding"
            )));
        }
        let response = Response {
            cqe,
            invalidated_rkey,
        };
        self.advance(cid, |outstanding| outstanding.response = Some(response));
    }

    /// Nothing more will come: what is outstanding ends.
    pub(crate) fn lose(&mut self, loss: Loss) {
        if matches!(self.link, Link::Lost(_)) {
            return;
        }
        for cid in 0..self.slots.len() as u16 {
            let slot = &mut self.slots[usize::from(cid)];
            match slot.phase {
                Phase::Outstanding(_) => slot.phase = Phase::Done(Err(loss.clone())),
                Phase::Forgotten(_) => self.release(cid),
                Phase::Free | Phase::Done(_) => {}
            }
        }
        self.link = Link::Lost(loss);
    }

    /// The answer to a ticket, once there is one; then the ticket is void.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<Result<Response, HostError>> {
        self.check(ticket);
        let slot = &mut self.slots[usize::from(ticket.cid)];
        if !matches!(slot.phase, Phase::Done(_)) {
            return None;
        }
        let Phase::Done(result) = std::mem::take(&mut slot.phase) else {
            unreachable!("it was just looked at");
        };
        self.free.push(ticket.cid);
        Some(result.map_err(|loss| self.lost(loss)))
    }

    /// The owner of a ticket does not want the answer any more.
    pub(crate) fn forget(&mut self, ticket: Ticket) {
        self.check(ticket);
        let slot = &mut self.slots[usize::from(ticket.cid)];
        match std::mem::take(&mut slot.phase) {
            Phase::Outstanding(outstanding) => slot.phase = Phase::Forgotten(outstanding),
            _ => self.release(ticket.cid),
        }
    }

    /// Commands that were submitted and have no answer yet.
    pub(crate) fn outstanding(&self) -> usize {
        self.slots
            .iter()
            .filter(|slot| matches!(slot.phase, Phase::Outstanding(_) | Phase::Forgotten(_)))
            .count()
    }

    /// Commands it holds at most.
    pub(crate) fn depth(&self) -> u16 {
        self.slots.len() as u16
    }

    /// Data that fits behind an SQE.
    pub(crate) fn in_capsule_max(&self) -> usize {
        self.capsule_bytes - SQE_BYTES
    }

    /// The error of a command that this queue took down with it.
    pub(crate) fn lost(&self, loss: Loss) -> HostError {
        HostError::Lost {
            qid: self.qid,
            loss,
        }
    }

    /// Notes one of the two halves of a command's end.
    fn advance(&mut self, cid: u16, note: impl FnOnce(&mut Outstanding)) {
        let slot = &mut self.slots[usize::from(cid)];
        let (Phase::Outstanding(outstanding) | Phase::Forgotten(outstanding)) = &mut slot.phase
        else {
            return;
        };
        note(outstanding);
        let Some(response) = outstanding.response.filter(|_| outstanding.sent) else {
            return;
        };
        match slot.phase {
            Phase::Forgotten(_) => self.release(cid),
            _ => slot.phase = Phase::Done(Ok(response)),
        }
    }

    fn release(&mut self, cid: u16) {
        self.slots[usize::from(cid)].phase = Phase::Free;
        self.free.push(cid);
    }

    fn check(&self, ticket: Ticket) {
        let slot = &self.slots[usize::from(ticket.cid)];
        assert!(
            slot.generation == ticket.generation && !matches!(slot.phase, Phase::Free),
            "{ticket:?} was taken before"
        );
    }

    fn capsule_sge(&self, start: usize, length: usize) -> Sge {
        let region = self.capsules.region();
        Sge {
            addr: region.mapping().addr() + start as u64,
            length: length as u32,
            lkey: region.lkey(),
        }
    }
}

/// SGL 1 of a command (Base, 4.1.2.4): one descriptor.
fn descriptor(data: &Data<'_>) -> SglDescriptor {
    match *data {
        Data::None => SglDescriptor::none(),
        Data::Keyed {
            buffer,
            offset,
            length,
            invalidate,
        } => {
            assert!(
                offset + length as usize <= buffer.len(),
                "{length} bytes at {offset} lie outside a buffer of {} bytes",
                buffer.len()
            );
            let address = buffer.region().mapping().addr() + offset as u64;
            SglDescriptor::keyed(address, length, buffer.region().rkey(), invalidate)
        }
        Data::InCapsule(bytes) => SglDescriptor::in_capsule(0, bytes.len() as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_rdma::Provider;
    use cairn_rdma::loopback::Loopback;
    use nvme_proto::wire::Status;

    use crate::command;

    fn queue(depth: u16) -> Queue {
        let at = "10.0.0.1:4420".parse().unwrap();
        let device = Loopback::new().device_for(at, None).unwrap();
        let mut queue = Queue::new(&*device, 1, QpId::new(0, 0), depth, 128).unwrap();
        queue.link = Link::Established;
        queue
    }

    fn answer(queue: &mut Queue, cid: u16) {
        let cqe = Cqe::new(cid, 0, Status::SUCCESS, 0);
        queue.responded(cqe.as_bytes(), None);
    }

    #[test]
    fn a_command_ends_when_it_was_sent_and_answered_in_either_order() {
        let mut queue = queue(2);
        let (first, _) = queue.prepare(command::flush(1), Data::None).unwrap();
        let (second, _) = queue.prepare(command::flush(1), Data::None).unwrap();
        let third = queue.prepare(command::flush(1), Data::None);
        assert!(matches!(third, Err(HostError::QueueFull { qid: 1 })));

        queue.sent(first.cid(), WorkStatus::Success);
        answer(&mut queue, second.cid());
        assert!(queue.take(first).is_none() && queue.take(second).is_none());
        answer(&mut queue, first.cid());
        queue.sent(second.cid(), WorkStatus::Success);
        assert!(queue.take(first).unwrap().is_ok() && queue.take(second).unwrap().is_ok());
        assert_eq!(queue.outstanding(), 0);
    }

    #[test]
    fn answers_that_nobody_waits_for_break_the_queue() {
        for capsule in [
            Cqe::new(7, 0, Status::SUCCESS, 0).as_bytes(),
            Cqe::new(1, 0, Status::SUCCESS, 0).as_bytes(),
            &[0; 15],
        ] {
            let mut queue = queue(2);
            let (ticket, _) = queue.prepare(command::flush(1), Data::None).unwrap();
            assert_eq!(ticket.cid(), 0);
            queue.responded(capsule, None);
            assert!(matches!(&queue.link, Link::Lost(Loss::Protocol(_))));
            assert!(queue.take(ticket).unwrap().is_err());
        }
    }

    #[test]
    fn a_second_answer_breaks_the_queue() {
        let mut queue = queue(1);
        let (ticket, _) = queue.prepare(command::flush(1), Data::None).unwrap();
        answer(&mut queue, 0);
        answer(&mut queue, 0);
        assert!(matches!(&queue.link, Link::Lost(Loss::Protocol(_))));
        assert!(queue.take(ticket).unwrap().is_err());
    }

    #[test]
    fn a_forgotten_command_keeps_its_slot_until_it_is_over() {
        let mut queue = queue(1);
        let (ticket, _) = queue.prepare(command::flush(1), Data::None).unwrap();
        queue.forget(ticket);
        assert!(queue.prepare(command::flush(1), Data::None).is_err());
        queue.sent(0, WorkStatus::Success);
        answer(&mut queue, 0);
        assert!(queue.prepare(command::flush(1), Data::None).is_ok());
    }

    #[test]
    fn an_outstanding_command_keeps_its_memory_registered() {
        let mut queue = queue(1);
        let at = "10.0.0.1:4420".parse().unwrap();
        let device = Loopback::new().device_for(at, None).unwrap();
        let buffer = Buffer::new(&*device, 4096).unwrap();
        let region = Arc::downgrade(buffer.region());
        let data = Data::start_of(&buffer, 512);
        let (ticket, _) = queue.prepare(command::read(1, 0, 1), data).unwrap();
        drop(buffer);
        assert!(region.upgrade().is_some());
        queue.sent(0, WorkStatus::Success);
        answer(&mut queue, 0);
        assert!(queue.take(ticket).unwrap().is_ok());
        assert!(region.upgrade().is_none());
    }

    #[test]
    #[should_panic(expected = "was taken before")]
    fn a_ticket_is_good_for_one_answer() {
        let mut queue = queue(1);
        let (ticket, _) = queue.prepare(command::flush(1), Data::None).unwrap();
        queue.sent(0, WorkStatus::Success);
        answer(&mut queue, 0);
        queue.take(ticket);
        queue.take(ticket);
    }

    #[test]
    fn the_capsule_holds_sqe_and_data() {
        let mut queue = queue(2);
        let data = Data::InCapsule(b"sixty-four bytes fit and no more");
        let (ticket, work) = queue.prepare(command::write(1, 9, 1), data).unwrap();
        assert_eq!(work.sges.total_len(), 64 + 32);
        let capsule = queue.capsules.bytes(0, 96);
        let (sqe, rest) = Sqe::split_capsule(&capsule).unwrap();
        assert_eq!(sqe.cid.get(), ticket.cid());
        assert_eq!(sqe.dptr, SglDescriptor::in_capsule(0, 32));
        assert_eq!(rest, b"sixty-four bytes fit and no more");
    }
}
