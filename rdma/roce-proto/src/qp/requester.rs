//! The sending half of a queue pair: work requests become packets, and
//! acknowledgements and READ data become completions (IBTA 9.7.3 to 9.7.6).
//!
//! Go-back-N: whatever goes missing, sending resumes at the oldest packet that
//! is not accounted for. A READ of which a part has arrived is asked for again
//! only from there on. A window bounds what is under way, READ data included.

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

/// Longest retransmission timeout of a connection whose own is infinite: code 20 of IBTA 9.7.6.1.3,
/// the longest that is accepted of peers.
const LONGEST_TIMEOUT: Duration = Duration::from_micros(4_294_967);
/// The longest message (IBTA 9.2.10).
const MAX_MESSAGE: u64 = 1 << 31;

#[derive(Debug)]
pub(super) struct Requester {
    dest_qpn: u32,
    mtu: u32,
    send_work: usize,
    initiator_depth: usize,
    rnr_retry_count: u8,
    /// How long a silent peer is believed to be alive; `None` is for ever.
    patience: Option<Duration>,

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
    /// One past the last packet that asked for an acknowledgement.
    ack_requested: u64,
    /// Work whose end its owner waits for has left since.
    awaited: bool,
    /// READ requests whose responses are not all there: where each ends.
    requests: VecDeque<u64>,
    /// The gap in READ data that was last asked for again.
    refetched: Option<u64>,

    round_trip: RoundTrip,
    window: Window,
    refusal: Option<Refusal>,
    /// A packet that left behind another one in a super-packet, until its fate is known.
    joined: Option<u64>,
    fate: Option<Joined>,
    /// When to take the silence for loss.
    deadline: Option<Instant>,
    /// When something was last accounted for.
    progress_at: Instant,
    /// Until when the peer asked to be left alone.
    not_ready_until: Option<Instant>,
    not_ready_count: u8,
    broken: bool,
}

/// A NAK that ends the queue pair, if the peer does not go on. It has no key but a PSN of the
/// window, which a stranger can guess. So its packet is sent again: a peer that refused it is
/// silent or refuses it again, and one that did not acknowledges it.
#[derive(Debug, Clone, Copy)]
struct Refusal {
    sequence: u64,
    code: NakCode,
    came_at: Instant,
    /// When the peer's silence has confirmed it.
    until: Instant,
}

/// A work request and where it stands.
#[derive(Debug)]
struct Entry {
    work: SendWork,
    /// Sequence number of its first packet, or of its first response.
    first: u64,
    /// Packets, or for a READ responses.
    packets: u64,
    /// Bytes in all.
    length: u32,
    /// Of a READ: response packets that have arrived.
    fetched: u64,
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
        (is_read(&self.work) && !self.is_fetched()).then_some(self.first + self.fetched)
    }
}

impl Requester {
    pub(super) fn new(config: &QpConfig, now: Instant) -> Self {
        let start = psn::start(config.send_psn);
        Self {
            dest_qpn: config.dest_qpn,
            mtu: config.mtu,
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
        }
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// The least round trip, once one was measured.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.round_trip.least()
    }

    /// Whether any work has not gone out, or not all of it.
    pub(super) fn has_to_send(&self) -> bool {
        self.cursor < self.queue.len()
    }

    /// The state of the path, for the congestion control of the queue pair.
    pub(super) fn measured(&self) -> Measured {
        Measured {
            window: self.window.packets() * u64::from(self.mtu),
            round_trip: self.round_trip.smoothed(),
            is_under_way: self.unacked < self.sent,
            progress_at: self.progress_at,
        }
    }

    /// A congestion notification was heeded.
    pub(super) fn noticed(&mut self) {
        self.window.noticed(self.round_trip.queue());
    }

    /// The packet that has just left is one of several in a super-packet, and not the first.
    pub(super) fn note_joined(&mut self) {
        self.joined.get_or_insert(self.next - 1);
    }

    pub(super) fn take_fate(&mut self) -> Option<Joined> {
        self.fate.take()
    }

    /// The newest packet that the peer has acknowledged.
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
            let packets = u64::from(length.div_ceil(self.mtu).max(1));
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

    /// The peer has not answered for as long as it may be silent.
    pub(super) fn give_up(&mut self, cx: &mut Context<'_>) {
        cx.counters.retry_exceeded_err += 1;
        self.fail(WorkStatus::RetryExceeded, cx);
    }

    /// Everything outstanding completes as flushed, but for work that the peer has refused.
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

    /// The oldest work fails; all behind it is flushed.
    fn fail(&mut self, status: WorkStatus, cx: &mut Context<'_>) {
        self.refusal = None;
        if let Some(entry) = self.queue.pop_front() {
            cx.completions.push_send(cx.qp, &entry.work, status, 0);
        }
        self.flush(cx);
    }
}

/// Whether the peer answers it with data.
fn is_read(work: &SendWork) -> bool {
    matches!(work.op, Operation::Read(_))
}

/// Why a work request cannot even begin.
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
