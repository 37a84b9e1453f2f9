use std::net::SocketAddr;

use cairn_rdma::{Completion, DisconnectReason, Event, PrivateData, QpId, WorkStatus};
use nvme_proto::host::{AssociationState, Duty};
use nvme_proto::wire::cm::RejectData;
use nvme_proto::wire::identify::IDENTIFY_BYTES;

use super::{Controller, RECEIVE_ID, RESPONSE_BYTES};
use crate::error::{HostError, Loss};
use crate::queue::{Effect, Link, Response};

const BATCH: usize = 32;

impl Controller {
    pub(super) fn poll_completions(&mut self) -> bool {
        let mut progress = false;
        let mut batch = [Completion::EMPTY; BATCH];
        loop {
            let count = self.endpoint.poll(&mut batch);
            for completion in &batch[..count] {
                if completion.id & RECEIVE_ID == 0 {
                    self.sent(completion);
                } else {
                    self.received(completion);
                }
            }
            progress |= count > 0;
            if count < BATCH {
                return progress;
            }
        }
    }

    pub(super) fn poll_events(&mut self) -> bool {
        let mut events = std::mem::take(&mut self.endpoint_events);
        self.endpoint.poll_events(&mut events);
        let progress = !events.is_empty();
        for event in events.drain(..) {
            self.on_event(event);
        }
        self.endpoint_events = events;
        progress
    }

    fn sent(&mut self, completion: &Completion) {
        let Some(qid) = self.queue_of(completion.qp) else {
            return;
        };
        if !completion.status.is_success() {
            return self.broken(qid, Loss::Transport(completion.status));
        }
        self.queues[usize::from(qid)].sent(completion.id as u16);
        while let Some(ended) = self.queues[usize::from(qid)].next_over() {
            self.ended(ended);
        }
    }

    fn received(&mut self, completion: &Completion) {
        let slot = completion.id & !RECEIVE_ID;
        let mut capsule = [0; RESPONSE_BYTES];
        let length = (completion.byte_len as usize).min(RESPONSE_BYTES);
        if completion.status.is_success() {
            let start = slot as usize * RESPONSE_BYTES;
            self.responses.read(start, &mut capsule[..length]);
        }
        // The receive is reposted before the command's slot is free, because each command in flight
        // needs a receive.
        let reposted = self.post_response_slot(slot);
        let Some(qid) = self.queue_of(completion.qp) else {
            return;
        };
        if !completion.status.is_success() {
            return self.broken(qid, Loss::Transport(completion.status));
        }
        let queue = &mut self.queues[usize::from(qid)];
        match queue.responded(&capsule[..length], completion.invalidated_rkey) {
            Ok(ended) => self.ended(ended),
            Err(loss) => self.broken(qid, loss),
        }
        if reposted.is_err() {
            self.broken(qid, Loss::Transport(WorkStatus::LocalQpOperation));
        }
    }

    fn ended(&mut self, ended: Effect) {
        match ended {
            Effect::No => {}
            Effect::ForCaller => self.association.note_traffic(),
            Effect::Again { qid, cid, status } => {
                self.association.note_traffic();
                self.send_again(qid, cid, status);
            }
            Effect::ForDuty(duty, response) => self.own_ended(duty, &response),
            Effect::ForGuard(response) => self.namespace_answered(&response),
        }
    }

    fn own_ended(&mut self, duty: Duty, response: &Response) {
        let now = self.time();
        let cqe = &response.cqe;
        if matches!(duty, Duty::Step(_)) {
            let mut data = [0; IDENTIFY_BYTES];
            self.scratch.read(0, &mut data);
            self.association.completed(duty, cqe, &data, now);
            // A target that refuses the host sends an authentication message, and then disconnects.
            // The message is processed first, because it contains the reason.
            if self.association.is_authenticating() {
                self.act();
            }
        } else {
            self.association.completed(duty, cqe, &[], now);
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Established { qp, .. } => self.established(qp),
            Event::Rejected {
                qp,
                private_data,
                reason,
            } => self.not_connected(qp, |remote, qid| {
                refusal(&private_data, reason, remote, qid)
            }),
            Event::ConnectFailed { qp, reason } => {
                self.not_connected(qp, |remote, qid| HostError::Unreachable {
                    remote,
                    qid,
                    reason,
                });
            }
            Event::Disconnected { qp, reason } => {
                if self.association.is_authenticating() {
                    self.poll_completions();
                }
                if let Some(qid) = self.queue_of(qp) {
                    self.broken(qid, Loss::Disconnected(reason));
                }
                self.endpoint.disconnect(qp);
            }
            Event::Closed { qp } => self.closed(qp),
            Event::DeviceRemoved => self.endpoint_lost(DisconnectReason::DeviceRemoved),
            Event::EndpointBroken { .. } => self.endpoint_lost(DisconnectReason::DeviceFault),
            Event::Notice { .. } => {}
        }
    }

    fn established(&mut self, qp: QpId) {
        let Some(qid) = self.queue_of(qp) else {
            return;
        };
        let queue = &mut self.queues[usize::from(qid)];
        if matches!(queue.link, Link::Connecting(_)) {
            queue.link = Link::Up(qp);
            self.association.queue_connected(qid, self.time());
        }
    }

    fn not_connected(&mut self, qp: QpId, why: impl FnOnce(SocketAddr, u16) -> HostError) {
        let Some(qid) = self.queue_of(qp) else {
            return;
        };
        self.trouble = Some(why(self.options.remote, qid));
        self.broken(qid, Loss::Closed);
    }

    fn closed(&mut self, qp: QpId) {
        let Some(qid) = self.queue_of(qp) else {
            return;
        };
        self.routes[qp.slot()] = None;
        self.broken(qid, Loss::Closed);
        let park = self.keeps_commands();
        let (is_reset, until) = (
            self.state == AssociationState::Resetting,
            self.in_doubt_until(),
        );
        let guard = &mut self.guard;
        let queue = &mut self.queues[usize::from(qid)];
        let park = park && !queue.released;
        let loss = match &queue.link {
            Link::Broken(_, loss) => loss.clone(),
            _ => Loss::Closed,
        };
        let in_doubt = |sqe: &_| guard.unanswered(sqe, is_reset, until);
        queue.closed(loss.clone(), park, in_doubt);
        if !park {
            queue.end_parked(&loss, |_| true);
        }
        self.association.queue_closed(qid, self.time());
    }

    fn endpoint_lost(&mut self, reason: DisconnectReason) {
        let loss = Loss::Disconnected(reason);
        for queue in &mut self.queues {
            queue.closed(loss.clone(), false, |_| ());
            queue.end_parked(&loss, |_| true);
        }
        self.routes.clear();
        self.trouble = Some(HostError::Lost {
            remote: self.options.remote,
            qid: 0,
            loss,
        });
        self.association.device_removed(self.time());
    }

    fn queue_of(&self, qp: QpId) -> Option<u16> {
        let (known, qid) = self.routes.get(qp.slot()).copied().flatten()?;
        (known == qp).then_some(qid)
    }
}

fn refusal(data: &PrivateData, reason: u16, remote: SocketAddr, qid: u16) -> HostError {
    match RejectData::parse(data.as_slice()) {
        Ok(reject) if reject.sts.get() != 0 => HostError::Rejected {
            remote,
            qid,
            status: reject.status(),
        },
        _ => HostError::Refused {
            remote,
            qid,
            reason,
        },
    }
}
