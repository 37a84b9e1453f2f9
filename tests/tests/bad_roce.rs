//! Protocol violations below NVMe. A UDP socket sends single datagrams to the target.

use std::time::{Duration, Instant};

use cairn_roce_proto::cm::{CmEvent, QpTerms};
use cairn_roce_proto::wire::udp::ROCE_PORT;
use cairn_roce_proto::wire::{Ieth, Opcode, Packet};
use cairn_tests::harness::own_loopback_address;
use cairn_tests::stranger::Stranger;
use cairn_tests::victim::Victim;

const PATIENCE: Duration = Duration::from_secs(20);
fn peer_of(victim: &Victim) -> Stranger {
    Stranger::at(own_loopback_address(), ROCE_PORT, victim.address().ip())
}

fn receive(peer: &mut Stranger) -> CmEvent {
    let event = peer.receive();
    peer.say_nothing();
    event
}

fn invalidate(peer: &Stranger, terms: &QpTerms, rkey: u32) {
    let mut packet = Packet::new(Opcode::SendOnlyInv, terms.qpn, terms.starting_psn);
    packet.ieth = Some(Ieth { rkey });
    peer.send(&packet);
}

#[test]
fn peers_that_never_confirm() {
    let victim = Victim::start();
    let mut peer = peer_of(&victim);
    for qpn in 100..140 {
        peer.ask(qpn);
        assert!(matches!(receive(&mut peer), CmEvent::Accepted { .. }));
    }
    victim.serves_others();
    victim.target.stop().unwrap();
}

#[test]
fn a_flood_of_requests() {
    let victim = Victim::start();
    let mut peer = peer_of(&victim);
    let mut qpn = 100;
    let deadline = Instant::now() + PATIENCE;
    while victim.counters().cm_dropped_requests < 100 {
        assert!(Instant::now() < deadline, "{:?}", victim.counters());
        for _ in 0..100 {
            peer.ask(qpn);
            qpn += 1;
        }
        victim.serves_others();
    }
    victim.serves_others();
    victim.target.stop().unwrap();
}

#[test]
fn guessers_of_keys_are_slowed() {
    let victim = Victim::start();
    let mut peer = peer_of(&victim);
    let (mut qpn, mut guesses) = (100, 0_u32);
    let deadline = Instant::now() + PATIENCE;
    while victim.counters().cm_held_requests < 5 {
        assert!(Instant::now() < deadline, "{:?}", victim.counters());
        peer.ask(qpn);
        qpn += 1;
        let event = peer.receive_soon();
        peer.say_nothing();
        if let Some(CmEvent::Accepted { terms, .. }) = event {
            invalidate(&peer, &terms, guesses << 12);
            guesses += 1;
        }
        if qpn % 4 == 0 {
            victim.serves_others();
        }
    }
    assert!((9..40).contains(&guesses), "{guesses} guesses in all");
    victim.serves_others();
    while victim.counters().resp_remote_access_errors < 9 {
        assert!(Instant::now() < deadline, "{:?}", victim.counters());
        std::thread::yield_now();
    }
    victim.target.stop().unwrap();
}

#[test]
fn numbers_are_not_foreseen() {
    let mut terms = Vec::new();
    for _ in 0..4 {
        let victim = Victim::start();
        let mut peer = peer_of(&victim);
        for qpn in 100..108 {
            peer.ask(qpn);
            let CmEvent::Accepted { terms: own, .. } = receive(&mut peer) else {
                panic!("a request was not accepted");
            };
            terms.push(own);
        }
        victim.target.stop().unwrap();
    }
    let psns: Vec<u32> = terms.iter().map(|own| own.starting_psn).collect();
    let qpns: Vec<u32> = terms.iter().map(|own| own.qpn & 0x3_ffff).collect();
    for (what, bits, numbers) in [("PSN", 24, psns), ("QPN", 18, qpns)] {
        for bit in 0..bits {
            let set = numbers.iter().filter(|&number| number >> bit & 1 == 1);
            let set = set.count();
            assert!(
                set > 0 && set < numbers.len(),
                "{what}, bit {bit}: {numbers:x?}"
            );
        }
        let mut steps: Vec<u32> = numbers
            .windows(2)
            .map(|w| w[1].wrapping_sub(w[0]))
            .collect();
        steps.sort_unstable();
        steps.dedup();
        assert!(steps.len() > 28, "{what}: {numbers:x?}");
    }
}

#[test]
fn datagrams_of_strangers() {
    let victim = Victim::start();
    let mut peer = peer_of(&victim);
    let mad = [0; 256];
    let before = victim.counters();
    peer.send_mad(&mad, |packet| packet.bth.pkey = 0x8001);
    peer.send_mad(&mad, |packet| packet.deth.as_mut().unwrap().qkey = 1);
    peer.send_mad(&mad, |packet| packet.bth.dest_qpn = 2);
    // The target processes datagrams in order. If it answers this request, it has counted the
    // earlier datagrams.
    peer.ask(100);
    assert!(matches!(receive(&mut peer), CmEvent::Accepted { .. }));
    let counted = victim.counters().rx_not_ours - before.rx_not_ours;
    assert_eq!(counted, 2);
    victim.target.stop().unwrap();
}

#[test]
fn guesses_of_numbers_wake_nobody() {
    let victim = Victim::start();
    let mut peer = peer_of(&victim);
    peer.ask(100);
    let CmEvent::Accepted { terms, .. } = receive(&mut peer) else {
        panic!("a request was not accepted");
    };
    let before = victim.counters().rcvd_datagrams;
    for place in 0..1024 {
        let number = terms.qpn & !1023 | place;
        if number != terms.qpn {
            peer.send(&Packet::new(Opcode::SendOnly, number, terms.starting_psn));
        }
    }
    let rtu = Packet::new(Opcode::SendOnly, terms.qpn, terms.starting_psn);
    peer.send(&rtu);
    let deadline = Instant::now() + PATIENCE;
    let arrived = || victim.counters().rcvd_datagrams - before;
    while arrived() == 0 {
        assert!(Instant::now() < deadline, "{:?}", victim.counters());
        std::thread::yield_now();
    }
    assert!(arrived() <= 8, "{} of 1024", arrived());
    victim.serves_others();
    victim.target.stop().unwrap();
}
