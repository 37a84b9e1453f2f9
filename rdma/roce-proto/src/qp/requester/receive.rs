//! Acknowledgements, READ data and timeouts become completions.

use crate::time::Instant;

use cairn_rdma::WorkStatus;

use super::{Context, Entry, Requester, is_read, psn};
use crate::wire::aeth::rnr_delay;
use crate::wire::{NakCode, Packet, Syndrome};

/// The RNR retry count that means no limit (IBTA 9.7.5.2.8).
const RNR_RETRY_FOR_EVER: u8 = 7;

impl Requester {
    /// An ACK or NAK.
    pub(in crate::qp) fn handle_acknowledge(
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
            // what has been acknowledged since is out of date.
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
                self.window.lost(&self.round_trip, now);
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
    pub(in crate::qp) fn handle_read_response(
        &mut self,
        packet: &Packet<'_>,
        now: Instant,
        cx: &mut Context<'_>,
    ) {
        let Some(sequence) = self.account_before(packet, now, cx) else {
            return;
        };
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
        if packet.payload.len() as u64 != expected {
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

    /// A READ's response acknowledges all that went before its request, which may complete
    /// work in front of that, or find a gap there. Its sequence number.
    fn account_before(
        &mut self,
        packet: &Packet<'_>,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Option<u64> {
        let sequence = psn::from_wire(packet.bth.psn, self.unacked);
        let index = self.fetch_of(sequence, cx)?;
        self.account(self.queue[index].first, now, cx);
        Some(sequence)
    }

    /// The index of the READ that a response can belong to.
    fn fetch_of(&self, sequence: u64, cx: &mut Context<'_>) -> Option<usize> {
        if self.broken || sequence < self.unacked {
            return None; // a second copy
        }
        let index = self.queue.iter().position(|entry| sequence < entry.end());
        let found = index.filter(|&index| sequence < self.sent && is_read(&self.queue[index].work));
        cx.counters.bad_resp_err += u64::from(found.is_none());
        found
    }

    /// The peer has everything before `sequence`. Completes what that ends; if
    /// READ data is missing before it, requests it again: a later response
    /// implies that an earlier one was lost (IBTA 9.7.5.1.5).
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
            self.window.lost(&self.round_trip, now);
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
        while self.requests.front().is_some_and(|end| *end <= accounted) {
            self.requests.pop_front();
        }
        while let Some(entry) = self.queue.front().filter(|e| e.end() <= accounted) {
            let fetched = is_read(&entry.work);
            if entry.work.signaled {
                let byte_len = if fetched { entry.length } else { 0 };
                let work = &entry.work;
                cx.completions
                    .push_send(cx.qp, work, WorkStatus::Success, byte_len);
            }
            self.queue.pop_front();
            // A rewound cursor may stand on what has turned out to have arrived.
            self.cursor = self.cursor.saturating_sub(1);
        }
        if self.queue.is_empty() {
            // From its beginning again: a ring that is seldom full must not pass through
            // the cache from end to end, which many queue pairs share.
            self.queue.clear();
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

    /// Sends again from the oldest packet on, if retries are left.
    fn retry(&mut self, now: Instant, cx: &mut Context<'_>) {
        if now.saturating_duration_since(self.progress_at) >= self.patience {
            cx.counters.retry_exceeded_err += 1;
            self.fail(WorkStatus::RetryExceeded, cx);
        } else {
            self.rewind(self.unacked, now);
        }
    }

    pub(in crate::qp) fn poll_timeout(&self) -> Option<Instant> {
        let waits = self.not_ready_until.or(self.deadline);
        match (waits, self.paced_until) {
            (Some(waits), Some(paced)) => Some(waits.min(paced)),
            (waits, paced) => waits.or(paced),
        }
    }

    pub(in crate::qp) fn handle_timeout(&mut self, now: Instant, cx: &mut Context<'_>) {
        if self.not_ready_until.is_some_and(|until| until <= now) {
            self.not_ready_until = None;
        }
        if self.paced_until.is_some_and(|until| until <= now) {
            self.paced_until = None;
        }
        if self.deadline.is_none_or(|deadline| deadline > now) {
            return;
        }
        if self.ack_requested <= self.unacked && self.next == self.sent {
            // No acknowledgement was requested. Sends the last packet again, with AckReq: a
            // peer that has it acknowledges it again, one that missed something
            // says so (IBTA 9.7.5.1.2, 9.7.5.1.3).
            self.rewind(self.sent - 1, now);
        } else {
            cx.counters.local_ack_timeout_err += 1;
            self.round_trip.expired();
            self.refetched = None;
            self.window.lost(&self.round_trip, now);
            self.retry(now, cx);
        }
    }
}
