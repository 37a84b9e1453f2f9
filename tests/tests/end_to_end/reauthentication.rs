//! DH-HMAC-CHAP once more, on queues that are live.

use cairn_tests::bad_peer::{Disorder, Renewing};
use cairn_tests::harness::{NQN, TestTarget, namespace};

use crate::authentication::{Keys, check_io, connect, for_everyone, key, secret, setting};

#[test]
fn a_host_authenticates_again_on_each_queue_and_goes_on() {
    let keys = Keys::new();
    let host = keys.write("host", 1);
    let target = TestTarget::start(&for_everyone(&keys));
    let mut own = Renewing::new(&setting(&target), Some(&host)).unwrap();
    for qid in [0, 1, 1, 0] {
        own.authenticate(qid, &host).unwrap();
        own.check().unwrap();
    }
    target.stop();
}

#[test]
fn the_keys_of_the_moment_count_and_another_one_ends_the_connection() {
    let keys = Keys::new();
    let old = keys.write("host", 1);
    let config = for_everyone(&keys);
    let target = TestTarget::start(&config);
    let setting = setting(&target);
    let own = |secret| Renewing::new(&setting, Some(secret)).unwrap();
    let (mut first, second, third) = (own(&old), own(&old), own(&old));
    let new = keys.write("host", 2);
    target.reload(&config);
    first.check().unwrap();
    for qid in [0, 1] {
        first.authenticate(qid, &new).unwrap();
    }
    second.expect_refused(0, &old).unwrap();
    third.expect_refused(1, &secret(9)).unwrap();
    first.check().unwrap();
    target.stop();
}

#[test]
fn a_message_out_of_order_is_answered_and_ends_the_connection() {
    let keys = Keys::new();
    let host = keys.write("host", 1);
    let target = TestTarget::start(&for_everyone(&keys));
    for how in Disorder::ALL {
        for qid in [0, 1] {
            let own = Renewing::new(&setting(&target), Some(&host)).unwrap();
            let ended = own.break_order(qid, how);
            ended.unwrap_or_else(|error| panic!("{how:?} on queue {qid}: {error:#}"));
        }
    }
    target.stop();
}

#[test]
fn half_done_reauthentications_hold_up_nobody() {
    let keys = Keys::new();
    let host = keys.write("host", 1);
    let target = TestTarget::start(&for_everyone(&keys));
    let mut first = connect(&target, Some(host.clone()), None).unwrap();
    let begun = (0..8).map(|_| {
        let mut own = Renewing::new(&setting(&target), Some(&host)).unwrap();
        own.begin(0).unwrap();
        own.begin(1).unwrap();
        own
    });
    let mut begun: Vec<Renewing> = begun.collect();
    check_io(&mut first);
    let mut second = connect(&target, Some(host), None).unwrap();
    check_io(&mut second);
    // What they proved when they connected still counts.
    for own in &mut begun {
        own.check().unwrap();
    }
    for host in [first, second] {
        host.shutdown().unwrap();
    }
    target.stop();
}

#[test]
fn a_host_may_begin_once_it_has_a_key() {
    let keys = Keys::new();
    let host = keys.write("host", 1);
    let table = format!("[[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n");
    let config = |lines: &str| table.clone() + lines + &namespace(1, "mem:1MiB");
    let target = TestTarget::start(&config(""));
    let mut own = Renewing::new(&setting(&target), None).unwrap();
    for qid in [0, 1] {
        own.expect_not_offered(qid).unwrap();
    }
    target.reload(&config(&key("dhchap_key", &keys.path("host"))));
    for qid in [0, 1] {
        own.authenticate(qid, &host).unwrap();
    }
    own.check().unwrap();
    target.stop();
}
