use std::time::Duration;

use cairn_roce_proto::cm::{CmEvent, ConnId};
use cairn_roce_proto::wire::cm::{Answered, CommIds, Message, Rej, RejReason, Req, padded};

use crate::{FAIR, HOST, Pair, TARGET, path, terms, wish};

fn established(seed: u64) -> (Pair, ConnId, Req) {
    let mut pair = Pair::new(seed, FAIR);
    let (host, now) = (&mut pair.managers[HOST], pair.now);
    host.connect(now, &wish(5));
    let req = host.poll_transmit().unwrap().mad;
    let Some((_, Message::Req(req))) = Message::parse(&req) else {
        panic!("the first message is a REQ");
    };
    let mad = Message::Req(req.clone()).emit(77);
    pair.managers[TARGET].handle_mad(now, path(TARGET), 0, &mad);
    pair.run(Duration::from_millis(1), |pair| pair.request().is_some());
    let (id, now) = (pair.request().unwrap(), pair.now);
    let target = &mut pair.managers[TARGET];
    target.accept(now, id, &terms(9), &[]).unwrap();
    pair.run(Duration::from_secs(1), |_| false);
    assert!(matches!(
        pair.events[TARGET][..],
        [_, CmEvent::Established { .. }]
    ));
    (pair, id, req)
}

fn deliver(pair: &mut Pair, message: &Message) {
    pair.managers[TARGET].handle_mad(pair.now, path(TARGET), 0, &message.emit(99));
    pair.run(Duration::from_millis(1), |_| false);
}

fn questions(pair: &Pair) -> usize {
    let events = &pair.events[TARGET][2..];
    let asks = |event: &CmEvent| matches!(event, CmEvent::Questioned { .. });
    assert!(events.iter().all(asks), "{events:?}");
    events.len()
}

#[test]
fn a_request_for_a_queue_pair_in_use_ends_nothing() {
    let (mut pair, id, req) = established(4);
    for turn in 1..=3 {
        let again = Message::Req(Req {
            local_comm_id: req.local_comm_id ^ turn,
            ..req.clone()
        });
        for _ in 0..100 {
            deliver(&mut pair, &again);
        }
        assert_eq!(questions(&pair), turn as usize, "one a second");
        assert_eq!(pair.managers[TARGET].connections(), 1);
        pair.run(Duration::from_secs(1), |_| false);
        pair.now += Duration::from_secs(1);
    }
    pair.managers[HOST].connect(pair.now, &wish(5));
    pair.run(Duration::from_millis(10), |_| false);
    let stale = RejReason::StaleConnection as u16;
    assert!(
        matches!(pair.events[HOST][..], [_, CmEvent::Rejected { reason, .. }] if reason == stale),
        "{:?}",
        pair.events[HOST]
    );
    pair.managers[TARGET].disconnect(pair.now, id);
    pair.run(Duration::from_secs(60), |_| false);
    assert_eq!(pair.managers[TARGET].connections(), 0);
}

#[test]
fn a_rejection_without_our_number_ends_nothing() {
    let (mut pair, id, req) = established(5);
    let rejection = |remote| {
        Message::Rej(Rej {
            ids: CommIds {
                local: req.local_comm_id,
                remote,
            },
            answered: Answered::Other,
            info_len: 0,
            reason: RejReason::Timeout as u16,
            info: padded(&[]),
            private_data: padded(&[]),
        })
    };
    for _ in 0..100 {
        deliver(&mut pair, &rejection(0));
    }
    assert_eq!(questions(&pair), 1);
    pair.managers[TARGET].disconnect(pair.now, id);
    pair.run(Duration::from_secs(1), |_| false);
    let last = pair.events[HOST].last();
    assert!(matches!(last, Some(CmEvent::Disconnected { .. })));
}

#[test]
fn a_rejection_before_the_confirmation_is_asked_about() {
    for is_there in [false, true] {
        let mut pair = Pair::new(8, FAIR);
        let (id, now) = (pair.ask(5), pair.now);
        let CmEvent::Request { .. } = pair.events[TARGET][0] else {
            panic!("{:?}", pair.events[TARGET]);
        };
        pair.managers[TARGET]
            .accept(now, id, &terms(9), &[])
            .unwrap();
        let rep = pair.managers[TARGET].poll_transmit().unwrap().mad;
        let Some((_, Message::Rep(rep))) = Message::parse(&rep) else {
            panic!("the answer is a REP");
        };
        if !is_there {
            pair.managers[HOST] = Pair::new(9, FAIR).managers.into_iter().next().unwrap();
        }
        let rejection = Message::Rej(Rej {
            ids: CommIds {
                local: rep.ids.remote,
                remote: 0,
            },
            answered: Answered::Other,
            info_len: 0,
            reason: RejReason::Timeout as u16,
            info: padded(&[]),
            private_data: padded(&[]),
        });
        pair.managers[TARGET].handle_mad(now, path(TARGET), 0, &rejection.emit(99));
        pair.run(Duration::from_millis(1100), |_| false);
        let last = pair.events[TARGET].last();
        let expected = match last {
            Some(CmEvent::Established { .. }) => is_there,
            Some(CmEvent::TimedOut { .. }) => !is_there,
            _ => false,
        };
        assert!(expected, "{is_there}: {last:?}");
    }
}

#[test]
fn a_claimed_queue_pair_refuses_no_peer() {
    for accepts in [false, true] {
        let mut pair = Pair::new(6, FAIR);
        let mut stranger = Pair::new(7, FAIR);
        stranger.managers[HOST].connect(stranger.now, &wish(5));
        let mad = stranger.managers[HOST].poll_transmit().unwrap().mad;
        let Some((_, Message::Req(mut claim))) = Message::parse(&mad) else {
            panic!("the first message is a REQ");
        };
        pair.managers[HOST].connect(pair.now, &wish(5));
        let mad = pair.managers[HOST].poll_transmit().unwrap().mad;
        let Some((_, Message::Req(own))) = Message::parse(&mad) else {
            panic!("the first message is a REQ");
        };
        claim.local_ca_guid = own.local_ca_guid;
        deliver(&mut pair, &Message::Req(claim));
        let (claimed, now) = (pair.request().unwrap(), pair.now);
        if accepts {
            let target = &mut pair.managers[TARGET];
            target.accept(now, claimed, &terms(8), &[]).unwrap();
        }
        pair.events[TARGET].clear();
        pair.managers[TARGET].handle_mad(now, path(TARGET), 0, &mad);
        pair.run(Duration::from_millis(1), |pair| pair.request().is_some());
        let id = pair.request().expect("the host's request is one, too");
        let target = &mut pair.managers[TARGET];
        target.accept(now, id, &terms(9), &[]).unwrap();
        pair.run(Duration::from_secs(1), |_| false);
        let established =
            |event: &CmEvent| matches!(event, CmEvent::Established { id: of } if *of == id);
        assert!(pair.events[TARGET].iter().any(established));
    }
}
