//! Tests of a single queue pair. The test acts as the peer.

use super::*;

#[test]
fn silence_is_noticed() {
    let start = Instant::START;
    let config = QpConfig {
        retry_count: 2,
        ..configs(&mut Random::new(1))[0]
    };
    let mut end = End::new(&config, start);
    let works = [end.send(1, true), end.send(2, false)];
    end.with(|qp, cx| qp.post(works.into_iter(), cx)).unwrap();
    let mut now = start;
    let mut packet = [0; packet::MAX_LEN];
    let mut sent = 0;
    while !end.qp.is_broken() {
        while end
            .with(|qp, cx| qp.poll_transmit(now, &mut packet, cx))
            .is_some()
        {
            sent += 1;
        }
        now = end.qp.poll_timeout().expect("it waits for something");
        end.with(|qp, cx| qp.handle_timeout(now, cx));
    }
    let budget = config.ack_timeout.unwrap() * 3;
    let took = now.duration_since(start);
    assert!(took >= budget && took < budget * 2, "{took:?}");
    assert!(sent > 6, "sent {sent} packets only");
    let statuses = std::iter::from_fn(|| end.completions.pop())
        .map(|completion| (completion.id, completion.status));
    let expected = [(1, WorkStatus::RetryExceeded), (2, WorkStatus::Flushed)];
    assert_eq!(statuses.collect::<Vec<_>>(), expected);
}

#[test]
fn unsignaled_work_asks_seldom_and_in_the_end() {
    let mut now = Instant::START;
    let config = QpConfig {
        send_work: 64,
        ..configs(&mut Random::new(1))[0]
    };
    let mut end = End::new(&config, now);
    let work = end.send(0, false);
    let mut out = [0; packet::MAX_LEN];
    let mut asked = Vec::new();
    for _ in 0..40 {
        end.with(|qp, cx| qp.post([work].into_iter(), cx)).unwrap();
        while let Some(length) = end.with(|qp, cx| qp.poll_transmit(now, &mut out, cx)) {
            let packet = Packet::parse(&out[..length]).expect("it is well-formed");
            if packet.bth.ack_req {
                asked.push(packet.bth.psn);
            }
        }
        now += Duration::from_micros(10);
    }
    let psn = |sequence: u32| (config.send_psn + sequence) & 0xff_ffff;
    assert_eq!(asked, [psn(31)]);
    let acknowledge = |sequence| acknowledgement(psn(sequence));
    end.with(|qp, cx| qp.handle_packet(&acknowledge(31), false, now, cx));

    now = end.qp.poll_timeout().expect("it will ask for the rest");
    end.with(|qp, cx| qp.handle_timeout(now, cx));
    let length = end.with(|qp, cx| qp.poll_transmit(now, &mut out, cx));
    let packet = Packet::parse(&out[..length.unwrap()]).expect("it is well-formed");
    assert_eq!((packet.bth.psn, packet.bth.ack_req), (psn(39), true));
    assert!(end.with(|qp, cx| qp.poll_transmit(now, &mut out, cx).is_none()));
    end.with(|qp, cx| qp.handle_packet(&acknowledge(39), false, now, cx));
    assert_eq!(end.qp.poll_timeout(), None);
    assert_eq!(end.counters.local_ack_timeout_err, 0);
}

#[test]
fn trains_are_the_packets_that_leave_singly() {
    let now = Instant::START;
    let config = QpConfig {
        mtu: 256,
        ..configs(&mut Random::new(1))[0]
    };
    let sent = |limit: usize| {
        let mut end = End::new(&config, now);
        let bytes: Vec<u8> = (0..60_000_u32).map(|at| (at % 251) as u8).collect();
        end.mapping.write(LOCAL as usize, &bytes);
        let remote = RemoteBuffer { addr: 0, rkey: 7 };
        let work = SendWork {
            op: Operation::Write(remote),
            sges: end.sge(LOCAL, bytes.len() as u64).into(),
            ..end.send(1, true)
        };
        end.with(|qp, cx| qp.post([work].into_iter(), cx)).unwrap();
        let (mut out, mut packets) = ([0; packet::MAX_LEN], Vec::new());
        for _ in 0..2 {
            while let Some(length) = end.with(|qp, cx| qp.poll_transmit(now, &mut out, cx)) {
                packets.push(out[..length].to_vec());
                let more = train(&mut end, now, out[0], length, limit);
                let more = more.chunks(length + packet::ICRC_LEN);
                packets.extend(more.map(|packet| packet[..length].to_vec()));
            }
            let last = Packet::parse(packets.last().unwrap()).unwrap().bth.psn;
            end.with(|qp, cx| qp.handle_packet(&acknowledgement(last), false, now, cx));
        }
        packets
    };
    let singly = sent(0);
    assert_eq!(singly.len(), 60_000_usize.div_ceil(256));
    for limit in [1, 3, 14, 100] {
        assert!(sent(limit) == singly, "trains of {limit}");
    }
}

#[test]
fn a_late_peer_is_not_sent_everything_twice() {
    let mut now = Instant::START;
    let [config, _] = configs(&mut Random::new(3));
    let mut end = End::new(&config, now);
    let mut out = [0; packet::MAX_LEN];
    for sequence in 0..20 {
        let work = end.send(0, true);
        end.with(|qp, cx| qp.post([work].into_iter(), cx)).unwrap();
        let answered = now + Duration::from_millis(if sequence < 10 { 1 } else { 35 });
        loop {
            while end.with(|qp, cx| qp.poll_transmit(now, &mut out, cx).is_some()) {}
            match end.qp.poll_timeout() {
                Some(at) if at < answered => now = at,
                _ => break,
            }
            end.with(|qp, cx| qp.handle_timeout(now, cx));
        }
        now = answered;
        let packet = acknowledgement((config.send_psn + sequence) & 0xff_ffff);
        end.with(|qp, cx| qp.handle_packet(&packet, false, now, cx));
    }
    let late = end.counters.local_ack_timeout_err;
    assert!(late <= 2, "{late} of 10 were sent twice");
}

#[test]
fn packets_are_of_the_queue_pairs_partition() {
    let now = Instant::START;
    for (own, theirs, is_accepted) in [
        (0x8001, 0x8001, true),
        (0x8001, 0x0001, true),
        (0x0001, 0x8001, true),
        (0x0001, 0x0001, false),
        (0x8001, 0xffff, false),
        (0xffff, 0x8001, false),
    ] {
        let config = QpConfig {
            pkey: PKey::new(own).unwrap(),
            ..configs(&mut Random::new(1))[0]
        };
        let mut end = End::new(&config, now);
        end.post_receive();
        let remote = end.remote(LOCAL);
        let mut send = Packet::new(Opcode::SendOnly, 0, config.receive_psn);
        send.bth.ack_req = true;
        let mut read = Packet::new(Opcode::ReadRequest, 0, config.receive_psn + 1);
        read.reth = Some(Reth {
            va: remote.addr,
            rkey: remote.rkey,
            dma_len: 100,
        });
        for packet in [&mut send, &mut read] {
            packet.bth.pkey = theirs;
            end.with(|qp, cx| qp.handle_packet(packet, true, now, cx));
        }
        let own_send = end.send(1, true);
        end.with(|qp, cx| qp.post([own_send].into_iter(), cx))
            .unwrap();
        let mut out = [0; packet::MAX_LEN];
        let mut sent = Vec::new();
        while let Some(length) = end.with(|qp, cx| qp.poll_transmit(now, &mut out, cx)) {
            let packet = Packet::parse(&out[..length]).expect("it is well-formed");
            assert_eq!(packet.bth.pkey, own, "{:?}", packet.opcode);
            sent.push(packet.opcode);
        }
        sent.sort_by_key(|opcode| opcode.code());
        let mut expected = vec![Opcode::SendOnly];
        if is_accepted {
            expected.extend([Opcode::ReadResponseOnly, Opcode::Acknowledge, Opcode::Cnp]);
        }
        assert_eq!(sent, expected, "{own:#06x} receives {theirs:#06x}");
        let ignored = if is_accepted { 0 } else { 2 };
        assert_eq!(end.counters.rx_not_ours, ignored);
        assert_eq!(end.completions.pop().is_some(), is_accepted);
    }
}

#[test]
fn a_read_repeated_before_its_key_is_invalidated() {
    let now = Instant::START;
    let config = configs(&mut Random::new(1))[0];
    let mut end = End::new(&config, now);
    end.post_receive();
    let remote = end.remote(LOCAL);
    let mut read = Packet::new(Opcode::ReadRequest, 0, config.receive_psn);
    read.reth = Some(Reth {
        va: remote.addr,
        rkey: remote.rkey,
        dma_len: 100,
    });
    let mut send = Packet::new(Opcode::SendOnlyInv, 0, config.receive_psn + 1);
    send.ieth = Some(Ieth { rkey: remote.rkey });
    send.bth.ack_req = true;
    let mut out = [0; packet::MAX_LEN];
    let mut answers = Vec::new();
    for packets in [&[read][..], &[read, send]] {
        for packet in packets {
            end.with(|qp, cx| qp.handle_packet(packet, false, now, cx));
        }
        while let Some(length) = end.with(|qp, cx| qp.poll_transmit(now, &mut out, cx)) {
            let answer = Packet::parse(&out[..length]).expect("it is well-formed");
            answers.push((answer.opcode, answer.bth.psn, answer.syndrome()));
        }
    }
    assert!(!end.qp.is_broken(), "{answers:?}");
    let acknowledged = Some(Syndrome::Ack);
    let expected = [
        (Opcode::ReadResponseOnly, config.receive_psn, acknowledged),
        (Opcode::Acknowledge, config.receive_psn + 1, acknowledged),
    ];
    assert_eq!(answers, expected);
}

#[test]
fn a_peer_cannot_invalidate_what_it_was_not_given() {
    let now = Instant::START;
    let config = configs(&mut Random::new(1))[0];
    let lkey = End::new(&config, now).lkey;
    for guess in [lkey, lkey ^ 1, 0, 1, u32::MAX] {
        let mut end = End::new(&config, now);
        end.post_receive();
        let guess = if guess == lkey { end.lkey } else { guess };
        let mut send = Packet::new(Opcode::SendOnlyInv, 0, config.receive_psn);
        send.ieth = Some(Ieth { rkey: guess });
        end.with(|qp, cx| qp.handle_packet(&send, false, now, cx));
        let mut out = [0; packet::MAX_LEN];
        let length = end.with(|qp, cx| qp.poll_transmit(now, &mut out, cx));
        let answer = Packet::parse(&out[..length.unwrap()]).expect("it is well-formed");
        let refused = Syndrome::Nak(NakCode::RemoteAccess);
        assert_eq!(answer.syndrome(), Some(refused), "{guess:#x}");
        assert!(end.qp.is_broken() && end.qp.met_wrong_key());
        assert!(
            end.completions.pop().is_none(),
            "a message came by {guess:#x}"
        );
        let own = [end.sge(LOCAL, 8)];
        assert_eq!(end.memory.scatter(&own, 0, &[1; 8]), Ok(()));
        assert!(end.memory.knows(end.rkey));
    }
}

#[test]
fn only_reads_that_were_made_are_repeated() {
    let now = Instant::START;
    let config = configs(&mut Random::new(1))[0];
    let mtu = config.mtu;
    let mut end = End::new(&config, now);
    let made = Reth {
        va: end.remote(LOCAL).addr,
        rkey: end.rkey,
        dma_len: 2 * mtu + 100,
    };
    let mut answers_to = |psn: u32, reth: Reth| {
        let mut read = Packet::new(
            Opcode::ReadRequest,
            0,
            (config.receive_psn + psn) & 0xff_ffff,
        );
        read.reth = Some(reth);
        end.with(|qp, cx| qp.handle_packet(&read, false, now, cx));
        let mut out = [0; packet::MAX_LEN];
        let mut bytes = 0;
        while let Some(length) = end.with(|qp, cx| qp.poll_transmit(now, &mut out, cx)) {
            let answer = Packet::parse(&out[..length]).expect("it is well-formed");
            assert!(answer.opcode.is_read_response(), "{:?}", answer.opcode);
            bytes += answer.payload.len() as u32;
        }
        assert!(!end.qp.is_broken());
        bytes
    };
    let part = |skipped: u32, dma_len: u32| Reth {
        va: made.va + u64::from(skipped),
        dma_len,
        ..made
    };
    assert_eq!(answers_to(0, made), made.dma_len);
    for (psn, reth) in [
        (0, made),
        (1, part(mtu, mtu + 100)),
        (2, part(2 * mtu, 100)),
        (0, part(0, mtu)),
    ] {
        assert_eq!(answers_to(psn, reth), reth.dma_len, "{psn} {reth:?}");
    }
    let other_key = Reth {
        rkey: made.rkey ^ 1,
        ..made
    };
    for (psn, reth) in [
        (0, other_key),
        (0, part(1, 100)),
        (0, part(mtu, 100)),
        (0, part(0, made.dma_len + 1)),
        (0, part(0, 0)),
        (1, made),
        (1, part(mtu, mtu + 101)),
        (2, part(0, 100)),
    ] {
        assert_eq!(answers_to(psn, reth), 0, "{psn} {reth:?}");
    }

    let depth = u32::from(config.responder_resources);
    for later in 0..depth {
        assert_eq!(answers_to(3 + later, part(0, 50)), 50);
    }
    assert_eq!(answers_to(0, made), 0);
    assert_eq!(answers_to(3, part(0, 50)), 50);
}

#[test]
fn a_repeated_atomic_is_carried_out_once() {
    let now = Instant::START;
    let config = configs(&mut Random::new(1))[0];
    let mut end = End::new(&config, now);
    let va = end.remote(LOCAL).addr.next_multiple_of(8);
    let offset = va - end.mapping.addr();
    let mut out = [0; packet::MAX_LEN];
    for (psn, opcode, compare, swap_or_add, before, after) in [
        (0, Opcode::FetchAdd, 0, 5, 0, 5_u64),
        (0, Opcode::FetchAdd, 0, 5, 0, 5),
        (1, Opcode::CompareSwap, 5, 7, 5, 7),
        (1, Opcode::CompareSwap, 5, 7, 5, 7),
        (2, Opcode::CompareSwap, 5, 9, 7, 7),
    ] {
        let psn = (config.receive_psn + psn) & 0xff_ffff;
        let mut packet = Packet::new(opcode, 0, psn);
        packet.atomic = Some(AtomicEth {
            va,
            rkey: end.rkey,
            swap_or_add,
            compare,
        });
        end.with(|qp, cx| qp.handle_packet(&packet, false, now, cx));
        let length = end.with(|qp, cx| qp.poll_transmit(now, &mut out, cx));
        let answer = Packet::parse(&out[..length.unwrap()]).expect("it is well-formed");
        assert_eq!(answer.atomic_ack.map(|ack| ack.original), Some(before));
        assert_eq!(end.bytes(offset, 8), after.to_ne_bytes());
    }
}

#[test]
fn immediate_data_takes_a_receive() {
    let now = Instant::START;
    let config = configs(&mut Random::new(1))[0];
    let mut end = End::new(&config, now);
    let remote = end.remote(LOCAL);
    for (turn, opcode) in [Opcode::SendOnlyImm, Opcode::WriteOnlyImm]
        .into_iter()
        .enumerate()
    {
        end.post_receive();
        let psn = (config.receive_psn + turn as u32) & 0xff_ffff;
        let mut packet = Packet::new(opcode, 0, psn);
        packet.immediate = Some(ImmDt::new(7));
        packet.payload = &[1; 100];
        packet.reth = opcode.has_reth().then_some(Reth {
            va: remote.addr,
            rkey: remote.rkey,
            dma_len: 100,
        });
        end.with(|qp, cx| qp.handle_packet(&packet, false, now, cx));
        let completion = end
            .completions
            .pop()
            .expect("the message completes a receive");
        let expected = (CompletionKind::Recv, WorkStatus::Success);
        assert_eq!((completion.kind, completion.status), expected);
    }
}

#[test]
fn hostile_packets_harm_no_queue_pair() {
    for_each_seed(COMMAND, 300, |seed| {
        let mut random = Random::new(seed);
        let mut now = Instant::START;
        let config = configs(&mut random)[0];
        let mut end = End::new(&config, now);
        let sges = end.sge(LOCAL, 5000).into();
        for id in 0..3 {
            end.post_receive();
            let remote = RemoteBuffer {
                addr: 0x1000,
                rkey: 7,
            };
            let op = match id {
                0 => Operation::Read(remote),
                1 => Operation::Write(remote),
                _ => Operation::Send,
            };
            let work = SendWork {
                id,
                op,
                sges,
                signaled: true,
            };
            end.with(|qp, cx| qp.post([work].into_iter(), cx)).unwrap();
        }
        let mut out = [0; packet::MAX_LEN];
        for _ in 0..200 {
            let mut bytes = vec![0; 12 + random.below(config.mtu.into()) as usize + 28];
            for byte in &mut bytes {
                *byte = random.bits() as u8;
            }
            let opcode = Opcode::ALL[random.below(Opcode::ALL.len() as u64) as usize];
            bytes[0] = opcode.code();
            bytes[1] = 0;
            bytes[2..4].fill(0xff);
            let near = if random.chance(500) {
                config.receive_psn
            } else {
                config.send_psn
            };
            let psn = (near + random.below(8) as u32).wrapping_sub(3);
            bytes[9..12].copy_from_slice(&psn.to_be_bytes()[1..]);
            if random.chance(500) && opcode.has_reth() {
                bytes[12..20].copy_from_slice(&end.mapping.addr().to_be_bytes());
                bytes[20..24].copy_from_slice(&end.rkey.to_be_bytes());
                bytes[24..26].fill(0);
            }
            let packet = Packet::parse(&bytes).unwrap();
            end.with(|qp, cx| qp.handle_packet(&packet, random.chance(10), now, cx));
            let burst = random.below(20);
            for _ in 0..burst {
                end.with(|qp, cx| qp.poll_transmit(now, &mut out, cx));
            }
            while end.completions.pop().is_some() {}
            now += Duration::from_millis(random.below(40));
            if end.qp.poll_timeout().is_some_and(|at| at <= now) {
                end.with(|qp, cx| qp.handle_timeout(now, cx));
            }
        }
    });
}

fn agreed(long_send: Option<LongSend>) -> QpConfig {
    QpConfig {
        mtu: 4096,
        long_send,
        retry_count: 2,
        ..configs(&mut Random::new(1))[0]
    }
}

#[test]
fn an_agreed_send_is_one_packet_and_nothing_else() {
    let now = Instant::START;
    let all = Some(LongSend::MAX);
    for (long_send, is_send, length, packets) in [
        (all, true, 4096, &[4096][..]),
        (all, true, 4160, &[4160]),
        (all, true, 4161, &[4096, 65]),
        (all, true, 8256, &[4096, 4096, 64]),
        (all, false, 4160, &[4096, 64]),
        (None, true, 4160, &[4096, 64]),
    ] {
        let mut end = End::new(&agreed(long_send), now);
        let op = match is_send {
            true => Operation::Send,
            false => Operation::Write(end.remote(REMOTE)),
        };
        let work = SendWork {
            id: 1,
            op,
            sges: end.sge(LOCAL, length).into(),
            signaled: true,
        };
        end.with(|qp, cx| qp.post([work].into_iter(), cx)).unwrap();
        let mut out = [0; packet::MAX_LEN];
        let mut sent = Vec::new();
        while let Some(length) = end.with(|qp, cx| qp.poll_transmit(now, &mut out, cx)) {
            sent.push(Packet::parse(&out[..length]).unwrap().payload.len());
        }
        assert_eq!(
            sent, packets,
            "{length} bytes, {long_send:?}, SEND: {is_send}"
        );
    }
}

#[test]
fn only_an_agreed_send_may_exceed_the_path_mtu() {
    let now = Instant::START;
    let all = Some(LongSend::MAX);
    let bytes = [7; 4164];
    for (long_send, opcode, length, passes) in [
        (all, Opcode::SendOnly, 4160, true),
        (all, Opcode::SendOnly, 4161, false),
        (all, Opcode::SendFirst, 4160, false),
        (all, Opcode::WriteOnly, 4160, false),
        (None, Opcode::SendOnly, 4097, false),
    ] {
        let config = agreed(long_send);
        let mut end = End::new(&config, now);
        end.post_receive();
        let mut packet = Packet::new(opcode, 0, config.receive_psn & 0xff_ffff);
        let remote = end.remote(REMOTE);
        packet.reth = opcode.has_reth().then_some(Reth {
            va: remote.addr,
            rkey: remote.rkey,
            dma_len: length as u32,
        });
        packet.payload = &bytes[..length];
        end.with(|qp, cx| qp.handle_packet(&packet, false, now, cx));
        assert_eq!(
            end.qp.is_broken(),
            !passes,
            "{opcode:?} of {length} bytes, {long_send:?}"
        );
    }
}

#[test]
fn silence_after_a_longer_send_is_noted() {
    for (length, noted) in [(4096, false), (4160, true)] {
        let mut now = Instant::START;
        let mut end = End::new(&agreed(Some(LongSend::MAX)), now);
        let sges = end.sge(LOCAL, length).into();
        let work = SendWork {
            sges,
            ..end.send(1, true)
        };
        end.with(|qp, cx| qp.post([work].into_iter(), cx)).unwrap();
        let mut out = [0; packet::MAX_LEN];
        while !end.qp.is_broken() {
            while end
                .with(|qp, cx| qp.poll_transmit(now, &mut out, cx))
                .is_some()
            {}
            now = end.qp.poll_timeout().expect("it waits for an answer");
            end.with(|qp, cx| qp.handle_timeout(now, cx));
        }
        assert_eq!(end.qp.lost_long_send(), noted, "{length}");
    }
}
