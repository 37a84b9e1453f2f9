use std::time::Duration;

use cairn_initiator::{
    Data, Event, Host, HostError, HostOptions, IoQueue, Recovery, Secret, Secrets, Ticket, command,
};
use cairn_tests::bad_peer::{Disorder, Renewing};
use cairn_tests::harness::{NQN, TestTarget, namespace};

use crate::authentication::{Keys, check_io, connect, for_everyone, key, secret, setting};
use crate::verified::{Disk, Transfer};

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
    let all = (0..8).map(|_| Renewing::new(&setting(&target), Some(&host)).unwrap());
    let mut begun: Vec<Renewing> = all.collect();
    for own in &mut begun {
        own.begin(0).unwrap();
        own.begin(1).unwrap();
    }
    check_io(&mut first);
    let mut second = connect(&target, Some(host), None).unwrap();
    check_io(&mut second);
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

fn with_both(keys: &Keys) -> String {
    let table = format!("[[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n");
    let host = key("dhchap_key", &keys.path("host"));
    let controller = key("dhchap_ctrl_key", &keys.path("controller"));
    table + &host + &controller + &namespace(1, "mem:1MiB")
}

fn secrets(host: &Secret, controller: &Secret) -> Secrets {
    Secrets {
        host: host.clone(),
        controller: Some(controller.clone()),
    }
}

fn next_event(host: &mut Host) -> Event {
    let event = host.wait_until("an event", |host| {
        std::iter::from_fn(|| host.take_event()).find(|event| !matches!(event, Event::Notice(_)))
    });
    event.unwrap()
}

fn fill_queue(host: &mut Host, queue: IoQueue, seed: u8) -> Vec<Ticket> {
    let data = [seed; 4096];
    let writes = (0..u64::from(host.depth(queue))).map(|at| {
        let write = command::write(1, at * 8, 8);
        host.submit_on(queue, write, Data::InCapsule(&data))
            .unwrap()
    });
    writes.collect()
}

fn end_writes(host: &mut Host, writes: Vec<Ticket>) {
    for ticket in writes {
        let response = host.wait(ticket).answer.unwrap();
        assert!(response.cqe.status().is_success(), "{response:?}");
    }
}

#[test]
fn our_host_takes_new_keys_while_its_queues_are_full() {
    let keys = Keys::new();
    let (old, controller) = (keys.write("host", 1), keys.write("controller", 2));
    let config = with_both(&keys);
    let target = TestTarget::start(&config);
    let mut host = connect(&target, Some(old), Some(controller.clone())).unwrap();
    for seed in 3..9 {
        let new = keys.write("host", seed);
        target.reload(&config);
        let [first, second] = [0, 1].map(|queue| {
            let queue = host.io_queue(queue);
            fill_queue(&mut host, queue, seed)
        });
        host.controller_mut()
            .reauthenticate(Some(secrets(&new, &controller)))
            .unwrap();
        let event = next_event(&mut host);
        assert!(matches!(event, Event::Reauthenticated), "{event:?}");
        end_writes(&mut host, first);
        end_writes(&mut host, second);
        check_io(&mut host);
        let mut disk = Disk::new(&mut host, 1);
        let written = disk.read(8, 63 * 4096, Transfer::Keyed);
        assert!(written.iter().all(|&byte| byte == seed));
    }
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn our_host_is_shut_out_with_an_old_key_and_leaves_a_target_that_proves_nothing() {
    let keys = Keys::new();
    let (old, controller) = (keys.write("host", 1), keys.write("controller", 2));
    let config = with_both(&keys);
    let target = TestTarget::start(&config);
    let connect = || {
        let options = HostOptions {
            authentication: Some(secrets(&old, &controller)),
            recovery: Recovery::NONE,
            ..target.options("a")
        };
        target.try_connect(options).unwrap()
    };
    let mut shut_out = connect();
    let mut deceived = connect();
    keys.write("host", 3);
    target.reload(&config);
    shut_out.controller_mut().reauthenticate(None).unwrap();
    let event = next_event(&mut shut_out);
    let Event::Lost(HostError::NotAuthenticated { .. } | HostError::LostAuthenticating { .. }) =
        event
    else {
        panic!("{event:?}");
    };
    keys.write("host", 1);
    keys.write("controller", 4);
    target.reload(&config);
    deceived.controller_mut().reauthenticate(None).unwrap();
    let event = next_event(&mut deceived);
    let Event::Lost(HostError::NotAuthenticated { why, .. }) = event else {
        panic!("{event:?}");
    };
    assert!(why.contains("did not prove"), "{why}");
    drop((shut_out, deceived));
    target.stop();
}

#[test]
fn our_host_authenticates_again_by_the_clock() {
    let keys = Keys::new();
    let host = keys.write("host", 1);
    let target = TestTarget::start(&for_everyone(&keys));
    let options = HostOptions {
        authentication: Some(Secrets {
            host,
            controller: None,
        }),
        reauthenticate_every: Some(Duration::from_millis(20)),
        ..target.options("a")
    };
    let mut host = target.try_connect(options).unwrap();
    for _ in 0..3 {
        let event = next_event(&mut host);
        assert!(matches!(event, Event::Reauthenticated), "{event:?}");
        check_io(&mut host);
    }
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn a_target_without_a_key_any_more_keeps_our_host() {
    let keys = Keys::new();
    let host = keys.write("host", 1);
    let table = format!("[[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n");
    let target = TestTarget::start(&for_everyone(&keys));
    let mut host = connect(&target, Some(host), None).unwrap();
    target.reload(&(table + &namespace(1, "mem:1MiB")));
    host.controller_mut().reauthenticate(None).unwrap();
    let event = next_event(&mut host);
    assert!(matches!(event, Event::NotReauthenticated(_)), "{event:?}");
    check_io(&mut host);
    host.shutdown().unwrap();
    let mut bare = connect(&target, None, None).unwrap();
    let error = bare
        .controller_mut()
        .reauthenticate(None)
        .unwrap_err()
        .to_string();
    assert!(error.contains("--dhchap-secret"), "{error}");
    bare.shutdown().unwrap();
    target.stop();
}
