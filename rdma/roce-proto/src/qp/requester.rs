//! Requester: turns work requests into packets, and responses into completions (IBTA 9.7.3 to
//! 9.7.6).
//!
//! Retransmission is go-back-N from the oldest unacknowledged packet; a READ resumes at the first
//! missing packet. A window limits unacknowledged data, including READ data.

mod receive;
mod transmit;

use crate::time::Instant;
use alloc::collections::VecDeque;
use core::time::Duration;

use cairn_rdma::{Access, Operation, PostError, SendWork, WorkStatus};

use super::congestion::{Measured, Window};
use super::memory::Memory;
use super::rtt::RoundTrip;
use super::{Context, Joined, QpConfig, psn};
use crate::wire::NakCode;

/// Replacement for an infinite acknowledgement timeout: code 20, the longest finite timeout used
/// (IBTA 9.7.6.1.3).
const LONGEST_TIMEOUT: Duration = Duration::from_micros(4_294_967);
/// Maximum length of a message in bytes (IBTA 9.2.10).
const MAX_MESSAGE: u64 = 1 << 31;

#[derive(Debug)]
pub(super) struct Requester {
    dest_qpn: u32,
    mtu: u32,
    send_max: u32,
    send_work: usize,
    initiator_depth: usize,
    rnr_retry_count: u8,
    /// Time without an answer of the peer after which the queue pair breaks, or `None` for no
    /// limit.
    patience: Option<Duration>,

    queue: VecDeque<Entry>,
    cursor: usize,
    next: u64,
    unacked: u64,
    sent: u64,
    end: u64,
    ack_requested: u64,
    /// True if signaled work was sent after the last acknowledgement request.
    awaited: bool,
    /// For each READ request with missing responses, the sequence number after its last response.
    requests: VecDeque<u64>,
    /// Sequence number of the missing READ response that was last requested again.
    refetched: Option<u64>,

    round_trip: RoundTrip,
    window: Window,
    refusal: Option<Refusal>,
    /// Sequence number of a packet sent in a super-packet, until its result is known.
    joined: Option<u64>,
    fate: Option<Joined>,
    deadline: Option<Instant>,
    progress_at: Instant,
    not_ready_until: Option<Instant>,
    not_ready_count: u8,
    broken: bool,
    lost_long_send: bool,
}

/// Unconfirmed fatal NAK.
///
/// A NAK can be forged, because its PSN can be guessed. The packet is therefore sent again. The NAK
/// is genuine unless the peer acknowledges the packet before `until`.
#[derive(Debug, Clone, Copy)]
struct Refusal {
    sequence: u64,
    code: NakCode,
    came_at: Instant,
    until: Instant,
}

#[derive(Debug)]
struct Entry {
    work: SendWork,
    first: u64,
    packets: u64,
    length: u32,
    fetched: u64,
    fault: Option<WorkStatus>,
}

impl Entry {
    fn end(&self) -> u64 {
        self.first + self.packets
    }

    fn is_fetched(&self) -> bool {
        self.fetched == self.packets
    }

    fn missing(&self) -> Option<u64> {
        (is_read(&self.work) && !self.is_fetched()).then_some(self.first + self.fetched)
    }
}

impl Requester {
    pub(super) fn new(config: &QpConfig, now: Instant) -> Self {
        let start = psn::start(config.send_psn);
        Self {
            dest_qpn: config.dest_qpn,
            mtu: config.mtu,
            send_max: config.send_max(),
            send_work: config.send_work as usize,
            initiator_depth: usize::from(config.initiator_depth),
            rnr_retry_count: config.rnr_retry_count,
            patience: config.patience(),
            queue: VecDeque::with_capacity(config.send_work as usize),
            cursor: 0,
            next: start,
            unacked: start,
            sent: start,
            end: start,
            ack_requested: start,
            awaited: false,
            requests: VecDeque::with_capacity(usize::from(config.initiator_depth)),
            refetched: None,
            round_trip: RoundTrip::new(config.ack_timeout.unwrap_or(LONGEST_TIMEOUT)),
            window: Window::default(),
            refusal: None,
            joined: None,
            fate: None,
            deadline: None,
            progress_at: now,
            not_ready_until: None,
            not_ready_count: 0,
            broken: false,
            lost_long_send: false,
        }
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.round_trip.least()
    }

    pub(super) fn has_to_send(&self) -> bool {
        self.cursor < self.queue.len()
    }

    pub(super) fn measured(&self) -> Measured {
        Measured {
            window: self.window.packets() * u64::from(self.mtu),
            round_trip: self.round_trip.smoothed(),
            is_under_way: self.unacked < self.sent,
            progress_at: self.progress_at,
        }
    }

    pub(super) fn noticed(&mut self) {
        self.window.noticed(self.round_trip.queue());
    }

    pub(super) fn note_joined(&mut self) {
        self.joined.get_or_insert(self.next - 1);
    }

    pub(super) fn take_fate(&mut self) -> Option<Joined> {
        self.fate.take()
    }

    pub(super) fn last_acknowledged(&self) -> u64 {
        self.unacked - 1
    }

    pub(super) fn post(
        &mut self,
        works: impl ExactSizeIterator<Item = SendWork>,
        memory: &dyn Memory,
    ) -> Result<(), PostError> {
        if self.broken {
            return Err(PostError::Broken);
        }
        if self.queue.len() + works.len() > self.send_work {
            return Err(PostError::Full);
        }
        for work in works {
            let bytes = work.sges.total_len();
            let fault = fault_of(&work, memory);
            let length = if fault.is_none() { bytes as u32 } else { 0 };
            let packets = self.packets_of(&work, length);
            self.queue.push_back(Entry {
                work,
                first: self.end,
                packets,
                length,
                fetched: 0,
                fault,
            });
            self.end += packets;
        }
        Ok(())
    }

    fn packets_of(&self, work: &SendWork, length: u32) -> u64 {
        let is_send = !matches!(work.op, Operation::Read(_) | Operation::Write(_));
        if is_send && length <= self.send_max {
            return 1;
        }
        u64::from(length.div_ceil(self.mtu).max(1))
    }

    pub(super) fn lost_long_send(&self) -> bool {
        self.lost_long_send
    }

    pub(super) fn give_up(&mut self, cx: &mut Context<'_>) {
        let front = self.queue.front();
        self.lost_long_send =
            front.is_some_and(|entry| entry.packets == 1 && entry.length > self.mtu);
        cx.counters.retry_exceeded_err += 1;
        self.fail(WorkStatus::RetryExceeded, cx);
    }

    pub(super) fn flush(&mut self, cx: &mut Context<'_>) {
        if let Some(refusal) = self.refusal.take() {
            return self.believe(refusal, cx);
        }
        self.broken = true;
        self.deadline = None;
        self.not_ready_until = None;
        while let Some(entry) = self.queue.pop_front() {
            let work = &entry.work;
            cx.completions
                .push_send(cx.qp, work, WorkStatus::Flushed, 0);
        }
    }

    fn fail(&mut self, status: WorkStatus, cx: &mut Context<'_>) {
        self.refusal = None;
        if let Some(entry) = self.queue.pop_front() {
            cx.completions.push_send(cx.qp, &entry.work, status, 0);
        }
        self.flush(cx);
    }
}

fn is_read(work: &SendWork) -> bool {
    matches!(work.op, Operation::Read(_))
}

fn fault_of(work: &SendWork, memory: &dyn Memory) -> Option<WorkStatus> {
    if work.sges.total_len() > MAX_MESSAGE {
        return Some(WorkStatus::LocalLength);
    }
    let access = if is_read(work) {
        Access::LOCAL_WRITE
    } else {
        Access::LOCAL_READ
    };
    let checked = memory.check_local(work.sges.as_slice(), access);
    checked.is_err().then_some(WorkStatus::LocalProtection)
}
