//! Queues for packets that arrive at one endpoint's socket and belong to another endpoint
//! ([`Relays`]).
//!
//! The kernel combines packets of one UDP flow (GRO), and selects the socket by the first packet. A
//! flow with packets for several endpoints, as adapters send, is bound to one socket ([`Flows`]), so
//! that the packets of each queue pair stay in order. If a queue is full, packets are lost.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cairn_base::wake::Wake;
use cairn_roce_proto::time::Instant;
use cairn_roce_proto::wire::udp::ROCE_PORT;
use cairn_roce_proto::wire::{Bth, Header};

use super::device::INDEX_SHIFT;
use super::lock;
use super::slots::INDEX_BITS;
use crate::phy::Inlet;
use crate::phy::receive::{Headers, Received};
use crate::phy::socket::FlowKey;

const BYTES_MAX: usize = 1 << 20;
const PACKETS_MAX: usize = 4096;
pub(super) const FLOWS_MAX: usize = 32;

/// Time after which an endpoint's unread socket counts as late.
/// [`cairn_rdma::Endpoint::drain_connections`] of other endpoints then reads this socket too,
/// because it may contain their messages. Must be shorter than the pause of 50 ms after which a
/// reactor makes this call.
const LATE: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
pub(super) struct Packets {
    bytes: Vec<u8>,
    list: Vec<(Headers, u16, usize)>,
}

impl Packets {
    fn has_room_for(&self, packet: &[u8]) -> bool {
        self.list.len() < PACKETS_MAX && self.bytes.len() + packet.len() <= BYTES_MAX
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Received<'_>> {
        let mut rest = &self.bytes[..];
        self.list.iter().map(move |(headers, index, length)| {
            let (bytes, behind) = rest.split_at(*length);
            rest = behind;
            Received {
                headers,
                index: *index,
                bytes,
            }
        })
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.list.clear();
    }
}

#[derive(Debug)]
pub(super) struct Relays([Relay; 1 << INDEX_BITS]);

#[derive(Debug, Default)]
struct Relay {
    queue: Mutex<Queue>,
    has_packets: AtomicBool,
    read_at_ns: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    packets: Packets,
    wake: Option<Arc<Wake>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handed {
    To(u32),
    Dropped,
    NotOurs,
}

impl Default for Relays {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Relay::default()))
    }
}

impl Relays {
    pub(super) fn open(&self, turn: u32, wake: &Arc<Wake>) {
        lock(&self.0[turn as usize].queue).wake = Some(Arc::clone(wake));
    }

    pub(super) fn close(&self, turn: u32) {
        let relay = &self.0[turn as usize];
        let mut queue = lock(&relay.queue);
        relay.has_packets.store(false, Ordering::Release);
        *queue = Queue::default();
    }

    pub(super) fn hand_over(&self, from: u32, received: &Received<'_>) -> Handed {
        let Some((bth, _)) = Bth::parse(received.bytes) else {
            return Handed::NotOurs;
        };
        let turn = bth.dest_qpn >> INDEX_SHIFT;
        let relay = &self.0[turn as usize];
        if turn == from {
            return Handed::NotOurs;
        }
        let mut queue = lock(&relay.queue);
        if queue.wake.is_none() {
            return Handed::NotOurs;
        }
        let packets = &mut queue.packets;
        if !packets.has_room_for(received.bytes) {
            return Handed::Dropped;
        }
        packets.bytes.extend_from_slice(received.bytes);
        let entry = (*received.headers, received.index, received.bytes.len());
        packets.list.push(entry);
        relay.has_packets.store(true, Ordering::Release);
        Handed::To(turn)
    }

    pub(super) fn wake(&self, turn: u32) {
        let wake = lock(&self.0[turn as usize].queue).wake.clone();
        if let Some(wake) = wake {
            wake.wake();
        }
    }

    pub(super) fn has_packets(&self, turn: u32) -> bool {
        self.0[turn as usize].has_packets.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn note_read(&self, turn: u32, now: Instant) {
        let now_ns = now.since_start().as_nanos() as u64;
        let relay = &self.0[turn as usize];
        relay.read_at_ns.store(now_ns, Ordering::Release);
    }

    pub(super) fn is_late(&self, turn: u32, now: Instant) -> bool {
        let relay = &self.0[turn as usize];
        let read_at = Duration::from_nanos(relay.read_at_ns.load(Ordering::Acquire));
        now.since_start().saturating_sub(read_at) >= LATE
    }

    pub(super) fn take(&self, turn: u32, packets: &mut Packets) {
        let relay = &self.0[turn as usize];
        let mut queue = lock(&relay.queue);
        relay.has_packets.store(false, Ordering::Release);
        std::mem::swap(&mut queue.packets, packets);
    }
}

#[derive(Debug, Default)]
pub(super) struct Flows(Mutex<VecDeque<(FlowKey, u32)>>);

impl Flows {
    pub(super) fn adopt(&self, flow: FlowKey, turn: u32, inlet: &Inlet) -> bool {
        // Connection management sends few packets, so its flows are not bound.
        if flow.port == ROCE_PORT {
            return false;
        }
        let mut flows = lock(&self.0);
        if flows.iter().any(|(known, _)| *known == flow) {
            return false;
        }
        if flows.len() == FLOWS_MAX {
            flows.pop_front();
        }
        flows.push_back((flow, turn));
        steer(inlet, flows.make_contiguous())
    }

    pub(super) fn renew(&self, inlet: &Inlet) {
        let mut flows = lock(&self.0);
        if !flows.is_empty() {
            steer(inlet, flows.make_contiguous());
        }
    }

    pub(super) fn release(&self, turn: u32, inlet: &Inlet) {
        let mut flows = lock(&self.0);
        let before = flows.len();
        flows.retain(|(_, of)| *of != turn);
        if flows.len() < before {
            steer(inlet, flows.make_contiguous());
        }
    }
}

fn steer(inlet: &Inlet, flows: &[(FlowKey, u32)]) -> bool {
    inlet.steer(flows, INDEX_SHIFT).is_ok()
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};

    use cairn_roce_proto::wire::{Opcode, Packet};

    use super::*;
    use crate::phy::Version;

    fn headers() -> Headers {
        let address: IpAddr = Ipv4Addr::LOCALHOST.into();
        let source = SocketAddr::new(address, 0xc000);
        Headers {
            version: Version::V2,
            source,
            local: address,
            traffic_class: 0,
            route: Version::V2.route(source, address),
        }
    }

    fn packet(turn: u32, psn: u32) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        let packet = Packet::new(Opcode::SendOnly, turn << INDEX_SHIFT | 5, psn);
        let length = packet.emit(&mut bytes);
        bytes.truncate(length);
        bytes
    }

    fn hand(relays: &Relays, bytes: &[u8]) -> Handed {
        let headers = &headers();
        let received = Received {
            headers,
            index: 3,
            bytes,
        };
        relays.hand_over(1, &received)
    }

    #[test]
    fn packets_keep_their_order_and_have_a_bound() {
        let relays = Relays::default();
        let wake = Arc::new(Wake::new().unwrap());
        assert_eq!(hand(&relays, &packet(2, 0)), Handed::NotOurs);
        relays.open(1, &wake);
        relays.open(2, &wake);
        assert_eq!(hand(&relays, &packet(1, 0)), Handed::NotOurs, "its own");
        assert_eq!(hand(&relays, &[0; 5]), Handed::NotOurs);
        let mut taken = Packets::default();
        for round in 0..3 {
            assert!(!relays.has_packets(2));
            let mut psn = 0;
            while hand(&relays, &packet(2, psn)) == Handed::To(2) {
                psn += 1;
            }
            assert_eq!(psn as usize, PACKETS_MAX, "round {round}");
            assert_eq!(hand(&relays, &packet(2, psn)), Handed::Dropped);
            assert!(relays.has_packets(2));
            relays.take(2, &mut taken);
            let psns = taken.iter().map(|received| {
                assert_eq!(received.index, 3);
                Bth::parse(received.bytes).unwrap().0.psn
            });
            assert!(psns.eq(0..psn));
            taken.clear();
        }
        hand(&relays, &packet(2, 0));
        relays.close(2);
        assert!(!relays.has_packets(2));
        assert_eq!(hand(&relays, &packet(2, 0)), Handed::NotOurs);
    }

    #[test]
    fn long_packets_have_a_bound_of_bytes() {
        let relays = Relays::default();
        relays.open(2, &Arc::new(Wake::new().unwrap()));
        let mut bytes = packet(2, 0);
        bytes.resize(4096, 0);
        let taken = (0..PACKETS_MAX).take_while(|_| hand(&relays, &bytes) == Handed::To(2));
        assert_eq!(taken.count(), BYTES_MAX / 4096);
    }
}
