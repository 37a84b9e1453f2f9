//! Peers that send other packets than Cairn's endpoints do, as RDMA adapters may.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_rdma::{EndpointOptions, Event, QpOptions};
use cairn_roce::Soft;
use cairn_roce_proto::cm::CmEvent;
use cairn_roce_proto::wire::mad::{GSI_QKEY, GSI_QPN, MAD_LEN};
use cairn_roce_proto::wire::udp::ROCE_PORT;
use cairn_roce_proto::wire::{Deth, NakCode, Opcode, Packet, Reth, Syndrome};
use cairn_tests::harness::own_loopback_address;
use cairn_tests::provider::listen;
use cairn_tests::stranger::Stranger;

use super::{PATIENCE, Victim};

/// UDP source port that older drivers use for all queue pairs.
const PORT: u16 = 0xc000;
const TOGETHER: u32 = 16;
const ROUNDS: u32 = 100;
const FIRST_ROUNDS: u32 = 10;

struct Pair {
    own: u32,
    theirs: u32,
    next: u32,
    unacked: u32,
}

impl Pair {
    fn write(&self, psn: u32, ack_req: bool) -> Packet<'static> {
        let mut packet = Packet::new(Opcode::WriteOnly, self.theirs, psn & 0xff_ffff);
        packet.bth.ack_req = ack_req;
        packet.reth = Some(Reth {
            va: 0,
            rkey: 0,
            dma_len: 0,
        });
        packet
    }
}

fn two_endpoints(peer: &mut Stranger) -> [Pair; 2] {
    let mut pairs: Vec<Pair> = Vec::new();
    for own in 100..132 {
        peer.ask(own);
        let CmEvent::Accepted { terms, .. } = peer.receive() else {
            panic!("a request was not accepted");
        };
        peer.say();
        let is_new = |pair: &Pair| pair.theirs >> 18 != terms.qpn >> 18;
        if pairs.iter().all(is_new) {
            pairs.push(Pair {
                own,
                theirs: terms.qpn,
                next: terms.starting_psn,
                unacked: terms.starting_psn,
            });
        }
        if pairs.len() == 2 {
            break;
        }
    }
    pairs.try_into().ok().expect("the target has two reactors")
}

/// The kernel joins packets with equal UDP source ports, and delivers them to one socket.
#[test]
fn one_port_for_all_queue_pairs_loses_nothing() {
    let victim = Victim::start_with(2);
    let remote = victim.address().ip();
    let mut peer = Stranger::at(own_loopback_address(), ROCE_PORT, remote);
    peer.send_from(PORT);
    let mut pairs = two_endpoints(&mut peer);
    let mut naks = 0;
    for round in 0..ROUNDS {
        let mut packets = Vec::new();
        for place in 0..TOGETHER {
            for turn in 0..2 {
                let pair = &mut pairs[(round as usize + turn) % 2];
                packets.push(pair.write(pair.next, place + 1 == TOGETHER));
                pair.next += 1;
            }
        }
        peer.send_joined(&packets);
        let late = await_both(&mut peer, &mut pairs);
        naks += if round < FIRST_ROUNDS { 0 } else { late };
    }
    assert_eq!(naks, 0, "packets were lost, or overtook each other");
    let deadline = Instant::now() + PATIENCE;
    let sent = u64::from(2 * TOGETHER * ROUNDS);
    while victim.counters().rx_write_requests < sent {
        assert!(Instant::now() < deadline, "{:?}", victim.counters());
        std::thread::yield_now();
    }
    let counters = victim.counters();
    assert_eq!(counters.rx_not_ours, 0, "{counters:?}");
    assert_eq!(counters.rx_handover_dropped, 0, "{counters:?}");
    assert!(counters.rx_handed_over > sent / 3, "{counters:?}");
    victim.serves_others();
    victim.target.stop().unwrap();
}

fn await_both(peer: &mut Stranger, pairs: &mut [Pair; 2]) -> u32 {
    let deadline = Instant::now() + PATIENCE;
    let mut again = 0;
    while pairs.iter().any(|pair| pair.unacked != pair.next) {
        assert!(Instant::now() < deadline, "no acknowledgement");
        let heard = peer.hear(Duration::from_millis(500));
        if let Some(heard) = heard {
            let pair = pairs.iter_mut().find(|pair| pair.own == heard.qpn);
            let pair = pair.expect("packets name a queue pair of the peer");
            let ahead = heard.psn.wrapping_sub(pair.unacked) & 0xff_ffff;
            if ahead > 1 << 22 {
                continue;
            }
            match heard.syndrome {
                Some(Syndrome::Ack) => pair.unacked += ahead + 1,
                Some(Syndrome::Nak(NakCode::PsnSequence)) => pair.unacked += ahead,
                other => panic!("{other:?}"),
            }
            if heard.syndrome == Some(Syndrome::Ack) {
                continue;
            }
        }
        again += 1;
        for pair in &*pairs {
            for psn in pair.unacked..pair.next {
                peer.send(&pair.write(psn, psn + 1 == pair.next));
            }
        }
    }
    again
}

#[test]
fn a_disconnect_joined_with_packets_for_another_endpoint_is_handled() {
    let (provider, address) = (Soft::default(), own_loopback_address());
    let (_listener, requests) = listen(&provider, (address, 4420).into(), 16).unwrap();
    let mut peer = Stranger::at(own_loopback_address(), ROCE_PORT, address.into());
    peer.send_from(PORT);
    let mut accept = |own| {
        let id = peer.ask(own);
        let request = requests.recv_timeout(PATIENCE).unwrap();
        let options = EndpointOptions {
            receives: 4,
            completions: 64,
            queue_pairs: 4,
        };
        let mut endpoint = Arc::clone(&request.device).open(&options).unwrap();
        let qp = endpoint
            .accept(request, &QpOptions::default(), &[])
            .unwrap();
        let CmEvent::Accepted { terms, .. } = peer.receive() else {
            panic!("a request was not accepted");
        };
        peer.say();
        (id, endpoint, qp, terms)
    };
    let (id, mut ended, qp, _) = accept(100);
    let (_, _silent, _, other) = accept(101);
    let ends = |event: &Event| matches!(event, Event::Disconnected { qp: of, .. } if *of == qp);
    let mut events = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while events.is_empty() {
        assert!(
            Instant::now() < deadline,
            "the connection is not established"
        );
        ended.drain_connections();
        ended.poll_events(&mut events);
    }
    let mad = peer.goodbye(id);
    let mut dreq = Packet::new(Opcode::UdSendOnly, GSI_QPN, 1);
    dreq.deth = Some(Deth {
        qkey: GSI_QKEY,
        source_qpn: GSI_QPN,
    });
    dreq.payload = &mad;
    let payload = [0; MAD_LEN + 8];
    let mut first = Packet::new(Opcode::SendOnly, other.qpn, other.starting_psn);
    first.payload = &payload;
    peer.send_joined(&[first, dreq]);
    while !events.iter().any(ends) {
        assert!(
            Instant::now() < deadline,
            "the DREQ is not handled: {events:?}"
        );
        ended.drain_connections();
        ended.poll_events(&mut events);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn notifications_are_not_ecn_capable() {
    let victim = Victim::start();
    let remote = victim.address().ip();
    let mut peer = Stranger::at(own_loopback_address(), ROCE_PORT, remote);
    peer.ask(100);
    let CmEvent::Accepted { terms, .. } = peer.receive() else {
        panic!("a request was not accepted");
    };
    peer.say();
    let pair = Pair {
        own: 100,
        theirs: terms.qpn,
        next: terms.starting_psn,
        unacked: terms.starting_psn,
    };
    peer.mark(3);
    peer.send(&pair.write(pair.next, true));
    let mut heard = Vec::new();
    while heard.len() < 2 {
        heard.push(peer.hear(PATIENCE).expect("a notification and an ACK"));
    }
    for packet in &heard {
        let is_notification = packet.opcode == Opcode::Cnp;
        let ecn = packet.tos & 3;
        assert_eq!(ecn, if is_notification { 0 } else { 2 }, "{packet:?}");
    }
    let opcodes: Vec<_> = heard.iter().map(|packet| packet.opcode).collect();
    assert_eq!(opcodes, [Opcode::Cnp, Opcode::Acknowledge]);
    let mut notification = Packet::new(Opcode::Cnp, pair.theirs, 0);
    notification.payload = &[0; 16];
    peer.send(&notification);
    assert!(peer.hear(Duration::from_millis(100)).is_none());
    victim.target.stop().unwrap();
}
