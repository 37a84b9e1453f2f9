use cairn_roce_proto::time::Instant;
use std::cmp::Reverse;

use cairn_base::Mapping;
use cairn_rdma::{DisconnectReason, Event, PrivateData, QpId};

use super::super::relay::{FLOWS_MAX, Handed};
use super::super::slots::Phase;
use super::{Context, SoftEndpoint, admit, context};
use crate::phy::batch::Sharing;
use crate::phy::receive::{ENOUGH, Received};
use crate::phy::socket::FlowKey;
use cairn_roce_proto::qp::is_first_request;
use cairn_roce_proto::wire::{Opcode, Packet, bth};

/// Maximum packets that a queue pair sends before the next queue pair may send: four super-packets
/// of 15 full packets.
const BURST: usize = 60;
const BATCHES: usize = 4;
/// Opcodes of packets that more packets of the same size often follow.
const MIDDLE: [u8; 2] = [
    Opcode::WriteMiddle.code(),
    Opcode::ReadResponseMiddle.code(),
];

impl SoftEndpoint {
    pub(super) fn receive(&mut self, now: Instant) {
        let mut receiver = self.receiver.take().expect("it is put back below");
        let before = self.counters.rcvd_bytes;
        for _ in 0..BATCHES {
            // Errors are ignored: any ICMP message can cause an error, and the socket reports each
            // only once.
            let count = receiver.receive(&self.inlet).unwrap_or(0);
            self.counters.rcv_calls += 1;
            if count == 0 {
                self.counters.rcv_calls_in_vain += 1;
                break;
            }
            self.counters.rcvd_datagrams += count as u64;
            // Connection events must be handled before packets of the connection.
            self.take_connection_events(now);
            let packets = (0..count).flat_map(|datagram| receiver.packets(datagram));
            self.handle_all(packets, now);
            let is_enough = self.counters.rcvd_bytes - before >= ENOUGH as u64 / 2;
            if is_enough || !receiver.has_more() {
                break;
            }
        }
        Mapping::fence();
        if !receiver.has_more() {
            self.device.relays.note_read(self.index, now);
        }
        self.receiver = Some(receiver);
    }

    /// Handles packets, and updates a queue pair's timer once for its successive packets.
    fn handle_all<'a>(&mut self, packets: impl Iterator<Item = Received<'a>>, now: Instant) {
        let mut active = None;
        for received in packets {
            let Some(id) = self.handle_one(&received, now) else {
                continue;
            };
            if let Some(last) = active.replace(id).filter(|last| *last != id) {
                self.after_activity(last);
            }
        }
        if let Some(last) = active {
            self.after_activity(last);
        }
    }

    pub(super) fn handle(&mut self, received: &Received<'_>, now: Instant) {
        self.handle_all(std::iter::once(*received), now);
    }

    /// Handles a packet. Returns its queue pair if [`Self::after_activity`] must follow, because
    /// nothing is sent.
    fn handle_one(&mut self, received: &Received<'_>, now: Instant) -> Option<QpId> {
        let Some(dest_qpn) = bth::dest_qpn(received.bytes) else {
            self.counters.rx_malformed += 1;
            return None;
        };
        let headers = received.headers;
        let found = self.slots.by_qpn(dest_qpn);
        let known = found.filter(|(_, entry)| {
            entry.flow.remote == headers.source.ip() && entry.flow.local == headers.local
        });
        let Some((id, entry)) = known else {
            self.hand_over(received);
            return None;
        };
        let Some(qp) = &mut entry.qp else {
            self.handle_early(id, received, now);
            return None;
        };
        let opened = self
            .checker
            .open(&headers.route, received.index, received.bytes);
        let Some(transport) = opened else {
            self.counters.rx_icrc_encapsulated += 1;
            return None;
        };
        if let Some(capture) = &self.device.options.capture {
            capture.received(received);
        }
        let Ok(packet) = Packet::parse(transport) else {
            self.counters.rx_malformed += 1;
            return None;
        };
        self.counters.rcvd_pkts += 1;
        self.counters.rcvd_bytes += transport.len() as u64;
        qp.handle_packet(
            &packet,
            headers.is_congested(),
            now,
            &mut context!(self, id),
        );
        if entry.phase == Phase::Accepted && !qp.is_held() {
            entry.phase = Phase::Established;
            let private_data = PrivateData::new(&[]);
            self.events.push_back(Event::Established {
                qp: id,
                private_data,
            });
            if let Some(conn) = entry.conn {
                self.device.manager.received_packet(conn);
            }
        }
        let (sends, broken) = (qp.has_to_send(), qp.is_broken());
        if sends && !std::mem::replace(&mut entry.queued, true) {
            self.ready.push_back(id.slot() as u16);
        }
        if broken {
            self.after_activity(id);
        }
        (!broken && !sends).then_some(id)
    }

    /// Handles a packet of a half-open connection. The peer's first request completes the
    /// connection; other packets are ignored.
    #[cold]
    fn handle_early(&mut self, id: QpId, received: &Received<'_>, now: Instant) {
        let Some(entry) = self.slots.get(id) else {
            return;
        };
        if entry.phase != Phase::Accepted {
            return;
        }
        let (route, index) = (&received.headers.route, received.index);
        let opened = self.checker.open(route, index, received.bytes);
        let Some(transport) = opened else {
            self.counters.rx_icrc_encapsulated += 1;
            return;
        };
        let Ok(packet) = Packet::parse(transport) else {
            self.counters.rx_malformed += 1;
            return;
        };
        if !is_first_request(&packet, entry.pkey, entry.terms.starting_psn) {
            return;
        }
        let conn = entry.conn;
        self.prove(id, now);
        if let Some(conn) = conn {
            self.device.manager.received_packet(conn);
        }
        self.handle(received, now);
    }

    pub(super) fn pass_on(&mut self, received: &Received<'_>) -> bool {
        match self.device.relays.hand_over(self.index, received) {
            Handed::To(turn) => {
                self.counters.rx_handed_over += 1;
                self.handed_to |= 1 << turn;
                return true;
            }
            Handed::Dropped => self.counters.rx_handover_dropped += 1,
            Handed::NotOurs => self.counters.rx_not_ours += 1,
        }
        false
    }

    fn hand_over(&mut self, received: &Received<'_>) {
        if !self.pass_on(received) {
            return;
        }
        let source = received.headers.source;
        let flow = FlowKey {
            address: source.ip(),
            port: source.port(),
        };
        if self.mixed.contains(&flow) {
            return;
        }
        if self.device.flows.adopt(flow, self.index, &self.inlet) {
            if self.mixed.len() == FLOWS_MAX {
                self.mixed.pop_front();
            }
            self.mixed.push_back(flow);
            let numbers = self.slots.all_numbers();
            let _ = admit(&self.inlet, &numbers, self.mixed.make_contiguous());
        }
    }

    pub(super) fn wake_others(&mut self) {
        while self.handed_to != 0 {
            let turn = self.handed_to.trailing_zeros();
            self.handed_to &= self.handed_to - 1;
            self.device.relays.wake(turn);
        }
    }

    pub(super) fn receive_handed(&mut self, now: Instant) {
        self.wake_others();
        if !self.device.relays.has_packets(self.index) {
            return;
        }
        let mut packets = std::mem::take(&mut self.handed);
        self.device.relays.take(self.index, &mut packets);
        self.handle_all(packets.iter(), now);
        packets.clear();
        self.handed = packets;
        Mapping::fence();
    }

    pub(super) fn run_timers(&mut self, now: Instant) {
        while let Some(Reverse((at, slot))) = self.timers.peek().copied() {
            if at > now {
                return;
            }
            self.timers.pop();
            let Some((id, entry)) = self.slots.by_slot(slot) else {
                continue;
            };
            if entry.timer_at != Some(at) {
                continue; // replaced by an earlier timer
            }
            entry.timer_at = None;
            let Some(qp) = &mut entry.qp else { continue };
            if qp.poll_timeout().is_some_and(|at| at <= now) {
                qp.handle_timeout(now, &mut context!(self, id));
                self.make_ready(id);
            }
            self.after_activity(id);
        }
    }

    pub(super) fn transmit(&mut self, now: Instant) {
        for _ in 0..self.ready.len() {
            let Some(slot) = self.ready.pop_front() else {
                break;
            };
            let Some((id, entry)) = self.slots.by_slot(slot) else {
                continue;
            };
            entry.queued = false;
            let sharing = if self.ready.is_empty() {
                Sharing::Alone
            } else {
                Sharing::Others
            };
            let Some(qp) = &mut entry.qp else { continue };
            let mut cx = context!(self, id);
            let mut sent = 0;
            while sent < BURST {
                let Some(length) = qp.poll_transmit(now, self.sender.packet(), &mut cx) else {
                    break;
                };
                cx.counters.sent_pkts += 1;
                cx.counters.sent_bytes += length as u64;
                let (place, opcode) = (&mut entry.place, self.sender.opcode());
                let is_joined = if opcode == Opcode::Cnp.code() {
                    let flow = entry.flow.not_ecn_capable();
                    self.sender.commit(&flow, length, place, Sharing::Alone)
                } else {
                    self.sender.commit(&entry.flow, length, place, sharing)
                };
                if is_joined {
                    qp.leaves_joined(opcode);
                }
                sent += 1;
                let remote = entry.flow.remote;
                if MIDDLE.contains(&opcode)
                    && let Some((room, stride)) =
                        self.sender.train_room(remote, place, BURST - sent)
                {
                    let count = qp.poll_train(now, room, stride, &mut cx);
                    cx.counters.sent_pkts += count as u64;
                    cx.counters.sent_bytes += (count * length) as u64;
                    self.sender.commit_train(count, place);
                    if count > 0 {
                        qp.leaves_joined(opcode);
                    }
                    sent += count;
                }
            }
            if sent == BURST {
                self.make_ready(id);
            }
            self.after_activity(id);
        }
        if !self.sender.is_empty() {
            self.sender.flush();
        }
        self.sender.report(&mut self.counters);
    }

    pub(super) fn after_activity(&mut self, id: QpId) {
        let Some(entry) = self.slots.get(id) else {
            return;
        };
        let Some(qp) = &mut entry.qp else { return };
        if let Some(fate) = qp.take_fate() {
            self.sender.judge(entry.flow.remote, fate);
        }
        if qp.is_broken() && matches!(entry.phase, Phase::Accepted | Phase::Established) {
            entry.phase = Phase::Broken;
            if qp.lost_long_send() {
                self.device.avoid_long_sends(entry.flow.remote);
            }
            if qp.met_wrong_key()
                && let Some(conn) = entry.conn
            {
                self.device.manager.penalize(conn);
            }
            let reason = DisconnectReason::Transport;
            self.events
                .push_back(Event::Disconnected { qp: id, reason });
        }
        if let Some(at) = qp.poll_timeout()
            && entry.timer_at.is_none_or(|earlier| at < earlier)
        {
            entry.timer_at = Some(at);
            if self.timers.len() == self.timers.capacity() {
                self.forget_old_timers();
            }
            self.timers.push(Reverse((at, id.slot() as u16)));
        }
    }
}
