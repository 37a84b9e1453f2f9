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
mod control;
mod count;
mod data;
mod disk;
mod disks;
mod gap;
mod idle;
mod io;
mod lifecycle;
mod lines;
mod overdue;
mod port;
mod predecessors;
mod queues;
mod remains;
mod respond;
mod retry;
mod shares;
mod shed;
mod start;
mod time;
mod turns;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_rdma::{Completion, peer_detail};

use crate::holdings::Holdings;
use crate::metrics::Doing;
use crate::registry::Message;
use crate::ring::Finished;
use crate::work_id::{WorkId, WorkKind};

use control::Control;
use data::PASS_BY;
pub(crate) use idle::{Idle, Pause};
use io::Io;
use port::Port;
use queues::Queues;
use shed::STUCK_AFTER;
use time::Time;

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
    queues: Queues,
    io: Io,
    control: Control,
    time: Time,
    /// Completions of the round, kept to be overwritten by the next.
    batch: Box<[Completion]>,
}

impl Reactor {
    /// Runs until it is told to stop and all queues are closed.
    pub(crate) fn run(&mut self) {
        while !(self.control.stopping
            && self.queues.qpairs.len() == 0
            && self.control.remains.is_empty())
        {
            let now = self.time.clock.now();
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
        if let Err(error) = self.io.ring.settle() {
            panic!("io_uring no longer waits: {error}");
        }
        let rest = self.step(now);
        match (rest, self.io.ring.step_simulated()) {
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
        let passed = now.saturating_duration_since(self.time.now);
        self.time.now = now;
        self.count_time(now.duration_since(self.time.started).as_nanos() as u64);
        if passed >= gap::GAP {
            self.heed_gap();
        }
        self.time.asleep = false;
        let busy = self.round();
        self.count_round(busy);
        if busy {
            self.time.idle.worked();
            return Rest::None;
        }
        match self.time.idle.pause(now) {
            Pause::Spin => Rest::Spin,
            Pause::Yield => Rest::Yield,
            Pause::Sleep => match self.prepare_sleep() {
                Some(deadline) => {
                    self.time.asleep = true;
                    Rest::Until(deadline)
                }
                None => Rest::None,
            },
        }
    }

    /// One round; whether there was anything to do.
    fn round(&mut self) -> bool {
        let mut busy = false;
        for port in 0..self.queues.ports.len() {
            busy |= self.poll_port(port);
        }
        busy |= self.poll_ring();
        if self.time.now >= self.time.next_check {
            self.time.next_check = self.time.now + CHECK_INTERVAL;
            busy |= self.check();
        }
        if self
            .queues
            .hold_until
            .is_some_and(|until| self.time.now >= until)
        {
            self.queues.hold_until = None;
            busy = true;
        }
        self.serve_waiting(busy);
        self.flush();
        busy
    }

    /// Takes what a device has finished.
    fn poll_port(&mut self, index: usize) -> bool {
        let Some(port) = &mut self.queues.ports[index] else {
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
        self.queues.counters.capsules.add(capsules);
        count > 0
    }

    /// Takes what the ring has finished.
    fn poll_ring(&mut self) -> bool {
        let mut busy = false;
        while let Some(finished) = self.io.ring.pop() {
            busy = true;
            match finished {
                Finished::Operation { tag, result } => {
                    self.block_step_ended(WorkId::decode(tag), result);
                }
                Finished::Readable { token: INBOX_TOKEN } => {
                    self.control.inbox_watched = false;
                    self.time.next_check = self.time.now;
                }
                Finished::Readable { token } => {
                    let (port, fd) = port::of_token(token);
                    if let Some(port) = self.queues.ports.get_mut(port).and_then(Option::as_mut) {
                        port.woken(fd);
                    }
                    self.time.next_check = self.time.now;
                }
            }
        }
        busy
    }

    /// Looks at what comes seldom: connection events, messages, deadlines.
    fn check(&mut self) -> bool {
        let mut busy = false;
        for port in 0..self.queues.ports.len() {
            busy |= self.poll_events(port);
        }
        busy |= self.read_inbox();
        busy |= self.serve_retries();
        busy |= self.pass_by();
        self.collect_remains();
        busy |= self.see_claims();
        self.shed_stuck();
        self.settle_claims();
        if self.time.now >= self.time.next_tick {
            self.time.next_tick = self.time.now + TICK;
            self.check_deadlines();
            self.check_ages();
            self.answer_shed();
        }
        busy
    }

    /// Handles all messages there are; whether there were any.
    fn read_inbox(&mut self) -> bool {
        let mut busy = false;
        while let Some(message) = self.control.inbox.try_recv() {
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
                let ports = self.queues.ports.iter().enumerate();
                let ports: Vec<_> = ports
                    .filter_map(|(index, port)| Some((index, Arc::clone(port.as_ref()?.device()))))
                    .collect();
                self.io
                    .disks
                    .adopt(subsystem, &counters, &table, &ports, &mut self.io.ring);
            }
            Message::Complete { qpair, completion } => {
                if self.queues.qpairs.get(qpair).is_some() {
                    // At once if it can be: what came of an admin command is told
                    // before its own end (an aborted command before the Abort).
                    self.queues.late.push_back((qpair, completion));
                    self.serve_late();
                }
            }
            Message::Disconnect { qpair, ending } => {
                if self.queues.qpairs.get(qpair).is_some() {
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
        for port in self.queues.ports.iter_mut().flatten() {
            if port.flush_receives().is_err() {
                peer_detail!(
                    device = port.device().name(),
                    "receives refused: it is going"
                );
            }
        }
        while let Some(qpair) = self.queues.dirty.pop() {
            self.flush_outbox(qpair);
        }
        if let Err(error) = self.io.ring.submit() {
            panic!("io_uring no longer takes work: {error}");
        }
    }

    /// When deadlines must be looked at, if there are any: nobody wakes for
    /// hosts that are connected and idle.
    fn tick_deadline(&self) -> Option<Instant> {
        let waits = |id| self.queues.draining || self.queues.qpairs[id].has_deadline();
        let any = self.queues.requests.in_use() > 0
            || self.io.disks.any_waits()
            || !self.io.aborting.is_empty()
            || self.queues.qpairs.ids().any(waits);
        any.then_some(self.time.next_tick)
    }

    /// Has everything wake us that can bring work, and says until when to sleep;
    /// `None` if something is there by now.
    fn prepare_sleep(&mut self) -> Option<Option<Instant>> {
        self.time.next_check = self.time.now;
        self.settle_claims();
        let pass_by = (!self.io.awaiting_buffer.is_empty()).then_some(self.time.now + PASS_BY);
        let shed = self
            .queues
            .lines
            .keep_receives()
            .then_some(self.time.now + STUCK_AFTER);
        let remains = self.next_look_at_remains();
        let timers = [
            self.tick_deadline(),
            self.next_retry(),
            pass_by,
            shed,
            remains,
        ];
        let mut deadline = timers
            .into_iter()
            .chain([self.queues.hold_until])
            .flatten()
            .min();
        for (index, port) in self.queues.ports.iter_mut().enumerate() {
            let Some(port) = port else { continue };
            match port.endpoint().arm() {
                Ok(false) => {}
                // Something came just now; or the device is gone, and says so by an event.
                Ok(true) | Err(_) => return None,
            }
            port.watch(index, &mut self.io.ring);
            let own = port.endpoint().next_deadline();
            let own = own.map(|at| self.time.clock.of_default(at));
            deadline = [deadline, own].into_iter().flatten().min();
        }
        self.control.inbox.acknowledge();
        if !self.control.inbox.is_empty() || self.io.ring.has_ended() {
            return None;
        }
        if !std::mem::replace(&mut self.control.inbox_watched, true) {
            self.io
                .ring
                .poll_readable(INBOX_TOKEN, self.control.inbox.wake_fd());
        }
        Some(deadline)
    }

    /// Sleeps until there is something to do.
    fn sleep(&mut self, deadline: Option<Instant>) {
        self.time.doing = Doing::Sleep;
        self.queues.counters.sleeps.add(1);
        let before = self.time.clock.now();
        let timeout = deadline.map(|deadline| deadline.saturating_duration_since(before));
        if let Err(error) = self.io.ring.wait(timeout) {
            panic!("io_uring no longer waits: {error}");
        }
        self.time.idle.slept(self.time.clock.now());
    }

    /// Gives those that wait what has become free: nothing has without work.
    fn serve_waiting(&mut self, busy: bool) {
        self.serve_shares();
        self.serve_buffers();
        self.serve_late();
        if busy && self.queues.hold_until.is_none() && !self.queues.lines.is_empty() {
            self.serve_lines();
        }
    }

    /// Answers parked commands whose end has come.
    fn serve_late(&mut self) {
        while !self.queues.requests.is_full() {
            let Some((qpair, completion)) = self.queues.late.pop_front() else {
                return;
            };
            self.complete_late(qpair, completion);
        }
    }

    /// Its process is killed: no command will be answered.
    pub(crate) fn abandon_all(&mut self) {
        self.queues.requests.abandon_all();
    }

    /// Adds what it holds.
    pub(crate) fn add_to(&self, sum: &mut Holdings) {
        sum.queue_pairs += self.queues.qpairs.len();
        sum.requests += self.queues.requests.in_use();
        sum.buffer_bytes += self.io.arena.taken_bytes();
        sum.capsules += self.queues.lines.waiting() + self.queues.late.len();
        sum.receives += self
            .queues
            .ports
            .iter()
            .flatten()
            .map(Port::slots_out)
            .sum::<usize>();
        sum.shares += self.io.shares.count();
    }
}
