//! The receiving half of a queue pair: the peer's requests become bytes in
//! memory, completions of receives, and answers (IBTA 9.7.4, 9.7.5).

mod response;

use alloc::collections::VecDeque;
use core::cmp::Ordering;

use cairn_rdma::{Access, Completion, CompletionKind, RecvWork, WorkStatus};

use super::answered::AnsweredReads;
use super::congestion::Pacer;
use super::{Context, Joined, QpConfig, psn};
use crate::time::Instant;
use crate::wire::{AtomicAckEth, NakCode, Opcode, Packet, Reth, Syndrome};
use response::{AtomicResult, ReadResponse, Response, aeth};

#[derive(Debug)]
pub(super) struct Responder {
    dest_qpn: u32,
    mtu: u32,
    responder_resources: usize,
    min_rnr_timer: u8,

    /// The next packet that is due.
    expected: u64,
    /// Messages completed (IBTA 9.7.7.1).
    msn: u32,
    /// What the packets so far have begun.
    inbound: Inbound,
    /// A NAK for `expected` is on its way: nothing more is said until that
    /// packet comes (IBTA 9.7.5.1.2).
    nak_sent: bool,
    /// Answers in the order in which they must leave.
    responses: VecDeque<Response>,
    /// The latest READs, for requests that come twice.
    reads: AnsweredReads,
    /// Results of the latest atomics, likewise.
    atomics: VecDeque<AtomicResult>,
    /// READ data has left behind other packets of a super-packet since it was asked for again.
    joined: bool,
    fate: Option<Joined>,
    /// The refusal that broke the queue pair. It is repeated to a peer that asks
    /// again.
    refusal: Option<NakCode>,
    /// It was for a key, range or right that the peer's packet named.
    wrong_key: bool,
}

/// A message of several packets, in the middle.
#[derive(Debug, Clone, Copy)]
enum Inbound {
    Nothing,
    Send { receive: RecvWork, received: u64 },
    Write { rkey: u32, va: u64, remaining: u32 },
}

/// Why a request is not carried out.
#[derive(Debug, Clone, Copy)]
enum Stop {
    /// No receive is posted: later.
    NotReady,
    Refuse(NakCode),
}

impl Responder {
    pub(super) fn new(config: &QpConfig) -> Self {
        let resources = usize::from(config.responder_resources);
        Self {
            dest_qpn: config.dest_qpn,
            mtu: config.mtu,
            responder_resources: resources,
            min_rnr_timer: config.min_rnr_timer,
            expected: psn::start(config.receive_psn),
            msn: 0,
            inbound: Inbound::Nothing,
            nak_sent: false,
            // Between two READs stands at most one acknowledgement.
            responses: VecDeque::with_capacity(2 * resources + 2),
            reads: AnsweredReads::new(resources),
            atomics: VecDeque::with_capacity(resources),
            joined: false,
            fate: None,
            refusal: None,
            wrong_key: false,
        }
    }

    pub(super) fn is_broken(&self) -> bool {
        self.refusal.is_some()
    }

    pub(super) fn met_wrong_key(&self) -> bool {
        self.wrong_key
    }

    pub(super) fn note_joined(&mut self) {
        self.joined = true;
    }

    pub(super) fn take_fate(&mut self) -> Option<Joined> {
        self.fate.take()
    }

    /// Whether answers wait to leave.
    pub(super) fn has_to_send(&self) -> bool {
        !self.responses.is_empty()
    }

    /// Gives back what a message in the middle holds.
    pub(super) fn flush(&mut self, cx: &mut Context<'_>) {
        if let Inbound::Send { receive, .. } = self.inbound {
            complete(&receive, WorkStatus::Flushed, cx);
        }
        self.inbound = Inbound::Nothing;
    }

    /// A request packet. Once broken, only the refusal is repeated. Returns whether it was the
    /// packet that is due.
    pub(super) fn handle_request(&mut self, packet: &Packet<'_>, cx: &mut Context<'_>) -> bool {
        let sequence = psn::from_wire(packet.bth.psn, self.expected);
        match sequence.cmp(&self.expected) {
            Ordering::Less if self.refusal.is_none() => {
                cx.counters.duplicate_request += 1;
                self.handle_duplicate(packet, sequence, cx);
            }
            Ordering::Greater if self.refusal.is_none() => {
                cx.counters.out_of_sequence += 1;
                if !self.nak_sent {
                    self.nak_sent = true;
                    self.acknowledge(self.expected, Syndrome::Nak(NakCode::PsnSequence));
                }
            }
            Ordering::Equal => {
                match self.refusal {
                    Some(code) => self.acknowledge(sequence, Syndrome::Nak(code)),
                    None => self.handle_due(packet, cx),
                }
                return true;
            }
            Ordering::Less | Ordering::Greater => {}
        }
        false
    }

    /// Carries out the packet that is due.
    fn handle_due(&mut self, packet: &Packet<'_>, cx: &mut Context<'_>) {
        let sequence = self.expected;
        self.nak_sent = false;
        // A NAK for this packet that has not left is out of date. It would have acknowledged all
        // before it, and may have replaced an acknowledgement that was requested.
        let retracted = self.waiting_nak();
        if retracted.is_some() {
            self.responses.pop_back();
        }
        match self.carry_out(packet, cx) {
            Ok(owes) if owes || retracted.is_some() => self.acknowledge(sequence, Syndrome::Ack),
            Ok(_) => {}
            Err(Stop::NotReady) => {
                cx.counters.out_of_buffer += 1;
                self.nak_sent = true;
                self.acknowledge(sequence, Syndrome::Rnr(self.min_rnr_timer));
            }
            Err(Stop::Refuse(code)) => {
                match code {
                    NakCode::RemoteAccess => cx.counters.resp_remote_access_errors += 1,
                    _ => cx.counters.resp_remote_invalid_request += 1,
                }
                self.refusal = Some(code);
                self.wrong_key = code == NakCode::RemoteAccess;
                self.acknowledge(sequence, Syndrome::Nak(code));
                self.flush(cx);
            }
        }
    }

    /// Returns whether an acknowledgement is owed; a response with data is one itself.
    fn carry_out(&mut self, packet: &Packet<'_>, cx: &mut Context<'_>) -> Result<bool, Stop> {
        match packet.opcode {
            opcode if opcode.is_send() => self.take_send(packet, cx)?,
            opcode if opcode.is_write() => self.take_write(packet, cx)?,
            Opcode::ReadRequest => return self.take_read(packet, cx).map(|()| false),
            opcode if opcode.is_atomic() => return self.take_atomic(packet, cx).map(|()| false),
            _ => return Err(Stop::Refuse(NakCode::InvalidRequest)),
        }
        self.expected += 1;
        if packet.opcode.ends_message() {
            self.msn += 1;
        }
        Ok(packet.bth.ack_req)
    }

    /// The NAK for the packet that is due, if it has not left. No answer is queued behind a NAK.
    fn waiting_nak(&self) -> Option<Response> {
        self.responses.back().copied().filter(Response::is_nak)
    }

    /// First and middle packets are full, last ones not empty (IBTA 9.7.4.1.6).
    fn check_length(&self, packet: &Packet<'_>) -> Result<(), Stop> {
        let length = packet.payload.len() as u32;
        let starts = packet.opcode.starts_message();
        let fine = match (starts, packet.opcode.ends_message()) {
            (_, false) => length == self.mtu,
            (false, true) => (1..=self.mtu).contains(&length),
            (true, true) => length <= self.mtu,
        };
        if fine {
            Ok(())
        } else {
            Err(Stop::Refuse(NakCode::InvalidRequest))
        }
    }

    fn take_send(&mut self, packet: &Packet<'_>, cx: &mut Context<'_>) -> Result<(), Stop> {
        self.check_length(packet)?;
        let (starts, ends) = (packet.opcode.starts_message(), packet.opcode.ends_message());
        // The key is looked at before a receive is taken or a byte moved.
        if packet.ieth.is_some_and(|ieth| !cx.memory.knows(ieth.rkey)) {
            return Err(Stop::Refuse(NakCode::RemoteAccess));
        }
        let (receive, received) = match self.inbound {
            Inbound::Nothing if starts => (cx.receives.take().ok_or(Stop::NotReady)?, 0),
            Inbound::Send { receive, received } if !starts => (receive, received),
            _ => return Err(Stop::Refuse(NakCode::InvalidRequest)),
        };
        self.inbound = Inbound::Nothing;
        let total = received + packet.payload.len() as u64;
        if total > receive.sges.total_len() {
            cx.counters.resp_local_length_error += 1;
            complete(&receive, WorkStatus::LocalLength, cx);
            return Err(Stop::Refuse(NakCode::InvalidRequest));
        }
        let sges = receive.sges.as_slice();
        if cx.memory.scatter(sges, received, packet.payload).is_err() {
            complete(&receive, WorkStatus::LocalProtection, cx);
            return Err(Stop::Refuse(NakCode::RemoteOperational));
        }
        if !ends {
            let received = total;
            self.inbound = Inbound::Send { receive, received };
            return Ok(());
        }
        let invalidated_rkey = packet.ieth.map(|ieth| ieth.rkey);
        if let Some(rkey) = invalidated_rkey {
            // Another reactor's peer may have been faster: then it is out of use
            // all the same.
            let _ = cx.memory.invalidate(rkey);
        }
        cx.completions.push(Completion {
            id: receive.id,
            qp: cx.qp,
            kind: CompletionKind::Recv,
            status: WorkStatus::Success,
            byte_len: total as u32,
            invalidated_rkey,
        });
        Ok(())
    }

    fn take_write(&mut self, packet: &Packet<'_>, cx: &mut Context<'_>) -> Result<(), Stop> {
        self.check_length(packet)?;
        let ends = packet.opcode.ends_message();
        let (rkey, va, remaining) = match (self.inbound, packet.reth) {
            (Inbound::Nothing, Some(reth)) => {
                cx.counters.rx_write_requests += 1;
                let (length, right) = (u64::from(reth.dma_len), Access::REMOTE_WRITE);
                let checked = cx.memory.check(reth.rkey, reth.va, length, right);
                checked.map_err(|_| Stop::Refuse(NakCode::RemoteAccess))?;
                (reth.rkey, reth.va, reth.dma_len)
            }
            (
                Inbound::Write {
                    rkey,
                    va,
                    remaining,
                },
                None,
            ) => (rkey, va, remaining),
            _ => return Err(Stop::Refuse(NakCode::InvalidRequest)),
        };
        let length = packet.payload.len() as u32;
        // The last packet, and no other, ends what the first announced
        // (IBTA 9.7.4.1.6).
        let fits = if ends {
            length == remaining
        } else {
            length < remaining
        };
        if !fits {
            return Err(Stop::Refuse(NakCode::InvalidRequest));
        }
        let receive = match packet.immediate {
            Some(_) => Some(cx.receives.take().ok_or(Stop::NotReady)?),
            None => None,
        };
        let written = cx
            .memory
            .write(rkey, va, packet.payload, Access::REMOTE_WRITE);
        if written.is_err() {
            if let Some(receive) = &receive {
                complete(receive, WorkStatus::Flushed, cx);
            }
            return Err(Stop::Refuse(NakCode::RemoteAccess));
        }
        self.inbound = if ends {
            Inbound::Nothing
        } else {
            Inbound::Write {
                rkey,
                va: va.wrapping_add(u64::from(length)),
                remaining: remaining - length,
            }
        };
        if let Some(receive) = receive {
            cx.completions.push(Completion {
                id: receive.id,
                qp: cx.qp,
                kind: CompletionKind::Recv,
                status: WorkStatus::Success,
                byte_len: 0,
                invalidated_rkey: None,
            });
        }
        Ok(())
    }

    fn take_read(&mut self, packet: &Packet<'_>, cx: &mut Context<'_>) -> Result<(), Stop> {
        cx.counters.rx_read_requests += 1;
        let Some(reth) = packet
            .reth
            .filter(|_| matches!(self.inbound, Inbound::Nothing))
        else {
            return Err(Stop::Refuse(NakCode::InvalidRequest));
        };
        if self.responder_resources == 0 {
            // More than was agreed on (IBTA 9.7.4.1.4).
            return Err(Stop::Refuse(NakCode::InvalidRequest));
        }
        let length = u64::from(reth.dma_len);
        let checked = cx
            .memory
            .check(reth.rkey, reth.va, length, Access::REMOTE_READ);
        checked.map_err(|_| Stop::Refuse(NakCode::RemoteAccess))?;
        self.msn += 1;
        let first = self.expected;
        self.reads.push(first, reth);
        let response = self.read_response(first, reth, false);
        self.expected += response.packets;
        self.push_fetch(Response::Read(response));
        Ok(())
    }

    fn read_response(&self, first: u64, reth: Reth, repeated: bool) -> ReadResponse {
        ReadResponse {
            first,
            packets: u64::from(reth.dma_len.div_ceil(self.mtu).max(1)),
            left: 0,
            reth,
            msn: self.msn,
            repeated,
        }
    }

    /// Atomic among this endpoint's queue pairs, which one thread serves; not
    /// against other reactors' or the processor's own accesses.
    fn take_atomic(&mut self, packet: &Packet<'_>, cx: &mut Context<'_>) -> Result<(), Stop> {
        cx.counters.rx_atomic_requests += 1;
        let idle = matches!(self.inbound, Inbound::Nothing) && self.responder_resources > 0;
        let Some(request) = packet.atomic.filter(|atomic| idle && atomic.va % 8 == 0) else {
            return Err(Stop::Refuse(NakCode::InvalidRequest));
        };
        let rights = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let mut bytes = [0; 8];
        let read = cx.memory.read(request.rkey, request.va, &mut bytes, rights);
        read.map_err(|_| Stop::Refuse(NakCode::RemoteAccess))?;
        let original = u64::from_ne_bytes(bytes);
        let replaced = match packet.opcode {
            Opcode::FetchAdd => original.wrapping_add(request.swap_or_add),
            _ if original == request.compare => request.swap_or_add,
            _ => original,
        };
        let bytes = replaced.to_ne_bytes();
        let written = cx.memory.write(request.rkey, request.va, &bytes, rights);
        written.map_err(|_| Stop::Refuse(NakCode::RemoteAccess))?;
        let result = AtomicResult {
            sequence: self.expected,
            original,
        };
        if self.atomics.len() == self.responder_resources {
            self.atomics.pop_front();
        }
        self.atomics.push_back(result);
        self.expected += 1;
        self.msn += 1;
        let msn = self.msn;
        self.push_fetch(Response::Atomic { result, msn });
        Ok(())
    }

    /// A request that was carried out before (IBTA 9.7.5.1.3): SENDs and WRITEs
    /// are acknowledged again, READs read again, atomics answered from memory.
    fn handle_duplicate(&mut self, packet: &Packet<'_>, sequence: u64, cx: &mut Context<'_>) {
        if packet.opcode.is_send() || packet.opcode.is_write() {
            self.acknowledge(self.expected - 1, Syndrome::Ack);
            return;
        }
        let response = if let Some(reth) = packet.reth {
            // What was never asked for is not asked for again: its keys would be guesses,
            // and the answers would say which are right.
            let is_known = self.reads.covers(sequence, reth, self.mtu);
            let length = u64::from(reth.dma_len);
            let checked = cx
                .memory
                .check(reth.rkey, reth.va, length, Access::REMOTE_READ);
            if is_known && core::mem::take(&mut self.joined) {
                self.fate = Some(Joined::Lost);
            }
            let response = self.read_response(sequence, reth, true);
            (is_known && checked.is_ok()).then_some(Response::Read(response))
        } else {
            let results = self.atomics.iter();
            let known = results.copied().find(|result| result.sequence == sequence);
            known.map(|result| Response::Atomic {
                result,
                msn: self.msn,
            })
        };
        let Some(response) = response else { return };
        // The peer has gone back: what it asks for again it will not need twice. A NAK stays: no
        // other follows before its packet comes, and a copy that the network made goes not back.
        let nak = self.waiting_nak();
        self.responses
            .retain(|waiting| waiting.sequence() < sequence);
        self.push_fetch(response);
        self.responses.extend(nak);
    }

    /// Queues data. A peer has no more requests outstanding than was agreed on:
    /// if more would wait to be answered, the oldest is one that a copy of an old
    /// packet asked for, and that is not missed.
    fn push_fetch(&mut self, response: Response) {
        let is_fetch = |response: &Response| !matches!(response, Response::Acknowledge { .. });
        let waiting = self.responses.iter().filter(|r| is_fetch(r)).count();
        if waiting >= self.responder_resources {
            let oldest = self.responses.iter().position(is_fetch);
            oldest.and_then(|index| self.responses.remove(index));
        }
        self.responses.push_back(response);
    }

    /// Queues an acknowledgement. It replaces one that waits to leave; but a NAK, which
    /// acknowledges all before the packet that is due, makes an ACK needless.
    fn acknowledge(&mut self, sequence: u64, syndrome: Syndrome) {
        let acknowledge = Response::Acknowledge {
            sequence,
            syndrome,
            msn: self.msn,
        };
        match self.responses.back_mut() {
            Some(last) if last.is_nak() && syndrome == Syndrome::Ack => {}
            Some(last @ Response::Acknowledge { .. }) => *last = acknowledge,
            _ => self.responses.push_back(acknowledge),
        }
    }

    /// Whether the next answer says only that all is well.
    pub(super) fn can_wait(&self) -> bool {
        let is_ack = |response: &Response| {
            matches!(
                response,
                Response::Acknowledge {
                    syndrome: Syndrome::Ack,
                    ..
                }
            )
        };
        self.responses.front().is_some_and(is_ack)
    }

    /// Writes the next answer; returns its length.
    /// READ data leaves at the pace of `pacer`.
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        out: &mut [u8],
        pacer: &mut Pacer,
        cx: &mut Context<'_>,
    ) -> Option<usize> {
        let (sequence, syndrome, msn) = match self.responses.front_mut()? {
            Response::Read(_) if !pacer.admits(now) => return None,
            Response::Read(response) => {
                let refused = (response.first + response.left, response.msn);
                if let Ok(length) = response.emit(self.dest_qpn, self.mtu, out, cx) {
                    pacer.sent(length as u64, now);
                    if response.left == response.packets {
                        self.responses.pop_front();
                    }
                    return Some(length);
                }
                if response.repeated {
                    // The peer had its data, and has invalidated the key behind
                    // the request that it repeated too soon.
                    self.responses.pop_front();
                    return self.poll_transmit(now, out, pacer, cx);
                }
                // The region went away while it was being read.
                cx.counters.resp_remote_access_errors += 1;
                self.refusal = Some(NakCode::RemoteAccess);
                self.responses.clear();
                (refused.0, Syndrome::Nak(NakCode::RemoteAccess), refused.1)
            }
            &mut Response::Atomic { result, msn } => {
                self.responses.pop_front();
                let psn = psn::to_wire(result.sequence);
                let mut packet = Packet::new(Opcode::AtomicAcknowledge, self.dest_qpn, psn);
                packet.aeth = Some(aeth(Syndrome::Ack, msn));
                packet.atomic_ack = Some(AtomicAckEth {
                    original: result.original,
                });
                return Some(packet.emit(out));
            }
            &mut Response::Acknowledge {
                sequence,
                syndrome,
                msn,
            } => {
                self.responses.pop_front();
                (sequence, syndrome, msn)
            }
        };
        let psn = psn::to_wire(sequence);
        let mut packet = Packet::new(Opcode::Acknowledge, self.dest_qpn, psn);
        packet.aeth = Some(aeth(syndrome, msn));
        Some(packet.emit(out))
    }
}

/// A receive ends without a message.
fn complete(receive: &RecvWork, status: WorkStatus, cx: &mut Context<'_>) {
    cx.completions.push(Completion {
        id: receive.id,
        qp: cx.qp,
        kind: CompletionKind::Recv,
        status,
        byte_len: 0,
        invalidated_rkey: None,
    });
}
