//! Tests of receive work requests with each adapter's profile.

use std::time::Duration;

use cairn_rdma::Sge;

use super::*;
use crate::quirks::SharedReceives;

const OWN_QUEUES: Quirks = Quirks {
    shared_receives: SharedReceives::Absent,
    ..Quirks::NONE
};

fn receive(id: u64) -> RecvWork {
    let sge = Sge {
        addr: 0x1000 * (id + 1),
        length: 64,
        lkey: 1,
    };
    RecvWork {
        id,
        sges: sge.into(),
    }
}

impl Fixture {
    fn supplied(quirks: Quirks) -> Self {
        let mut fixture = Self::with(quirks);
        state().drains = true;
        let all: Vec<_> = (0..u64::from(RECEIVES)).map(receive).collect();
        fixture.endpoint.post_receives(&all).unwrap();
        fixture
    }

    fn repost(&mut self, id: u64) {
        self.endpoint.post_receives(&[receive(id)]).unwrap();
    }

    fn take_message(&mut self, pair: usize) -> u64 {
        assert!(state().deliver(pair));
        let mut out = [Completion::EMPTY; 2];
        assert_eq!(self.endpoint.poll(&mut out), 1);
        assert!(out[0].status.is_success());
        out[0].id
    }
}

fn of(pair: usize) -> usize {
    let state = state();
    let pair = state.pairs.iter().find(|known| known.raw == pair);
    pair.map_or(0, |pair| pair.receives.len())
}

#[test]
fn reconnects_leave_all_receives_posted_and_none_is_posted_too_early() {
    for quirks in Quirks::ALL {
        let mut fixture = Fixture::supplied(quirks);
        let shared = fixture.endpoint.limits().shared_receives;
        assert_eq!(shared, quirks.shared_receives == SharedReceives::Present);
        for _ in 0..12 {
            let qp = fixture.accept();
            let pair = newest_pair();
            let (before, after) = (fixture.take_message(pair), fixture.take_message(pair));
            fixture.repost(before);
            fixture.endpoint.post(qp, &[send(1)]).unwrap();
            assert_eq!(fixture.close(qp), [(1, state().destroyed - 1)]);
            fixture.repost(after);
        }
        fixture.accept();
        let wanted = if shared { RECEIVES } else { QUOTA };
        assert_eq!(state().posted(), wanted as usize, "{}", quirks.name);
        assert_eq!(state().reused, 0, "{}", quirks.name);
        let more = fixture.endpoint.post_receives(&[receive(99)]);
        assert_eq!(more, Err(PostError::Full), "{}", quirks.name);
    }
}

#[test]
fn receives_flushed_without_a_report_come_back_after_the_destruction() {
    let mut fixture = Fixture::supplied(Quirks {
        swallows_receives: true,
        no_last_wqe: true,
        ..OWN_QUEUES
    });
    for _ in 0..4 {
        let qp = fixture.accept();
        assert_eq!(of(newest_pair()), QUOTA as usize);
        fixture.close(qp);
    }
    assert_eq!(state().reused, 0);
}

#[test]
fn receives_stay_with_their_queue_pair_until_its_destruction() {
    let mut fixture = Fixture::supplied(OWN_QUEUES);
    let (first, second) = (fixture.accept(), fixture.accept());
    let third = fixture.accept();
    assert_eq!(of(newest_pair()), 0, "two quotas are all receives");
    let pair = newest_pair();
    state().drains = false;
    fixture.endpoint.disconnect(first);
    fixture.events();
    assert_eq!(of(pair), 0);
    assert!(
        fixture.close(first).is_empty(),
        "flushed receives are not the owner's"
    );
    assert_eq!(of(pair), QUOTA as usize);
    assert_eq!(state().reused, 0);
    state().drains = true;
    fixture.close(second);
    fixture.close(third);
}

#[test]
fn an_owner_that_keeps_receives_shortens_its_own_connection_alone() {
    let mut fixture = Fixture::supplied(OWN_QUEUES);
    fixture.accept();
    let greedy = newest_pair();
    fixture.accept();
    let other = newest_pair();
    let kept: Vec<u64> = (0..QUOTA).map(|_| fixture.take_message(greedy)).collect();
    assert!(!state().deliver(greedy), "no receive is left");
    let id = fixture.take_message(other);
    fixture.repost(id);
    assert_eq!((of(greedy), of(other)), (0, QUOTA as usize));
    fixture.repost(kept[2]);
    assert_eq!((of(greedy), of(other)), (1, QUOTA as usize));
}

#[test]
fn a_refused_receive_breaks_its_queue_pair_alone() {
    let mut fixture = Fixture::supplied(OWN_QUEUES);
    state().receive_error = libc::ENOMEM;
    let refused = fixture.try_accept().unwrap_err().to_string();
    assert!(refused.contains("ibv_post_recv"), "{refused}");
    state().receive_error = 0;
    let (broken, healthy) = (fixture.accept(), fixture.accept());
    let pair = newest_pair();
    let id = fixture.take_message(pair);
    state().receive_error = libc::ENOMEM;
    fixture.repost(id);
    state().receive_error = 0;
    assert_eq!(faults(&fixture.events()), 1);
    fixture.endpoint.post(broken, &[send(1)]).unwrap();
    fixture.close(healthy);
    fixture.accept();
    assert_eq!(of(newest_pair()), QUOTA as usize);
}

#[test]
fn an_endpoint_with_missing_receives_is_replaced() {
    let quirks = Quirks::named("bnxt").unwrap();
    let mut fixture = Fixture::supplied(quirks);
    for round in 0..=RECEIVES / 4 {
        let qp = fixture.accept();
        let pair = newest_pair();
        state().begin_message(pair);
        state().fail(pair, sys::IBV_WC_GENERAL_ERR);
        assert!(!fixture.endpoint.dead, "round {round}");
        fixture.endpoint.disconnect(qp);
        while fixture.endpoint.table.get(qp).is_some() {
            fixture.endpoint.poll(&mut [Completion::EMPTY; 4]);
            fixture.endpoint.look_for_events();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let replaced = |event: &Event| {
        let reason = "without a report of their receives";
        matches!(event, Event::EndpointBroken { reason: why } if why.contains(reason))
    };
    assert!(fixture.events().iter().any(replaced));
}

#[test]
fn an_error_ends_all_requests_whichever_is_blamed() {
    for quirks in Quirks::ALL {
        let mut fixture = Fixture::supplied(quirks);
        let qp = fixture.accept();
        let silent = SendWork {
            signaled: false,
            ..send(1)
        };
        fixture
            .endpoint
            .post(qp, &[silent, send(2), silent])
            .unwrap();
        let pair = newest_pair();
        state().fail(pair, sys::IBV_WC_REM_ACCESS_ERR);
        let mut out = [Completion::EMPTY; 16];
        let count = fixture.endpoint.poll(&mut out);
        let ended: Vec<_> = out[..count]
            .iter()
            .map(|one| (one.id, one.status))
            .collect();
        let (failed, flushed) = (WorkStatus::RemoteAccess, WorkStatus::Flushed);
        match quirks.blames_oldest {
            true => assert_eq!(ended, [(1, failed), (2, flushed), (1, flushed)]),
            false => assert_eq!(ended, [(2, failed), (1, flushed)]),
        }
        assert!(fixture.close(qp).is_empty());
    }
}
