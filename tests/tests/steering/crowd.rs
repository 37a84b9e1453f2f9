use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use cairn_initiator::HostOptions;
use cairn_initiator::multipath::{Multipath, MultipathOptions};
use cairn_roce::Soft;
use cairn_tests::load::Load;
use serde_json::json;

use crate::target::{NQN, Steered};

const CLIENTS: usize = 100;
const TURNS: usize = 3;

#[test]
fn a_hundred_clients_add_and_remove_under_verified_io() {
    let target = Steered::start();
    let before = target.text();
    let options: [HostOptions; 1] = [target.options("worker")];
    let provider = Soft::default();
    let disk = Multipath::connect(&provider, options, MultipathOptions::new(1)).unwrap();
    let mut load = Load::new(disk);
    load.run(200);
    let done = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = target.client();
                for _ in 0..TURNS {
                    let add = json!({"nqn": NQN, "export": "mem:64KiB"});
                    let nsid = &client.call("cairn_namespace_add", &add).unwrap()["nsid"];
                    let remove = json!({"nqn": NQN, "nsid": nsid});
                    client.call("cairn_namespace_remove", &remove).unwrap();
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        load.run_until("the clients", |_| done.load(Ordering::Relaxed) == CLIENTS);
    });
    load.run(200);
    drop(load.finish());
    assert_eq!(target.text(), before);
    let status = target.done("cairn_status", json!({}));
    assert_eq!(status["namespaces"], 1);
}

#[test]
fn a_crash_amid_changes_leaves_a_whole_file() {
    let mut target = Steered::start();
    let mut answered = 0;
    for round in 1..=3 {
        let socket = target.socket();
        let said = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut client =
                        cairn_control::Client::connect(&socket, crate::target::PATIENCE).unwrap();
                    let add = json!({"nqn": NQN, "export": "mem:64KiB"});
                    while client.call("cairn_namespace_add", &add).is_ok() {
                        said.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            while said.load(Ordering::Relaxed) < 10 * round {
                thread::yield_now();
            }
            target.crash();
        });
        answered += said.load(Ordering::Relaxed);
        let status = target.done("cairn_status", json!({}));
        let there = status["namespaces"].as_u64().unwrap() as usize;
        assert!(there > answered, "{there} of {answered} that were answered");
        answered = there - 1;
    }
}
