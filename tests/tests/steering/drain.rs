use std::time::Duration;

use cairn_initiator::multipath::{Multipath, MultipathOptions, Policy};
use cairn_initiator::{Host, HostError, HostOptions, Recovery, discover};
use cairn_roce::Soft;
use cairn_tests::load::Load;
use nvme_proto::wire::Status;
use serde_json::{Value, json};

use crate::target::{NQN, Steered};

fn two_ways() -> Steered {
    let target = Steered::start();
    let add = json!({"address": target.address, "port": 4421});
    target.done("cairn_listener_add", add);
    target
}

fn by_port(target: &Steered, port: u16) -> HostOptions {
    let mut options = target.options("drained");
    options.remote.set_port(port);
    options.recovery = Recovery {
        reconnect_delay: Duration::from_millis(20),
        ..Recovery::default()
    };
    options
}

fn drained(target: &Steered) -> Vec<bool> {
    let listeners = target.done("cairn_listener_list", json!({}));
    let listeners = listeners.as_array().unwrap().iter();
    listeners
        .map(|one| one["drained"].as_bool().unwrap())
        .collect()
}

fn ports_of_log(target: &Steered) -> Vec<String> {
    let log = discover(&Soft::default(), &by_port(target, 4421)).unwrap();
    let mut ports: Vec<String> = log
        .entries
        .iter()
        .map(|entry| String::from_utf8_lossy(&entry.trsvcid).trim().to_owned())
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

#[test]
fn hosts_go_on_by_another_path_and_come_back() {
    let target = two_ways();
    let paths = [by_port(&target, 4420), by_port(&target, 4421)];
    let options = MultipathOptions {
        policy: Policy::RoundRobin,
        ..MultipathOptions::new(1)
    };
    let disk = Multipath::connect(&Soft::default(), paths, options).unwrap();
    let mut load = Load::new(disk);
    let usable = |load: &Load, index: usize| load.disk.paths().nth(index).unwrap().usable;
    load.run_until("both paths", |load| usable(load, 0) && usable(load, 1));

    let (socket, address) = (target.socket(), target.address);
    let draining = std::thread::spawn(move || {
        let mut client = cairn_control::Client::connect(&socket, crate::target::PATIENCE).unwrap();
        client.call("cairn_drain", &json!({"address": address}))
    });
    while !draining.is_finished() {
        load.run(20);
    }
    let answer: Value = draining.join().unwrap().unwrap();
    assert_eq!(answer[0]["port"], 4420, "{answer}");
    assert_eq!(answer[0]["disconnected"], 1, "{answer}");
    assert_eq!(answer[0]["connected"], 0, "{answer}");
    assert_eq!(answer[0]["cut_off"], 0, "{answer}");
    load.run_until("one path", |load| !usable(load, 0) && usable(load, 1));
    load.run(200);
    assert!(!usable(&load, 0));
    assert_eq!(drained(&target), [true, false]);
    assert_eq!(ports_of_log(&target), ["4421"]);

    target.done("cairn_reload", json!({}));
    assert_eq!(drained(&target), [true, false]);
    assert!(Host::connect(&Soft::default(), target.options("late")).is_err());
    target.done("cairn_drain_undo", json!({"address": target.address}));
    load.run_until("its return", |load| usable(load, 0) && usable(load, 1));
    load.run(200);
    assert_eq!(ports_of_log(&target), ["4420", "4421"]);
    load.finish().close().unwrap();
}

#[test]
fn all_listeners_are_drained_by_a_command() {
    let target = two_ways();
    let _hosts = [target.connect("one"), target.connect("two")];
    let output = target.command(&["drain", "--timeout", "30"]);
    assert!(output.status.success(), "{output:?}");
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.starts_with("ADDRESS"), "{table}");
    assert_eq!(target.done("cairn_connection_list", json!({})), json!([]));
    assert!(Host::connect(&Soft::default(), target.options("late")).is_err());
    let output = target.command(&["drain", "--undo"]);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("all listeners accept hosts"), "{said}");
    target.connect("late");
}

#[test]
fn only_listeners_are_drained() {
    let target = Steered::start();
    for method in ["cairn_drain", "cairn_drain_undo"] {
        let other = json!({"address": target.address, "port": 9});
        assert_eq!(target.refused(method, other), -2, "{method}");
        assert_eq!(target.refused(method, json!({"port": 4420})), -32602);
    }
    let long = json!({"timeout_s": 3601});
    assert_eq!(target.refused("cairn_drain", long), -32602);
    assert_eq!(
        target.done("cairn_status", json!({}))["listeners"][0]["drained"],
        false
    );
    let mut host = target.connect("still");
    assert_eq!(host.active_namespaces().unwrap(), [1], "{NQN}");
}

fn draining(target: &Steered) -> std::thread::JoinHandle<Value> {
    let socket = target.socket();
    std::thread::spawn(move || {
        let mut client = cairn_control::Client::connect(&socket, crate::target::PATIENCE).unwrap();
        client.call("cairn_drain", &json!({})).unwrap()
    })
}

#[test]
fn a_host_with_one_path_waits_until_the_drain_is_undone() {
    let target = Steered::start();
    let disk = Multipath::connect(
        &Soft::default(),
        [by_port(&target, 4420)],
        MultipathOptions::new(1),
    );
    let mut load = Load::new(disk.unwrap());
    load.run(20);
    let drain = draining(&target);
    load.run_until("the drain", |_| drain.is_finished());
    assert_eq!(drain.join().unwrap()[0]["connected"], 0);
    load.run_until("a waiting load", |load| !load.disk.has_usable_path());
    let done = load.done;
    target.done("cairn_drain_undo", json!({}));
    load.run(200);
    assert!(load.done >= done + 200);
    load.finish().close().unwrap();
}

#[test]
fn a_single_host_gets_an_error_while_its_listener_is_drained() {
    let target = Steered::start();
    let mut host = Host::connect(&Soft::default(), by_port(&target, 4420)).unwrap();
    let namespace = host.open_namespace(1).unwrap();
    namespace.read(&mut host, 0, 1).unwrap();
    let drain = draining(&target);
    let error = loop {
        if let Err(error) = namespace.read(&mut host, 0, 1) {
            break error;
        }
    };
    let HostError::Status { status, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(status.code(), Status::ANA_INACCESSIBLE.code());
    drop(host);
    drain.join().unwrap();
}
