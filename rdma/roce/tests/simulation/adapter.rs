//! Tests of a single queue pair. The test acts as the peer: an adapter or an attacker.

use super::*;
use cairn_roce_proto::qp::Joined;
use cairn_roce_proto::wire::Deth;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    opcode: Opcode,
    psn: u32,
    syndrome: Option<Syndrome>,
    payload: usize,
}

fn leaving(end: &mut End, now: Instant) -> Vec<Seen> {
    let mut out = [0; packet::MAX_LEN];
    let mut seen = Vec::new();
    while let Some(length) = end.with(|qp, cx| qp.poll_transmit(now, &mut out, cx)) {
        let packet = Packet::parse(&out[..length]).expect("it is well-formed");
        assert!(
            packet.bth.mig_req,
            "{:?}: a queue pair without an alternate path has migrated",
            packet.opcode
        );
        seen.push(Seen {
            opcode: packet.opcode,
            psn: packet.bth.psn,
            syndrome: packet.syndrome(),
            payload: packet.payload.len(),
        });
    }
    seen
}

fn deliver(end: &mut End, packet: &Packet<'_>, now: Instant) {
    end.with(|qp, cx| qp.handle_packet(packet, false, now, cx));
}

fn nak(psn: u32, code: NakCode) -> Packet<'static> {
    let mut packet = acknowledgement(psn);
    packet.aeth = Some(Aeth {
        syndrome: Syndrome::Nak(code).code(),
        msn: 0,
    });
    packet
}

fn send(psn: u32) -> Packet<'static> {
    let mut packet = Packet::new(Opcode::SendOnly, 0, psn & 0xff_ffff);
    packet.bth.ack_req = true;
    packet
}

fn datagram(opcode: Opcode, psn: u32) -> Packet<'static> {
    let mut packet = Packet::new(opcode, 0, psn);
    packet.deth = Some(Deth {
        qkey: 1,
        source_qpn: 1,
    });
    packet.immediate = opcode.has_immdt().then_some(ImmDt::new(7));
    packet
}

fn notification() -> Packet<'static> {
    let mut packet = Packet::new(Opcode::Cnp, 0, 0);
    packet.bth.becn = true;
    packet.payload = &[0; 16];
    packet
}

fn congest(end: &mut End, now: &mut Instant) {
    for _ in 0..50 {
        *now += Duration::from_micros(50);
        deliver(end, &notification(), *now);
    }
    assert!(end.counters.rp_cnp_handled > 20, "{:?}", end.counters);
}

#[test]
fn only_the_request_that_is_due_stands_for_the_rtu() {
    let now = Instant::START;
    let config = configs(&mut Random::new(1))[0];
    let mut end = End::new(&config, now);
    end.qp = Qp::new(&config, now);
    end.post_receive();
    let due = config.receive_psn;
    let mut other_partition = send(due);
    other_partition.bth.pkey = 0x8001;
    for packet in [
        notification(),
        acknowledgement(config.send_psn),
        nak(config.send_psn, NakCode::RemoteAccess),
        datagram(Opcode::UdSendOnly, due),
        send(due + 1),
        send(due.wrapping_sub(1)),
        other_partition,
    ] {
        deliver(&mut end, &packet, now);
        assert!(end.qp.is_held(), "{:?}", packet.opcode);
    }
    deliver(&mut end, &send(due), now);
    assert!(!end.qp.is_held());
}

#[test]
fn a_copy_of_a_request_takes_no_nak_back() {
    let now = Instant::START;
    for repeats in [Opcode::SendOnly, Opcode::WriteOnly, Opcode::ReadRequest] {
        let config = configs(&mut Random::new(1))[0];
        let mut end = End::new(&config, now);
        let (first, remote) = (config.receive_psn, end.remote(LOCAL));
        let mut packet = send(first);
        packet.set_opcode(repeats);
        packet.reth = repeats.has_reth().then_some(Reth {
            va: remote.addr,
            rkey: remote.rkey,
            dma_len: 0,
        });
        end.post_receive();
        deliver(&mut end, &packet, now);
        leaving(&mut end, now);
        deliver(&mut end, &send(first + 2), now);
        deliver(&mut end, &packet, now);
        let answers = leaving(&mut end, now);
        let gap = Some(Syndrome::Nak(NakCode::PsnSequence));
        let last = answers.last().unwrap();
        let missing = (first + 1) & 0xff_ffff;
        assert_eq!((last.psn, last.syndrome), (missing, gap), "{answers:?}");
    }
}

#[test]
fn a_packet_that_was_only_late_is_not_asked_for() {
    let now = Instant::START;
    let config = configs(&mut Random::new(1))[0];
    let mut end = End::new(&config, now);
    end.post_receive();
    let first = config.receive_psn;
    deliver(&mut end, &send(first + 1), now);
    deliver(&mut end, &send(first), now);
    let answers = leaving(&mut end, now);
    let syndromes: Vec<_> = answers
        .iter()
        .map(|seen| (seen.psn, seen.syndrome))
        .collect();
    assert_eq!(syndromes, [(first, Some(Syndrome::Ack))]);
}

#[test]
fn a_notification_is_answered_by_nothing() {
    let now = Instant::START;
    let config = configs(&mut Random::new(1))[0];
    let mut end = End::new(&config, now);
    end.with(|qp, cx| qp.handle_packet(&notification(), true, now, cx));
    assert_eq!(leaving(&mut end, now), []);
    assert_eq!(end.counters.np_ecn_marked_roce_packets, 1);
    end.post_receive();
    end.with(|qp, cx| qp.handle_packet(&send(config.receive_psn), true, now, cx));
    let opcodes: Vec<_> = leaving(&mut end, now)
        .iter()
        .map(|seen| seen.opcode)
        .collect();
    assert_eq!(opcodes, [Opcode::Cnp, Opcode::Acknowledge]);
}

#[test]
fn a_datagram_breaks_no_connection() {
    let now = Instant::START;
    let config = configs(&mut Random::new(1))[0];
    let mut end = End::new(&config, now);
    end.post_receive();
    for opcode in [Opcode::UdSendOnly, Opcode::UdSendOnlyImm] {
        deliver(&mut end, &datagram(opcode, config.receive_psn), now);
        assert!(!end.qp.is_broken(), "{opcode:?}");
        assert_eq!(leaving(&mut end, now), []);
    }
    assert_eq!(end.counters.rx_not_ours, 2);
    deliver(&mut end, &send(config.receive_psn), now);
    let completion = end.completions.pop().expect("the message arrives");
    assert_eq!(completion.status, WorkStatus::Success);
}

#[test]
fn notifications_slow_read_responses() {
    let mut now = Instant::START;
    let config = QpConfig {
        mtu: 1024,
        responder_resources: 16,
        ..configs(&mut Random::new(1))[0]
    };
    let mut end = End::new(&config, now);
    let remote = end.remote(0);
    let packets_of_read = 200;
    let mut psn = config.receive_psn;
    let mut read = |end: &mut End, now| {
        let mut packet = Packet::new(Opcode::ReadRequest, 0, psn & 0xff_ffff);
        packet.reth = Some(Reth {
            va: remote.addr,
            rkey: remote.rkey,
            dma_len: packets_of_read * config.mtu,
        });
        psn += packets_of_read;
        deliver(end, &packet, now);
    };
    read(&mut end, now);
    let free = leaving(&mut end, now).len();
    assert_eq!(free, packets_of_read as usize);
    congest(&mut end, &mut now);
    read(&mut end, now);
    let mut arrived = leaving(&mut end, now).len();
    assert!(arrived < free / 2, "{arrived} of {free} left at once");
    while arrived < free {
        now = end.qp.poll_timeout().expect("it waits for its rate");
        end.with(|qp, cx| qp.handle_timeout(now, cx));
        arrived += leaving(&mut end, now).len();
    }
}

#[test]
fn notifications_slow_requests_for_reads() {
    let mut now = Instant::START;
    let config = QpConfig {
        mtu: 1024,
        initiator_depth: 8,
        ..configs(&mut Random::new(1))[0]
    };
    let mut end = End::new(&config, now);
    for id in 0..SLOTS {
        let work = SendWork {
            id,
            op: Operation::Read(RemoteBuffer {
                addr: 0x1000,
                rkey: 7,
            }),
            sges: end.sge(LOCAL + id * MAX_LEN, MAX_LEN).into(),
            signaled: true,
        };
        end.with(|qp, cx| qp.post([work].into_iter(), cx)).unwrap();
        if id == 0 {
            assert_eq!(leaving(&mut end, now).len(), 1);
            congest(&mut end, &mut now);
        }
    }
    let at_once = leaving(&mut end, now).len();
    assert!(at_once < 4, "{at_once} READs of 20 KB");
    assert!(end.qp.poll_timeout().is_some());
}

#[test]
fn an_infinite_ack_timeout_has_no_end() {
    let start = Instant::START;
    let config = QpConfig {
        ack_timeout: None,
        retry_count: 0,
        ..configs(&mut Random::new(1))[0]
    };
    let mut end = End::new(&config, start);
    let work = end.send(1, true);
    end.with(|qp, cx| qp.post([work].into_iter(), cx)).unwrap();
    let (mut now, mut sent) = (start, 0);
    while now < start + Duration::from_secs(3600) {
        sent += leaving(&mut end, now).len();
        now = end.qp.poll_timeout().expect("it waits for something");
        end.with(|qp, cx| qp.handle_timeout(now, cx));
    }
    assert!(!end.qp.is_broken());
    assert!(sent > 800, "{sent} in an hour");
}

fn three_under_way(config: &QpConfig, now: Instant) -> End {
    let mut end = End::new(config, now);
    for id in 0..3 {
        let work = end.send(id, true);
        end.with(|qp, cx| qp.post([work].into_iter(), cx)).unwrap();
    }
    assert_eq!(
        leaving(&mut end, now).len(),
        3 * 100_usize.div_ceil(config.mtu as usize)
    );
    end
}

fn statuses(end: &mut End) -> Vec<WorkStatus> {
    let completions = std::iter::from_fn(|| end.completions.pop());
    completions.map(|completion| completion.status).collect()
}

const FATAL: [NakCode; 3] = [
    NakCode::InvalidRequest,
    NakCode::RemoteAccess,
    NakCode::RemoteOperational,
];

#[test]
fn a_forged_nak_ends_no_queue_pair() {
    let config = configs(&mut Random::new(1))[0];
    for code in FATAL {
        for place in 0..3 {
            let mut now = Instant::START;
            let mut end = three_under_way(&config, now);
            let psn = |place: u32| (config.send_psn + place) & 0xff_ffff;
            let again = (0..50).map(|_| {
                deliver(&mut end, &nak(psn(place), code), now);
                leaving(&mut end, now)
            });
            let again: Vec<Seen> = again.flatten().collect();
            assert_eq!(again.len(), 3, "{code:?}: {again:?}");
            now += Duration::from_millis(1);
            deliver(&mut end, &acknowledgement(psn(2)), now);
            assert_eq!(statuses(&mut end), [WorkStatus::Success; 3]);
            assert_eq!(end.counters.refuted_naks, 1);
            while let Some(at) = end.qp.poll_timeout() {
                now = at;
                end.with(|qp, cx| qp.handle_timeout(now, cx));
            }
            assert!(!end.qp.is_broken());
        }
    }
}

#[test]
fn a_nak_of_the_peer_is_believed() {
    let config = configs(&mut Random::new(1))[0];
    let expected = [
        WorkStatus::RemoteInvalidRequest,
        WorkStatus::RemoteAccess,
        WorkStatus::RemoteOperation,
    ];
    let refused = (config.send_psn + 1) & 0xff_ffff;
    for (code, expected) in FATAL.into_iter().zip(expected) {
        for (repeats, disconnects) in [(false, false), (true, false), (false, true)] {
            let start = Instant::START;
            let mut now = start;
            let mut end = three_under_way(&config, now);
            deliver(&mut end, &nak(refused, code), now);
            if disconnects {
                end.with(Qp::flush);
            }
            while !end.qp.is_broken() {
                if !leaving(&mut end, now).is_empty() && repeats {
                    deliver(&mut end, &nak(refused, code), now);
                }
                now = end.qp.poll_timeout().expect("it waits for something");
                end.with(|qp, cx| qp.handle_timeout(now, cx));
            }
            let took = now.duration_since(start);
            assert!(took < Duration::from_millis(500), "{took:?}");
            let all = [WorkStatus::Success, expected, WorkStatus::Flushed];
            assert_eq!(statuses(&mut end), all, "{code:?}");
            assert_eq!(end.counters.refuted_naks, 0);
        }
    }
}

#[test]
fn the_fate_of_joined_packets_is_reported() {
    let now = Instant::START;
    let config = configs(&mut Random::new(1))[0];
    let mut end = End::new(&config, now);
    for id in 0..3 {
        let work = end.send(id, true);
        end.with(|qp, cx| qp.post([work].into_iter(), cx)).unwrap();
    }
    let psn = |place: u32| (config.send_psn + place) & 0xff_ffff;
    let transmit = |end: &mut End, is_joined: bool| {
        let mut out = [0; packet::MAX_LEN];
        let mut place = 0;
        while let Some(_length) = end.with(|qp, cx| qp.poll_transmit(now, &mut out, cx)) {
            if is_joined && place > 0 {
                end.qp.leaves_joined(out[0]);
            }
            place += 1;
        }
        place
    };
    assert_eq!(transmit(&mut end, true), 3);
    for arrived in 1..3 {
        deliver(&mut end, &nak(psn(arrived), NakCode::PsnSequence), now);
        let expected = (arrived == 1).then_some(Joined::Lost);
        assert_eq!(end.qp.take_fate(), expected);
        assert_eq!(transmit(&mut end, arrived == 2), 3 - arrived);
    }
    deliver(&mut end, &acknowledgement(psn(2)), now);
    assert_eq!(end.qp.take_fate(), None, "no packet was joined");
    assert_eq!(statuses(&mut end), [WorkStatus::Success; 3]);

    for id in 3..5 {
        let work = end.send(id, true);
        end.with(|qp, cx| qp.post([work].into_iter(), cx)).unwrap();
    }
    transmit(&mut end, true);
    deliver(&mut end, &acknowledgement(psn(4)), now);
    assert_eq!(end.qp.take_fate(), Some(Joined::Arrived));

    let remote = end.remote(LOCAL);
    let mut read = Packet::new(Opcode::ReadRequest, 0, config.receive_psn);
    read.reth = Some(Reth {
        va: remote.addr,
        rkey: remote.rkey,
        dma_len: 2 * config.mtu,
    });
    for joined in [true, false] {
        deliver(&mut end, &read, now);
        assert_eq!(end.qp.take_fate(), (!joined).then_some(Joined::Lost));
        transmit(&mut end, joined);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Says {
    Nothing,
    Acknowledges,
    Requests,
}

#[test]
fn a_questioned_peer_answers_or_is_gone() {
    let config = configs(&mut Random::new(1))[0];
    for has_worked in [false, true] {
        for says in [Says::Nothing, Says::Acknowledges, Says::Requests] {
            let start = Instant::START;
            let mut now = start;
            let mut end = End::new(&config, now);
            end.post_receive();
            let mut probed = config.send_psn.wrapping_sub(1) & 0xff_ffff;
            if has_worked {
                end = three_under_way(&config, now);
                end.post_receive();
                probed = (config.send_psn + 2) & 0xff_ffff;
                deliver(&mut end, &acknowledgement(probed), now);
                assert_eq!(end.qp.poll_timeout(), None);
            }
            end.with(|qp, _| qp.question(now));
            assert!(end.qp.has_to_send());
            let mut probes = 0;
            while let Some(at) = end.qp.poll_timeout() {
                for seen in leaving(&mut end, now) {
                    let probe = Seen {
                        opcode: Opcode::SendOnly,
                        psn: probed,
                        syndrome: None,
                        payload: 0,
                    };
                    assert_eq!(seen, probe);
                    probes += 1;
                    match says {
                        _ if probes < 2 => {}
                        Says::Nothing => {}
                        Says::Acknowledges => deliver(&mut end, &acknowledgement(probed), now),
                        Says::Requests => deliver(&mut end, &send(config.receive_psn), now),
                    }
                }
                if end.qp.poll_timeout().is_none() {
                    break;
                }
                now = at;
                end.with(|qp, cx| qp.handle_timeout(now, cx));
            }
            let took = now.duration_since(start);
            assert_eq!(end.qp.is_broken(), says == Says::Nothing, "{says:?}");
            let limit = if says == Says::Nothing { 6 } else { 1 };
            assert!(took < Duration::from_secs(limit), "{says:?}: {took:?}");
        }
    }
}
