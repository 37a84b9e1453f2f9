//! Queue pair of a reliable connection, as a state machine without I/O.
//!
//! Inputs are packets and the time ([`Qp::handle_packet`], [`Qp::handle_timeout`]). Outputs are
//! packets ([`Qp::poll_transmit`]) and the time of the next call ([`Qp::poll_timeout`]).

mod answered;
mod congestion;
pub mod memory;
pub mod psn;
mod question;
mod requester;
mod responder;
mod rtt;
mod train;
pub mod work;

use crate::time::Instant;
use core::time::Duration;

use cairn_rdma::{PKey, PostError, QpId, SendWork};

use crate::counters::Counters;
use crate::wire::cm::LongSend;
use crate::wire::{Opcode, Packet, bth};

use congestion::Pacer;
use memory::Memory;
use question::Question;
use requester::Requester;
use responder::Responder;
use work::{CompletionQueue, ReceiveQueue};

/// Endpoint state that a queue pair borrows for one call.
#[derive(Debug)]
pub struct Context<'a> {
    /// Queue pair's id in completions.
    pub qp: QpId,
    /// Registered memory of the protection domain.
    pub memory: &'a dyn Memory,
    /// Shared receive queue.
    pub receives: &'a mut ReceiveQueue,
    /// Completion queue.
    pub completions: &'a mut CompletionQueue,
    /// Counters of the endpoint.
    pub counters: &'a mut Counters,
}

/// Parameters of a queue pair, agreed by both peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpConfig {
    /// Peer's queue pair number.
    pub dest_qpn: u32,
    /// P_Key of sent packets; the P_Key of a received packet must match it.
    pub pkey: PKey,
    /// Maximum payload of a packet in bytes.
    pub mtu: u32,
    /// Limit above `mtu` for SENDs in one packet, if agreed.
    pub long_send: Option<LongSend>,
    /// PSN of the first local request.
    pub send_psn: u32,
    /// PSN of the peer's first request.
    pub receive_psn: u32,
    /// Maximum outstanding work requests.
    pub send_work: u32,
    /// Maximum outstanding local READs.
    pub initiator_depth: u8,
    /// Maximum outstanding READs and atomics of the peer.
    pub responder_resources: u8,
    /// Transport retries before failure.
    pub retry_count: u8,
    /// RNR retries before failure; 7 is unlimited.
    pub rnr_retry_count: u8,
    /// RNR timer code: delay requested from the peer if no receive is posted.
    pub min_rnr_timer: u8,
    /// Acknowledgement timeout, or `None` to wait for a silent peer without limit.
    pub ack_timeout: Option<Duration>,
}

impl QpConfig {
    fn send_max(&self) -> u32 {
        self.long_send
            .map_or(self.mtu, |long| self.mtu.max(long.bytes()))
    }

    fn patience(&self) -> Option<Duration> {
        Some(self.ack_timeout? * (u32::from(self.retry_count) + 1))
    }
}

/// True if a packet is the peer's first request, which replaces a lost RTU (IBTA 12.9.7.1). Only a
/// sender that has read the REP knows `expected_psn`.
#[must_use]
pub fn is_first_request(packet: &Packet<'_>, pkey: PKey, expected_psn: u32) -> bool {
    let opcode = packet.opcode;
    let is_request = opcode.is_send()
        || opcode.is_write()
        || opcode.is_atomic()
        || opcode == Opcode::ReadRequest;
    is_request && packet.bth.psn == expected_psn & 0xff_ffff && pkey.accepts(packet.bth.pkey)
}

/// Result of a packet sent in a super-packet (segmentation offload).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joined {
    /// The packet was acknowledged.
    Arrived,
    /// The packet was not acknowledged in time.
    Lost,
}

/// Queue pair of a reliable connection.
#[derive(Debug)]
pub struct Qp {
    requester: Requester,
    responder: Responder,
    pacer: Pacer,
    question: Question,
    held: bool,
    broken: bool,
    owes_cnp: bool,
    cnp_sent_at: Option<Instant>,
    passed: u32,
    dest_qpn: u32,
    pkey: PKey,
}

const PASSING: u32 = 32;

/// Minimum interval between CNPs. Annex A17.9.3 defines none; adapters use 50 us.
const CNP_INTERVAL: Duration = Duration::from_micros(50);

impl Qp {
    /// Creates a queue pair that receives, but sends no requests while [`Qp::is_held`] is true.
    #[must_use]
    pub fn new(config: &QpConfig, now: Instant) -> Self {
        Self {
            requester: Requester::new(config, now),
            responder: Responder::new(config),
            pacer: Pacer::default(),
            question: Question::new(config.patience()),
            held: true,
            broken: false,
            owes_cnp: false,
            cnp_sent_at: None,
            passed: 0,
            dest_qpn: config.dest_qpn,
            pkey: config.pkey,
        }
    }

    /// Permits requests, once the peer is ready to receive.
    pub fn release(&mut self) {
        self.held = false;
    }

    /// Returns the shortest round trip since the last timeout, if any was measured.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        self.requester.round_trip()
    }

    /// Disables the reaction to congestion notifications.
    pub fn ignore_congestion(&mut self) {
        self.pacer.ignore_notifications();
    }

    /// True until [`Qp::release`] or the peer's first request in sequence.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// True after a failure or [`Qp::flush`]; all outstanding work has then completed.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// True if retries of a SEND longer than the path MTU failed: the path may drop such packets.
    #[must_use]
    pub fn lost_long_send(&self) -> bool {
        self.requester.lost_long_send()
    }

    /// True if a peer's packet had an invalid key, range or access right.
    #[must_use]
    pub fn met_wrong_key(&self) -> bool {
        self.responder.met_wrong_key()
    }

    /// Posts all work requests of a list, or none.
    pub fn post(
        &mut self,
        works: impl ExactSizeIterator<Item = SendWork>,
        cx: &Context<'_>,
    ) -> Result<(), PostError> {
        if self.broken {
            return Err(PostError::Broken);
        }
        self.requester.post(works, cx.memory)
    }

    /// Handles a packet addressed to this queue pair.
    ///
    /// `congested`: the packet has a congestion mark (annex A17.9).
    pub fn handle_packet(
        &mut self,
        packet: &Packet<'_>,
        congested: bool,
        now: Instant,
        cx: &mut Context<'_>,
    ) {
        if !self.pkey.accepts(packet.bth.pkey) || packet.opcode.is_datagram() {
            cx.counters.rx_not_ours += 1;
            return;
        }
        if congested {
            cx.counters.np_ecn_marked_roce_packets += 1;
            let recent = |at| now.saturating_duration_since(at) < CNP_INTERVAL;
            // A CNP causes no CNP, because two queue pairs could exchange CNPs without end.
            let is_notification = packet.opcode == Opcode::Cnp;
            self.owes_cnp |= !is_notification && !self.cnp_sent_at.is_some_and(recent);
        }
        let is_present = match packet.opcode {
            Opcode::Cnp => {
                let heeded = self.pacer.notified(&self.requester.measured(), now);
                if heeded {
                    self.requester.noticed();
                }
                cx.counters.rp_cnp_handled += u64::from(heeded);
                cx.counters.rp_cnp_ignored += u64::from(!heeded);
                false
            }
            Opcode::Acknowledge => self.requester.handle_acknowledge(packet, now, cx),
            Opcode::AtomicAcknowledge => {
                cx.counters.bad_resp_err += 1;
                false
            }
            opcode if opcode.is_read_response() => {
                self.requester.handle_read_response(packet, now, cx)
            }
            _ => {
                // A request with the next PSN replaces a lost RTU ([`is_first_request`]).
                let was_due = self.responder.handle_request(packet, cx);
                self.held &= !was_due;
                was_due
            }
        };
        if is_present {
            self.question.answered();
        }
        self.break_if_failed(cx);
    }

    /// Probes the peer, because an unauthenticated message reported the loss of its queue pair. If
    /// no answer arrives, the local queue pair breaks.
    pub fn question(&mut self, now: Instant) {
        if !self.broken {
            self.question.ask(now);
        }
    }

    /// Records that the packet just returned by `poll_transmit`, which has this opcode, is sent in
    /// a super-packet after another packet.
    pub fn leaves_joined(&mut self, opcode: u8) {
        match Opcode::from_code(opcode) {
            Some(opcode) if opcode.is_send() || opcode.is_write() => self.requester.note_joined(),
            Some(opcode) if opcode.is_read_response() => self.responder.note_joined(),
            _ => {}
        }
    }

    /// Returns the result of a packet in a super-packet, once known.
    pub fn take_fate(&mut self) -> Option<Joined> {
        let fate = self.requester.take_fate();
        fate.or_else(|| self.responder.take_fate())
    }

    /// True if [`Qp::poll_transmit`] may return a packet.
    #[must_use]
    pub fn has_to_send(&self) -> bool {
        self.owes_cnp
            || self.question.is_due()
            || self.requester.has_to_send()
            || self.responder.has_to_send()
    }

    /// Writes the next packet without its ICRC to `out`. Returns its length in bytes, or `None` if
    /// nothing is due.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        out: &mut [u8],
        cx: &mut Context<'_>,
    ) -> Option<usize> {
        let length = self.write_next(now, out, cx)?;
        bth::set_pkey(out, self.pkey);
        Some(length)
    }

    /// Writes packets that follow a middle packet and differ only in PSN and payload, one into each
    /// `stride` bytes of `out`: packet and room for the ICRC. Returns the number of packets.
    pub fn poll_train(
        &mut self,
        now: Instant,
        out: &mut [u8],
        stride: usize,
        cx: &mut Context<'_>,
    ) -> usize {
        let busy = self.owes_cnp || self.question.is_due() || self.pacer.is_active();
        if busy || self.held || self.broken {
            return 0;
        }
        let waits = self.responder.can_wait();
        let count = if waits || !self.responder.has_to_send() {
            let limit = if waits {
                PASSING.saturating_sub(self.passed)
            } else {
                u32::MAX
            };
            let room = out.len().min(limit as usize * stride);
            let room = &mut out[..room];
            let count = self.requester.poll_train(self.pkey, room, stride, cx);
            self.passed += if waits { count as u32 } else { 0 };
            count
        } else {
            let count = self.responder.poll_train(self.pkey, out, stride, cx);
            self.passed = if count > 0 { 0 } else { self.passed };
            count
        };
        if count > 0 {
            self.pacer.sent(0, now);
        }
        count
    }

    fn write_next(&mut self, now: Instant, out: &mut [u8], cx: &mut Context<'_>) -> Option<usize> {
        if core::mem::take(&mut self.owes_cnp) {
            self.cnp_sent_at = Some(now);
            cx.counters.np_cnp_sent += 1;
            return Some(self.emit_cnp(out));
        }
        if self.question.take_due() {
            return Some(self.emit_probe(out));
        }
        let length = if self.responder.can_wait() && self.passed < PASSING {
            let request = self.poll_request(now, out, cx);
            self.passed += 1;
            request.or_else(|| self.poll_answer(now, out, cx))
        } else {
            let answer = self.poll_answer(now, out, cx);
            answer.or_else(|| self.poll_request(now, out, cx))
        };
        self.break_if_failed(cx);
        length
    }

    fn poll_answer(&mut self, now: Instant, out: &mut [u8], cx: &mut Context<'_>) -> Option<usize> {
        let pacer = &mut self.pacer;
        let answer = self.responder.poll_transmit(now, out, pacer, cx)?;
        self.passed = 0;
        Some(answer)
    }

    fn poll_request(
        &mut self,
        now: Instant,
        out: &mut [u8],
        cx: &mut Context<'_>,
    ) -> Option<usize> {
        if self.held || self.broken {
            return None;
        }
        self.requester.poll_transmit(now, out, &mut self.pacer, cx)
    }

    /// Writes a congestion notification: BECN, PSN 0, 16 reserved bytes (annex A17.9.3).
    fn emit_cnp(&self, out: &mut [u8]) -> usize {
        let mut packet = Packet::new(Opcode::Cnp, self.dest_qpn, 0);
        packet.bth.becn = true;
        packet.payload = &[0; 16];
        packet.emit(out)
    }

    /// Writes a probe: an empty SEND with the PSN of the last acknowledged packet. The peer
    /// acknowledges this duplicate without executing it (IBTA 9.7.5.1.3).
    fn emit_probe(&self, out: &mut [u8]) -> usize {
        let psn = psn::to_wire(self.requester.last_acknowledged());
        let mut packet = Packet::new(Opcode::SendOnly, self.dest_qpn, psn);
        packet.bth.ack_req = true;
        packet.emit(out)
    }

    /// Returns the time of the next call of [`Qp::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timers = [
            self.requester.poll_timeout(),
            self.pacer.held_until(),
            self.question.next(),
        ];
        timers.into_iter().flatten().min()
    }

    /// Handles expired timers.
    pub fn handle_timeout(&mut self, now: Instant, cx: &mut Context<'_>) {
        self.pacer.release();
        self.requester.handle_timeout(now, cx);
        if self.question.goes_unanswered(now) {
            self.requester.give_up(cx);
        }
        self.break_if_failed(cx);
    }

    /// Ends the queue pair; all outstanding work completes, as flushed or with the status of an
    /// unconfirmed NAK.
    pub fn flush(&mut self, cx: &mut Context<'_>) {
        self.broken = true;
        self.pacer.release();
        self.question.answered();
        self.requester.flush(cx);
        self.responder.flush(cx);
    }

    fn break_if_failed(&mut self, cx: &mut Context<'_>) {
        let failed = self.requester.is_broken() || self.responder.is_broken();
        if failed && !self.broken {
            self.flush(cx);
        }
    }
}
