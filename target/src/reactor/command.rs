//! A command in a room: its request, and what of the queues belongs to it. Each is looked up
//! once for all rooms that the command passes.

use cairn_rdma::{PostError, SendWork};

use super::io::Io;
use super::port::Port;
use crate::ids::{QpairId, ShareId};
use crate::qpair::{QueuePair, State};
use crate::request::{FreeList, Request, RequestId, Stage, Task};
use crate::work_id::WorkId;

/// A running command, with all that rooms touch of the queues for it.
pub(super) struct Command<'a> {
    pub(super) id: RequestId,
    pub(super) request: &'a mut Request,
    pub(super) queue: &'a mut QueuePair,
    pub(super) ports: &'a mut [Option<Port>],
    /// Where the request goes when it has ended.
    pub(super) free: &'a mut FreeList,
    /// Queue pairs with something in their outbox.
    pub(super) dirty: &'a mut Vec<QpairId>,
    /// Work that a broken queue pair did not take.
    pub(super) lost: &'a mut Vec<WorkId>,
    /// Closed queue pairs whose last request has ended.
    pub(super) ended: &'a mut Vec<QpairId>,
}

/// The room where a command stops, because the room needs more than a [`Command`] has: the
/// tables of all requests and queue pairs. `stopped` of that room takes it on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a command that stopped must be taken on"]
pub(super) enum Stop {
    /// No room: it is answered, or its queue is gone.
    Nowhere,
    /// The plan: it is for no disk.
    NotIo,
    /// The plan: it ends with this status.
    Refused(nvme_proto::wire::Status),
    /// The plan: limits may not allow it yet, or it is ordered.
    Limit,
    /// Buffers: it takes some from the pool.
    Buffers,
    /// Fetch: its data has to come from the host or the capsule.
    Fetch,
    /// Disk: the backend has something to do.
    Disk,
    /// Respond: it waits for credits.
    Respond,
}

impl Command<'_> {
    /// Its device, unless that is gone.
    #[inline(always)]
    pub(super) fn port(&mut self) -> Option<&mut Port> {
        self.ports[self.queue.port].as_mut()
    }

    /// Posts its receive slot again, once its data is not needed.
    #[inline(always)]
    pub(super) fn release_receive(&mut self) {
        if let Some(slot) = self.request.receive.take()
            && let Some(port) = self.port()
        {
            port.repost(slot);
        }
    }

    /// The share that its buffers count for. A Connect and an authentication have none yet; what
    /// they were promised is given back before they have.
    #[inline(always)]
    pub(super) fn share(&self) -> Option<ShareId> {
        let share = self.queue.share;
        share.filter(|_| !matches!(self.request.task, Task::Connect | Task::Authenticate(_)))
    }

    /// Gives its buffers back, if it has any.
    #[inline(always)]
    pub(super) fn release_buffers(&mut self, io: &mut Io) {
        if self.request.holds_buffers() {
            let share = self.share();
            io.release_buffers(self.request, share);
        }
    }

    /// Has room in the outbox for so much work.
    #[inline(always)]
    pub(super) fn make_room(&mut self, count: usize) {
        if !self.queue.outbox.has_room(count) {
            let port = self.ports[self.queue.port].as_mut();
            post_outbox(self.queue, port, self.lost);
        }
    }

    /// Adds an RDMA READ to what is posted at the end of the round.
    pub(super) fn push_read(&mut self, work: SendWork) {
        self.make_room(1);
        self.request.set_stage(Stage::Running, Stage::Reading);
        if self.queue.outbox.is_empty() {
            self.dirty.push(self.request.qpair);
        }
        self.queue.outbox.push_other(work);
    }

    /// Frees the request, of which only the place in the table is left.
    #[inline(always)]
    pub(super) fn free(self) {
        let Self { request, queue, .. } = self;
        request.release(self.id, self.free);
        queue.requests -= 1;
        if queue.requests == 0 && queue.state == State::Closed {
            self.ended.push(request.qpair);
        }
    }
}

/// Posts what a queue pair has in its outbox, as one chain.
#[cold]
pub(super) fn post_outbox(queue: &mut QueuePair, port: Option<&mut Port>, lost: &mut Vec<WorkId>) {
    let outbox = queue.outbox.take();
    let posted = match port {
        Some(port) => port.endpoint().post(queue.qp, &outbox),
        None => Err(PostError::Broken),
    };
    match posted {
        Ok(()) => {}
        Err(PostError::Full) => panic!("more posted than there were credits for"),
        // The connection's event says why. None of the chain completes.
        Err(PostError::Broken) => {
            let work = outbox.iter().map(|work| WorkId::decode(work.id));
            lost.extend(work);
        }
    }
    queue.outbox.give_back(outbox);
}
