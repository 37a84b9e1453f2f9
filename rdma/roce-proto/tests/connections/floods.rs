//! More requests than anybody means.

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

/// An address whose requests are refused again and again: from some time on they end where they are read.
#[test]
fn requests_beyond_many_refusals_get_no_answer() {
    let mut pair = Pair::new(1, FAIR);
    let (begin, mut refused) = (pair.now, 0);
    for qpn in 2..4000 {
        pair.managers[HOST].connect(pair.now, &wish(qpn));
        pair.run(Duration::from_micros(150), |pair| pair.request().is_some());
        let now = pair.now;
        if let Some(id) = pair.request() {
            let target = &mut pair.managers[TARGET];
            let answer = match refused {
                // Its address is proven by this one.
                0 => target.accept(now, id, &terms(9), &[]),
                _ => target.reject(now, id, RejReason::Consumer, &[], &[]),
            };
            answer.unwrap();
            refused += 1;
        }
        pair.events[TARGET].clear();
        pair.run(Duration::from_micros(250), |_| false);
    }
    let most = 1002 + (pair.now - begin).as_millis() as u64 / 2;
    assert!(
        (1000..=most).contains(&refused),
        "{refused} of at most {most}"
    );
    assert!(pair.managers[TARGET].dropped_requests() > 1000);
}
