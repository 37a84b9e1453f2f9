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

use super::congestion::Window;
use super::memory::Memory;
use super::rtt::RoundTrip;
use super::{Context, QpConfig, psn};

/// Round trips for which a notification may be of packets that were acknowledged.
const VALID_ROUND_TRIPS: u32 = 4;
/// The longest message (IBTA 9.2.10).
const MAX_MESSAGE: u64 = 1 << 31;

#[derive(Debug)]
pub(super) struct Requester {
    dest_qpn: u32,
    mtu: u32,
    send_work: usize,
    initiator_depth: usize,
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
    /// Notifications slow it down.
    heeds_congestion: bool,
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
            patience: config.ack_timeout * (u32::from(config.retry_count) + 1),
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
            round_trip: RoundTrip::new(config.ack_timeout),
            window: Window::default(),
            heeds_congestion: true,
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

    /// The least round trip, once one was measured.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.round_trip.least()
    }

    /// Whether any work has not gone out, or not all of it.
    pub(super) fn has_to_send(&self) -> bool {
        self.cursor < self.queue.len()
    }

    /// A congestion notification has come; whether it was heeded. It can only be of
    /// packets that were under way within the last round trips.
    pub(super) fn notified(&mut self, now: Instant) -> bool {
        let Some(round_trip) = self.round_trip.smoothed() else {
            return false;
        };
        let idle = now.saturating_duration_since(self.progress_at);
        let is_of_ours = self.unacked < self.sent || idle < VALID_ROUND_TRIPS * round_trip;
        self.heeds_congestion && is_of_ours && self.window.notified(round_trip, self.mtu, now)
    }

    pub(super) fn ignore_congestion(&mut self) {
        self.heeds_congestion = false;
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
