//! Agreement on SENDs longer than the path MTU, also with ends that do not know the extension.

use cairn_roce_proto::cm::{CmEvent, Connect};
use cairn_roce_proto::wire::cm::{LongSend, Message, long_send, req};

use super::*;

fn limit(bytes: u32) -> Option<LongSend> {
    LongSend::within(bytes)
}

/// Returns the limits of host and target, and the host's offer.
fn connect(
    weather: Weather,
    seed: u64,
    wish: &Connect,
    target_limit: Option<LongSend>,
    answer: &[u8],
) -> [Option<LongSend>; 3] {
    let mut pair = Pair::new(seed, weather);
    pair.managers[HOST].connect(pair.now, wish);
    let minute = Duration::from_secs(60);
    assert!(pair.run(minute, |pair| pair.request().is_some()));
    let CmEvent::Request { request, id } = pair.events[TARGET][0].clone() else {
        panic!("{:?}", pair.events)
    };
    assert_eq!(request.private_data, wish.private_data);
    let own = QpTerms {
        long_send: target_limit,
        ..terms(9)
    };
    let accepted = pair.managers[TARGET].accept(pair.now, id, &own, answer);
    let is_up = |e: &CmEvent| matches!(e, CmEvent::Accepted { .. });
    assert!(pair.run(minute, |pair| pair.events[HOST].iter().any(is_up)));
    let ups = pair.events[HOST].iter().filter(|event| is_up(event));
    assert_eq!(ups.count(), 1, "a repeated REP changes nothing");
    let found = pair.events[HOST].iter().find_map(|event| match event {
        CmEvent::Accepted {
            terms,
            private_data,
            ..
        } => Some((terms, private_data)),
        _ => None,
    });
    let (theirs, private_data) = found.unwrap();
    let (begin, rest) = private_data.split_at(answer.len());
    assert_eq!(begin, answer);
    assert!(rest.iter().all(|byte| *byte == 0), "{rest:?}");
    [theirs.long_send, accepted.unwrap(), request.terms.long_send]
}

fn offering(long_send: Option<LongSend>) -> Connect {
    Connect {
        terms: QpTerms {
            long_send,
            ..terms(5)
        },
        private_data: padded(&[7; 32]),
        ..wish(5)
    }
}

#[test]
fn both_ends_of_each_pair_agree() {
    let limits = [None, limit(4100), limit(4160)];
    for (host, target) in limits.iter().flat_map(|host| limits.map(|of| (*host, of))) {
        let both = host.zip(target).map(|(host, target)| host.min(target));
        let agreed = connect(FAIR, 1, &offering(host), target, &[3; 32]);
        assert_eq!(agreed, [both, both, host], "{host:?}, {target:?}");
    }
}

#[test]
fn repeated_messages_agree() {
    for_each_seed(COMMAND, 300, |seed| {
        let weather = Weather {
            corruption: 0,
            ..Weather::foul(&mut Random::new(seed))
        };
        let all = limit(4160);
        let agreed = connect(weather, seed, &offering(all), all, &[3; 32]);
        assert_eq!(agreed, [all; 3]);
    });
}

#[test]
fn private_data_comes_first() {
    let all = limit(4160);
    let full = Connect {
        private_data: [7; 56],
        ..offering(all)
    };
    assert_eq!(connect(FAIR, 1, &full, all, &[]), [None; 3]);
    let long_answer = [3; 196 - long_send::LEN + 1];
    let agreed = connect(FAIR, 1, &offering(all), all, &long_answer);
    assert_eq!(agreed, [None, None, all]);
}

#[test]
fn a_smaller_path_mtu_offers_nothing() {
    let all = limit(4160);
    let small = Connect {
        path_mtu: 4,
        ..offering(all)
    };
    assert_eq!(connect(FAIR, 1, &small, all, &[])[1..], [None, None]);
}

fn forge(mad: &mut [u8], bytes: u16) {
    let (header, mut message) = Message::parse(mad).unwrap();
    let put = |data: &mut [u8]| {
        let at = data.len() - 2;
        data[at..].copy_from_slice(&bytes.to_be_bytes());
    };
    match &mut message {
        Message::Req(req) => put(&mut req.private_data[..req::PRIVATE_LEN]),
        Message::Rep(rep) => put(&mut rep.private_data),
        other => panic!("{other:?}"),
    }
    mad.copy_from_slice(&message.emit(header.transaction_id));
}

#[test]
fn a_forged_length_is_limited_or_ignored() {
    for (bytes, seen) in [
        (0, None),
        (1, None),
        (4095, None),
        (4096, None),
        (4097, limit(4097)),
        (u16::MAX, limit(4160)),
    ] {
        let mut pair = Pair::new(1, FAIR);
        pair.managers[HOST].connect(pair.now, &offering(limit(4160)));
        let mut mad = pair.managers[HOST].poll_transmit().unwrap().mad;
        forge(&mut mad, bytes);
        pair.managers[TARGET].handle_mad(pair.now, path(TARGET), 0, &mad);
        let Some(CmEvent::Request { request, id }) = pair.managers[TARGET].poll_event() else {
            panic!("no request");
        };
        assert_eq!(request.terms.long_send, seen, "{bytes}");
        let own = offering(limit(4160)).terms;
        let agreed = pair.managers[TARGET].accept(pair.now, id, &own, &[]);
        assert_eq!(agreed, Ok(seen), "{bytes}");
    }
}

#[test]
fn a_rep_beyond_the_offer_agrees_to_nothing() {
    for (bytes, agreed) in [
        (4101, None),
        (u16::MAX, None),
        (0, None),
        (4099, limit(4099)),
    ] {
        let mut pair = Pair::new(1, FAIR);
        pair.managers[HOST].connect(pair.now, &offering(limit(4100)));
        let mad = pair.managers[HOST].poll_transmit().unwrap().mad;
        pair.managers[TARGET].handle_mad(pair.now, path(TARGET), 0, &mad);
        let Some(CmEvent::Request { id, .. }) = pair.managers[TARGET].poll_event() else {
            panic!("no request");
        };
        let own = offering(limit(4160)).terms;
        pair.managers[TARGET]
            .accept(pair.now, id, &own, &[])
            .unwrap();
        let mut mad = pair.managers[TARGET].poll_transmit().unwrap().mad;
        forge(&mut mad, bytes);
        pair.managers[HOST].handle_mad(pair.now, path(HOST), 0, &mad);
        let Some(CmEvent::Accepted { terms, .. }) = pair.managers[HOST].poll_event() else {
            panic!("not accepted");
        };
        assert_eq!(terms.long_send, agreed, "{bytes}");
    }
}
