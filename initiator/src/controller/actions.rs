use cairn_rdma::{ConnectOptions, QpOptions};
use nvme_proto::host::{
    Action, AssociationState, Cause, Notice, OwnCommand, Payload, QueueSpec, Report,
};
use nvme_proto::wire::{IntoBytes, Status};

use super::{Controller, Shutdown};
use crate::buffer::Data;
use crate::error::{HostError, Loss};
use crate::event::Event;
use crate::queue::{Link, Owner, Queue};

/// No limit on RNR retries: the controller will post a receive for each command.
const RNR_RETRY_FOR_EVER: u8 = 7;

impl Controller {
    pub(super) fn act(&mut self) -> bool {
        let mut acted = false;
        loop {
            self.state = self.association.state();
            let Some(action) = self.association.next_action() else {
                return acted;
            };
            acted = true;
            match action {
                Action::Connect(spec) => self.connect_queue(&spec),
                Action::Send(command) => self.send_own(command),
                Action::Disconnect { qid } => self.let_go(qid),
                Action::Authenticate { answer, .. } => {
                    if answer.is_none() {
                        self.dialogue.begin();
                    }
                    let answer = answer.unwrap_or_default();
                    let next = self.dialogue.next(&self.options, &answer);
                    self.association.authenticate(next, self.time());
                }
                Action::Report(report) => self.handle_report(report),
            }
        }
    }

    fn connect_queue(&mut self, spec: &QueueSpec) {
        if let Err(error) = self.try_connect_queue(spec) {
            self.trouble = Some(error);
            self.association.queue_lost(spec.qid, self.time());
        }
    }

    fn try_connect_queue(&mut self, spec: &QueueSpec) -> Result<(), HostError> {
        let marking = self.options.marking();
        let options = ConnectOptions {
            remote: self.options.remote,
            local: self.options.local,
            pkey: self.options.pkey,
            qp: QpOptions {
                send_work: Queue::send_work(spec.depth),
                receives: spec.request.hrqsize.get().into(),
                initiator_depth: 0,
                rnr_retry_count: RNR_RETRY_FOR_EVER,
                traffic_class: marking.traffic_class,
                hop_limit: marking.hop_limit,
                ack_timeout: self.options.ack_timeout,
                ..QpOptions::default()
            },
            timeout: self.options.timeout,
        };
        let qp = self.endpoint.connect(&options, spec.request.as_bytes())?;
        let slot = qp.slot();
        if self.routes.len() <= slot {
            self.routes.resize(slot + 1, None);
        }
        self.routes[slot] = Some((qp, spec.qid));
        match self.queues.get_mut(usize::from(spec.qid)) {
            Some(queue) => {
                queue.released = false;
                queue.reconnect(spec, qp, &self.loss);
            }
            None => {
                assert!(
                    usize::from(spec.qid) == self.queues.len(),
                    "queues are made in the order of their QIDs"
                );
                let queue = Queue::new(&*self.device, spec, qp).inspect_err(|_| {
                    self.routes[slot] = None;
                    self.endpoint.disconnect(qp);
                })?;
                self.queues.push(queue);
            }
        }
        Ok(())
    }

    fn send_own(&mut self, command: OwnCommand) {
        let OwnCommand {
            qid,
            duty,
            sqe,
            payload,
        } = command;
        let queue = &mut self.queues[usize::from(qid)];
        if !matches!(queue.link, Link::Up(_)) {
            return;
        }
        let data = match &payload {
            Payload::None => Data::None,
            Payload::ToHost(length) => Data::start_of(self.scratch.lend(), *length),
            Payload::FromHost(bytes) if bytes.len() <= queue.in_capsule_max() => {
                Data::InCapsule(bytes)
            }
            Payload::FromHost(bytes) => {
                self.scratch.write(0, bytes);
                Data::start_of(self.scratch.lend(), bytes.len() as u32)
            }
        };
        let ticket = queue
            .prepare(sqe, data, Owner::Duty(duty))
            .expect("slots are kept for the association's own commands");
        self.send(qid, ticket.cid());
    }

    fn let_go(&mut self, qid: u16) {
        let loss = self.loss.clone();
        let Some(queue) = self.queues.get_mut(usize::from(qid)) else {
            return self.association.queue_closed(qid, self.time());
        };
        match queue.link.clone() {
            Link::Connecting(qp) | Link::Up(qp) => {
                queue.link = Link::Broken(qp, loss);
                self.endpoint.disconnect(qp);
            }
            Link::Broken(qp, _) => self.endpoint.disconnect(qp),
            Link::Down(_) => self.association.queue_closed(qid, self.time()),
        }
    }

    fn handle_report(&mut self, report: Report) {
        let event = match report {
            Report::Live { tries } => {
                self.trouble = None;
                self.loss = Loss::Closed;
                self.first_loss = None;
                self.guard.live();
                self.send_parked();
                Event::Live { tries }
            }
            Report::Lost(cause) => {
                self.guard.lost();
                let error = self.caused_by(cause);
                self.first_loss = Some(self.loss.clone());
                Event::Lost(error)
            }
            Report::TryFailed { tries, cause } => {
                let error = self.caused_by(cause);
                self.note_failed_try(&error);
                Event::TryFailed { tries, error }
            }
            Report::FailFast => {
                self.end_parked();
                Event::FailFast
            }
            Report::Gone(cause) => {
                let error = cause.map(|cause| self.ended_by(cause));
                self.end_parked();
                Event::Gone(self.of_shutdown(error))
            }
            Report::Notice(notice) => {
                if notice == Notice::NamespacesChanged {
                    self.guard.changed();
                }
                Event::Notice(notice)
            }
            Report::Reauthenticated => Event::Reauthenticated,
            Report::NotReauthenticated(cause) => {
                let loss = self.loss.clone();
                let error = self.caused_by(cause);
                self.loss = loss;
                Event::NotReauthenticated(error)
            }
        };
        self.events.push(event);
    }

    fn of_shutdown(&self, error: Option<HostError>) -> Option<HostError> {
        let error = match self.shutdown {
            None => return error,
            Some(Shutdown::Asked) => error?,
            Some(Shutdown::TooLate) => error.unwrap_or_else(|| self.lost_for_good()),
        };
        Some(HostError::NotShutDown(Box::new(error)))
    }

    pub(super) fn send_parked(&mut self) {
        for qid in 1..self.queues.len() as u16 {
            while let Some(cid) = self.next_parked(qid) {
                if !matches!(self.queues[usize::from(qid)].link, Link::Up(_)) {
                    break;
                }
                self.send(qid, cid);
            }
        }
        let granted = usize::from(self.association.io_queues());
        for queue in self.queues.iter_mut().skip(1 + granted) {
            queue.end_parked(&Loss::Closed, |_| true);
        }
    }

    fn end_parked(&mut self) {
        for queue in &mut self.queues {
            queue.end_parked(&self.loss, |_| true);
        }
    }

    fn note_failed_try(&mut self, error: &HostError) {
        if let Some(first) = &self.first_loss {
            self.loss = Loss::NotBack {
                first: Box::new(first.clone()),
                last: error.to_string(),
            };
        }
    }

    fn ended_by(&mut self, cause: Cause) -> HostError {
        match self.loss {
            Loss::NotBack { .. } if self.trouble.is_none() => self.lost_for_good(),
            _ => self.caused_by(cause),
        }
    }

    fn caused_by(&mut self, cause: Cause) -> HostError {
        self.loss = Loss::GivenUp(cause);
        let timeout = self.options.timeout;
        let trouble = self.trouble.take();
        match cause {
            Cause::NotConnected { qid } | Cause::QueueLost { qid } => {
                let known = match &trouble {
                    Some(HostError::Lost { loss, .. }) => Some(loss),
                    Some(_) => None,
                    // Without a new error of the fabric, the cause of `Event::Lost` still applies.
                    None => self.first_loss.as_ref(),
                };
                if let Some(loss) = known {
                    self.loss = loss.clone();
                }
                trouble.unwrap_or_else(|| self.lost_by(qid, self.loss.clone()))
            }
            Cause::LostAuthenticating { qid } => self.cut_off(qid, trouble),
            Cause::Status {
                command,
                status,
                result,
            } => HostError::Status {
                command: match status.code() {
                    Status::CONNECT_INVALID_HOST => {
                        format!("{command} as {}", self.options.hostnqn)
                    }
                    _ => command.to_owned(),
                },
                status,
                result,
            },
            Cause::TooSlow { what } => HostError::Timeout {
                what: what.to_owned(),
                timeout,
            },
            Cause::CommandTimeout { qid, cid } => HostError::Timeout {
                what: format!("an answer to command {cid:#x} of queue {qid}, or to its Abort,"),
                timeout: self.options.command_timeout,
            },
            Cause::NotAuthenticated(why) => HostError::NotAuthenticated {
                remote: self.options.remote,
                why,
            },
            Cause::Fatal | Cause::Unusable(_) => HostError::Unsupported(cause.to_string()),
        }
    }

    fn cut_off(&self, qid: u16, trouble: Option<HostError>) -> HostError {
        let remote = self.options.remote;
        if let Some(why) = self.dialogue.refusal() {
            return HostError::NotAuthenticated { remote, why };
        }
        let loss = match trouble {
            Some(HostError::Lost { loss, .. }) => loss,
            _ => Loss::Closed,
        };
        HostError::LostAuthenticating {
            remote,
            qid,
            moment: self.dialogue.moment(),
            loss,
        }
    }

    pub(super) fn keeps_commands(&self) -> bool {
        self.options.requeue
            && !self.association.fails_fast()
            && !matches!(
                self.association.state(),
                AssociationState::ShuttingDown
                    | AssociationState::Gone
                    | AssociationState::Connecting
            )
    }
}
