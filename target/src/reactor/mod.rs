//! A reactor: one pinned thread that owns everything an I/O touches.
//!
//! Each round it takes what its devices and its ring have finished, moves the
//! requests on, and posts what came of it: receives first, then sends, one chain
//! for each queue pair, then block I/O in one system call. Without work it polls
//! on for a while ([`idle`]) and then sleeps, in its ring and nowhere else.
//!
//! The life of a request is in the modules, in this order: [`capsule`] (it
//! arrives), [`connect`], [`admin`] or [`io`] (what it asks for), [`data`]
//! (buffers, RDMA READ), [`respond`] (RDMA WRITE, SEND). [`lifecycle`] has that
//! of queue pairs.

mod admin;
mod capsule;
mod connect;
mod count;
mod data;
mod disks;
mod gap;
mod idle;
mod io;
mod lifecycle;
mod lines;
mod overdue;
mod port;
mod predecessors;
mod remains;
mod respond;
mod retry;
mod shares;
mod shed;
mod start;
mod turns;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_rdma::{Clock, Completion, Event, PeerLimit, peer_detail};
use nvme_proto::controller::Completion as CommandEnd;
use tokio::sync::mpsc::UnboundedSender;

use crate::arena::Arena;
use crate::holdings::Holdings;
use crate::ids::QpairId;
use crate::metrics::{Doing, ReactorCounters};
use crate::qpair::Qpairs;
use crate::registry::{ControlMessage, Inbox, Message, QueueAddress, Registry};
use crate::request::{List, RequestTable};
use crate::ring::{Finished, Ring};
use crate::work_id::{WorkId, WorkKind};

use data::PASS_BY;
use disks::Disks;
pub(crate) use idle::{Idle, Pause};
use lines::Lines;
use overdue::Aborting;
use port::Port;
use predecessors::Claim;
use remains::Remains;
use retry::Retry;
use shares::Shares;

use shed::STUCK_AFTER;

pub(crate) use start::{ReactorHandle, Start, start};

/// How often connection events and the mailbox are looked at while busy: they
/// may cost a system call. Asleep, they wake the reactor.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// How often deadlines are looked at, while there are any.
const TICK: Duration = Duration::from_millis(250);

/// The ring's token for the mailbox.
const INBOX_TOKEN: u32 = u32::MAX;

/// How large things are.
#[derive(Debug, Clone)]
pub(crate) struct Sizes {
    /// Receives for each device.
    pub(crate) receives: u32,
    /// In-capsule data, in bytes.
    pub(crate) in_capsule_bytes: u32,
    /// Bytes of data buffers.
    pub(crate) data_bytes: usize,
    /// Bytes of the largest transfer.
    pub(crate) transfer_bytes: usize,
    /// Queue pairs for each device.
    pub(crate) queue_pairs: u16,
    /// The largest window of polling without work.
    pub(crate) poll_idle: Duration,
    /// How long a disk may keep a command; 0: for ever.
    pub(crate) io_timeout: Duration,
}

impl Sizes {
    /// Commands in progress at a time. As many as receives: more would need
    /// capsules that have not arrived; what arrives beyond them waits in its
    /// receive slot.
    pub(crate) fn requests(&self) -> u32 {
        self.receives
    }

    /// Completions that a device may have for us at a time.
    pub(crate) fn completions(&self) -> u32 {
        // Each posted receive completes once.
        self.receives
            // A request has one signaled work request out at a time: its READ, or
            // its SEND. On a broken queue pair the WRITE before the SEND, which
            // is not signaled, completes as well.
            + 2 * self.requests()
    }
}

/// What a reactor wants after a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Another round: there may be more to do.
    None,
    /// Another round, though there was nothing to do.
    Spin,
    /// The same, after whoever else wants the core.
    Yield,
    /// To sleep until something happens or this time, if any, comes.
    Until(Option<Instant>),
}

/// A reactor.
pub(crate) struct Reactor {
    index: usize,
    sizes: Sizes,
    ring: Ring,
    arena: Arena,
    requests: RequestTable,
    qpairs: Qpairs,
    /// By device; `None` where one was removed.
    ports: Vec<Option<Port>>,
    disks: Disks,
    registry: Arc<Registry>,
    inbox: Inbox,
    control: UnboundedSender<ControlMessage>,
    /// What each host may have, and holds of the data buffers.
    shares: Shares,
    /// Requests that wait for data buffers, within their shares.
    awaiting_buffer: List,
    /// Connects whose host has older commands at the disks.
    awaiting_predecessors: List,
    /// What queues here owe to later associations of their hosts.
    claims: Vec<Claim>,
    /// What disks still have of reactors that panicked in its place.
    remains: Vec<Remains>,
    /// Since when the first of these finds no stretch that is long enough.
    buffers_short: Option<Instant>,
    /// Capsules that wait for a request. Not more than the queues have entries.
    lines: Lines,
    /// While so many requests are free, every capsule may have one.
    plenty: usize,
    /// Requests that only admin queues and Connects may use.
    reserve: usize,
    /// Completions of parked commands that wait for a request. Not more than the
    /// controllers' limit on parked commands.
    late: VecDeque<(QpairId, CommandEnd)>,
    /// Block I/O that is tried again later. Not more than requests.
    retries: Vec<Retry>,
    /// Aborts of commands that a disk has. Not more than ACL of each controller.
    aborting: Vec<Aborting>,
    /// Queue pairs with something in their outbox.
    dirty: Vec<QpairId>,
    clock: Clock,
    /// Where it counts.
    counters: Arc<ReactorCounters>,
    /// What it does with its time since [`Self::now`].
    doing: Doing,
    started: Instant,
    now: Instant,
    /// The same in nanoseconds since the target started.
    now_ns: u64,
    /// Whether it rested since its last round: then it may be a while ago.
    asleep: bool,
    /// Until when capsules wait in the backlog, whatever is free.
    hold_until: Option<Instant>,
    next_tick: Instant,
    /// When to look at what comes seldom, while busy.
    next_check: Instant,
    /// Completions of the round, kept to be overwritten by the next.
    batch: Box<[Completion]>,
    idle: Idle,
    peer_limit: PeerLimit,
    inbox_watched: bool,
    draining: bool,
    stopping: bool,
    events: Vec<Event>,
}

impl Reactor {
    /// Runs until it is told to stop and all queues are closed.
    pub(crate) fn run(&mut self) {
        while !(self.stopping && self.qpairs.len() == 0 && self.remains.is_empty()) {
            let now = self.clock.now();
            match self.step(now) {
                Rest::None => {}
                Rest::Spin => std::hint::spin_loop(),
                Rest::Yield => std::thread::yield_now(),
                Rest::Until(deadline) => self.sleep(deadline),
            }
        }
    }

    /// As [`Self::step`], with disks that take no time, or that of the simulated clock.
    pub(crate) fn step_settled(&mut self, now: Instant) -> Rest {
        if let Err(error) = self.ring.settle() {
            panic!("io_uring no longer waits: {error}");
        }
        let rest = self.step(now);
        match (rest, self.ring.step_simulated()) {
            (Rest::Until(_), Some(Duration::ZERO)) => Rest::None,
            (Rest::Until(deadline), next) => {
                let next = next.map(|next| now + next);
                Rest::Until([deadline, next].into_iter().flatten().min())
            }
            _ => rest,
        }
    }

    /// One round at `now`, and what to do after it.
    pub(crate) fn step(&mut self, now: Instant) -> Rest {
        let passed = now.saturating_duration_since(self.now);
        self.now = now;
        self.count_time(now.duration_since(self.started).as_nanos() as u64);
        if passed >= gap::GAP {
            self.heed_gap();
        }
        self.ring
            .begin_round(self.now_ns, self.hold_until.is_some());
        self.asleep = false;
        let busy = self.round();
        self.count_round(busy);
        if busy {
            self.idle.worked();
            return Rest::None;
        }
        match self.idle.pause(now) {
            Pause::Spin => Rest::Spin,
            Pause::Yield => Rest::Yield,
            Pause::Sleep => match self.prepare_sleep() {
                Some(deadline) => {
                    self.asleep = true;
                    Rest::Until(deadline)
                }
                None => Rest::None,
            },
        }
    }

    /// One round; whether there was anything to do.
    fn round(&mut self) -> bool {
        let mut busy = false;
        for port in 0..self.ports.len() {
            busy |= self.poll_port(port);
        }
        busy |= self.poll_ring();
        if self.now >= self.next_check {
            self.next_check = self.now + CHECK_INTERVAL;
            busy |= self.check();
        }
        if self.hold_until.is_some_and(|until| self.now >= until) {
            self.hold_until = None;
            self.ring.begin_round(self.now_ns, false);
            busy = true;
        }
        self.serve_waiting(busy);
        self.flush();
        busy
    }

    /// Takes what a device has finished.
    fn poll_port(&mut self, index: usize) -> bool {
        let Some(port) = &mut self.ports[index] else {
            return false;
        };
        let mut batch = std::mem::take(&mut self.batch);
        let count = port.poll(&mut batch);
        let mut capsules = 0;
        for completion in &batch[..count] {
            let work = WorkId::decode(completion.id);
            match work.kind() {
                WorkKind::Receive => {
                    capsules += 1;
                    self.capsule_arrived(index, work.slot(), completion);
                }
                WorkKind::Read => self.read_ended(work, completion.status),
                WorkKind::Write => self.write_failed(work, completion.status),
                WorkKind::Send => self.send_ended(work, completion.status),
                WorkKind::Block => panic!("block I/O on a device: {completion:?}"),
            }
        }
        self.batch = batch;
        self.counters.capsules.add(capsules);
        count > 0
    }

    /// Takes what the ring has finished.
    fn poll_ring(&mut self) -> bool {
        let mut busy = false;
        while let Some(finished) = self.ring.pop() {
            busy = true;
            match finished {
                Finished::Operation { tag, result } => {
                    self.block_step_ended(WorkId::decode(tag), result);
                }
                Finished::Readable { token: INBOX_TOKEN } => {
                    self.inbox_watched = false;
                    self.next_check = self.now;
                }
                Finished::Readable { token } => {
                    let (port, fd) = port::of_token(token);
                    if let Some(port) = self.ports.get_mut(port).and_then(Option::as_mut) {
                        port.woken(fd);
                    }
                    self.next_check = self.now;
                }
            }
        }
        busy
    }

    /// Looks at what comes seldom: connection events, messages, deadlines.
    fn check(&mut self) -> bool {
        let mut busy = false;
        for port in 0..self.ports.len() {
            busy |= self.poll_events(port);
        }
        busy |= self.read_inbox();
        busy |= self.serve_retries();
        busy |= self.pass_by();
        self.collect_remains();
        busy |= self.see_claims();
        self.shed_stuck();
        self.settle_claims();
        if self.now >= self.next_tick {
            self.next_tick = self.now + TICK;
            self.check_deadlines();
            self.check_ages();
            self.answer_shed();
        }
        busy
    }

    /// Handles all messages there are; whether there were any.
    fn read_inbox(&mut self) -> bool {
        let mut busy = false;
        while let Some(message) = self.inbox.try_recv() {
            busy = true;
            self.handle(message);
        }
        busy
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Accept(admitted) => self.accept(*admitted),
            Message::Namespaces {
                subsystem,
                counters,
                table,
            } => {
                let ports = self.ports.iter().enumerate();
                let ports: Vec<_> = ports
                    .filter_map(|(index, port)| Some((index, Arc::clone(port.as_ref()?.device()))))
                    .collect();
                self.disks
                    .adopt(subsystem, &counters, &table, &ports, &mut self.ring);
            }
            Message::Complete { qpair, completion } => {
                if self.qpairs.get(qpair).is_some() {
                    // At once if it can be: what came of an admin command is told
                    // before its own end (an aborted command before the Abort).
                    self.late.push_back((qpair, completion));
                    self.serve_late();
                }
            }
            Message::Disconnect { qpair, ending } => {
                if self.qpairs.get(qpair).is_some() {
                    self.close(qpair, ending);
                }
            }
            Message::Abort {
                qpair,
                cid,
                abort_cid,
            } => self.abort(qpair, cid, abort_cid),
            Message::Census { qpair, ward, claim } => self.claim(qpair, ward, claim),
            Message::Settled => self.serve_connects(),
            Message::Drain => self.drain(),
            Message::Stop => self.stop(),
        }
    }

    /// Posts what this round brought: receives before sends, so that a host that
    /// is answered finds a receive for its next command.
    fn flush(&mut self) {
        for port in self.ports.iter_mut().flatten() {
            if port.flush_receives().is_err() {
                peer_detail!(
                    device = port.device().name(),
                    "receives refused: it is going"
                );
            }
        }
        while let Some(qpair) = self.dirty.pop() {
            self.flush_outbox(qpair);
        }
        if let Err(error) = self.ring.submit() {
            panic!("io_uring no longer takes work: {error}");
        }
    }

    /// When deadlines must be looked at, if there are any: nobody wakes for
    /// hosts that are connected and idle.
    fn tick_deadline(&self) -> Option<Instant> {
        let waits = |id| self.draining || self.qpairs[id].has_deadline();
        let any = self.requests.in_use() > 0
            || self.disks.any_waits()
            || !self.aborting.is_empty()
            || self.qpairs.ids().any(waits);
        any.then_some(self.next_tick)
    }

    /// Has everything wake us that can bring work, and says until when to sleep;
    /// `None` if something is there by now.
    fn prepare_sleep(&mut self) -> Option<Option<Instant>> {
        self.next_check = self.now;
        self.settle_claims();
        let pass_by = (!self.awaiting_buffer.is_empty()).then_some(self.now + PASS_BY);
        let shed = self.lines.keep_receives().then_some(self.now + STUCK_AFTER);
        let remains = self.next_look_at_remains();
        let timers = [
            self.tick_deadline(),
            self.next_retry(),
            pass_by,
            shed,
            remains,
        ];
        let mut deadline = timers.into_iter().chain([self.hold_until]).flatten().min();
        for (index, port) in self.ports.iter_mut().enumerate() {
            let Some(port) = port else { continue };
            match port.endpoint().arm() {
                Ok(false) => {}
                // Something came just now; or the device is gone, and says so by an event.
                Ok(true) | Err(_) => return None,
            }
            port.watch(index, &mut self.ring);
            let own = port.endpoint().next_deadline();
            let own = own.map(|at| self.clock.of_default(at));
            deadline = [deadline, own].into_iter().flatten().min();
        }
        self.inbox.acknowledge();
        if !self.inbox.is_empty() || self.ring.has_ended() {
            return None;
        }
        if !std::mem::replace(&mut self.inbox_watched, true) {
            self.ring.poll_readable(INBOX_TOKEN, self.inbox.wake_fd());
        }
        Some(deadline)
    }

    /// Sleeps until there is something to do.
    fn sleep(&mut self, deadline: Option<Instant>) {
        self.doing = Doing::Sleep;
        self.counters.sleeps.add(1);
        let before = self.clock.now();
        let timeout = deadline.map(|deadline| deadline.saturating_duration_since(before));
        if let Err(error) = self.ring.wait(timeout) {
            panic!("io_uring no longer waits: {error}");
        }
        self.idle.slept(self.clock.now());
    }

    /// Gives those that wait what has become free: nothing has without work.
    fn serve_waiting(&mut self, busy: bool) {
        self.serve_shares();
        self.serve_buffers();
        self.serve_late();
        if busy && self.hold_until.is_none() && !self.lines.is_empty() {
            self.serve_lines();
        }
    }

    /// Answers parked commands whose end has come.
    fn serve_late(&mut self) {
        while !self.requests.is_full() {
            let Some((qpair, completion)) = self.late.pop_front() else {
                return;
            };
            self.complete_late(qpair, completion);
        }
    }

    /// Its process is killed: no command will be answered.
    pub(crate) fn abandon_all(&mut self) {
        self.requests.abandon_all();
    }

    /// Adds what it holds.
    pub(crate) fn add_to(&self, sum: &mut Holdings) {
        sum.queue_pairs += self.qpairs.len();
        sum.requests += self.requests.in_use();
        sum.buffer_bytes += self.arena.taken_bytes();
        sum.capsules += self.lines.waiting() + self.late.len();
        sum.receives += self
            .ports
            .iter()
            .flatten()
            .map(Port::slots_out)
            .sum::<usize>();
        sum.shares += self.shares.count();
    }

    /// Where messages for a queue pair go.
    fn address(&self, qpair: QpairId) -> QueueAddress {
        QueueAddress {
            reactor: self.index,
            qpair,
        }
    }
}
