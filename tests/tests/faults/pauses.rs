use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cairn_initiator::multipath::{Multipath, MultipathOptions, PathState, Policy};
use cairn_roce::Soft;
use cairn_tests::harness::{NQN, Scratch};
use cairn_tests::load::Load;
use cairn_tests::process::{TargetProcess, program, signal};
use rustix::process::Signal;

use crate::until;

const DISK_BYTES: u64 = 4 << 20;

fn two_targets(disk: &Scratch) -> [TargetProcess; 2] {
    let namespace = format!(
        "[[subsystem.namespace]]\nnsid = 1\nexport = \"{}\"\nblock_size = 4096\nshared = true\n\
         uuid = \"00000000-0000-4000-8000-00000000fa17\"\n",
        disk.path().display()
    );
    [1, 2].map(|port_id| TargetProcess::start(port_id, &namespace))
}

fn load(targets: &[TargetProcess; 2]) -> Load {
    let paths = targets.iter().map(|target| target.options("multipath"));
    let options = MultipathOptions {
        policy: Policy::RoundRobin,
        ..MultipathOptions::new(1)
    };
    Load::new(Multipath::connect(&Soft::default(), paths, options).unwrap())
}

fn run_for(load: &mut Load, time: Duration) {
    let end = Instant::now() + time;
    load.run_until("some time", |_| Instant::now() >= end);
}

fn all_usable(load: &mut Load) {
    load.run_until("all paths", |load| {
        load.disk.paths().all(|path| path.usable)
    });
}

#[test]
fn a_target_that_was_stopped_carries_out_nothing_stale() {
    stop_and_look(&Scratch::written("stale-target", DISK_BYTES));
}

#[test]
fn nor_does_it_fill_holes_of_a_file() {
    stop_and_look(&Scratch::new("stale-holes", DISK_BYTES));
}

fn stop_and_look(disk: &Scratch) {
    let targets = two_targets(disk);
    let mut load = load(&targets);
    load.run(200);
    for round in 0..3 {
        let paused = &targets[round % 2];
        paused.pause();
        load.run_until("its loss", |load| {
            let usable = |path: PathState| path.usable;
            !load.disk.paths().nth(round % 2).is_some_and(usable)
        });
        run_for(&mut load, Duration::from_millis(1500));
        load.drain();
        paused.go_on();
        thread::sleep(Duration::from_millis(300));
        load.verify();
        all_usable(&mut load);
    }
    load.finish().close().unwrap();
}

#[test]
fn a_short_stop_of_a_target_costs_no_host_an_error() {
    let disk = Scratch::in_memory("short-stop", DISK_BYTES);
    let targets = two_targets(&disk);
    let mut load = load(&targets);
    for (round, ms) in [100, 300, 700, 200].into_iter().enumerate() {
        load.run(100);
        targets[round % 2].pause();
        run_for(&mut load, Duration::from_millis(ms));
        targets[round % 2].go_on();
        load.run(100);
    }
    all_usable(&mut load);
    load.finish().close().unwrap();
}

#[test]
fn a_host_that_was_stopped_goes_on_without_an_error() {
    let disk = Scratch::in_memory("stopped-host", DISK_BYTES);
    let targets = two_targets(&disk);
    let enough = Scratch::new("enough", 0);
    std::fs::remove_file(enough.path()).unwrap();
    let mut host = Command::new(program("cairn-multipath-load"))
        .args(["--nqn", NQN, "--until"])
        .arg(enough.path())
        .args(
            targets
                .iter()
                .map(|target| target.options("x").remote.to_string()),
        )
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_millis(800));
    for ms in [300, 4000] {
        signal(&host, Signal::STOP);
        thread::sleep(Duration::from_millis(ms));
        signal(&host, Signal::CONT);
        thread::sleep(Duration::from_millis(1000));
        assert_eq!(host.try_wait().unwrap(), None, "the host has ended");
    }
    std::fs::write(enough.path(), "").unwrap();
    let mut status = None;
    until("the host's end", || {
        status = host.try_wait().unwrap();
        status.is_some()
    });
    assert!(status.unwrap().success());
}
