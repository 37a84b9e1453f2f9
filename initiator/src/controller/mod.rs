//! A controller, driven by polling and by nothing else.

mod actions;
mod authentication;
mod commands;
mod completions;
mod guard;
mod guarding;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_rdma::{
    Access, Device, Endpoint, EndpointOptions, FabricError, Marked, PostError, QpId, RecvWork, Sge,
    WorkStatus,
};
use nvme_auth::Secrets;
use nvme_proto::host::{ADMIN_ENTRIES, Association, State};
use nvme_proto::wire::Sgl;
use nvme_proto::wire::identify::{IDENTIFY_BYTES, IdentifyController};
use nvme_proto::wire::property::{Cap, Vs};

use crate::buffer::Buffer;
use crate::error::{HostError, Loss};
use crate::event::{Event, Events};
use crate::options::HostOptions;
use crate::queue::{Link, Queue};

use authentication::{Dialogue, NO_SECRET};
use guard::Guard;

/// Bytes of a receive for a response capsule: a CQE, and a cache line to itself.
const RESPONSE_BYTES: usize = 64;
/// Marks the work ids of receives; the rest is the slot.
const RECEIVE_ID: u64 = 1 << 63;
/// A command's age is counted so many times in its timeout.
const SWEEPS: u8 = 4;

/// One controller of a subsystem, and everything it takes to talk to it.
///
/// Nothing here blocks, sleeps or looks at a clock: [`poll`](Self::poll) takes
/// the time. Between two polls the fabric's memory is all that changes.
pub struct Controller {
    // Dropped before the memory that its queue pairs may still reach.
    endpoint: Box<dyn Endpoint>,
    device: Arc<dyn Device>,
    options: HostOptions,
    association: Association,
    queues: Vec<Queue>,
    /// Which queue a connection is, by the connection's slot.
    routes: Vec<Option<(QpId, u16)>>,
    responses: Buffer,
    /// Data of the association's own commands, of which one at a time has any.
    scratch: Buffer,
    /// The association's state at the end of the last poll.
    state: State,
    events: Events,
    /// What the fabric said last of why there is no connection.
    trouble: Option<HostError>,
    /// What queues end with that we let go.
    loss: Loss,
    /// Why the controller was lost, until it is back.
    first_loss: Option<Loss>,
    /// Whether a shutdown was asked for while there were writes that it had to make
    /// durable, and whether the controller was lost then already.
    shutdown: Option<Shutdown>,
    /// When the association began.
    origin: Instant,
    /// When we were polled last.
    now: Instant,
    /// When the ages of commands are counted next.
    sweep_at: Instant,
    endpoint_events: Vec<cairn_rdma::Event>,
    /// The authentication of the queue that is at it.
    dialogue: Dialogue,
    /// What is held back of its commands.
    guard: Guard,
    /// What namespaces say of who they are, if any was opened.
    answers: Option<Buffer>,
    /// When the first of the commands is due that failed and are sent again.
    retry_at: Option<Duration>,
}

/// What became of a shutdown so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shutdown {
    /// The controller has it.
    Asked,
    /// The controller was lost before.
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
    /// Begins to connect. [`Event::Live`] or [`Event::Gone`] follows from polling.
    ///
    /// The association has a protection domain of its own: buffers are registered with
    /// [`Controller::device`], not with `device`.
    ///
    /// # Errors
    /// There is no memory for its queues.
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
            // Of sends, all fail with their connection.
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
            state: State::Connecting,
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

    /// Moves everything along that can be moved without waiting. Says whether
    /// anything was.
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

    /// When to poll though nothing comes: the association's, the commands' and the
    /// fabric's timers. `None`: no need.
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

    /// How it is doing.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether it takes commands now.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.state == State::Live
    }

    /// The oldest event that was not taken.
    pub fn take_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Resets the controller and brings it up again. Commands that are outstanding
    /// are sent again or lost, as [`HostOptions::requeue`] says.
    pub fn reset(&mut self) {
        self.association.reset(self.time());
        self.act();
    }

    /// Begins to authenticate again on each queue, with these secrets or with those of before; later
    /// connections take them, too. The host has to have had secrets when it began: its queues
    /// have an entry more for this. [`Event::Reauthenticated`] or [`Event::NotReauthenticated`]
    /// follows from polling. Commands go on meanwhile. The controller is lost if an end cannot prove
    /// who it is.
    ///
    /// A controller that is not live has the secrets when it is connected again. An exchange of a
    /// large Diffie-Hellman group takes some milliseconds of a poll.
    ///
    /// # Errors
    /// This host began without secrets.
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

    /// Shuts the controller down in order, then ends all connections.
    /// [`Event::Gone`] follows.
    ///
    /// Unless the controller confirms it, that event has [`HostError::NotShutDown`].
    pub fn shutdown(&mut self) {
        self.shutdown = self.shutdown.or(match self.state {
            State::Live => Some(Shutdown::Asked),
            State::Reconnecting { .. } => Some(Shutdown::TooLate),
            _ => None,
        });
        self.association.shutdown(self.time());
        self.act();
    }

    /// Ends all connections without a shutdown. [`Event::Gone`] follows.
    pub fn disconnect(&mut self) {
        self.association.disconnect(self.time());
        self.act();
    }

    /// Lets go of one I/O queue, as a host does that has too many. Its commands
    /// are lost.
    ///
    /// # Errors
    /// There is no such queue, or it is the admin queue.
    pub fn release_queue(&mut self, qid: u16) -> Result<(), HostError> {
        match self.queues.get_mut(usize::from(qid)) {
            Some(queue) if qid != 0 => queue.released = true,
            _ => return Err(HostError::NoQueue { qid }),
        }
        self.association.release_queue(qid);
        self.act();
        Ok(())
    }

    /// CNTLID: which controller this is.
    #[must_use]
    pub fn cntlid(&self) -> u16 {
        self.association.cntlid()
    }

    /// CAP, as read when the controller was enabled.
    #[must_use]
    pub fn cap(&self) -> Cap {
        self.association.cap()
    }

    /// VS, as read when the controller was enabled.
    #[must_use]
    pub fn vs(&self) -> Vs {
        self.association.vs()
    }

    /// Identify Controller, as read when the controller was enabled last.
    ///
    /// # Panics
    /// Before it was live for the first time.
    #[must_use]
    pub fn identity(&self) -> &IdentifyController {
        let identity = self.association.identity();
        identity.expect("only a controller that was live is known")
    }

    /// The longest data that one command may have, in bytes: what MDTS says and a
    /// keyed descriptor can name.
    ///
    /// # Panics
    /// Before it was live for the first time.
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

    /// I/O queues that the association has; their QIDs are 1 up to this.
    #[must_use]
    pub fn io_queues(&self) -> u16 {
        self.association.io_queues()
    }

    /// Commands that queue `qid` holds.
    #[must_use]
    pub fn depth(&self, qid: u16) -> u16 {
        self.queues.get(usize::from(qid)).map_or(0, Queue::depth)
    }

    /// Data that fits into a capsule of queue `qid`, in bytes.
    #[must_use]
    pub fn in_capsule_max(&self, qid: u16) -> usize {
        self.queues
            .get(usize::from(qid))
            .map_or(0, Queue::in_capsule_max)
    }

    /// Whether so many bytes of data for the controller are best sent in the capsule of the next
    /// command on queue `qid`. If not, they are best left in a registered [`Buffer`]: they do
    /// not fit, or so many commands are outstanding that what they have in common is
    /// cheaper without data in between.
    #[must_use]
    pub fn prefers_capsule(&mut self, qid: u16, bytes: usize) -> bool {
        let Some(queue) = self.queues.get_mut(usize::from(qid)) else {
            return false;
        };
        let trains = match queue.link {
            Link::Up(qp) => self.endpoint.trains(qp),
            _ => None,
        };
        queue.prefers_capsule(bytes, trains)
    }

    /// Commands without an answer on queue `qid`, the association's own included.
    #[must_use]
    pub fn outstanding(&self, qid: u16) -> usize {
        self.queues
            .get(usize::from(qid))
            .map_or(0, Queue::outstanding)
    }

    /// Whether queue `qid` has a connection.
    #[must_use]
    pub fn is_up(&self, qid: u16) -> bool {
        self.queues
            .get(usize::from(qid))
            .is_some_and(|queue| matches!(queue.link, Link::Up(_)))
    }

    /// Whether queue `qid` has none any more: nothing reaches its commands' memory.
    #[must_use]
    pub fn is_closed(&self, qid: u16) -> bool {
        self.queues
            .get(usize::from(qid))
            .is_none_or(|queue| matches!(queue.link, Link::Down(_)))
    }

    /// The adapter that [`Buffer`]s for this controller are registered with.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The fabric's side of it: what to wait on while there is nothing to do.
    pub fn endpoint(&mut self) -> &mut dyn Endpoint {
        &mut *self.endpoint
    }

    /// What the packets of queue `qid` carry, if it has a connection and the fabric
    /// reports it.
    pub fn marked(&mut self, qid: u16) -> Option<Marked> {
        match self.queues.get(usize::from(qid))?.link {
            Link::Up(qp) => self.endpoint.marked(qp),
            _ => None,
        }
    }

    /// How it was connected.
    #[must_use]
    pub fn options(&self) -> &HostOptions {
        &self.options
    }

    /// Memory that the controller may read and write.
    ///
    /// # Errors
    /// The system has no such memory, or cannot lock it.
    pub fn buffer(&self, length: usize) -> Result<Buffer, HostError> {
        Ok(Buffer::new(&*self.device, length)?)
    }

    /// Posts a capsule that is prepared, on a queue that is up. Says whether it
    /// still is; if not, the slot waits for its connection's end like all others.
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

    /// A queue's connection is of no more use.
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
            // The first event was a consequence: this is the cause.
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

    /// The error of a command for which queue `qid` has no connection.
    fn lost(&self, qid: u16) -> HostError {
        let loss = match (&self.loss, &self.queues[usize::from(qid)].link) {
            (loss @ Loss::NotBack { .. }, _) => loss,
            (_, Link::Broken(_, loss) | Link::Down(loss)) => loss,
            (loss, Link::Connecting(_) | Link::Up(_)) => loss,
        };
        self.lost_by(qid, loss.clone())
    }

    /// The error of a controller that will not come back.
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

    /// The time as the association counts it.
    fn time(&self) -> Duration {
        self.now.saturating_duration_since(self.origin)
    }

    fn post_response_slot(&mut self, slot: u64) -> Result<(), PostError> {
        let region = self.responses.region();
        let sge = Sge {
            addr: region.mapping().addr() + slot * RESPONSE_BYTES as u64,
            length: RESPONSE_BYTES as u32,
            lkey: region.lkey(),
        };
        self.endpoint.post_receives(&[RecvWork {
            id: RECEIVE_ID | slot,
            sges: sge.into(),
        }])
    }

    /// Looks for commands that take too long: aborts them, then gives up.
    fn sweep(&mut self) {
        self.sweep_at = self.now + self.options.command_timeout / SWEEPS.into();
        let now = self.time();
        for queue in &mut self.queues {
            let qid = queue.qid;
            let mut aborted = Vec::new();
            for (cid, in_vain) in queue.sweep(SWEEPS) {
                if self.association.command_timed_out(qid, cid, in_vain, now) {
                    aborted.push(cid);
                }
            }
            for cid in aborted {
                queue.note_abort(cid);
            }
        }
    }
}
