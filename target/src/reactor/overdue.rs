//! Deadlines of commands: of those that a disk keeps, and of those whose host does not
//! send its data or take its response.
//!
//! Each command has its own: a host that answers one READ once in a while, or takes one
//! response, gains time for that command alone, and not for all that it has outstanding.
//!
//! A command that a disk keeps for too long is cancelled, and answered when the disk has
//! let go of it and not before: until then its data could still arrive.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_rdma::peer_line;
use nvme_proto::wire::Status;

use super::Reactor;
use crate::ending::Ending;
use crate::ids::QpairId;
use crate::registry::SubsystemShared;
use crate::request::{RequestId, Stage};
use crate::work_id::WorkKind;

/// For a host to send all data of a command, from when a READ of them could begin.
const DATA_TIMEOUT: Duration = Duration::from_secs(30);

/// For a host to take a response, from when the command ended. Longer than for one that
/// takes none at all ([`crate::qpair::RESPONSE_TIMEOUT`]): by a slow link the last of
/// many large reads arrives late.
const TAKING_TIMEOUT: Duration = Duration::from_secs(120);

/// For a disk to let go of a command that is aborted. After that the Abort is answered
/// with "not aborted", which is true so far.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// An Abort of a command that a disk has.
#[derive(Debug)]
pub(super) struct Aborting {
    /// The tag of the command.
    tag: u64,
    subsystem: Arc<SubsystemShared>,
    cntlid: u16,
    abort_cid: u16,
    until: Instant,
}

impl Reactor {
    /// Looks at how long commands have been where they are.
    pub(super) fn check_ages(&mut self) {
        let nothing = self.queues.requests.in_use() == 0 && self.io.aborting.is_empty();
        if nothing && !self.io.disks.any_waits() {
            return;
        }
        self.io.disks.forget_ages();
        let (mut late, mut silent) = (Vec::new(), Vec::new());
        for id in self.queues.requests.taken() {
            let request = &self.queues.requests[id];
            let age = Duration::from_nanos(request.way.here_for_ns(self.time.now_ns));
            match request.stage() {
                Stage::Reading | Stage::AwaitingRead if age >= DATA_TIMEOUT => {
                    let reason = "the host did not send the data of a command in time";
                    silent.push((request.qpair, reason));
                }
                Stage::AwaitingSend | Stage::Sending => {
                    let done = Duration::from_nanos(request.way.done_for_ns(self.time.now_ns));
                    if done >= TAKING_TIMEOUT {
                        let reason = "the host did not take the response of a command in time";
                        silent.push((request.qpair, reason));
                    }
                }
                Stage::InBackend | Stage::AwaitingTurn | Stage::AwaitingRetry => {
                    let stopped = request.block.is_some_and(|block| block.is_stopped());
                    if let Some(disk) = request.disk {
                        self.io.disks.note_age(disk, age);
                    }
                    let limit = self.control.sizes.io_timeout;
                    if !stopped && !limit.is_zero() && age >= limit {
                        late.push((id, age));
                    }
                }
                _ => {}
            }
        }
        self.io.disks.show_ages();
        for (id, age) in late {
            self.give_up(id, age);
        }
        for (qpair, reason) in silent {
            if self.queues.qpairs.get(qpair).is_some() {
                self.close(qpair, Ending::Fault(reason));
            }
        }
        self.end_late_aborts();
    }

    /// Takes a command back that its disk has had for too long, or asks for it.
    fn give_up(&mut self, id: RequestId, age: Duration) {
        self.report_late(id, age);
        let request = &self.queues.requests[id];
        let (qpair, cid) = (request.qpair, request.cid());
        if request.stage() == Stage::InBackend {
            return self.stop_block(id);
        }
        for id in self.take_from_backend(qpair, cid) {
            self.fail_io(id, Status::NAMESPACE_NOT_READY);
        }
    }

    fn report_late(&mut self, id: RequestId, age: Duration) {
        let request = &self.queues.requests[id];
        let disk = request.disk.expect("block I/O has a disk");
        let block = request.block.expect("block I/O is planned");
        let (qpair, nsid) = (request.qpair, self.io.disks[disk].namespace.nsid);
        let Some(line) = self.io.disks[disk].failure_to_report(self.time.now) else {
            return;
        };
        let queue = &self.queues.qpairs[qpair];
        peer_line!(warn, line,
            host = queue.host_nqn(), subsystem = queue.subsystem_nqn(), nsid,
            op = ?block.op, offset = block.offset, length = block.length, age_s = age.as_secs(),
            "the disk has not answered a command in time: cancelling it"
        );
    }

    /// Asks the disk to let go of a command, which then ends.
    fn stop_block(&mut self, id: RequestId) {
        let tag = self.queues.requests.work_id(id, WorkKind::Block);
        let block = self.queues.requests[id].block.as_mut();
        block.expect("block I/O is planned").stop();
        self.io.ring.cancel(tag);
    }

    /// Takes commands with this CID from where they wait for their disk.
    pub(super) fn take_from_backend(&mut self, qpair: QpairId, cid: u16) -> Vec<RequestId> {
        let victim =
            |request: &crate::request::Request| request.qpair == qpair && request.cid() == cid;
        let mut found = Vec::new();
        self.take_retries(victim, |id| found.push(id));
        self.io
            .disks
            .take_waiting(&mut self.queues.requests, victim, |id| found.push(id));
        found
    }

    /// Asks the disk to let go of a command that is to be aborted, if a disk has it. The
    /// Abort is answered when that is decided; whether it will be.
    pub(super) fn abort_in_backend(&mut self, qpair: QpairId, cid: u16, abort_cid: u16) -> bool {
        let mut of_qpair = self.queues.requests.of_qpair(qpair);
        let victim = of_qpair.find(|&id| {
            let request = &self.queues.requests[id];
            request.stage() == Stage::InBackend && request.cid() == cid
        });
        drop(of_qpair);
        let association = self.queues.qpairs[qpair].association.clone();
        let (Some(id), Some(association)) = (victim, association) else {
            return false;
        };
        self.io.aborting.push(Aborting {
            tag: self.queues.requests.work_id(id, WorkKind::Block),
            subsystem: association.subsystem,
            cntlid: association.controller.cntlid(),
            abort_cid,
            until: self.time.now + ABORT_TIMEOUT,
        });
        self.stop_block(id);
        true
    }

    /// Whether somebody wants this command aborted.
    pub(super) fn is_aborting(&self, tag: u64) -> bool {
        self.io.aborting.iter().any(|abort| abort.tag == tag)
    }

    /// Answers the Aborts of a command that has ended.
    pub(super) fn abort_ended(&mut self, tag: u64, aborted: bool) {
        for abort in self.io.aborting.extract_if(.., |abort| abort.tag == tag) {
            let Aborting {
                subsystem,
                cntlid,
                abort_cid,
                ..
            } = abort;
            subsystem.abort_done(cntlid, abort_cid, aborted);
        }
    }

    fn end_late_aborts(&mut self) {
        let now = self.time.now;
        for abort in self.io.aborting.extract_if(.., |abort| abort.until <= now) {
            abort
                .subsystem
                .abort_done(abort.cntlid, abort.abort_cid, false);
        }
    }
}
