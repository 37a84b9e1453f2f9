//! Authentication of a queue after its Connect, and reauthentication begun by its host (Base,
//! 8.13.5). The thread of [`Authenticator`](crate::registry::Authenticator) computes the messages.
//!
//! Before authentication, a queue has no association and accepts no other commands. A live queue
//! stays in use during reauthentication, and is closed if that fails.

use cairn_base::log::{LogLine, Topic};
use cairn_base::peer_line;
use nvme_auth::Authenticated;
use nvme_auth::controller::{Authentication, Cause};
use nvme_proto::controller::{AuthenticationRequest, Refusal};
use nvme_proto::transfer::DataTransfer;
use nvme_proto::wire::{Nqn, Status};

use crate::reactor::Reactor;

use crate::reactor::stages::gates;

use crate::ids::QpairId;
use crate::qpair::{RENEWAL_TIMEOUT, Renewal};
use crate::reactor::ordering;
use crate::registry::{Computed, RefusedFor, Step};
use crate::request::{LastResponse, Request, RequestId, Stage, Task};

/// Refusal of a message that arrives while another is computed, or after the exchange.
const OUT_OF_ORDER: Refusal = Refusal::new(Status::COMMAND_SEQUENCE_ERROR);

impl Reactor {
    pub(in crate::reactor) fn begin_reauthenticate(&mut self, id: RequestId) {
        let queue = &self.queues.qpairs[self.queues.requests[id].qpair];
        let association = queue.association.as_ref().expect("a live queue");
        let (subsystem, host) = (&association.subsystem, association.controller.host());
        if queue.renewal.is_some() || subsystem.has_key_of(&host) {
            self.begin_authenticate(id);
        } else if association.qid == 0 {
            self.begin_admin(id);
        } else {
            self.finish(id, Status::INVALID_OPCODE.with_dnr(), 0);
        }
    }

    pub(in crate::reactor) fn begin_authenticate(&mut self, id: RequestId) {
        let request = &mut self.queues.requests[id];
        let queue = &self.queues.qpairs[request.qpair];
        let in_capsule_bytes = match queue.qid() {
            0 => 0,
            _ => request.in_capsule_bytes,
        };
        match AuthenticationRequest::parse(&request.sqe, in_capsule_bytes) {
            Ok((step, transfer)) => {
                request.task = match queue.claimant {
                    Some(_) => Task::Authenticate(step),
                    None => Task::Reauthenticate(step),
                };
                request.transfer = transfer;
                let in_capsule = matches!(transfer, DataTransfer::InCapsule(_));
                request.buffer_bytes = (if in_capsule { 0 } else { transfer.length() }, 0);
                gates::acquire(&mut self.queues, &mut self.io, &self.time.now, id);
            }
            Err(refusal) => {
                self.finish(id, refusal.status, u64::from(refusal.result));
            }
        }
    }

    pub(in crate::reactor) fn execute_authenticate(
        &mut self,
        id: RequestId,
        step: AuthenticationRequest,
    ) {
        let qpair = self.queues.requests[id].qpair;
        let claimant = self.queues.qpairs[qpair].claimant.as_mut();
        let now = self.time.now.at;
        let exchange = claimant.and_then(|claimant| {
            let exchange = claimant.exchange.take()?;
            claimant.computing_since = now;
            Some(exchange)
        });
        let Some(exchange) = exchange else {
            return self.refuse_step(id, OUT_OF_ORDER, LastResponse::FailedAuthentication);
        };
        self.compute(id, exchange, step);
    }

    pub(in crate::reactor) fn execute_reauthenticate(
        &mut self,
        id: RequestId,
        step: AuthenticationRequest,
    ) {
        let qpair = self.queues.requests[id].qpair;
        let queue = &mut self.queues.qpairs[qpair];
        let association = queue.association.as_ref().expect("a live queue");
        let exchange = match &mut queue.renewal {
            Some(renewal) => renewal.exchange.take(),
            None => {
                let host = association.controller.host();
                let Some(exchange) = association.subsystem.renewal(&host) else {
                    // The key was removed meanwhile.
                    return self.finish(id, Status::INVALID_OPCODE.with_dnr(), 0);
                };
                queue.renewal = Some(Box::new(Renewal {
                    exchange: None,
                    deadline: self.time.now.at + RENEWAL_TIMEOUT,
                }));
                Some(Box::new(exchange))
            }
        };
        let Some(exchange) = exchange else {
            return self.refuse_step(id, OUT_OF_ORDER, LastResponse::FailedAuthentication);
        };
        self.compute(id, exchange, step);
    }

    fn compute(&mut self, id: RequestId, exchange: Box<Authentication>, of: AuthenticationRequest) {
        let qpair = self.queues.requests[id].qpair;
        let step = match of {
            AuthenticationRequest::Send { length } => {
                let mut message = vec![0; length as usize];
                let span = ordering::input_span(&self.queues, &self.io, id);
                self.io.ring.peek(span, &mut message);
                Step::Send(message)
            }
            AuthenticationRequest::Receive { length } => Step::Receive(length as usize),
        };
        let address = self.control.address(qpair);
        let queue = &self.queues.qpairs[qpair];
        let subsystem = queue.subsystem().expect("a queue that is connected");
        subsystem.compute(address, queue.place.payer(), exchange, step);
        let waiting = &mut self.queues.awaiting_authentication;
        self.queues
            .requests
            .push_back(waiting, id, Stage::AwaitingAuthentication);
    }

    fn refuse_step(&mut self, id: RequestId, refusal: Refusal, last: LastResponse) {
        let request = &mut self.queues.requests[id];
        request.close_after = Some(last);
        let qpair = request.qpair;
        self.record_refusal(qpair, "authentication", &refusal.status.to_string());
        self.finish(id, refusal.status, u64::from(refusal.result));
    }

    pub(in crate::reactor) fn go_on_authenticating(&mut self, computed: Computed) {
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
        let Some(id) = found else { return };
        // The answer is `None` if too many messages wait, or random numbers are unavailable.
        let Some(message) = answer else {
            let refusal = Refusal::transient(Status::INTERNAL_ERROR);
            if self.queues.qpairs[qpair].renewal.take().is_some() {
                return self.finish(id, refusal.status, 0);
            }
            return self.refuse_step(id, refusal, LastResponse::FailedAuthentication);
        };
        if let Some(buffer) = &self.queues.requests[id].data
            && !message.is_empty()
        {
            self.io.arena.write(buffer, &message);
        }
        match exchange.outcome() {
            Some(Ok(proof)) => {
                if let Err(refusal) = self.succeed(qpair, proof) {
                    self.log_unjoined(qpair, &refusal);
                    return self.refuse_step(id, refusal, LastResponse::RefusedJoin);
                }
            }
            Some(Err(cause)) => {
                let last = LastResponse::FailedAuthentication;
                self.queues.requests[id].close_after = Some(last);
                self.log_failure(qpair, cause);
            }
            None => {
                let queue = &mut self.queues.qpairs[qpair];
                if queue.claimant.is_some() {
                    queue.computed(exchange, self.time.now.at);
                } else if let Some(renewal) = &mut queue.renewal {
                    renewal.exchange = Some(exchange);
                    renewal.deadline = self.time.now.at + RENEWAL_TIMEOUT;
                }
            }
        }
        self.answer_connect(id, 0);
    }

    fn succeed(&mut self, qpair: QpairId, proof: Authenticated) -> Result<(), Refusal> {
        let queue = &mut self.queues.qpairs[qpair];
        if queue.claimant.is_some() {
            return self.join(qpair, proof);
        }
        queue.renewal = None;
        self.record_reauthentication(qpair, proof);
        let queue = &self.queues.qpairs[qpair];
        if let Some(line) = LogLine::about(Topic::Connection) {
            peer_line!(
                info,
                line,
                host = queue.host_nqn(),
                address = %queue.peer,
                subsystem = queue.subsystem_nqn(),
                qid = queue.qid(),
                "authenticated again"
            );
        }
        Ok(())
    }

    fn log_unjoined(&mut self, qpair: QpairId, refusal: &Refusal) {
        let queue = &self.queues.qpairs[qpair];
        let code = refusal.status.code().bits();
        self.queues.counters.refused.add(code);
        let (payer, now) = (queue.place.payer(), self.time.now.at);
        let limit = &mut self.control.peer_limit;
        if let Some(line) = limit.admit(Topic::Refused, payer, now) {
            peer_line!(
                warn,
                line,
                host = queue.host_nqn(),
                address = %queue.peer,
                subsystem = queue.subsystem_nqn(),
                qid = queue.qid(),
                status = %refusal.status,
                "Connect refused after the host's authentication: the subsystem has changed since its \
                 Connect command, or another queue of the host was faster. The host connects again"
            );
        }
    }

    fn log_failure(&mut self, qpair: QpairId, cause: Cause) {
        let queue = &self.queues.qpairs[qpair];
        let host = Nqn::parse(queue.host_nqn()).ok();
        let is_keyless = host
            .zip(queue.subsystem())
            .is_some_and(|(host, subsystem)| subsystem.lacks_key_of(&host));
        self.report_unauthenticated(
            qpair,
            match cause {
                Cause::HostSecret if is_keyless => RefusedFor::NoKey,
                cause => RefusedFor::Authentication(cause),
            },
        );
    }

    pub(in crate::reactor) fn report_if_unauthenticated(&mut self, qpair: QpairId) {
        let queue = &self.queues.qpairs[qpair];
        if queue.qid() == 0 && queue.waits_for_authentication() {
            self.report_unauthenticated(qpair, RefusedFor::Unauthenticated);
        }
    }

    fn report_unauthenticated(&mut self, qpair: QpairId, reason: RefusedFor) {
        self.record_refusal(qpair, "authentication", &reason.to_string());
        let queue = &self.queues.qpairs[qpair];
        let names = [queue.host_nqn(), queue.subsystem_nqn()].map(Nqn::parse);
        if let [Ok(host), Ok(subsystem)] = names {
            let (peer, local) = (queue.peer.ip(), queue.local);
            let refused = self.control.registry.refused();
            refused.note((host, subsystem), reason, peer, local, self.time.now.at);
        }
        let code = Status::AUTHENTICATION_REQUIRED.code().bits();
        self.queues.counters.refused.add(code);
        let (payer, now) = (queue.place.payer(), self.time.now.at);
        let limit = &mut self.control.peer_limit;
        let line: Option<LogLine> = limit.admit(Topic::Refused, payer, now);
        if let Some(line) = line {
            peer_line!(
                warn,
                line,
                host = queue.host_nqn(),
                address = %queue.peer,
                subsystem = queue.subsystem_nqn(),
                qid = queue.qid(),
                %reason,
                "authentication failed: cairn-target status has the remedy"
            );
        }
    }
}
