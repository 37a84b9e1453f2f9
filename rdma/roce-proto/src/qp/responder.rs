//! Responder: executes requests of the peer and queues responses (IBTA 9.7.4, 9.7.5).

mod response;

use alloc::collections::VecDeque;
use core::cmp::Ordering;

use cairn_rdma::{Access, Completion, CompletionKind, PKey, RecvWork, WorkStatus};

use super::answered::AnsweredReads;
use super::congestion::Pacer;
use super::train::Train;
use super::{Context, Joined, QpConfig, psn};
use crate::time::Instant;
use crate::wire::{AtomicAckEth, NakCode, Opcode, Packet, Reth, Syndrome};
use response::{AtomicResult, ReadResponse, Response, aeth};

#[derive(Debug)]
pub(super) struct Responder {
    dest_qpn: u32,
    mtu: u32,
    send_max: u32,
    responder_resources: usize,
    min_rnr_timer: u8,

    expected: u64,
    msn: u32,
    inbound: Inbound,
    /// True if a NAK for `expected` was sent. No other NAK is sent before that packet arrives (IBTA
    /// 9.7.5.1.2).
    nak_sent: bool,
    responses: VecDeque<Response>,
    reads: AnsweredReads,
    atomics: VecDeque<AtomicResult>,
    /// True if super-packets contained READ data since the peer last repeated a READ.
    joined: bool,
    fate: Option<Joined>,
    /// NAK that broke the queue pair, repeated for each further packet with the expected PSN.
    refusal: Option<NakCode>,
    wrong_key: bool,
}

#[derive(Debug, Clone, Copy)]
enum Inbound {
    Nothing,
    Send { receive: RecvWork, received: u64 },
    Write { rkey: u32, va: u64, remaining: u32 },
}

#[derive(Debug, Clone, Copy)]
enum Stop {
    NotReady,
    Refuse(NakCode),
}

impl Responder {
    pub(super) fn new(config: &QpConfig) -> Self {
        let resources = usize::from(config.responder_resources);
        Self {
            dest_qpn: config.dest_qpn,
            mtu: config.mtu,
            send_max: config.send_max(),
            responder_resources: resources,
            min_rnr_timer: config.min_rnr_timer,
            expected: psn::start(config.receive_psn),
            msn: 0,
            inbound: Inbound::Nothing,
            nak_sent: false,
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

    pub(super) fn has_to_send(&self) -> bool {
        !self.responses.is_empty()
    }

    pub(super) fn flush(&mut self, cx: &mut Context<'_>) {
        if let Inbound::Send { receive, .. } = self.inbound {
            complete(&receive, WorkStatus::Flushed, cx);
        }
        self.inbound = Inbound::Nothing;
    }

    /// Handles a request. A broken queue pair only repeats its fatal NAK. Returns true if the
    /// packet is next in sequence.
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

    fn handle_due(&mut self, packet: &Packet<'_>, cx: &mut Context<'_>) {
        let sequence = self.expected;
        self.nak_sent = false;
        // The packet has arrived, so a queued NAK for it is obsolete. The NAK may have replaced an
        // acknowledgement, which must then be sent.
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

    fn waiting_nak(&self) -> Option<Response> {
        self.responses.back().copied().filter(Response::is_nak)
    }

    /// Checks the payload length (IBTA 9.7.4.1.6): first and middle packets must be full, last
    /// packets not empty.
    fn check_length(&self, packet: &Packet<'_>) -> Result<(), Stop> {
        let length = packet.payload.len() as u32;
        let starts = packet.opcode.starts_message();
        let fine = match (starts, packet.opcode.ends_message()) {
            (_, false) => length == self.mtu,
            (false, true) => (1..=self.mtu).contains(&length),
            (true, true) if packet.opcode.is_send() => length <= self.send_max,
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
            // The local side has agreed to answer 0 READs (IBTA 9.7.4.1.4).
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

    /// Executes an atomic operation, which is not atomic with respect to other endpoints.
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

    /// Handles a repeated request (IBTA 9.7.5.1.3): acknowledges a SEND or WRITE, executes an
    /// answered READ again, and returns the stored result of an atomic.
    fn handle_duplicate(&mut self, packet: &Packet<'_>, sequence: u64, cx: &mut Context<'_>) {
        if packet.opcode.is_send() || packet.opcode.is_write() {
            self.acknowledge(self.expected - 1, Syndrome::Ack);
            return;
        }
        let response = if let Some(reth) = packet.reth {
            // An answer to a READ that was never executed would confirm a guessed key.
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
        // The peer will also repeat all later requests, so queued responses to them are obsolete. A
        // queued NAK stays, because a NAK is sent only once, and the network may have duplicated
        // the old packet.
        let nak = self.waiting_nak();
        self.responses
            .retain(|waiting| waiting.sequence() < sequence);
        self.push_fetch(response);
        self.responses.extend(nak);
    }

    /// Queues a response to a READ or atomic. If `responder_resources` responses are queued, a
    /// request was duplicated, so the oldest response is dropped.
    fn push_fetch(&mut self, response: Response) {
        let is_fetch = |response: &Response| !matches!(response, Response::Acknowledge { .. });
        let waiting = self.responses.iter().filter(|r| is_fetch(r)).count();
        if waiting >= self.responder_resources {
            let oldest = self.responses.iter().position(is_fetch);
            oldest.and_then(|index| self.responses.remove(index));
        }
        self.responses.push_back(response);
    }

    /// Queues an acknowledgement. It replaces the last queued response if that is also an
    /// acknowledgement. An ACK does not replace a NAK, which also acknowledges all earlier packets.
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

    /// Writes middle packets of the READ response that is being sent, and returns their number.
    pub(super) fn poll_train(
        &mut self,
        pkey: PKey,
        out: &mut [u8],
        stride: usize,
        cx: &mut Context<'_>,
    ) -> usize {
        let Some(Response::Read(response)) = self.responses.front_mut() else {
            return 0;
        };
        let opcode = Opcode::ReadResponseMiddle;
        let train = Train::new(opcode, self.dest_qpn, pkey, self.mtu);
        if train.stride() != stride {
            return 0;
        }
        response.emit_train(train, self.mtu, out, cx)
    }

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
                    // The peer repeated this READ, but then received the data and invalidated the
                    // key.
                    self.responses.pop_front();
                    return self.poll_transmit(now, out, pacer, cx);
                }
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
