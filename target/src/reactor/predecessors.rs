//! Commands of a host's former associations, which must not change a disk after those of
//! its next: see [`Ward`].

use std::collections::BTreeSet;
use std::sync::Arc;

use cairn_rdma::log::{Line, Topic};
use cairn_rdma::peer_line;
use nvme_proto::transfer::DataTransfer;
use nvme_proto::wire::Status;

use super::Reactor;
use crate::ids::QpairId;
use crate::registry::Ward;
use crate::request::{Request, RequestId, Stage, Task};

/// What a queue of this reactor owes to a later association of its host.
#[derive(Debug)]
pub(super) struct Claim {
    qpair: QpairId,
    /// Of commands that were seen until then. `None`: what waits in the queue pair's
    /// device is still to be seen.
    until_ns: Option<u64>,
    ward: Arc<Ward>,
    /// Its place there.
    place: usize,
    /// What was last reported.
    pending: Option<BTreeSet<u32>>,
}

/// How often a device is polled to see what waits in it. A queue of completions and the
/// buffer of a socket hold less than that many batches.
const POLLS_MAX: usize = 256;

/// Whether a command may still change its namespace without its host's help. Without that
/// no RDMA READ ends, unless its data is here already; on a closed queue none does.
fn may_change(request: &Request, open: bool) -> bool {
    let Task::Io(kind) = request.task else {
        return false;
    };
    let here = !matches!(request.transfer, DataTransfer::FromHost(_));
    kind.changes()
        && match request.stage() {
            Stage::Running | Stage::InBackend | Stage::AwaitingTurn | Stage::AwaitingRetry => true,
            Stage::Reading => open,
            Stage::AwaitingLimit | Stage::AwaitingBuffer => open && here,
            Stage::Free
            | Stage::AwaitingRead
            | Stage::AwaitingReactor
            | Stage::AwaitingPredecessors
            | Stage::AwaitingAuthentication
            | Stage::AwaitingSend
            | Stage::Sending => false,
        }
}

impl Reactor {
    /// A later association of a queue's host begins.
    pub(super) fn claim(&mut self, qpair: QpairId, ward: Arc<Ward>, place: usize) {
        self.control.claims.push(Claim {
            qpair,
            until_ns: None,
            ward,
            place,
            pending: None,
        });
        // In this round: the Connect waits for it.
        self.time.next_check = self.time.now.at;
    }

    /// Sees what waits in the devices of queues with a new claim. A capsule that was not
    /// taken yet would count as nothing now, and be executed after the Connect: the queue
    /// is not ended, since its host may have two associations. What a device has at this
    /// moment is read, and counts; what arrives from now on was sent by a host that is
    /// there, in an association that goes on. Not from within a poll: the Connect is one
    /// of its completions, and others wait behind that.
    pub(super) fn see_claims(&mut self) -> bool {
        let new = self.control.claims.len();
        let unseen = self
            .control
            .claims
            .iter()
            .filter(|claim| claim.until_ns.is_none());
        let ports: BTreeSet<usize> = unseen
            .filter_map(|claim| Some(self.queues.qpairs.get(claim.qpair)?.port))
            .collect();
        let any = self
            .control
            .claims
            .iter()
            .any(|claim| claim.until_ns.is_none());
        for port in ports {
            for _ in 0..POLLS_MAX {
                if !self.poll_port(port) && !self.has_more(port) {
                    break;
                }
            }
        }
        // Claims that came meanwhile have their own turn.
        for claim in &mut self.control.claims[..new] {
            claim.until_ns.get_or_insert(self.time.now.ns);
        }
        any
    }

    /// Whether a device that had no completions has something that may become one.
    fn has_more(&mut self, port: usize) -> bool {
        let port = self.queues.ports[port].as_mut();
        port.is_some_and(|port| port.endpoint().arm().unwrap_or(false))
    }

    /// Reports what has become of the claims.
    pub(super) fn settle_claims(&mut self) {
        // One by one, where they are: a panic must not lose those that others wait for.
        let mut at = 0;
        while let Some(claim) = self.control.claims.get(at) {
            let Some(until_ns) = claim.until_ns else {
                at += 1;
                continue;
            };
            let pending = self.still_pending(claim.qpair, until_ns);
            let left = !pending.is_empty();
            let claim = &mut self.control.claims[at];
            if claim.pending.as_ref() != Some(&pending) {
                claim.ward.report(claim.place, pending.clone());
                claim.pending = Some(pending);
            }
            if left {
                at += 1;
            } else {
                self.control.claims.swap_remove(at);
            }
        }
    }

    /// The namespaces that a claim's commands may still change.
    fn still_pending(&self, qpair: QpairId, until_ns: u64) -> BTreeSet<u32> {
        let Some(queue) = self.queues.qpairs.get(qpair) else {
            let remains = self.control.remains.iter();
            return remains.flat_map(|it| it.pending(qpair)).collect();
        };
        let open = queue.is_open();
        let requests = self.queues.requests.of_qpair(qpair);
        let mut pending: BTreeSet<u32> = requests
            .map(|id| &self.queues.requests[id])
            .filter(|request| request.times.seen_until(until_ns) && may_change(request, open))
            .map(|request| request.sqe.nsid.get())
            .collect();
        pending.extend(self.queues.lines.seen_until(qpair, until_ns));
        pending
    }

    /// Answers a Connect that succeeded: at once, unless its host has older commands here.
    pub(super) fn answer_connect(&mut self, id: RequestId, result: u64) {
        // What this reactor has of them it says at once.
        self.read_inbox();
        if self.ward_of(id).is_none_or(Ward::is_settled) {
            return self.finish(id, Status::SUCCESS, result);
        }
        let waiting = &mut self.queues.awaiting_predecessors;
        self.queues
            .requests
            .push_back(waiting, id, Stage::AwaitingPredecessors);
    }

    /// Answers Connects that have waited long enough.
    pub(super) fn serve_connects(&mut self) {
        let mut over: Vec<RequestId> = Vec::new();
        let (qpairs, now_ns) = (&self.queues.qpairs, self.time.now.ns);
        let is_over = |request: &Request| {
            let association = qpairs[request.qpair].association.as_ref();
            let ward = association.and_then(|association| association.controller.ward());
            ward.is_none_or(|ward| ward.is_past(now_ns))
        };
        let waiting = &mut self.queues.awaiting_predecessors;
        self.queues
            .requests
            .take_out(waiting, is_over, |id| over.push(id));
        for id in over {
            let queue = &self.queues.qpairs[self.queues.requests[id].qpair];
            let Some(association) = &queue.association else {
                unreachable!("a Connect that waits has succeeded")
            };
            let (controller, address) = (&association.controller, queue.peer);
            if controller.ward().is_some_and(|ward| !ward.is_settled())
                && let Some(line) = Line::about(Topic::Disk)
            {
                peer_line!(
                    warn,
                    line,
                    host = controller.host_nqn(),
                    %address,
                    cntlid = controller.cntlid(),
                    "a disk still has commands of the host's former association: until they end, \
                     commands that change its namespace fail with Namespace Not Ready"
                );
            }
            let result = u64::from(controller.cntlid());
            self.finish(id, Status::SUCCESS, result);
        }
    }

    fn ward_of(&self, id: RequestId) -> Option<&Ward> {
        let association = self.queues.qpairs[self.queues.requests[id].qpair]
            .association
            .as_ref();
        association?.controller.ward()
    }
}
