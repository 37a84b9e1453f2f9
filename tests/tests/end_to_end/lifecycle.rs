use std::time::{Duration, Instant};

use cairn_initiator::{Data, Host, HostError, IoQueue, command};
use cairn_tests::harness::{NQN, TestTarget, subsystem};
use nvme_proto::wire::Status;
use nvme_proto::wire::property::{Cc, Csts, offset};

use crate::verified::{Disk, Transfer, bytes};

#[test]
fn a_silent_host_is_let_go_and_others_stay() {
    let target = TestTarget::with_namespaces(&["null:1GiB"]);
    let mut options = target.options("silent");
    options.kato_ms = 200;
    let mut silent = target.try_connect(options.clone()).unwrap();
    options.hostnqn = cairn_tests::harness::host_nqn("talkative");
    options.kato_ms = 2000;
    let mut talkative = target.try_connect(options).unwrap();

    let end = Instant::now() + Duration::from_millis(2500);
    while Instant::now() < end {
        talkative.poll();
        std::thread::sleep(Duration::from_millis(10));
    }
    silent
        .wait_until("the end of the silent host", |silent| {
            (!silent.controller().is_admin_up() && !silent.controller().is_up(IoQueue::FIRST))
                .then_some(())
        })
        .unwrap();
    assert!(talkative.controller().is_admin_up() && talkative.controller().is_up(IoQueue::FIRST));
    talkative.run(command::flush(1), Data::None).unwrap();
    talkative.shutdown().unwrap();
    target.stop();
}

fn wait_for_csts(host: &mut Host, reached: impl Fn(Csts) -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let csts = Csts(host.property(offset::CSTS).unwrap());
        assert!(!csts.cfs() && Instant::now() < end, "{csts:?}");
        if reached(csts) {
            return;
        }
    }
}

#[test]
fn shutdown_is_reported_when_it_is_complete() {
    let target = TestTarget::with_namespaces(&["mem:1MiB"]);
    let mut host = target.connect("a");
    host.close_queue(IoQueue::FIRST).unwrap();
    let cc = Cc(host.property(offset::CC).unwrap()).with_shn(Cc::SHN_NORMAL);
    host.set_property(offset::CC, cc.0).unwrap();
    wait_for_csts(&mut host, |csts| csts.shst() == Csts::SHST_COMPLETE);
    host.disconnect().unwrap();
    target.connect("a").shutdown().unwrap();
    target.stop();
}

#[test]
fn a_reset_controller_can_be_enabled_again() {
    let target = TestTarget::with_namespaces(&["mem:1MiB"]);
    let mut host = target.connect("a");
    host.close_queue(IoQueue::FIRST).unwrap();
    let cc = Cc(host.property(offset::CC).unwrap());
    host.set_property(offset::CC, cc.with_en(false).0).unwrap();
    wait_for_csts(&mut host, |csts| !csts.rdy());
    assert!(!Cc(host.property(offset::CC).unwrap()).en());
    host.set_property(offset::CC, cc.0).unwrap();
    wait_for_csts(&mut host, |csts| csts.rdy());
    assert_eq!(host.active_namespaces().unwrap(), [1]);
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn a_reset_brings_the_controller_up_again() {
    let target = TestTarget::with_namespaces(&["mem:1MiB"]);
    let mut host = target.connect("a");
    let data = bytes(1, 4096);
    for round in 0..3 {
        Disk::new(&mut host, 1).write(round, &data, Transfer::Keyed);
        host.reset().unwrap();
        assert_eq!(
            Disk::new(&mut host, 1).read(round, 4096, Transfer::Keyed),
            data
        );
    }
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn an_abort_is_answered_and_so_is_what_it_aborts() {
    let target = TestTarget::with_namespaces(&["mem:64MiB block_size = 512"]);
    let mut host = target.connect("a");
    let waiting = host
        .submit_admin(command::async_event_request(), Data::None)
        .unwrap();
    assert!(host.abort(waiting).unwrap(), "it was not aborted");
    let end = host.wait(waiting).answer.unwrap().cqe.status();
    assert_eq!(end.code(), Status::ABORT_REQUESTED);

    for _ in 0..20 {
        let read = command::read(1, 0, 2048);
        let data = Data::whole(host.buffer(1 << 20).unwrap());
        let ticket = host.submit(read, data).unwrap();
        let aborted = host.abort(ticket).unwrap();
        let end = host.wait(ticket).answer.unwrap().cqe.status();
        if aborted {
            assert_eq!(end.code(), Status::ABORT_REQUESTED);
        } else {
            assert!(end.is_success(), "{end}");
        }
    }
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn a_target_that_stops_disconnects_its_hosts() {
    let target = TestTarget::start(&subsystem(NQN, &["mem:1MiB"]));
    let mut hosts = [target.connect("a"), target.connect("b")];
    target.stop();
    for host in &mut hosts {
        host.wait_until("the disconnect", |host| {
            (!host.controller().is_admin_up() && !host.controller().is_up(IoQueue::FIRST))
                .then_some(())
        })
        .unwrap();
        let late = host.run(command::flush(1), Data::None);
        assert!(matches!(late, Err(HostError::Lost { .. })), "{late:?}");
    }
}

#[test]
fn a_device_can_be_pulled_out_and_put_back() {
    let target = TestTarget::with_namespaces(&["mem:1MiB"]);
    let Some(network) = target.loopback() else {
        return;
    };
    let address = target.remote().ip();
    let data = bytes(1, 4096);
    for round in 0..3 {
        let mut host = target.connect("a");
        let mut disk = Disk::new(&mut host, 1);
        if round == 0 {
            disk.write(0, &data, Transfer::Keyed);
        }
        assert_eq!(disk.read(0, 4096, Transfer::Keyed), data, "round {round}");
        let data = Data::whole(host.buffer(512).unwrap());
        let read = command::read(1, 0, 1);
        let in_flight = host.submit(read, data).unwrap();
        network.unplug(address);
        host.wait_until("the end of the connections", |host| {
            (!host.controller().is_admin_up() && !host.controller().is_up(IoQueue::FIRST))
                .then_some(())
        })
        .unwrap();
        let _ = host.wait(in_flight);
        network.plug(address);
    }
    target.connect("a").shutdown().unwrap();
    target.stop();
}
