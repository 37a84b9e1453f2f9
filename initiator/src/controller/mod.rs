mod actions;
mod authentication;
mod commands;
mod completions;
mod guard;
mod guarding;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_rdma::{
    Access, Device, Endpoint, EndpointOptions, FabricError, Marked, PostError, QpId, RecvWork,
    WorkStatus,
};
use nvme_auth::Secrets;
use nvme_proto::host::{ADMIN_ENTRIES, Association, AssociationState};
use nvme_proto::io::Cancel;
use nvme_proto::wire::identify::{IDENTIFY_BYTES, IdentifyController};
use nvme_proto::wire::property::{Cap, Vs};
use nvme_proto::wire::{NSID_ALL, Sgl};

use crate::buffer::{Buffer, Data};
use crate::error::{HostError, Loss};
use crate::event::{Event, Events};
use crate::options::HostOptions;
use crate::queue::{IoQueue, Link, Owner, Queue};

use authentication::{Dialogue, NO_SECRET};
use guard::Guard;

/// Size of a response's receive in bytes: a 16-byte CQE padded to a cache line.
const RESPONSE_BYTES: usize = 64;
/// Work ID bit of receives. The other bits are the receive's index.
const RECEIVE_ID: u64 = 1 << 63;
const SWEEPS: u8 = 4;

/// Controller of a subsystem, with its queues.
///
/// Methods do not block or read a clock; [`poll`](Self::poll) receives the time. Between calls, the
/// target can change only data buffers.
pub struct Controller {
    // The endpoint is dropped first, which ends access to the memory below.
    endpoint: Box<dyn Endpoint>,
    device: Arc<dyn Device>,
    options: HostOptions,
    association: Association,
    queues: Vec<Queue>,
    routes: Vec<Option<(QpId, u16)>>,
    responses: Buffer,
    scratch: Buffer,
    state: AssociationState,
    events: Events,
    /// Error that the fabric reported for a connection since the last loss.
    trouble: Option<HostError>,
    loss: Loss,
    first_loss: Option<Loss>,
    shutdown: Option<Shutdown>,
    origin: Instant,
    now: Instant,
    sweep_at: Instant,
    endpoint_events: Vec<cairn_rdma::Event>,
    dialogue: Dialogue,
    guard: Guard,
    answers: Option<Buffer>,
    retry_at: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shutdown {
    Asked,
    TooLate,
}

impl std::fmt::Debug for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Controller({:#x} of {} at {}, {:?})",
            self.cntlid(),
            self.options.subnqn,
            self.options.remote,
            self.state
        )
    }
}

impl Controller {
    /// Starts to connect. Polling reports [`Event::Live`] or [`Event::Gone`].
    ///
    /// The controller has its own protection domain: register buffers with [`Controller::device`],
    /// not with `device`.
    pub fn begin(
        device: &Arc<dyn Device>,
        options: HostOptions,
        now: Instant,
    ) -> Result<Self, HostError> {
        let device = Arc::clone(device).isolated()?;
        let queue_entries = u32::from(options.entries());
        let io_entries = u32::from(options.io_queues) * queue_entries;
        let entries = u32::from(ADMIN_ENTRIES) + io_entries;
        let io_sends = u32::from(options.io_queues) * Queue::send_work(queue_entries as u16);
        let sends = Queue::send_work(ADMIN_ENTRIES) + io_sends;
        let endpoint = Arc::clone(&device).open(&EndpointOptions {
            receives: entries,
            // If a connection fails, unsignaled sends complete too, so all sends are counted.
            completions: entries + sends,
            queue_pairs: 1 + options.io_queues,
        })?;
        let bytes = entries as usize * RESPONSE_BYTES;
        let mut controller = Self {
            responses: Buffer::with_access(&*device, bytes, Access::LOCAL_WRITE)?,
            scratch: Buffer::new(&*device, IDENTIFY_BYTES)?,
            endpoint,
            device,
            association: Association::new(options.settings()),
            queues: Vec::new(),
            routes: Vec::new(),
            state: AssociationState::Connecting,
            events: Events::default(),
            trouble: None,
            loss: Loss::Closed,
            first_loss: None,
            shutdown: None,
            origin: now,
            now,
            sweep_at: now + options.command_timeout / SWEEPS.into(),
            endpoint_events: Vec::new(),
            dialogue: Dialogue::default(),
            guard: Guard::new(),
            answers: None,
            retry_at: None,
            options,
        };
        for slot in 0..u64::from(entries) {
            controller
                .post_response_slot(slot)
                .map_err(|_| FabricError::Gone("device"))?;
        }
        controller.association.begin(Duration::ZERO);
        controller.act();
        Ok(controller)
    }

    /// Does pending work without waiting. Returns true if there was work.
    pub fn poll(&mut self, now: Instant) -> bool {
        self.now = now;
        let progress = self.poll_completions() | self.poll_events();
        self.association.tick(self.time());
        if now >= self.sweep_at {
            self.sweep();
        }
        let acted = self.act();
        self.keep_guard() || acted || progress
    }

    /// Time of the next necessary poll, if any.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let own = self.association.deadline().map(|at| self.origin + at);
        let waits = self.queues.iter().any(|queue| queue.unanswered() > 0);
        let sweep = waits.then_some(self.sweep_at);
        let held = self.guard.deadline().map(|at| self.origin + at);
        let retry = self.retry_at.map(|at| self.origin + at);
        [own, sweep, held, retry, self.endpoint.next_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// State of the connections, updated by [`poll`](Self::poll).
    #[must_use]
    pub fn state(&self) -> AssociationState {
        self.state
    }

    /// True if the controller accepts commands.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.state == AssociationState::Live
    }

    /// True if the target required the host to authenticate, and the host did. With a secret for
    /// the controller, the controller authenticated too.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.association.is_authenticated()
    }

    /// Takes the oldest event.
    pub fn take_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Resets the controller and reconnects. Commands in flight are sent again or end as lost
    /// ([`HostOptions::requeue`]).
    pub fn reset(&mut self) {
        self.association.reset(self.time());
        self.act();
    }

    /// Authenticates each queue again, with new `secrets` or, for `None`, the current secrets.
    ///
    /// Polling reports [`Event::Reauthenticated`] or [`Event::NotReauthenticated`]; commands
    /// continue. The controller is lost if host or target fails to prove its identity. If the
    /// controller is not live, the secrets apply to its next connection.
    ///
    /// With large Diffie-Hellman groups, [`poll`](Self::poll) may take several milliseconds.
    ///
    /// # Errors
    /// The host connected without secrets, so its queues lack an entry for authentication.
    pub fn reauthenticate(&mut self, secrets: Option<Secrets>) -> Result<(), HostError> {
        let Some(known) = &mut self.options.authentication else {
            return Err(HostError::NotAuthenticated {
                remote: self.options.remote,
                why: NO_SECRET,
            });
        };
        if let Some(secrets) = secrets {
            *known = secrets;
        }
        let expects_proof = known.controller.is_some();
        self.association.set_expects_proof(expects_proof);
        self.association.reauthenticate();
        self.act();
        Ok(())
    }

    /// Shuts the controller down and ends all connections. [`Event::Gone`] follows, with
    /// [`HostError::NotShutDown`] unless the controller confirms.
    pub fn shutdown(&mut self) {
        self.shutdown = self.shutdown.or(match self.state {
            AssociationState::Live => Some(Shutdown::Asked),
            AssociationState::Reconnecting { .. } => Some(Shutdown::TooLate),
            _ => None,
        });
        self.association.shutdown(self.time());
        self.act();
    }

    /// Ends all connections without shutting the controller down. [`Event::Gone`] follows.
    pub fn disconnect(&mut self) {
        self.association.disconnect(self.time());
        self.act();
    }

    /// Closes an I/O queue permanently. Commands of the queue end as lost.
    pub fn release_queue(&mut self, queue: IoQueue) -> Result<(), HostError> {
        let qid = queue.qid();
        match self.queues.get_mut(queue.index()) {
            Some(queue) => queue.released = true,
            None => return Err(HostError::NoQueue { qid }),
        }
        self.association.release_queue(qid);
        self.act();
        Ok(())
    }

    /// CNTLID, valid once the controller was connected.
    #[must_use]
    pub fn cntlid(&self) -> u16 {
        self.association.cntlid()
    }

    /// CAP when the controller was enabled.
    #[must_use]
    pub fn cap(&self) -> Cap {
        self.association.cap()
    }

    /// VS when the controller was enabled.
    #[must_use]
    pub fn vs(&self) -> Vs {
        self.association.vs()
    }

    /// Identify Controller data, read when the controller was last enabled.
    ///
    /// # Panics
    /// If the controller was never live.
    #[must_use]
    pub fn identity(&self) -> &IdentifyController {
        let identity = self.association.identity();
        identity.expect("only a controller that was live is known")
    }

    /// Maximum data of a command in bytes: MDTS, or the maximum of a keyed SGL descriptor if less.
    ///
    /// # Panics
    /// If the controller was never live.
    #[must_use]
    pub fn transfer_max(&self) -> u32 {
        let page = 1_u32 << (12 + self.cap().mpsmin());
        match self.identity().mdts {
            0 => Sgl::KEYED_LENGTH_MAX,
            mdts => page
                .checked_shl(mdts.into())
                .filter(|bytes| bytes >> mdts == page)
                .map_or(Sgl::KEYED_LENGTH_MAX, |b| b.min(Sgl::KEYED_LENGTH_MAX)),
        }
    }

    /// Handles of the granted I/O queues.
    #[must_use]
    pub fn io_queues(&self) -> impl ExactSizeIterator<Item = IoQueue> + use<> {
        IoQueue::all(self.association.io_queues())
    }

    /// Handle of the I/O queue at index `turn`, modulo the number of granted queues. Incrementing
    /// `turn` uses the queues in rotation.
    #[must_use]
    pub fn io_queue(&self, turn: usize) -> IoQueue {
        IoQueue::in_rotation(turn, self.association.io_queues())
    }

    /// Maximum commands of a queue.
    #[must_use]
    pub fn depth(&self, queue: IoQueue) -> u16 {
        self.queues.get(queue.index()).map_or(0, Queue::depth)
    }

    /// Maximum in-capsule data of a queue in bytes.
    #[must_use]
    pub fn in_capsule_max(&self, queue: IoQueue) -> usize {
        let queue = self.queues.get(queue.index());
        queue.map_or(0, Queue::in_capsule_max)
    }

    /// True if `bytes` bytes of write data are best sent in the capsule of the queue's next
    /// command.
    ///
    /// If false, use a registered [`Buffer`]: the data exceeds the capsule, or capsules without
    /// data are faster with so many commands in flight.
    #[must_use]
    pub fn prefers_capsule(&mut self, queue: IoQueue, bytes: usize) -> bool {
        let Some(queue) = self.queues.get_mut(queue.index()) else {
            return false;
        };
        let trains = match queue.link {
            Link::Up(qp) => self.endpoint.trains(qp),
            _ => None,
        };
        queue.prefers_capsule(bytes, trains)
    }

    /// Commands of a queue that have not ended, including Connect and authentication.
    #[must_use]
    pub fn outstanding(&self, queue: IoQueue) -> usize {
        let queue = self.queues.get(queue.index());
        queue.map_or(0, Queue::outstanding)
    }

    /// Commands of the admin queue, as in [`outstanding`](Self::outstanding).
    #[must_use]
    pub fn admin_outstanding(&self) -> usize {
        self.queues.first().map_or(0, Queue::outstanding)
    }

    /// True if a queue's connection is established.
    #[must_use]
    pub fn is_up(&self, queue: IoQueue) -> bool {
        self.queues.get(queue.index()).is_some_and(Queue::is_up)
    }

    /// Like [`is_up`](Self::is_up), for the admin queue.
    #[must_use]
    pub fn is_admin_up(&self) -> bool {
        self.queues.first().is_some_and(Queue::is_up)
    }

    /// True if a queue has no connection, so the controller cannot access its commands' memory.
    #[must_use]
    pub fn is_closed(&self, queue: IoQueue) -> bool {
        self.queues
            .get(queue.index())
            .is_none_or(|queue| matches!(queue.link, Link::Down(_)))
    }

    /// Device that registers [`Buffer`]s for this controller.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Endpoint to wait on between polls.
    pub fn endpoint(&mut self) -> &mut dyn Endpoint {
        &mut *self.endpoint
    }

    /// Traffic class and hop limit of a queue's packets, if known.
    pub fn marked(&mut self, queue: IoQueue) -> Option<Marked> {
        match self.queues.get(queue.index())?.link {
            Link::Up(qp) => self.endpoint.marked(qp),
            _ => None,
        }
    }

    /// Connection options, with the current secrets.
    #[must_use]
    pub fn options(&self) -> &HostOptions {
        &self.options
    }

    /// Allocates memory that the controller may read and write.
    pub fn buffer(&self, length: usize) -> Result<Buffer, HostError> {
        Ok(Buffer::new(&*self.device, length)?)
    }

    /// Returns false if the connection is broken; `Queue::closed` then ends or parks the command.
    fn send(&mut self, qid: u16, cid: u16) -> bool {
        let queue = &mut self.queues[usize::from(qid)];
        let Link::Up(qp) = queue.link else {
            unreachable!("queue {qid} was looked at")
        };
        let work = queue.send(cid);
        match self.endpoint.post(qp, &[work]) {
            Ok(()) => return true,
            Err(PostError::Broken) => self.broken(qid, Loss::Transport(WorkStatus::Flushed)),
            Err(PostError::Full) => unreachable!("the queue's slots bound its sends"),
        }
        false
    }

    fn broken(&mut self, qid: u16, loss: Loss) {
        let remote = self.options.remote;
        let queue = &mut self.queues[usize::from(qid)];
        match &mut queue.link {
            Link::Connecting(qp) | Link::Up(qp) => {
                self.trouble.get_or_insert(HostError::Lost {
                    remote,
                    qid,
                    loss: loss.clone(),
                });
                queue.link = Link::Broken(*qp, loss);
                self.association.queue_lost(qid, self.time());
            }
            Link::Broken(_, known) if known.is_consequence() && loss.is_cause() => {
                if let Some(HostError::Lost { loss: current, .. }) = &mut self.trouble
                    && current == known
                {
                    *current = loss.clone();
                }
                *known = loss;
            }
            Link::Broken(..) | Link::Down(_) => {}
        }
    }

    fn lost(&self, qid: u16) -> HostError {
        let loss = match (&self.loss, &self.queues[usize::from(qid)].link) {
            (loss @ Loss::NotBack { .. }, _) => loss,
            (_, Link::Broken(_, loss) | Link::Down(loss)) => loss,
            (loss, Link::Connecting(_) | Link::Up(_)) => loss,
        };
        self.lost_by(qid, loss.clone())
    }

    pub(crate) fn lost_for_good(&self) -> HostError {
        self.lost_by(0, self.loss.clone())
    }

    fn lost_by(&self, qid: u16, loss: Loss) -> HostError {
        let remote = self.options.remote;
        match loss {
            Loss::Replaced(nsid) => HostError::Replaced { remote, nsid },
            loss => HostError::Lost { remote, qid, loss },
        }
    }

    fn time(&self) -> Duration {
        self.now.saturating_duration_since(self.origin)
    }

    fn post_response_slot(&mut self, slot: u64) -> Result<(), PostError> {
        let region = self.responses.region();
        let sge = region.sge(slot as usize * RESPONSE_BYTES, RESPONSE_BYTES as u32);
        self.endpoint.post_receives(&[RecvWork {
            id: RECEIVE_ID | slot,
            sges: sge.into(),
        }])
    }

    fn sweep(&mut self) {
        self.sweep_at = self.now + self.options.command_timeout / SWEEPS.into();
        let now = self.time();
        let mut overdue = Vec::new();
        for queue in &mut self.queues {
            let qid = queue.qid;
            overdue.extend(
                queue
                    .sweep(SWEEPS)
                    .map(|(cid, in_vain)| (qid, cid, in_vain)),
            );
        }
        for (qid, cid, in_vain) in overdue {
            let aborts = !in_vain && self.cancel(qid, cid)
                || self.association.command_timed_out(qid, cid, in_vain, now);
            if aborts {
                self.queues[usize::from(qid)].note_abort(cid);
            }
        }
    }

    /// Returns false if Cancel is not supported, or the queue is down or full.
    fn cancel(&mut self, qid: u16, cid: u16) -> bool {
        if qid == 0 || !self.association.cancels() {
            return false;
        }
        let queue = &mut self.queues[usize::from(qid)];
        if !queue.is_up() {
            return false;
        }
        let cancel = Cancel::sqe(NSID_ALL, qid, Some(cid));
        let Ok(ticket) = queue.prepare(cancel, Data::None, Owner::Abandoned) else {
            return false;
        };
        self.send(qid, ticket.cid());
        true
    }
}
