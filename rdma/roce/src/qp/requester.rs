//! The sending half of a queue pair: work requests become packets, and
//! acknowledgements and READ data become completions (IBTA 9.7.3 to 9.7.6).
//!
//! Go-back-N: whatever goes missing, sending resumes at the oldest packet that
//! is not accounted for. A READ of which a part has arrived is asked for again
//! only from there on.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use cairn_rdma::{Access, PostError, RemoteBuffer, WorkStatus};

use super::memory::Memory;
use super::rtt::RoundTrip;
use super::window::Window;
use super::work::{Request, Work};
use super::{Context, QpConfig, psn};
use crate::wire::aeth::rnr_delay;
use crate::wire::{AtomicEth, Ieth, ImmDt, NakCode, Opcode, Packet, Reth, Syndrome};

/// An acknowledgement is asked for at least this often, so that the window
/// moves in good time.
const ACK_EVERY: u64 = 32;
/// The RNR retry count that means no limit (IBTA 9.7.5.2.8).
const RNR_RETRY_FOR_EVER: u8 = 7;
/// The longest message (IBTA 9.2.10).
const MAX_MESSAGE: u64 = 1 << 31;

#[derive(Debug)]
pub(super) struct Requester {
    dest_qpn: u32,
    mtu: u32,
    send_work: usize,
    initiator_depth: u32,
    rnr_retry_count: u8,
    /// How long a silent peer is believed to be alive.
    patience: Duration,

    queue: VecDeque<Entry>,
    /// Index in `queue` of the work that goes out next, or its length.
    cursor: usize,
    /// What goes out next, in the cursor's work.
    next: u64,
    /// The oldest packet that is not accounted for.
    unacked: u64,
    /// One past the newest packet that ever went out.
    sent: u64,
    /// What the next posted work starts with.
    end: u64,
    /// The last packet that asked for an acknowledgement.
    asked: u64,
    /// READs and atomics that went out and have not completed.
    fetches: u32,
    /// The gap in READ data that was last asked for again.
    refetched: Option<u64>,

    round_trip: RoundTrip,
    window: Window,
    /// When to take the silence for loss.
    deadline: Option<Instant>,
    /// When something was last accounted for.
    progress_at: Instant,
    /// Until when the peer asked to be left alone.
    not_ready_until: Option<Instant>,
    not_ready_count: u8,
    /// Until when congestion holds sending back.
    paced_until: Option<Instant>,
    broken: bool,
}

/// A work request and where it stands.
#[derive(Debug)]
struct Entry {
    work: Work,
    /// Sequence number of its first packet, or of its first response.
    first: u64,
    /// Packets, or for a READ responses.
    packets: u64,
    /// Bytes in all.
    length: u32,
    /// Of a READ: response packets that have arrived.
    fetched: u64,
    /// Of a READ: whether it counts in `fetches`.
    counted: bool,
    /// Why it cannot be carried out.
    fault: Option<WorkStatus>,
}

impl Entry {
    fn end(&self) -> u64 {
        self.first + self.packets
    }

    fn is_fetched(&self) -> bool {
        self.fetched == self.packets
    }

    /// The oldest of its packets that is not accounted for, if responses say so.
    fn missing(&self) -> Option<u64> {
        (self.work.request.fetches() && !self.is_fetched()).then_some(self.first + self.fetched)
    }
}

impl Requester {
    pub(super) fn new(config: &QpConfig, now: Instant) -> Self {
        let start = psn::start(config.send_psn);
        Self {
            dest_qpn: config.dest_qpn,
            mtu: config.mtu,
            send_work: config.send_work as usize,
            initiator_depth: u32::from(config.initiator_depth),
            rnr_retry_count: config.rnr_retry_count,
            patience: config.ack_timeout * (u32::from(config.retry_count) + 1),
            queue: VecDeque::with_capacity(config.send_work as usize),
            cursor: 0,
            next: start,
            unacked: start,
            sent: start,
            end: start,
            asked: start,
            fetches: 0,
            refetched: None,
            round_trip: RoundTrip::new(config.ack_timeout),
            window: Window::default(),
            deadline: None,
            progress_at: now,
            not_ready_until: None,
            not_ready_count: 0,
            paced_until: None,
            broken: false,
        }
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    pub(super) fn window(&mut self) -> &mut Window {
        &mut self.window
    }

    pub(super) fn post(
        &mut self,
        works: impl ExactSizeIterator<Item = Work>,
        memory: &Memory,
    ) -> Result<(), PostError> {
        if self.broken {
            return Err(PostError::Broken);
        }
        if self.queue.len() + works.len() > self.send_work {
            return Err(PostError::Full);
        }
        for work in works {
            let is_atomic = work.request.is_atomic();
            let bytes = work.sges.total_len();
            let fault = fault_of(&work, memory);
            let length = if fault.is_none() { bytes as u32 } else { 0 };
            let packets = if is_atomic {
                1
            } else {
                u64::from(length.div_ceil(self.mtu).max(1))
            };
            self.queue.push_back(Entry {
                work,
                first: self.end,
                packets,
                length,
                fetched: 0,
                counted: false,
                fault,
            });
            self.end += packets;
        }
        Ok(())
    }

    /// Everything outstanding completes as flushed.
    pub(super) fn flush(&mut self, cx: &mut Context<'_>) {
        self.broken = true;
        self.deadline = None;
        self.not_ready_until = None;
        self.paced_until = None;
        while let Some(entry) = self.queue.pop_front() {
            let work = &entry.work;
            cx.completions
                .push_send(cx.qp, work, WorkStatus::Flushed, 0);
        }
    }

    /// The oldest work fails; all behind it is flushed.
    fn fail(&mut self, status: WorkStatus, cx: &mut Context<'_>) {
        if let Some(entry) = self.queue.pop_front() {
            cx.completions.push_send(cx.qp, &entry.work, status, 0);
        }
        self.flush(cx);
    }
}

/// Sending.
impl Requester {
    /// Writes the next packet that may go out; returns its length.
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        out: &mut [u8],
        cx: &mut Context<'_>,
    ) -> Option<usize> {
        if self.broken || self.not_ready_until.is_some() {
            return None;
        }
        let entry = self.queue.get(self.cursor)?;
        if let Some(status) = entry.fault {
            // What went before it may still succeed; then it fails.
            if self.cursor == 0 {
                self.fail(status, cx);
            }
            return None;
        }
        if !self.may_send(self.cursor, self.next) {
            return None;
        }
        self.paced_until = self.window.holds_until(now);
        if self.paced_until.is_some() {
            return None;
        }
        let length = if self.queue[self.cursor].work.request.fetches() {
            self.emit_fetch(now, out)
        } else {
            self.emit_segment(now, out, cx)?
        };
        self.window.sent(length, now);
        if self.deadline.is_none() {
            self.deadline = Some(now + self.round_trip.timeout());
            self.progress_at = now;
        }
        Some(length)
    }

    /// Whether window and READ depth let the packet `sequence` of a work out.
    fn may_send(&self, index: usize, sequence: u64) -> bool {
        let entry = &self.queue[index];
        let depth =
            !entry.work.request.fetches() || entry.counted || self.fetches < self.initiator_depth;
        depth && sequence < self.unacked + self.window.packets()
    }

    /// A READ, from its first missing byte on, or an atomic.
    fn emit_fetch(&mut self, now: Instant, out: &mut [u8]) -> usize {
        let entry = &mut self.queue[self.cursor];
        let sequence = entry.first + entry.fetched;
        let skipped = (entry.fetched * u64::from(self.mtu)) as u32;
        let mut packet = Packet::new(Opcode::ReadRequest, self.dest_qpn, psn::to_wire(sequence));
        packet.bth.ack_req = true;
        match entry.work.request {
            Request::CompareSwap {
                remote,
                compare,
                swap,
            } => {
                packet.set_opcode(Opcode::CompareSwap);
                packet.atomic = Some(atomic_eth(remote, swap, compare));
            }
            Request::FetchAdd { remote, add } => {
                packet.set_opcode(Opcode::FetchAdd);
                packet.atomic = Some(atomic_eth(remote, add, 0));
            }
            Request::Read { remote } => {
                packet.reth = Some(Reth {
                    va: remote.addr.wrapping_add(u64::from(skipped)),
                    rkey: remote.rkey,
                    dma_len: entry.length - skipped,
                });
            }
            Request::Send { .. } | Request::Write { .. } => unreachable!("these fetch nothing"),
        }
        if !entry.counted {
            entry.counted = true;
            self.fetches += 1;
        }
        let end = entry.end();
        if sequence >= self.sent {
            self.round_trip.sent(sequence, now);
        }
        self.advance(end);
        self.asked = end - 1;
        packet.emit(out)
    }

    /// A packet of a SEND or WRITE.
    fn emit_segment(
        &mut self,
        now: Instant,
        out: &mut [u8],
        cx: &mut Context<'_>,
    ) -> Option<usize> {
        let sequence = self.next;
        let ask = self.shall_ask(sequence);
        let entry = &mut self.queue[self.cursor];
        let offset = ((sequence - entry.first) * u64::from(self.mtu)) as u32;
        let payload = (entry.length - offset).min(self.mtu) as usize;
        let first = sequence == entry.first;
        let last = sequence + 1 == entry.end();
        let opcode = segment_opcode(&entry.work.request, first, last);
        let mut packet = Packet::new(opcode, self.dest_qpn, psn::to_wire(sequence));
        packet.bth.ack_req = ask;
        match entry.work.request {
            Request::Send {
                invalidate,
                immediate,
            } if last => {
                packet.ieth = invalidate.map(|rkey| Ieth { rkey });
                packet.immediate = immediate.filter(|_| invalidate.is_none()).map(ImmDt::new);
            }
            Request::Write { remote, immediate } => {
                packet.immediate = immediate.filter(|_| last).map(ImmDt::new);
                packet.reth = first.then_some(Reth {
                    va: remote.addr,
                    rkey: remote.rkey,
                    dma_len: entry.length,
                });
            }
            _ => {}
        }
        let at = packet.emit_headers(payload, out);
        let end = at + payload;
        let sges = entry.work.sges.as_slice();
        if cx
            .memory
            .gather(sges, u64::from(offset), &mut out[at..end])
            .is_err()
        {
            // Deregistered under our hands.
            entry.fault = Some(WorkStatus::LocalProtection);
            return None;
        }
        let pad = usize::from(out[1] >> 4 & 3);
        out[end..end + pad].fill(0);
        if ask {
            self.asked = sequence;
            if sequence >= self.sent {
                self.round_trip.sent(sequence, now);
            }
        }
        self.advance(sequence + 1);
        Some(end + pad)
    }

    /// Whether to set AckReq: where sending pauses, and now and then before.
    /// Not on every message: each one that is set costs a packet.
    fn shall_ask(&self, sequence: u64) -> bool {
        let entry = &self.queue[self.cursor];
        let last = sequence + 1 == entry.end();
        let next = if last { self.cursor + 1 } else { self.cursor };
        let pauses = next == self.queue.len()
            || self.queue[next].fault.is_some()
            || !self.may_send(next, sequence + 1)
            || self.window.is_paced();
        pauses || sequence >= self.asked + ACK_EVERY
    }

    fn advance(&mut self, next: u64) {
        self.next = next;
        self.sent = self.sent.max(next);
        if next == self.queue[self.cursor].end() {
            self.cursor += 1;
        }
    }

    /// Sends again from `sequence` on.
    fn rewind(&mut self, sequence: u64, now: Instant) {
        let at = self.queue.iter().position(|entry| sequence < entry.end());
        self.cursor = at.unwrap_or(self.queue.len());
        self.next = sequence;
        self.asked = sequence;
        self.round_trip.rewound();
        self.deadline = (sequence < self.sent).then(|| now + self.round_trip.timeout());
    }
}

/// Hearing back.
impl Requester {
    /// An ACK or NAK.
    pub(super) fn handle_acknowledge(
        &mut self,
        packet: &Packet<'_>,
        now: Instant,
        cx: &mut Context<'_>,
    ) {
        let sequence = psn::from_wire(packet.bth.psn, self.unacked);
        let Some(syndrome) = packet.syndrome() else {
            cx.counters.bad_resp_err += 1;
            return;
        };
        if self.broken || sequence >= self.sent {
            cx.counters.bad_resp_err += u64::from(!self.broken);
            return;
        }
        match syndrome {
            Syndrome::Ack => self.account(sequence + 1, now, cx),
            // A NAK acknowledges what went before it (IBTA 9.7.5.1.4). One for
            // what has been acknowledged since is old news.
            Syndrome::Rnr(_) | Syndrome::Nak(_) if sequence < self.unacked => {}
            Syndrome::Rnr(timer) => {
                self.account(sequence, now, cx);
                self.handle_not_ready(sequence, timer, now, cx);
            }
            Syndrome::Nak(code) => {
                self.account(sequence, now, cx);
                self.handle_nak(sequence, code, now, cx);
            }
        }
    }

    fn handle_not_ready(&mut self, sequence: u64, timer: u8, now: Instant, cx: &mut Context<'_>) {
        if self.broken || self.unacked != sequence {
            return;
        }
        cx.counters.rnr_nak_retry_err += 1;
        if self.rnr_retry_count != RNR_RETRY_FOR_EVER {
            if self.not_ready_count == self.rnr_retry_count {
                cx.counters.retry_rnr_exceeded_err += 1;
                self.fail(WorkStatus::RnrRetryExceeded, cx);
                return;
            }
            self.not_ready_count += 1;
        }
        // The peer is alive: only its silence counts against it.
        self.progress_at = now;
        self.rewind(sequence, now);
        self.deadline = None;
        self.not_ready_until = Some(now + rnr_delay(timer));
    }

    fn handle_nak(&mut self, sequence: u64, code: NakCode, now: Instant, cx: &mut Context<'_>) {
        if self.broken || self.unacked != sequence {
            return;
        }
        match code {
            NakCode::PsnSequence => {
                cx.counters.packet_seq_err += 1;
                self.window.lost(now);
                self.retry(now, cx);
            }
            NakCode::InvalidRequest => {
                cx.counters.req_remote_invalid_request += 1;
                self.fail(WorkStatus::RemoteInvalidRequest, cx);
            }
            NakCode::RemoteAccess => {
                cx.counters.req_remote_access_errors += 1;
                self.fail(WorkStatus::RemoteAccess, cx);
            }
            NakCode::RemoteOperational => self.fail(WorkStatus::RemoteOperation, cx),
        }
    }

    /// READ data.
    pub(super) fn handle_read_response(
        &mut self,
        packet: &Packet<'_>,
        now: Instant,
        cx: &mut Context<'_>,
    ) {
        let sequence = psn::from_wire(packet.bth.psn, self.unacked);
        let Some(index) = self.fetch_of(sequence, cx) else {
            return;
        };
        self.account(self.queue[index].first, now, cx);
        // That may have completed work in front of it, or found a gap there.
        let Some(entry) = self.queue.front_mut().filter(|_| !self.broken) else {
            return;
        };
        if entry.missing() != Some(sequence) {
            if entry.missing().is_some_and(|missing| sequence > missing) {
                self.account(sequence, now, cx);
            }
            return;
        }
        let offset = entry.fetched * u64::from(self.mtu);
        let expected = (u64::from(entry.length) - offset).min(u64::from(self.mtu));
        if !matches!(entry.work.request, Request::Read { .. })
            || packet.payload.len() as u64 != expected
        {
            cx.counters.bad_resp_err += 1;
            self.fail(WorkStatus::BadResponse, cx);
            return;
        }
        let sges = entry.work.sges.as_slice();
        if cx.memory.scatter(sges, offset, packet.payload).is_err() {
            self.fail(WorkStatus::LocalProtection, cx);
            return;
        }
        entry.fetched += 1;
        self.account(sequence + 1, now, cx);
    }

    /// An atomic's answer.
    pub(super) fn handle_atomic_response(
        &mut self,
        packet: &Packet<'_>,
        now: Instant,
        cx: &mut Context<'_>,
    ) {
        let sequence = psn::from_wire(packet.bth.psn, self.unacked);
        let Some(index) = self.fetch_of(sequence, cx) else {
            return;
        };
        self.account(self.queue[index].first, now, cx);
        let Some(entry) = self.queue.front_mut().filter(|_| !self.broken) else {
            return;
        };
        let is_atomic = !matches!(entry.work.request, Request::Read { .. });
        let answer = packet.atomic_ack.filter(|_| is_atomic);
        let Some(answer) = answer.filter(|_| entry.missing() == Some(sequence)) else {
            return;
        };
        let bytes = answer.original.to_ne_bytes();
        if cx
            .memory
            .scatter(entry.work.sges.as_slice(), 0, &bytes)
            .is_err()
        {
            self.fail(WorkStatus::LocalProtection, cx);
            return;
        }
        entry.fetched = 1;
        self.account(sequence + 1, now, cx);
    }

    /// The index of the READ or atomic that a response can belong to.
    fn fetch_of(&self, sequence: u64, cx: &mut Context<'_>) -> Option<usize> {
        if self.broken || sequence < self.unacked {
            return None; // a second copy
        }
        let index = self.queue.iter().position(|entry| sequence < entry.end());
        let found =
            index.filter(|&index| sequence < self.sent && self.queue[index].work.request.fetches());
        cx.counters.bad_resp_err += u64::from(found.is_none());
        found
    }

    /// The peer has everything before `sequence`. Completes what that ends; if
    /// READ data is missing before it, asks for it again: a later response tells
    /// that an earlier one was lost (IBTA 9.7.5.1.5).
    fn account(&mut self, sequence: u64, now: Instant, cx: &mut Context<'_>) {
        let mut accounted = sequence;
        let before = self.queue.iter().take_while(|entry| entry.first < sequence);
        let gap = before.filter_map(Entry::missing).next();
        if let Some(gap) = gap {
            accounted = accounted.min(gap);
        }
        if accounted > self.unacked {
            self.progress(accounted, now, cx);
        }
        let lost = gap.filter(|&gap| gap < sequence && self.refetched != Some(gap));
        if let Some(gap) = lost.filter(|_| !self.broken) {
            cx.counters.implied_nak_seq_err += 1;
            self.refetched = Some(gap);
            self.retry(now, cx);
        }
    }

    fn progress(&mut self, accounted: u64, now: Instant, cx: &mut Context<'_>) {
        self.window.acknowledged(accounted - self.unacked);
        self.round_trip.acknowledged(accounted, now);
        self.unacked = accounted;
        self.progress_at = now;
        self.not_ready_count = 0;
        self.not_ready_until = None;
        while let Some(entry) = self.queue.front().filter(|e| e.end() <= accounted) {
            let fetched = entry.work.request.fetches();
            if entry.work.signaled {
                let byte_len = if fetched { entry.length } else { 0 };
                let work = &entry.work;
                cx.completions
                    .push_send(cx.qp, work, WorkStatus::Success, byte_len);
            }
            self.fetches -= u32::from(entry.counted);
            self.queue.pop_front();
            // A rewound cursor may stand on what has turned out to have arrived.
            self.cursor = self.cursor.saturating_sub(1);
        }
        if self.next < accounted {
            self.next = accounted;
            if self
                .queue
                .get(self.cursor)
                .is_some_and(|e| e.end() <= accounted)
            {
                self.cursor += 1;
            }
        }
        let waiting = self.unacked < self.sent;
        self.deadline = waiting.then(|| now + self.round_trip.timeout());
    }

    /// Sends again from the oldest packet on, if the peer still deserves it.
    fn retry(&mut self, now: Instant, cx: &mut Context<'_>) {
        if now.saturating_duration_since(self.progress_at) >= self.patience {
            cx.counters.retry_exceeded_err += 1;
            self.fail(WorkStatus::RetryExceeded, cx);
        } else {
            self.rewind(self.unacked, now);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let waits = self.not_ready_until.or(self.deadline);
        waits.into_iter().chain(self.paced_until).min()
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, cx: &mut Context<'_>) {
        if self.not_ready_until.is_some_and(|until| until <= now) {
            self.not_ready_until = None;
        }
        if self.paced_until.is_some_and(|until| until <= now) {
            self.paced_until = None;
        }
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            cx.counters.local_ack_timeout_err += 1;
            self.round_trip.expired();
            self.refetched = None;
            self.window.lost(now);
            self.retry(now, cx);
        }
    }
}

/// Why a work request cannot even begin.
fn fault_of(work: &Work, memory: &Memory) -> Option<WorkStatus> {
    let bytes = work.sges.total_len();
    let fits = if work.request.is_atomic() {
        bytes == 8
    } else {
        bytes <= MAX_MESSAGE
    };
    if !fits {
        return Some(WorkStatus::LocalLength);
    }
    let access = if work.request.fetches() {
        Access::LOCAL_WRITE
    } else {
        Access::LOCAL_READ
    };
    let checked = memory.check_local(work.sges.as_slice(), access);
    checked.is_err().then_some(WorkStatus::LocalProtection)
}

fn atomic_eth(remote: RemoteBuffer, swap_or_add: u64, compare: u64) -> AtomicEth {
    AtomicEth {
        va: remote.addr,
        rkey: remote.rkey,
        swap_or_add,
        compare,
    }
}

/// The opcode of a SEND's or WRITE's packet by its place in the message.
fn segment_opcode(request: &Request, first: bool, last: bool) -> Opcode {
    let (starts, middle, ends, only) = match request {
        Request::Send {
            invalidate: Some(_),
            ..
        } => (
            Opcode::SendFirst,
            Opcode::SendMiddle,
            Opcode::SendLastInv,
            Opcode::SendOnlyInv,
        ),
        Request::Send {
            immediate: Some(_), ..
        } => (
            Opcode::SendFirst,
            Opcode::SendMiddle,
            Opcode::SendLastImm,
            Opcode::SendOnlyImm,
        ),
        Request::Write {
            immediate: Some(_), ..
        } => (
            Opcode::WriteFirst,
            Opcode::WriteMiddle,
            Opcode::WriteLastImm,
            Opcode::WriteOnlyImm,
        ),
        Request::Write { .. } => (
            Opcode::WriteFirst,
            Opcode::WriteMiddle,
            Opcode::WriteLast,
            Opcode::WriteOnly,
        ),
        _ => (
            Opcode::SendFirst,
            Opcode::SendMiddle,
            Opcode::SendLast,
            Opcode::SendOnly,
        ),
    };
    match (first, last) {
        (true, true) => only,
        (true, false) => starts,
        (false, true) => ends,
        (false, false) => middle,
    }
}
