use crate::time::Instant;

use cairn_rdma::WorkStatus;

use super::{Context, Entry, Joined, Refusal, Requester, is_read, psn};
use crate::wire::aeth::rnr_delay;
use crate::wire::{NakCode, Packet, Syndrome};

const RNR_RETRY_FOR_EVER: u8 = 7;
/// Acknowledgement timeouts after which a fatal NAK counts as genuine.
const DOUBT_TIMEOUTS: u32 = 3;

impl Requester {
    /// Handles an ACK or NAK. Returns true if the PSN belongs to an outstanding packet or to the
    /// last acknowledged one.
    pub(in crate::qp) fn handle_acknowledge(
        &mut self,
        packet: &Packet<'_>,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> bool {
        let sequence = psn::from_wire(packet.bth.psn, self.unacked);
        let Some(syndrome) = packet.syndrome() else {
            cx.counters.bad_resp_err += 1;
            return false;
        };
        if self.broken || sequence >= self.sent {
            cx.counters.bad_resp_err += u64::from(!self.broken);
            return false;
        }
        let is_present = sequence >= self.last_acknowledged();
        match syndrome {
            Syndrome::Ack => self.account(sequence + 1, now, cx),
            // A NAK acknowledges all packets before its own (IBTA 9.7.5.1.4). The NAK is obsolete
            // if its own packet is acknowledged too.
            Syndrome::Rnr(_) | Syndrome::Nak(_) if sequence < self.unacked => {}
            Syndrome::Rnr(timer) => {
                self.account(sequence, now, cx);
                self.handle_not_ready(sequence, timer, now, cx);
            }
            Syndrome::Nak(NakCode::PsnSequence) => {
                self.account(sequence, now, cx);
                self.handle_gap(sequence, now, cx);
            }
            Syndrome::Nak(code) => self.doubt(sequence, code, now),
        }
        is_present
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
        self.progress_at = now;
        self.rewind(sequence, now);
        self.deadline = None;
        self.not_ready_until = Some(now + rnr_delay(timer));
    }

    fn handle_gap(&mut self, sequence: u64, now: Instant, cx: &mut Context<'_>) {
        if self.broken || self.unacked != sequence {
            return;
        }
        cx.counters.packet_seq_err += 1;
        self.window.lost(&self.round_trip, now);
        self.retry(now, cx);
    }

    /// Sends all unacknowledged packets again, to check a fatal NAK ([`Refusal`]). Until the
    /// decision, other fatal NAKs are ignored, because forged NAKs could delay it.
    fn doubt(&mut self, sequence: u64, code: NakCode, now: Instant) {
        if self.refusal.is_none() {
            self.refusal = Some(Refusal {
                sequence,
                code,
                came_at: now,
                until: now + DOUBT_TIMEOUTS * self.round_trip.timeout(),
            });
            self.rewind(self.unacked, now);
        }
    }

    pub(super) fn believe(&mut self, refusal: Refusal, cx: &mut Context<'_>) {
        let Refusal {
            sequence,
            code,
            came_at,
            ..
        } = refusal;
        self.refusal = None;
        self.account(sequence, came_at, cx);
        if self.broken {
            return;
        }
        // An earlier READ lacks data, and therefore fails before the refused work.
        if self.unacked != sequence {
            return self.give_up(cx);
        }
        let status = match code {
            NakCode::InvalidRequest => {
                cx.counters.req_remote_invalid_request += 1;
                WorkStatus::RemoteInvalidRequest
            }
            NakCode::RemoteAccess => {
                cx.counters.req_remote_access_errors += 1;
                WorkStatus::RemoteAccess
            }
            NakCode::RemoteOperational | NakCode::PsnSequence => WorkStatus::RemoteOperation,
        };
        self.fail(status, cx);
    }

    pub(in crate::qp) fn handle_read_response(
        &mut self,
        packet: &Packet<'_>,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> bool {
        let Some(sequence) = self.account_before(packet, now, cx) else {
            return false;
        };
        self.take_read_data(packet, sequence, now, cx);
        true
    }

    fn take_read_data(
        &mut self,
        packet: &Packet<'_>,
        sequence: u64,
        now: Instant,
        cx: &mut Context<'_>,
    ) {
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

    fn fetch_of(&self, sequence: u64, cx: &mut Context<'_>) -> Option<usize> {
        if self.broken || sequence < self.unacked {
            return None; // a duplicate
        }
        let index = self.queue.iter().position(|entry| sequence < entry.end());
        let found = index.filter(|&index| sequence < self.sent && is_read(&self.queue[index].work));
        cx.counters.bad_resp_err += u64::from(found.is_none());
        found
    }

    /// Completes work before `sequence`. Missing READ responses before `sequence` are lost (IBTA
    /// 9.7.5.1.5), so their data is requested again.
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
        if self
            .refusal
            .take_if(|refusal| accounted > refusal.sequence)
            .is_some()
        {
            cx.counters.refuted_naks += 1;
        }
        if self.joined.take_if(|joined| *joined < accounted).is_some() {
            self.fate = Some(Joined::Arrived);
        }
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
            self.cursor = self.cursor.saturating_sub(1);
        }
        if self.queue.is_empty() {
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

    fn retry(&mut self, now: Instant, cx: &mut Context<'_>) {
        if self.joined.take().is_some() {
            self.fate = Some(Joined::Lost);
        }
        let silence = now.saturating_duration_since(self.progress_at);
        if self.patience.is_some_and(|patience| silence >= patience) {
            self.give_up(cx);
        } else {
            self.rewind(self.unacked, now);
        }
    }

    pub(in crate::qp) fn poll_timeout(&self) -> Option<Instant> {
        let waits = self.not_ready_until.or(self.deadline);
        let decides = self.refusal.map(|refusal| refusal.until);
        waits.into_iter().chain(decides).min()
    }

    pub(in crate::qp) fn handle_timeout(&mut self, now: Instant, cx: &mut Context<'_>) {
        if self.not_ready_until.is_some_and(|until| until <= now) {
            self.not_ready_until = None;
        }
        if let Some(refusal) = self.refusal.filter(|refusal| refusal.until <= now) {
            return self.believe(refusal, cx);
        }
        if self.deadline.is_none_or(|deadline| deadline > now) {
            return;
        }
        if self.ack_requested <= self.unacked && self.next == self.sent {
            // No acknowledgement was requested, so none was lost. The last packet is repeated, and
            // requests one (IBTA 9.7.5.1.2, 9.7.5.1.3).
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
