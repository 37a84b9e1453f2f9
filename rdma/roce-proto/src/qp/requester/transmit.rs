use crate::time::Instant;

use cairn_rdma::{Operation, PKey, WorkStatus};

use super::{Context, Requester, is_read, psn};
use crate::qp::congestion::Pacer;
use crate::qp::train::Train;
use crate::wire::{Ieth, Opcode, Packet, Reth};

/// Maximum packets between two acknowledgement requests.
const ACK_EVERY: u64 = 32;
const READ_PACKETS: u64 = 64;

impl Requester {
    pub(in crate::qp) fn poll_transmit(
        &mut self,
        now: Instant,
        out: &mut [u8],
        pacer: &mut Pacer,
        cx: &mut Context<'_>,
    ) -> Option<usize> {
        if self.broken || self.not_ready_until.is_some() {
            return None;
        }
        let entry = self.queue.get(self.cursor)?;
        if let Some(status) = entry.fault {
            if self.cursor == 0 {
                self.fail(status, cx);
            }
            return None;
        }
        if !self.may_send(self.cursor, self.next) {
            return None;
        }
        if !pacer.admits(now) {
            return None;
        }
        let silent = self.deadline.is_none();
        let (length, returns) = if is_read(&self.queue[self.cursor].work) {
            self.emit_read(now, out)
        } else {
            (self.emit_segment(now, out, pacer.is_active(), cx)?, 0)
        };
        pacer.sent(length as u64 + u64::from(returns), now);
        if silent {
            self.deadline = Some(now + self.round_trip.timeout());
            self.progress_at = now;
        }
        Some(length)
    }

    /// Writes middle packets of a message that has begun, one into each `stride` bytes of `out`, and
    /// returns their number. None of them requests an acknowledgement.
    pub(in crate::qp) fn poll_train(
        &mut self,
        pkey: PKey,
        out: &mut [u8],
        stride: usize,
        cx: &mut Context<'_>,
    ) -> usize {
        let entry = self.queue.get(self.cursor);
        let begun = entry.filter(|entry| {
            entry.fault.is_none() && !is_read(&entry.work) && self.next > entry.first
        });
        let Some(entry) = begun else {
            return 0;
        };
        let opcode = segment_opcode(&entry.work.op, false, false);
        let mut train = Train::new(opcode, self.dest_qpn, pkey, self.mtu);
        if self.broken || self.not_ready_until.is_some() || train.stride() != stride {
            return 0;
        }
        let window = self.unacked + self.window.packets();
        // The packet at the end would be a last one, or request an acknowledgement.
        let end = entry.end().min(window).min(self.ack_requested + ACK_EVERY) - 1;
        let left = end.saturating_sub(self.next) as usize;
        let (sges, mtu) = (entry.work.sges.as_slice(), u64::from(self.mtu));
        let before = self.next;
        for room in out.chunks_exact_mut(stride).take(left) {
            let offset = (self.next - entry.first) * mtu;
            let payload = train.begin(psn::to_wire(self.next), room);
            if cx.memory.gather(sges, offset, payload).is_err() {
                break;
            }
            cx.memory.prefetch_gather(sges, offset + mtu, mtu);
            self.next += 1;
        }
        self.sent = self.sent.max(self.next);
        (self.next - before) as usize
    }

    pub(super) fn may_send(&self, index: usize, sequence: u64) -> bool {
        let fetches = is_read(&self.queue[index].work);
        let depth = !fetches || self.requests.len() < self.initiator_depth;
        depth && sequence < self.unacked + self.window.packets()
    }

    /// Writes a READ request for at most [`READ_PACKETS`] packets of data. Returns the lengths of
    /// request and data in bytes.
    fn emit_read(&mut self, now: Instant, out: &mut [u8]) -> (usize, u32) {
        let sequence = self.next;
        let entry = &self.queue[self.cursor];
        // The responder recognizes a repeated request only if it lies within one original request
        // (IBTA 9.7.5.1.3).
        let part = (sequence - entry.first) / READ_PACKETS + 1;
        let end = entry.end().min(entry.first + part * READ_PACKETS);
        let (count, mtu) = (end - sequence, u64::from(self.mtu));
        let skipped = (sequence - entry.first) * mtu;
        let mut packet = Packet::new(Opcode::ReadRequest, self.dest_qpn, psn::to_wire(sequence));
        packet.bth.ack_req = true;
        if let Operation::Read(remote) = entry.work.op {
            packet.reth = Some(Reth {
                va: remote.addr.wrapping_add(skipped),
                rkey: remote.rkey,
                dma_len: (u64::from(entry.length) - skipped).min(count * mtu) as u32,
            });
        }
        self.requests.push_back(end);
        if sequence >= self.sent {
            self.round_trip.sent(sequence, now);
        }
        self.advance(end);
        self.note_ack_requested(end, now);
        let asked = packet.reth.map_or(0, |reth| reth.dma_len);
        (packet.emit(out), asked)
    }

    fn emit_segment(
        &mut self,
        now: Instant,
        out: &mut [u8],
        is_paced: bool,
        cx: &mut Context<'_>,
    ) -> Option<usize> {
        let sequence = self.next;
        let ack_req = is_paced || self.requests_ack(sequence);
        let entry = &mut self.queue[self.cursor];
        let offset = ((sequence - entry.first) * u64::from(self.mtu)) as u32;
        let first = sequence == entry.first;
        let last = sequence + 1 == entry.end();
        let payload = if last {
            entry.length - offset
        } else {
            self.mtu
        } as usize;
        let opcode = segment_opcode(&entry.work.op, first, last);
        let mut packet = Packet::new(opcode, self.dest_qpn, psn::to_wire(sequence));
        packet.bth.ack_req = ack_req;
        match entry.work.op {
            Operation::SendWithInvalidate { rkey } if last => packet.ieth = Some(Ieth { rkey }),
            Operation::Write(remote) if first => {
                packet.reth = Some(Reth {
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
            entry.fault = Some(WorkStatus::LocalProtection);
            return None;
        }
        if !last {
            let (next, mtu) = (offset + self.mtu, u64::from(self.mtu));
            cx.memory.prefetch_gather(sges, u64::from(next), mtu);
        }
        let pad = usize::from(out[1] >> 4 & 3);
        out[end..end + pad].fill(0);
        self.awaited |= last && entry.work.signaled;
        if ack_req {
            if sequence >= self.sent {
                self.round_trip.sent(sequence, now);
            }
            self.note_ack_requested(sequence + 1, now);
        }
        self.advance(sequence + 1);
        Some(end + pad)
    }

    /// True if the packet must request an acknowledgement: every [`ACK_EVERY`] packets, and before
    /// a pause in sending.
    fn requests_ack(&self, sequence: u64) -> bool {
        let entry = &self.queue[self.cursor];
        let last = sequence + 1 == entry.end();
        let next = if last { self.cursor + 1 } else { self.cursor };
        let pauses = if next == self.queue.len() {
            self.awaited || entry.work.signaled
        } else {
            self.queue[next].fault.is_some() || !self.may_send(next, sequence + 1)
        };
        pauses || sequence + 1 >= self.ack_requested + ACK_EVERY
    }

    fn note_ack_requested(&mut self, end: u64, now: Instant) {
        if self.ack_requested <= self.unacked {
            self.deadline = Some(now + self.round_trip.timeout());
        }
        self.ack_requested = end;
        self.awaited = false;
    }

    fn advance(&mut self, next: u64) {
        self.next = next;
        self.sent = self.sent.max(next);
        if next == self.queue[self.cursor].end() {
            self.cursor += 1;
        }
    }

    pub(super) fn rewind(&mut self, sequence: u64, now: Instant) {
        let at = self.queue.iter().position(|entry| sequence < entry.end());
        self.cursor = at.unwrap_or(self.queue.len());
        self.next = sequence;
        self.ack_requested = sequence;
        self.awaited = true;
        while self.requests.back().is_some_and(|end| *end > sequence) {
            self.requests.pop_back();
        }
        self.joined = None;
        self.round_trip.rewound();
        self.deadline = (sequence < self.sent).then(|| now + self.round_trip.timeout());
    }
}

fn segment_opcode(operation: &Operation, first: bool, last: bool) -> Opcode {
    let (starts, middle, ends, only) = match operation {
        Operation::SendWithInvalidate { .. } => (
            Opcode::SendFirst,
            Opcode::SendMiddle,
            Opcode::SendLastInv,
            Opcode::SendOnlyInv,
        ),
        Operation::Write(_) => (
            Opcode::WriteFirst,
            Opcode::WriteMiddle,
            Opcode::WriteLast,
            Opcode::WriteOnly,
        ),
        Operation::Send | Operation::Read(_) => (
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
