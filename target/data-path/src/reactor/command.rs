//! Command on the fast path, with the parts of the reactor that it may access.

use cairn_rdma::{PostError, SendWork};

use super::io::Io;
use super::port::Port;
use crate::ids::{QpairId, ShareId};
use crate::qpair::{QpairState, QueuePair};
use crate::request::{FreeList, Request, RequestId, Stage, Task};
use crate::work_id::WorkId;

pub(super) struct Command<'a> {
    pub(super) id: RequestId,
    pub(super) request: &'a mut Request,
    pub(super) queue: &'a mut QueuePair,
    pub(super) ports: &'a mut [Option<Port>],
    pub(super) free: &'a mut FreeList,
    pub(super) dirty: &'a mut Vec<QpairId>,
    pub(super) lost: &'a mut Vec<WorkId>,
    pub(super) ended: &'a mut Vec<QpairId>,
}

/// Point at which [`gates::resume`](super::stages::gates::resume) continues a command that left the
/// fast path; `Nowhere` if the command waits or is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a command that stopped must be taken on"]
pub(super) enum Stop {
    Nowhere,
    NotIo,
    Refused(nvme_proto::wire::Status),
    Limit,
    Buffers,
    Fetch,
    Disk,
    Respond,
}

impl Command<'_> {
    #[inline(always)]
    pub(super) fn port(&mut self) -> Option<&mut Port> {
        self.ports[self.queue.port].as_mut()
    }

    #[inline(always)]
    pub(super) fn release_receive(&mut self) {
        if let Some(slot) = self.request.receive.take()
            && let Some(port) = self.port()
        {
            port.repost(slot);
        }
    }

    #[inline(always)]
    pub(super) fn share(&self) -> Option<ShareId> {
        let share = self.queue.share;
        share.filter(|_| !matches!(self.request.task, Task::Connect | Task::Authenticate(_)))
    }

    #[inline(always)]
    pub(super) fn release_buffers(&mut self, io: &mut Io) {
        if self.request.holds_buffers() {
            let share = self.share();
            io.release_buffers(self.request, share);
        }
    }

    #[inline(always)]
    pub(super) fn make_room(&mut self, count: usize) {
        if !self.queue.outbox.has_room(count) {
            let port = self.ports[self.queue.port].as_mut();
            post_outbox(self.queue, port, self.lost);
        }
    }

    pub(super) fn push_read(&mut self, work: SendWork) {
        self.make_room(1);
        self.request.set_stage(Stage::Running, Stage::Reading);
        self.mark_dirty();
        self.queue.outbox.push_other(work);
    }

    /// Must be called before work is added to the outbox.
    #[inline(always)]
    pub(super) fn mark_dirty(&mut self) {
        if self.queue.outbox.is_empty() {
            self.dirty.push(self.request.qpair);
        }
    }

    #[inline(always)]
    pub(super) fn free(self) {
        let Self { request, queue, .. } = self;
        request.release(self.id, self.free);
        queue.requests -= 1;
        if queue.requests == 0 && queue.state == QpairState::Closed {
            self.ended.push(request.qpair);
        }
    }
}

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
        // No work request was accepted. The connection's close event reports the reason.
        Err(PostError::Broken) => {
            let work = outbox.iter().map(|work| WorkId::decode(work.id));
            lost.extend(work);
        }
    }
    queue.outbox.give_back(outbox);
}
