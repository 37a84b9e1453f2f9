//! A controller association, driven by polling.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_rdma::{
    Access, Clock, Completion, Device, Endpoint, EndpointOptions, Event, FabricError, PostError,
    QpId, RecvWork, Sge, WorkStatus, sleep_until_ready,
};
use nvme_proto::wire::identify::IdentifyController;
use nvme_proto::wire::property::Cap;
use nvme_proto::wire::{AdminOpcode, Cqe, FabricsType, Nqn, NvmOpcode, Sqe};

use crate::buffer::{Buffer, Data};
use crate::duties::Duties;
use crate::error::{HostError, Loss};
use crate::queue::{Link, Queue, Ticket};

/// Entries of the admin queue: what every controller over Fabrics allows, and
/// Linux hosts ask for.
pub(crate) const ADMIN_ENTRIES: u16 = 32;
/// Bytes of a receive for a response capsule: a CQE, and a cache line to itself.
const RESPONSE_BYTES: usize = 64;
/// Marks the work ids of receives; the rest is the slot.
const RECEIVE_ID: u64 = 1 << 63;
/// Completions taken from the endpoint at a time.
const BATCH: usize = 32;
/// How long a wait spins before it sleeps: about what a local target takes.
const SPIN: Duration = Duration::from_micros(50);
/// Bytes of the host's own buffer, for commands that [`Host`] itself makes.
pub(crate) const SCRATCH_BYTES: usize = 64 * 1024;

/// Whom to connect to, as whom, and how.
#[derive(Debug, Clone)]
pub struct HostOptions {
    /// The target's listener.
    pub remote: SocketAddr,
    /// The address to connect from. `None`: the fabric chooses.
    pub local: Option<IpAddr>,
    /// SUBNQN: the subsystem.
    pub subnqn: Nqn,
    /// HOSTNQN: who we are.
    pub hostnqn: Nqn,
    /// HOSTID: which machine we are.
    pub hostid: [u8; 16],
    /// I/O queues to ask for; 0 makes an association that only administrates.
    pub io_queues: u16,
    /// Entries of each I/O submission queue. A queue that is full is one entry
    /// short of that many commands (Base, 3.3.1.5).
    pub queue_entries: u16,
    /// KATO: keep alive timeout in milliseconds; 0 for none. [`Host::poll`]
    /// sends the Keep Alives.
    pub kato_ms: u32,
    /// Whether to ask for SQ flow control to be disabled.
    pub disable_sq_flow_control: bool,
    /// Patience with connections and with commands that are waited for.
    pub timeout: Duration,
    /// What tells it the time. Spinning before it sleeps goes by the system's.
    pub clock: Clock,
}

impl HostOptions {
    /// One I/O queue of 128 entries, no keep alive, ten seconds of patience.
    #[must_use]
    pub fn new(remote: SocketAddr, subnqn: Nqn, hostnqn: Nqn) -> Self {
        Self {
            remote,
            local: None,
            subnqn,
            hostnqn,
            hostid: *b"cairn-initiator!",
            io_queues: 1,
            queue_entries: 128,
            kato_ms: 0,
            disable_sq_flow_control: false,
            timeout: Duration::from_secs(10),
            clock: Clock::default(),
        }
    }
}

/// The answer to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    /// The completion queue entry.
    pub cqe: Cqe,
    /// The key of this host that the response took out of use.
    pub invalidated_rkey: Option<u32>,
}

/// One controller association.
pub struct Host {
    // Dropped before the memory that its queue pairs may still reach.
    pub(crate) endpoint: Box<dyn Endpoint>,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) options: HostOptions,
    pub(crate) queues: Vec<Queue>,
    /// Which queue a connection is, by the connection's slot.
    routes: Vec<Option<(QpId, u16)>>,
    responses: Buffer,
    pub(crate) scratch: Buffer,
    pub(crate) cntlid: u16,
    pub(crate) cap: Cap,
    pub(crate) identity: Option<Box<IdentifyController>>,
    pub(crate) duties: Duties,
    news: Vec<Event>,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Host(controller {:#x} of {}, {} queues)",
            self.cntlid,
            self.options.subnqn.as_str(),
            self.queues.len()
        )
    }
}

impl Host {
    /// A host without a connection, its receives posted.
    pub(crate) fn open(device: &Arc<dyn Device>, options: HostOptions) -> Result<Self, HostError> {
        let io_entries = u32::from(options.io_queues) * u32::from(options.queue_entries);
        let entries = u32::from(ADMIN_ENTRIES) + io_entries;
        let endpoint = Arc::clone(device).open(&EndpointOptions {
            receives: entries,
            // Each command has one send and one receive.
            completions: 2 * entries,
            queue_pairs: 1 + options.io_queues,
        })?;
        let bytes = entries as usize * RESPONSE_BYTES;
        let mut host = Self {
            responses: Buffer::with_access(&**device, bytes, Access::LOCAL_WRITE)?,
            scratch: Buffer::new(&**device, SCRATCH_BYTES)?,
            endpoint,
            device: Arc::clone(device),
            options,
            queues: Vec::new(),
            routes: Vec::new(),
            cntlid: 0,
            cap: Cap(0),
            identity: None,
            duties: Duties::default(),
            news: Vec::new(),
        };
        for slot in 0..u64::from(entries) {
            host.post_response_slot(slot)
                .map_err(|_| FabricError::Gone("device"))?;
        }
        Ok(host)
    }

    /// CNTLID: which controller this is.
    #[must_use]
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }

    /// CAP, as read when the controller was enabled.
    #[must_use]
    pub fn cap(&self) -> Cap {
        self.cap
    }

    /// Identify Controller, as read when the association was made.
    ///
    /// # Panics
    /// Never on a host that [`Host::connect`] gave.
    #[must_use]
    pub fn controller(&self) -> &IdentifyController {
        self.identity
            .as_ref()
            .expect("a connected host knows its controller")
    }

    /// I/O queues that the association has; their QIDs are 1 up to this.
    #[must_use]
    pub fn io_queues(&self) -> u16 {
        self.queues.len() as u16 - 1
    }

    /// Data that fits into a capsule of queue `qid`, in bytes.
    #[must_use]
    pub fn in_capsule_max(&self, qid: u16) -> usize {
        self.queues
            .get(usize::from(qid))
            .map_or(0, Queue::in_capsule_max)
    }

    /// Commands without an answer on queue `qid`.
    #[must_use]
    pub fn outstanding(&self, qid: u16) -> usize {
        self.queues
            .get(usize::from(qid))
            .map_or(0, Queue::outstanding)
    }

    /// Whether queue `qid` still takes commands.
    #[must_use]
    pub fn is_up(&self, qid: u16) -> bool {
        self.queues
            .get(usize::from(qid))
            .is_some_and(|queue| matches!(queue.link, Link::Established))
    }

    /// The adapter that [`Buffer`]s for this host are registered with.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Changes the patience with commands that are waited for.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.options.timeout = timeout;
    }

    /// Memory that the controller may read and write.
    ///
    /// # Errors
    /// It cannot be had, or not be locked.
    pub fn buffer(&self, length: usize) -> Result<Buffer, HostError> {
        Ok(Buffer::new(&*self.device, length)?)
    }

    /// Sends a command on queue `qid`: CID, PSDT and data pointer are filled in.
    ///
    /// # Errors
    /// The queue does not exist, is full or is lost.
    ///
    /// # Panics
    /// If the data lie outside their buffer or do not fit a capsule.
    pub fn submit(&mut self, qid: u16, sqe: Sqe, data: Data<'_>) -> Result<Ticket, HostError> {
        let queue = self
            .queues
            .get_mut(usize::from(qid))
            .ok_or(HostError::NoQueue { qid })?;
        let (ticket, work) = queue.prepare(sqe, data)?;
        match self.endpoint.post(queue.qp, &[work]) {
            Ok(()) => {}
            Err(PostError::Broken) => queue.lose(Loss::Transport(WorkStatus::Flushed)),
            Err(PostError::Full) => unreachable!("the queue's slots bound its sends"),
        }
        Ok(ticket)
    }

    /// Moves everything along that can be moved without waiting. Says whether
    /// anything was.
    pub fn poll(&mut self) -> bool {
        let mut progress = false;
        let mut batch = [Completion::EMPTY; BATCH];
        loop {
            let count = self.endpoint.poll(&mut batch);
            for completion in &batch[..count] {
                self.completed(completion);
            }
            progress |= count > 0;
            if count < BATCH {
                break;
            }
        }
        let mut news = std::mem::take(&mut self.news);
        self.endpoint.poll_events(&mut news);
        progress |= !news.is_empty();
        for event in news.drain(..) {
            self.heard(event);
        }
        self.news = news;
        self.attend(self.options.clock.now());
        progress
    }

    /// The answer to a command, once it is there. It voids the ticket.
    ///
    /// # Panics
    /// If the ticket is void.
    pub fn take(&mut self, ticket: Ticket) -> Option<Result<Response, HostError>> {
        self.queues[usize::from(ticket.qid())].take(ticket)
    }

    /// Blocks until a command is answered.
    ///
    /// # Errors
    /// The queue is lost, or patience ends; then the command counts as
    /// outstanding until it is answered after all.
    ///
    /// # Panics
    /// If the ticket is void.
    pub fn wait(&mut self, ticket: Ticket) -> Result<Response, HostError> {
        let what = "a response".to_owned();
        match self.wait_until(what, |host| host.take(ticket)) {
            Ok(result) => result,
            Err(error) => {
                self.queues[usize::from(ticket.qid())].forget(ticket);
                Err(error)
            }
        }
    }

    /// Sends a command, blocks until it is answered, and makes an error of any
    /// status but success.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit) and [`wait`](Self::wait), or the status.
    ///
    /// # Panics
    /// As [`submit`](Self::submit).
    pub fn run(&mut self, qid: u16, sqe: Sqe, data: Data<'_>) -> Result<Response, HostError> {
        let ticket = self.submit(qid, sqe, data)?;
        let response = self.wait(ticket)?;
        let status = response.cqe.status();
        if status.is_success() {
            return Ok(response);
        }
        Err(HostError::Status {
            command: command_name(qid, &sqe),
            status,
            result: response.cqe.result(),
        })
    }

    /// Blocks until `ready` gives something, polling meanwhile.
    ///
    /// # Errors
    /// It does not within the host's timeout, or the device is gone.
    pub fn wait_until<T>(
        &mut self,
        what: impl Into<String>,
        mut ready: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, HostError> {
        let timeout = self.options.timeout;
        let deadline = self.options.clock.now() + timeout;
        let mut idle_since = Instant::now();
        loop {
            let progress = self.poll();
            if let Some(value) = ready(self) {
                return Ok(value);
            }
            if self.options.clock.now() >= deadline {
                let what = what.into();
                return Err(HostError::Timeout { what, timeout });
            }
            if progress {
                idle_since = Instant::now();
            } else if idle_since.elapsed() > SPIN {
                let wake = self.duties.next_due().unwrap_or(deadline).min(deadline);
                sleep_until_ready(&mut *self.endpoint, wake)?;
            }
        }
    }

    /// Lets go of one I/O queue, as a host does that has too many.
    ///
    /// # Errors
    /// Its connection does not close in time.
    pub fn close_queue(&mut self, qid: u16) -> Result<(), HostError> {
        let index = usize::from(qid);
        let queue = self
            .queues
            .get_mut(index)
            .ok_or(HostError::NoQueue { qid })?;
        queue.lose(Loss::Closed);
        self.endpoint.disconnect(queue.qp);
        self.wait_until(format!("the end of queue {qid}"), |host| {
            host.queues[index].closed.then_some(())
        })
    }

    /// Ends all connections without a shutdown, and waits until they are gone.
    ///
    /// # Errors
    /// They do not close in time.
    pub fn disconnect(mut self) -> Result<(), HostError> {
        self.disconnect_all()
    }

    pub(crate) fn disconnect_all(&mut self) -> Result<(), HostError> {
        for queue in &mut self.queues {
            queue.lose(Loss::Closed);
            self.endpoint.disconnect(queue.qp);
        }
        self.wait_until("the end of all connections", |host| {
            host.queues.iter().all(|queue| queue.closed).then_some(())
        })
    }

    /// Notes which queue a connection is.
    pub(crate) fn add_queue(&mut self, queue: Queue) {
        let slot = queue.qp.slot();
        if self.routes.len() <= slot {
            self.routes.resize(slot + 1, None);
        }
        self.routes[slot] = Some((queue.qp, queue.qid));
        assert!(
            usize::from(queue.qid) == self.queues.len(),
            "queues are made in the order of their QIDs"
        );
        self.queues.push(queue);
    }

    fn completed(&mut self, completion: &Completion) {
        if completion.id & RECEIVE_ID != 0 {
            return self.received(completion);
        }
        if let Some(queue) = self.queue_of(completion.qp) {
            queue.sent(completion.id as u16, completion.status);
        }
    }

    fn received(&mut self, completion: &Completion) {
        let slot = completion.id & !RECEIVE_ID;
        let mut capsule = [0; RESPONSE_BYTES];
        let length = completion.byte_len as usize;
        if completion.status.is_success() {
            let start = slot as usize * RESPONSE_BYTES;
            self.responses.read(start, &mut capsule[..length]);
        }
        // The slot is free as soon as it is copied out, before the command is:
        // there is a receive for each command that can be outstanding.
        let reposted = self.post_response_slot(slot);
        let Some(queue) = self.queue_of(completion.qp) else {
            return;
        };
        if completion.status.is_success() {
            queue.responded(&capsule[..length], completion.invalidated_rkey);
        } else {
            queue.lose(Loss::Transport(completion.status));
        }
        if reposted.is_err() {
            queue.lose(Loss::Transport(WorkStatus::LocalQpOperation));
        }
    }

    fn heard(&mut self, event: Event) {
        let mut disconnect = None;
        match event {
            Event::Established { qp, .. } => self.set_link(qp, Link::Established),
            Event::Rejected {
                qp,
                private_data,
                reason,
            } => self.set_link(qp, Link::Refused(private_data, reason)),
            Event::ConnectFailed { qp, reason } => self.set_link(qp, Link::Failed(reason)),
            Event::Disconnected { qp, reason } => {
                if let Some(queue) = self.queue_of(qp) {
                    queue.lose(Loss::Disconnected(reason));
                }
                disconnect = Some(qp);
            }
            Event::Closed { qp } => {
                if let Some(queue) = self.queue_of(qp) {
                    queue.lose(Loss::Closed);
                    queue.closed = true;
                }
                self.routes[qp.slot()] = None;
            }
            Event::DeviceRemoved => {
                for queue in &mut self.queues {
                    queue.lose(Loss::Disconnected(
                        cairn_rdma::DisconnectReason::DeviceRemoved,
                    ));
                    queue.closed = true;
                }
            }
            Event::Notice { .. } => {}
        }
        if let Some(qp) = disconnect {
            self.endpoint.disconnect(qp);
        }
    }

    fn set_link(&mut self, qp: QpId, link: Link) {
        if let Some(queue) = self.queue_of(qp) {
            queue.link = link;
        }
    }

    fn queue_of(&mut self, qp: QpId) -> Option<&mut Queue> {
        let (known, qid) = self.routes.get(qp.slot()).copied().flatten()?;
        (known == qp).then(|| &mut self.queues[usize::from(qid)])
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
}

/// What a command is called, for an error.
fn command_name(qid: u16, sqe: &Sqe) -> String {
    if sqe.is_fabrics() {
        FabricsType(sqe.fctype().0).to_string()
    } else if qid == 0 {
        AdminOpcode(sqe.opc).to_string()
    } else {
        NvmOpcode(sqe.opc).to_string()
    }
}
