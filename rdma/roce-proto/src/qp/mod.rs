//! A queue pair of a reliable connection, as a state machine without I/O.
//!
//! Packets and the time go in ([`Qp::handle_packet`], [`Qp::handle_timeout`]),
//! packets come out ([`Qp::poll_transmit`]), and so does the time at which to
//! call again ([`Qp::poll_timeout`]). What a queue pair shares with its
//! endpoint's others (memory, receives, completions, counters) is lent to each
//! call as a [`Context`].
//!
//! Payload is copied once each way: from registered memory into the outgoing
//! packet, and from the packet that came in into registered memory.

mod answered;
mod congestion;
pub mod memory;
pub mod psn;
mod question;
mod requester;
mod responder;
mod rtt;
pub mod work;

use crate::time::Instant;
use core::time::Duration;

use cairn_rdma::{PKey, PostError, QpId, SendWork};

use crate::counters::Counters;
use crate::wire::{Opcode, Packet, bth};

use congestion::Pacer;
use memory::Memory;
use question::Question;
use requester::Requester;
use responder::Responder;
use work::{CompletionQueue, ReceiveQueue};

/// What an endpoint lends its queue pair for one call.
#[derive(Debug)]
pub struct Context<'a> {
    /// The queue pair's name in completions.
    pub qp: QpId,
    /// Registered memory.
    pub memory: &'a dyn Memory,
    /// The shared receive queue.
    pub receives: &'a mut ReceiveQueue,
    /// The completion queue.
    pub completions: &'a mut CompletionQueue,
    /// The endpoint's counters.
    pub counters: &'a mut Counters,
}

/// What both ends agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpConfig {
    /// The peer's queue pair.
    pub dest_qpn: u32,
    /// Its packets carry it, and it accepts packets of its partition.
    pub pkey: PKey,
    /// Path MTU: bytes of payload in a full packet.
    pub mtu: u32,
    /// PSN of our first request: what the peer expects.
    pub send_psn: u32,
    /// PSN of the peer's first request.
    pub receive_psn: u32,
    /// Work requests outstanding at a time.
    pub send_work: u32,
    /// Our READs outstanding at a time.
    pub initiator_depth: u8,
    /// The peer's READs and atomics outstanding at a time.
    pub responder_resources: u8,
    /// Retries before a silent peer counts as gone.
    pub retry_count: u8,
    /// Retries before a peer without receives counts as gone; 7 is for ever.
    pub rnr_retry_count: u8,
    /// How long a peer waits if there is no receive here: a timer code.
    pub min_rnr_timer: u8,
    /// The time that counts as one retry. `None`: a silent peer never counts as gone.
    pub ack_timeout: Option<Duration>,
}

impl QpConfig {
    /// How long a peer may be silent; `None` is for ever.
    fn patience(&self) -> Option<Duration> {
        Some(self.ack_timeout? * (u32::from(self.retry_count) + 1))
    }
}

/// The fate of a packet that left behind another one in a super-packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joined {
    /// The peer has acknowledged the packet.
    Arrived,
    /// The packet has to be sent again.
    Lost,
}

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    requester: Requester,
    responder: Responder,
    pacer: Pacer,
    question: Question,
    /// The peer is not known to be ready: answer, but ask nothing.
    held: bool,
    broken: bool,
    /// A congestion notification is owed to the peer.
    owes_cnp: bool,
    cnp_sent_at: Option<Instant>,
    /// Requests that have gone before an acknowledgement that waits.
    passed: u32,
    dest_qpn: u32,
    pkey: PKey,
}

/// Requests that may go before an acknowledgement that waits.
const PASSING: u32 = 32;

/// One notification per flow in this time is enough (annex A17.9.3 leaves it to
/// the implementation; this is what adapters do).
const CNP_INTERVAL: Duration = Duration::from_micros(50);

impl Qp {
    /// A queue pair that is ready to receive. It sends requests after
    /// [`Qp::release`].
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

    /// The peer is ready: requests may go out.
    pub fn release(&mut self) {
        self.held = false;
    }

    /// The least time that an acknowledgement has taken, once one was measured.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        self.requester.round_trip()
    }

    /// From now on congestion notifications change nothing.
    pub fn ignore_congestion(&mut self) {
        self.pacer.ignore_notifications();
    }

    /// Whether it waits for [`Qp::release`], or for the peer's request that is due.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// Whether a failure has ended it. Outstanding work has been flushed.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether it ended because a packet of the peer named a key, range or right that
    /// was not there.
    #[must_use]
    pub fn met_wrong_key(&self) -> bool {
        self.responder.met_wrong_key()
    }

    /// Posts work, all or none.
    ///
    /// # Errors
    /// [`PostError`].
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

    /// A packet that was addressed to this queue pair. `congested`: a router
    /// marked it (annex A17.9).
    pub fn handle_packet(
        &mut self,
        packet: &Packet<'_>,
        congested: bool,
        now: Instant,
        cx: &mut Context<'_>,
    ) {
        // Datagrams are of another transport service: a queue pair of a connection drops them
        // silently (IBTA 9.6.1.2).
        if !self.pkey.accepts(packet.bth.pkey) || packet.opcode.is_datagram() {
            cx.counters.rx_not_ours += 1;
            return;
        }
        if congested {
            cx.counters.np_ecn_marked_roce_packets += 1;
            let recent = |at| now.saturating_duration_since(at) < CNP_INTERVAL;
            // A notification is not notified of, or two queue pairs keep it up for ever.
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
            // This end makes no atomic requests.
            Opcode::AtomicAcknowledge => {
                cx.counters.bad_resp_err += 1;
                false
            }
            opcode if opcode.is_read_response() => {
                self.requester.handle_read_response(packet, now, cx)
            }
            _ => {
                // The request that is due stands for the RTU, which may have been lost (IBTA
                // 12.9.7.1). No other packet does: its sender need not have read the REP.
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

    /// Something that anyone may have sent says that the peer has forgotten this queue pair. Asks
    /// it: if it is silent for as long as a peer may be, the queue pair breaks.
    pub fn question(&mut self, now: Instant) {
        if !self.broken {
            self.question.ask(now);
        }
    }

    /// The packet that was written last leaves behind another one in a super-packet.
    pub fn leaves_joined(&mut self, opcode: u8) {
        match Opcode::from_code(opcode) {
            Some(opcode) if opcode.is_send() || opcode.is_write() => self.requester.note_joined(),
            Some(opcode) if opcode.is_read_response() => self.responder.note_joined(),
            _ => {}
        }
    }

    /// The fate of such a packet, once it is known.
    pub fn take_fate(&mut self) -> Option<Joined> {
        let fate = self.requester.take_fate();
        fate.or_else(|| self.responder.take_fate())
    }

    /// Whether [`Qp::poll_transmit`] has anything to look at.
    #[must_use]
    pub fn has_to_send(&self) -> bool {
        self.owes_cnp
            || self.question.is_due()
            || self.requester.has_to_send()
            || self.responder.has_to_send()
    }

    /// Writes the next packet, without its ICRC, to the front of `out`; returns
    /// its length. `None`: nothing to send now.
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

    fn write_next(&mut self, now: Instant, out: &mut [u8], cx: &mut Context<'_>) -> Option<usize> {
        if core::mem::take(&mut self.owes_cnp) {
            self.cnp_sent_at = Some(now);
            cx.counters.np_cnp_sent += 1;
            return Some(self.emit_cnp(out));
        }
        if self.question.take_due() {
            return Some(self.emit_probe(out));
        }
        // An acknowledgement is in no hurry; what it would hold up may be.
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

    /// CNP: BECN, PSN 0, and 16 reserved bytes (annex A17.9.3).
    fn emit_cnp(&self, out: &mut [u8]) -> usize {
        let mut packet = Packet::new(Opcode::Cnp, self.dest_qpn, 0);
        packet.bth.becn = true;
        packet.payload = &[0; 16];
        packet.emit(out)
    }

    /// An empty SEND at the place of the last packet that the peer acknowledged: a peer that has
    /// the queue pair acknowledges it once more, and carries nothing out (IBTA 9.7.5.1.3).
    fn emit_probe(&self, out: &mut [u8]) -> usize {
        let psn = psn::to_wire(self.requester.last_acknowledged());
        let mut packet = Packet::new(Opcode::SendOnly, self.dest_qpn, psn);
        packet.bth.ack_req = true;
        packet.emit(out)
    }

    /// When to call [`Qp::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timers = [
            self.requester.poll_timeout(),
            self.pacer.held_until(),
            self.question.next(),
        ];
        timers.into_iter().flatten().min()
    }

    /// The time has come that [`Qp::poll_timeout`] said.
    pub fn handle_timeout(&mut self, now: Instant, cx: &mut Context<'_>) {
        self.pacer.release();
        self.requester.handle_timeout(now, cx);
        if self.question.goes_unanswered(now) {
            self.requester.give_up(cx);
        }
        self.break_if_failed(cx);
    }

    /// Ends it: everything outstanding completes as flushed.
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
