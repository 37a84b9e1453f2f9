use std::time::Duration;

use cairn_roce_proto::wire::cm::RejReason;

use crate::{FAIR, HOST, Pair, TARGET, terms, wish};

#[test]
fn a_flood_of_requests_is_bounded() {
    let mut pair = Pair::new(5, FAIR);
    for qpn in 2..5000 {
        pair.managers[HOST].connect(pair.now, &wish(qpn));
        pair.run(Duration::from_micros(150), |_| false);
    }
    assert_eq!(pair.events[TARGET].len(), 64);
    assert!(pair.managers[TARGET].dropped_requests() > 4000);
}

#[test]
fn refusals_cost_the_address_that_requests_claim_nothing() {
    let mut pair = Pair::new(1, FAIR);
    for qpn in 2..4000 {
        pair.managers[HOST].connect(pair.now, &wish(qpn));
        pair.run(Duration::from_micros(150), |pair| pair.request().is_some());
        let (now, id) = (pair.now, pair.request().expect("each is heard"));
        let target = &mut pair.managers[TARGET];
        let answer = match qpn {
            2 => target.accept(now, id, &terms(9), &[]).map(drop),
            _ => target.reject(id, RejReason::Consumer, &[], &[]),
        };
        answer.unwrap();
        pair.events[TARGET].clear();
        pair.run(Duration::from_micros(250), |_| false);
    }
    assert_eq!(pair.managers[TARGET].dropped_requests(), 0);
}
