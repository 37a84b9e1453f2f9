//! The authentication of a queue: between its Connect and its first other command.
//!
//! The reactor moves the messages; the thread of [`Authenticator`](crate::registry::Authenticator)
//! computes them. Until a host has authenticated, its queue has no association: none of its
//! commands gets past this file, and I/O commands of others never come here.

use cairn_rdma::log::{Line, Topic};
use cairn_rdma::peer_line;
use nvme_auth::Reason;
use nvme_proto::controller::{AuthenticationRequest, Refusal};
use nvme_proto::transfer::DataTransfer;
use nvme_proto::wire::Status;

use super::{Reactor, buffers, disk};
use crate::ids::QpairId;
use crate::registry::{Computed, Step};
use crate::request::{Request, RequestId, Stage, Task};

impl Reactor {
    /// Checks a command of a queue that is not authenticated yet, and gets a buffer for its data.
    pub(super) fn begin_authenticate(&mut self, id: RequestId) {
        let request = &mut self.queues.requests[id];
        let queue = &self.queues.qpairs[request.qpair];
        // Capsules of the admin queue have no data (RDMA, 3.1).
        let in_capsule_bytes = match queue.qid() {
            0 => 0,
            _ => request.in_capsule_bytes,
        };
        match AuthenticationRequest::parse(&request.sqe, in_capsule_bytes) {
            Ok((step, transfer)) => {
                request.task = Task::Authenticate(step);
                request.transfer = transfer;
                let in_capsule = matches!(transfer, DataTransfer::InCapsule(_));
                request.buffer_bytes = (if in_capsule { 0 } else { transfer.length() }, 0);
                buffers::acquire(&mut self.queues, &mut self.io, &self.time.now, id);
            }
            Err(refusal) => {
                self.finish(id, refusal.status, u64::from(refusal.result));
            }
        }
    }

    /// The data is there: hands the step over to the thread that computes it.
    pub(super) fn execute_authenticate(&mut self, id: RequestId, step: AuthenticationRequest) {
        let request = &self.queues.requests[id];
        let qpair = request.qpair;
        let step = match step {
            AuthenticationRequest::Send { length } => {
                let mut message = vec![0; length as usize];
                let span = disk::input_span(&self.queues, &self.io, id);
                self.io.ring.peek(span, &mut message);
                Step::Send(message)
            }
            AuthenticationRequest::Receive { length } => Step::Receive(length as usize),
        };
        let address = self.control.address(qpair);
        let Some(guest) = &mut self.queues.qpairs[qpair].guest else {
            // Another command of the queue ended the authentication meanwhile.
            return self.refuse_step(id, Refusal::new(Status::COMMAND_SEQUENCE_ERROR));
        };
        // One step at a time: a host that sends two breaks the order of its messages.
        let Some(exchange) = guest.exchange.take() else {
            return self.refuse_step(id, Refusal::new(Status::COMMAND_SEQUENCE_ERROR));
        };
        let peer = guest.association.queue.peer.ip();
        let subsystem = &guest.association.subsystem;
        subsystem.compute(address, peer, exchange, step);
        let waiting = &mut self.queues.awaiting_authentication;
        self.queues
            .requests
            .push_back(waiting, id, Stage::AwaitingAuthentication);
    }

    /// Refuses a step; the connection is closed when the host has read why.
    fn refuse_step(&mut self, id: RequestId, refusal: Refusal) {
        let request = &mut self.queues.requests[id];
        request.close_after = true;
        let qpair = request.qpair;
        self.record_refusal(qpair, "authentication", &refusal.status.to_string());
        self.finish(id, refusal.status, u64::from(refusal.result));
    }

    /// A step is computed: answers its command.
    pub(super) fn go_on_authenticating(&mut self, computed: Computed) {
        let Computed {
            qpair,
            exchange,
            answer,
        } = computed;
        let mut found = None;
        let of_qpair = |request: &Request| request.qpair == qpair;
        let waiting = &mut self.queues.awaiting_authentication;
        self.queues
            .requests
            .take_out(waiting, of_qpair, |id| found = Some(id));
        // The queue is gone, or about to go.
        let Some(id) = found else { return };
        // Too many wait, or the system has no random numbers: the host begins anew.
        let Some(message) = answer else {
            return self.refuse_step(id, Refusal::transient(Status::INTERNAL_ERROR));
        };
        if let Some(buffer) = &self.queues.requests[id].data
            && !message.is_empty()
        {
            self.io.arena.write(buffer, &message);
        }
        match exchange.outcome() {
            Some(Ok(proof)) => {
                if let Some(guest) = self.queues.qpairs[qpair].guest.take() {
                    self.associate(qpair, guest.association, Some(proof));
                }
            }
            Some(Err(reason)) => {
                self.queues.requests[id].close_after = true;
                self.log_failure(qpair, reason);
            }
            None => {
                if let Some(guest) = &mut self.queues.qpairs[qpair].guest {
                    guest.exchange = Some(exchange);
                }
            }
        }
        self.finish(id, Status::SUCCESS, 0);
    }

    fn log_failure(&mut self, qpair: QpairId, reason: Reason) {
        self.record_refusal(qpair, "authentication", &reason.to_string());
        let queue = &self.queues.qpairs[qpair];
        let code = Status::AUTHENTICATION_REQUIRED.code().bits();
        self.queues.counters.refused.add(code);
        let peer = queue.peer.ip();
        let now = self.time.now.at;
        let limit = &mut self.control.peer_limit;
        let line: Option<Line> = limit.admit(Topic::Refused, peer, now);
        if let Some(line) = line {
            peer_line!(
                warn,
                line,
                host = queue.host_nqn(),
                address = %queue.peer,
                subsystem = queue.subsystem_nqn(),
                qid = queue.qid(),
                %reason,
                "authentication failed: compare the host's secret with its dhchap_key, and the \
                 controller's with dhchap_ctrl_key"
            );
        }
    }
}
