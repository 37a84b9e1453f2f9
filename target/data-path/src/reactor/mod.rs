//! Reactor: one pinned thread that owns all state of its I/O commands.
//!
//! Each round polls the devices and the ring and advances the requests, then posts receives, sends
//! (one chain per queue pair) and block I/O (one system call).
//!
//! Modules: `stages` (I/O commands), `commands` (other commands), `queueing` (waiting commands),
//! `lifecycle` (queue pairs), and `control` (replies to the control plane).

mod aborts;
mod command;
mod commands;
mod control;
mod copying;
mod count;
mod disks;
mod io;
mod lifecycle;
mod older;
mod ordering;
mod port;
mod queueing;
mod queues;
mod rebuild;
mod retry;
mod shares;
mod stages;
mod start;
mod time;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_disk::{Contention, Finished, Pause};
use cairn_rdma::{AckTimeout, Completion};
use nvme_proto::controller::AuthenticationRequest;
use nvme_proto::io::Cancel;

use crate::ids::QpairId;
use crate::metrics::Doing;
use crate::qpair::QueuePair;
use crate::registry::Message;
use crate::request::{OWN_WORK, Task};
use crate::usage::Usage;
use crate::work_id::{WorkId, WorkKind};

use control::ControlLink;
use io::Io;
use lifecycle::{aborting, late_round, slot_release};
use port::Port;
use queues::Queues;
use stages::admission::STUCK_AFTER;
use stages::buffers::PASS_BY;
use stages::{admission, disk, fetch, gates, receive, respond, sent};
use time::Time;

pub use start::{ReactorHandle, Start, start};
pub use time::Rest;

/// Interval at which a busy reactor checks for events and messages, which may take a system call. A
/// sleeping reactor is woken instead.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

const TICK: Duration = Duration::from_millis(250);

const INBOX_TOKEN: u32 = u32::MAX;

#[derive(Debug, Clone)]
pub struct Sizes {
    pub receives: u32,
    pub in_capsule_bytes: u32,
    pub data_bytes: usize,
    pub transfer_bytes: usize,
    pub queue_pairs: u16,
    pub poll_idle: Duration,
    pub poll_drives: bool,
    pub send_with_invalidate: bool,
    pub ack_timeout: Option<AckTimeout>,
    /// Zero means no limit.
    pub io_timeout: Duration,
}

impl Sizes {
    /// Maximum requests; further capsules wait in receive slots.
    pub(crate) fn requests(&self) -> u32 {
        self.receives
    }

    pub(crate) fn completions(&self) -> u32 {
        self.receives
            // A request has one signaled work request. On a broken queue pair, all complete.
            + OWN_WORK * self.requests()
    }
}

pub struct Reactor {
    queues: Queues,
    io: Io,
    control: ControlLink,
    time: Time,
    batch: Box<[Completion]>,
}

impl Reactor {
    pub(crate) fn run(&mut self) {
        let mut contention = Contention::default();
        while !(self.control.stopping
            && self.queues.qpairs.len() == 0
            && self.control.orphans.is_empty())
        {
            let now = self.time.clock.now();
            if contention.core_is_shared(now) {
                self.time.idle.core_is_shared(now);
            }
            let rest = self.step(now);
            match rest {
                Rest::None => {}
                Rest::Spin => std::hint::spin_loop(),
                Rest::Yield => std::thread::yield_now(),
                Rest::Until(deadline) => self.sleep(deadline),
            }
            if matches!(rest, Rest::Spin | Rest::Yield) {
                contention.polls_on(now);
            }
        }
        debug_assert_eq!(self.queues.requests.in_use(), 0, "requests remain");
    }

    pub fn step_settled(&mut self, now: Instant) -> Rest {
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

    pub fn replace_workers(&mut self) {
        self.io.ring.replace_workers();
    }

    pub fn step_workers(&mut self, loses: bool) -> bool {
        self.io.ring.step_workers(loses)
    }

    pub fn step(&mut self, now: Instant) -> Rest {
        self.time.now.at = now;
        let passed_ns = self.count_time(now.duration_since(self.time.started).as_nanos() as u64);
        let after_gap = passed_ns >= late_round::ROUND_GAP.as_nanos() as u64;
        if after_gap {
            self.begin_late_round();
        }
        self.io.ring.begin_round(self.time.now.ns);
        if after_gap {
            self.read_devices();
        }
        self.time.asleep = false;
        let busy = self.round();
        self.count_round(busy);
        if busy {
            self.time.idle.worked();
            return Rest::None;
        }
        let threads = self.io.ring.waits_for_threads();
        match self.time.idle.pause_for(now, threads) {
            Pause::Spin => Rest::Spin,
            Pause::Yield => Rest::Yield,
            Pause::Sleep if self.io.ring.must_poll() => Rest::Yield,
            Pause::Sleep => match self.prepare_sleep() {
                Some(deadline) => {
                    self.time.asleep = true;
                    Rest::Until(deadline)
                }
                None => Rest::None,
            },
        }
    }

    fn round(&mut self) -> bool {
        let mut busy = false;
        for port in 0..self.queues.ports.len() {
            busy |= self.poll_port(port);
        }
        busy |= self.poll_ring();
        if self.time.now.at >= self.time.next_check {
            self.time.next_check = self.time.now.at + CHECK_INTERVAL;
            busy |= self.check();
        } else if self.io.older.any_waits() {
            busy |= self.read_inbox();
        }
        let Self {
            queues, io, time, ..
        } = self;
        busy |= gates::serve_limited(queues, io, &time.now);
        busy |= self.serve_payer_buckets();
        self.serve_waiting(busy);
        self.flush();
        busy
    }

    fn poll_port(&mut self, index: usize) -> bool {
        let Some(port) = &mut self.queues.ports[index] else {
            return false;
        };
        let mut batch = std::mem::take(&mut self.batch);
        let count = port.poll(&mut batch);
        let mut capsules = 0;
        for completion in &batch[..count] {
            let Self {
                queues, io, time, ..
            } = self;
            let (now, work) = (&time.now, WorkId::decode(completion.id));
            let status = completion.status;
            let ended = match work.kind() {
                WorkKind::Receive => {
                    capsules += 1;
                    let slot = work.slot();
                    receive::capsule_arrived(queues, io, now, index, slot, completion)
                }
                WorkKind::Read => {
                    let ended = fetch::read_ended(queues, io, now, work, status);
                    ended.map(|qpair| self.use_credits(qpair))
                }
                WorkKind::LastRead => {
                    let ended = fetch::list_read_ended(queues, io, now, work, status);
                    ended.map(|qpair| self.use_credits(qpair))
                }
                WorkKind::LastWrite => {
                    let ended = respond::writes_ended(queues, io, now, work, status);
                    ended.map(|qpair| self.use_credits(qpair))
                }
                WorkKind::Write | WorkKind::CoveredSend | WorkKind::CoveredRead => {
                    Err(sent::unsignaled_failed(queues, work, status))
                }
                WorkKind::Send => {
                    let ended = sent::send_ended(queues, io, now, work, status);
                    ended.map(|qpair| self.use_credits(qpair))
                }
                WorkKind::Block => panic!("block I/O on a device: {completion:?}"),
            };
            if let Err(broken) = ended {
                self.end_broken(broken);
            }
            // Commands run before the next capsule, so that an Abort finds no later command.
            self.execute_commands();
        }
        self.batch = batch;
        self.queues.counters.capsules.add(capsules);
        self.time.idle.serves(capsules);
        self.queues.payer_buckets.came(capsules, self.time.now.ns);
        count > 0
    }

    /// Posts requests that waited for credits: responses first, because they free resources.
    #[inline]
    fn use_credits(&mut self, qpair: Option<QpairId>) {
        if let Some(qpair) = qpair {
            self.post_waiting(qpair);
        }
    }

    #[inline(never)]
    fn post_waiting(&mut self, qpair: QpairId) {
        let Self {
            queues, io, time, ..
        } = self;
        if queues.qpairs.get(qpair).is_some_and(QueuePair::is_open) {
            respond::pump_sends(queues, io, &time.now, qpair);
            fetch::pump_reads(queues, io, &time.now, qpair);
        }
    }

    fn poll_ring(&mut self) -> bool {
        let mut busy = false;
        while let Some(finished) = self.io.ring.pop() {
            busy = true;
            match finished {
                Finished::Operation { tag, result } => {
                    let work = WorkId::decode(tag);
                    let result = match result {
                        Err(libc::ECANCELED) => Err(self.why_cancelled(work)),
                        result => result,
                    };
                    let Self {
                        queues, io, time, ..
                    } = self;
                    disk::step_ended(queues, io, &time.now, work, result);
                    continue;
                }
                Finished::Readable { token: INBOX_TOKEN } => self.control.inbox_watched = false,
                Finished::Readable { token } => {
                    let (port, fd) = port::of_token(token);
                    if let Some(port) = self.queues.ports.get_mut(port).and_then(Option::as_mut) {
                        port.woken(fd);
                    }
                }
            }
            self.time.next_check = self.time.now.at;
        }
        busy
    }

    #[inline(always)]
    fn execute_commands(&mut self) {
        if !self.queues.commands.is_empty() {
            self.execute_each();
        }
    }

    fn execute_each(&mut self) {
        while let Some(id) = self.queues.requests.pop_front(&mut self.queues.commands) {
            let request = &self.queues.requests[id];
            match request.task {
                Task::Unparsed if self.queues.qpairs[request.qpair].claimant.is_some() => {
                    self.begin_authenticate(id);
                }
                Task::Unparsed if self.queues.qpairs[request.qpair].association.is_none() => {
                    self.begin_connect(id);
                }
                Task::Unparsed if AuthenticationRequest::is_one(&request.sqe) => {
                    self.begin_reauthenticate(id);
                }
                Task::Unparsed if self.queues.association(id).qid == 0 => self.begin_admin(id),
                Task::Unparsed if Cancel::is_one(&request.sqe) => self.cancel(id),
                Task::Unparsed => self.begin_reservation(id),
                Task::Connect => self.execute_connect(id),
                Task::Authenticate(step) => self.execute_authenticate(id, step),
                Task::Reauthenticate(step) => self.execute_reauthenticate(id, step),
                Task::Admin(command) => self.execute_admin(id, &command),
                Task::Reservation(command) => self.execute_reservation(id, command),
                Task::Io(_) | Task::LateCompletion => unreachable!("not the reactor's to execute"),
            }
        }
    }

    fn check(&mut self) -> bool {
        let mut busy = false;
        for port in 0..self.queues.ports.len() {
            busy |= self.poll_events(port);
        }
        busy |= self.read_inbox();
        busy |= self.take_connections();
        let Self {
            queues, io, time, ..
        } = self;
        busy |= disk::serve_retries(queues, io, &time.now);
        busy |= disk::overtake(queues, io, &time.now);
        busy |= gates::pass_by(queues, io, &time.now);
        self.collect_remains();
        busy |= self.see_censuses();
        slot_release::release_stuck(&mut self.queues, &mut self.io, &self.time.now);
        self.take_censuses();
        self.answer_settled();
        if self.time.now.at >= self.time.next_tick {
            self.time.next_tick = self.time.now.at + TICK;
            self.check_deadlines();
        }
        busy
    }

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
                self.io.limited.next_ns = 0;
            }
            Message::Complete { qpair, completion } => {
                if self.queues.qpairs.get(qpair).is_some() {
                    // Completions caused by an admin command precede its own completion.
                    self.queues.late.push_back((qpair, completion));
                    receive::serve_late(&mut self.queues, &mut self.io, &self.time.now);
                }
            }
            Message::Disconnect { qpair, ending } => {
                if self.queues.qpairs.get(qpair).is_some() {
                    self.close(qpair, ending);
                }
            }
            Message::Displace { place } => self.displace(place),
            Message::Abort {
                qpair,
                cid,
                abort_cid,
            } => {
                let Self {
                    queues, io, time, ..
                } = self;
                aborting::abort(queues, io, &time.now, qpair, cid, abort_cid);
            }
            Message::Order { qpair, arming } => self.begin_census(qpair, arming),
            Message::Armed => self.serve_connects(),
            Message::OlderEnded { work } => {
                let work = WorkId::decode(work);
                disk::older_ended(&mut self.queues, &mut self.io, &self.time.now, work);
            }
            Message::Exclude { order, subsystem } => self.join_exclusion(&order, &subsystem),
            Message::Settle { settling } => self.settle(settling),
            Message::Computed(computed) => self.go_on_authenticating(*computed),
            Message::Drain => self.drain(),
            Message::Stop => self.stop(),
        }
    }

    fn flush(&mut self) {
        self.queues.flush();
        while !self.queues.lost.is_empty() {
            self.end_lost();
            self.queues.flush();
        }
        while let Some(qpair) = self.queues.ended.pop() {
            self.retire_if_done(qpair);
        }
        if let Err(error) = self.io.ring.submit() {
            panic!("io_uring no longer takes work: {error}");
        }
    }

    /// Returns the time of the next tick; `None` without a pending deadline, so that idle
    /// connections wake no thread.
    fn tick_deadline(&self) -> Option<Instant> {
        let waits = |id| self.queues.draining || self.queues.qpairs[id].has_deadline();
        let any = self.queues.requests.in_use() > 0
            || self.io.disks.any_waits()
            || !self.io.aborts.is_empty()
            || self.queues.qpairs.ids().any(waits);
        any.then_some(self.time.next_tick)
    }

    /// Returns the deadline of the sleep, `Some(None)` for none, or `None` if work has arrived.
    fn prepare_sleep(&mut self) -> Option<Option<Instant>> {
        self.time.next_check = self.time.now.at;
        self.take_censuses();
        self.answer_settled();
        let pass_by = (!self.io.awaiting_buffer.is_empty()).then_some(self.time.now.at + PASS_BY);
        let release = self.queues.capsule_queues.with_receives().next().is_some();
        let release = release.then_some(self.time.now.at + STUCK_AFTER);
        let orphans = self.next_look_at_orphans();
        let at = |ns: u64| {
            let from_now = ns.saturating_sub(self.time.now.ns);
            self.time.now.at + Duration::from_nanos(from_now)
        };
        let next_ns = [
            self.io.limited.next_ns,
            self.queues.payer_buckets.next_look(),
        ];
        let [limited, payer_buckets] = next_ns.map(|ns| (ns < u64::MAX).then(|| at(ns)));
        let timers = [
            self.tick_deadline(),
            limited,
            payer_buckets,
            self.io.retries.next(),
            self.io.older.next(&self.queues.requests, &self.time.now),
            pass_by,
            release,
            orphans,
        ];
        let mut deadline = timers.into_iter().flatten().min();
        for (index, port) in self.queues.ports.iter_mut().enumerate() {
            let Some(port) = port else { continue };
            match port.endpoint().arm() {
                Ok(false) => {}
                // A completion has arrived, or an event will report the device's removal.
                Ok(true) | Err(_) => return None,
            }
            port.watch(index, &mut self.io.ring);
            let own = port.endpoint().next_deadline();
            let own = own.map(|at| self.time.clock.of_default(at));
            deadline = [deadline, own].into_iter().flatten().min();
        }
        let left = self.control.inbox.rest();
        if left.messages || self.io.ring.has_ended() || self.io.ring.keeps_changes() {
            return None;
        }
        let connections = left.connections.then(|| self.connections_due());
        deadline = [deadline, connections].into_iter().flatten().min();
        if !std::mem::replace(&mut self.control.inbox_watched, true) {
            self.io
                .ring
                .poll_readable(INBOX_TOKEN, self.control.inbox.wake_fd());
        }
        Some(deadline)
    }

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

    /// Queued capsules are served only after a round with work (`busy`); other rounds free no
    /// requests.
    fn serve_waiting(&mut self, busy: bool) {
        let Self {
            queues, io, time, ..
        } = self;
        let now = &time.now;
        gates::serve_buffers(queues, io, now);
        if busy && !queues.capsule_queues.is_empty() {
            queues.capsule_queues.wake();
            while let Some(capsule) = admission::next(queues, io) {
                receive::admit(queues, io, now, capsule);
            }
        }
        receive::serve_late(queues, io, now);
        self.execute_commands();
    }

    pub fn abandon_all(&mut self) {
        self.queues.requests.abandon_all();
    }

    pub fn add_to(&self, sum: &mut Usage) {
        sum.queue_pairs += self.queues.qpairs.len();
        sum.requests += self.queues.requests.in_use();
        sum.buffer_bytes += self.io.arena.taken_bytes();
        let payer_buckets = self.queues.payer_buckets.waiting();
        sum.capsules += self.queues.capsule_queues.len() + self.queues.late.len() + payer_buckets;
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
