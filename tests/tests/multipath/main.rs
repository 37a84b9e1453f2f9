//! Host with two paths to one disk, each through a separate target process over user-space RoCE.

mod bench;
mod plain;
mod process;
mod replaced;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cairn_initiator::multipath::{Link, Multipath, MultipathOptions, PathEvent, PathState, Policy};
use cairn_initiator::{
    Controller, Data, Event, Host, HostError, HostOptions, IoQueue, Recovery, command,
};
use cairn_roce::Soft;
use cairn_tests::harness::{NQN, Scratch, TestTarget, subsystem};
use cairn_tests::load::Load;
use nvme_proto::wire::cross_reset::Instance;
use nvme_proto::wire::log::AnaState;

use process::Process;

const DISK_BYTES: u64 = 4 << 20;

fn shared(disk: &Scratch) -> String {
    format!(
        "export = \"{}\"\nblock_size = 4096\nshared = true",
        disk.path().display()
    )
}

fn connect(paths: &[HostOptions], options: MultipathOptions) -> Result<Multipath, HostError> {
    let provider = Soft::default();
    Multipath::connect(&provider, paths.iter().cloned(), options)
}

fn two_paths(disk: &Scratch, policy: Policy) -> (Process, Process, Load) {
    let (one, two) = (
        Process::start(1, &shared(disk)),
        Process::start(2, &shared(disk)),
    );
    let options = MultipathOptions {
        policy,
        ..MultipathOptions::new(1)
    };
    let multipath = connect(&[one.options(), two.options()], options).unwrap();
    (one, two, Load::new(multipath))
}

fn path(load: &Load, index: usize) -> PathState {
    load.disk.paths().nth(index).unwrap()
}

fn commands_by(load: &mut Load, index: usize) -> u64 {
    let before = path(load, index).commands;
    load.run(200);
    path(load, index).commands - before
}

fn uses(load: &Load, usable: [bool; 2]) -> bool {
    let paths: Vec<_> = load.disk.paths().map(|path| path.usable).collect();
    paths == usable
}

#[test]
fn one_of_two_targets_is_killed_under_load_and_comes_back() {
    let disk = Scratch::new("killed", DISK_BYTES);
    let (mut one, _two, mut load) = two_paths(&disk, Policy::RoundRobin);
    load.run(500);
    assert!(uses(&load, [true, true]));
    one.kill();
    load.run_until("the loss", |load| uses(load, [false, true]));
    load.run(500);
    one.resume();
    load.run_until("its return", |load| uses(load, [true, true]));
    load.run(500);
    load.finish().close().unwrap();
}

fn impatient(disk: &Scratch, kato_ms: u32) -> (Process, Process, Load) {
    let (one, two) = (
        Process::start(1, &shared(disk)),
        Process::start(2, &shared(disk)),
    );
    let impatient = |of: &Process| HostOptions {
        kato_ms,
        command_timeout: Duration::from_millis(300),
        timeout: Duration::from_millis(500),
        ..of.options()
    };
    let paths = [impatient(&one), impatient(&two)];
    let multipath = connect(&paths, MultipathOptions::new(1)).unwrap();
    (one, two, Load::new(multipath))
}

#[test]
fn a_pause_shorter_than_kato_overwrites_nothing_newer() {
    let disk = Scratch::new("paused-short", DISK_BYTES);
    let (one, _two, mut load) = impatient(&disk, 1500);
    for _ in 0..2 {
        load.run(300);
        one.pause();
        let paused = Instant::now();
        load.run_until("the loss", |load| uses(load, [false, true]));
        load.run(300);
        load.run_until("the end of the pause", |_| {
            paused.elapsed() > Duration::from_millis(1400)
        });
        one.unpause();
        load.run_until("its return", |load| uses(load, [true, true]));
        load.verify();
    }
    load.finish().close().unwrap();
}

#[test]
fn a_pause_longer_than_kato_overwrites_nothing_newer() {
    let disk = Scratch::written("paused-long", DISK_BYTES);
    let (one, _two, mut load) = impatient(&disk, 1000);
    for _ in 0..2 {
        load.run(300);
        one.pause();
        load.run_until("the loss", |load| uses(load, [false, true]));
        load.drain();
        load.rewrite_all();
        load.disk.run(command::flush(1), Data::None).unwrap();
        load.verify();
        one.unpause();
        load.run_until("its return", |load| uses(load, [true, true]));
        load.verify();
    }
    load.finish().close().unwrap();
}

/// A path is lost because another controller of the host resets the path's controller.
#[test]
fn writes_of_a_lost_path_go_on_long_before_kato() {
    const KATO: Duration = Duration::from_secs(60);
    let target = TestTarget::with_namespaces(&["mem:4MiB block_size = 4096"]);
    let options = HostOptions {
        kato_ms: KATO.as_millis() as u32,
        ..target.options("two-paths")
    };
    let paths = [options.clone(), options.clone()];
    let disk = Multipath::connect(&*target.provider(), paths, MultipathOptions::new(1)).unwrap();
    let mut load = Load::new(disk);
    load.run(500);
    let device = target.provider().device_for(options.remote, options.local);
    let mut third = Controller::begin(&device.unwrap(), options, Instant::now()).unwrap();
    load.run_until("a third controller", |_| {
        third.poll(Instant::now());
        third.is_live()
    });
    let lost = Instance::of(load.disk.controller(0).identity()).unwrap();
    let reset = command::cross_controller_reset(&lost);
    third.submit_admin(reset, Data::None).unwrap();
    load.run_until("the loss", |load| {
        third.poll(Instant::now());
        !path(load, 0).usable
    });
    let begin = Instant::now();
    let end = load.done + 500;
    load.run_until("writes", |load| {
        third.poll(Instant::now());
        load.done >= end && load.disk.waiting() == 0
    });
    let took = begin.elapsed();
    println!("{took:?} from the loss to 500 commands and no held write");
    assert!(took < KATO, "a reset ends the wait");
    load.finish().close().unwrap();
    target.stop();
}

#[test]
fn io_follows_the_ana_states_that_a_reload_sets() {
    let disk = Scratch::new("reloaded", DISK_BYTES);
    let (one, two, mut load) = two_paths(&disk, Policy::QueueDepth);
    load.run(200);
    for (state, of_one) in [
        ("inaccessible", AnaState::INACCESSIBLE),
        ("optimized", AnaState::OPTIMIZED),
        ("change", AnaState::CHANGE),
        ("persistent-loss", AnaState::PERSISTENT_LOSS),
        ("non-optimized", AnaState::NON_OPTIMIZED),
    ] {
        one.set_ana(state);
        load.run_until(state, |load| path(load, 0).ana == Some(of_one));
        let used = of_one == AnaState::OPTIMIZED;
        assert_eq!(commands_by(&mut load, 0) > 0, used, "{state}");
    }
    two.set_ana("inaccessible");
    load.run_until("the other's state", |load| {
        path(load, 1).ana == Some(AnaState::INACCESSIBLE)
    });
    assert!(commands_by(&mut load, 0) > 0);
    one.set_ana("inaccessible");
    load.run_until("both to be inaccessible", |load| load.disk.waiting() > 8);
    two.set_ana("optimized");
    load.run(200);
    load.finish().close().unwrap();
}

#[test]
fn a_listener_is_removed_under_load_and_comes_back() {
    let toml = subsystem(NQN, &["mem:4MiB block_size = 4096"]);
    let target = TestTarget::start(&toml);
    if target.loopback().is_none() {
        return;
    }
    let second = SocketAddr::from(([192, 0, 2, 3], 4420));
    let lines = format!("[[listener]]\naddress = \"{}\"\n", second.ip());
    target.reload_as(&toml, &lines);
    let recovery = Recovery {
        ctrl_loss_tmo: Some(Duration::from_secs(100)),
        reconnect_delay: Duration::from_millis(200),
        fast_io_fail_tmo: None,
    };
    let options = |remote| HostOptions {
        remote,
        recovery,
        ..target.options("a")
    };
    let paths = [target.remote(), second].map(options);
    let options = MultipathOptions {
        policy: Policy::RoundRobin,
        ..MultipathOptions::new(1)
    };
    let disk = Multipath::connect(&*target.provider(), paths, options).unwrap();
    let mut load = Load::new(disk);
    load.run(200);
    for _ in 0..3 {
        assert!(uses(&load, [true, true]));
        target.reload(&toml);
        let inaccessible = Some(AnaState::INACCESSIBLE);
        load.run_until("the notice", |load| path(load, 1).ana == inaccessible);
        assert_eq!(path(&load, 1).link, Link::Live);
        load.run_until("the end", |load| path(load, 1).link == Link::Reconnecting);
        load.run(200);
        target.reload_as(&toml, &lines);
        load.run_until("its return", |load| uses(load, [true, true]));
        load.run(200);
    }
    load.finish().close().unwrap();
    target.stop();
}

#[test]
fn a_transition_that_never_ends_resets_the_controller() {
    let toml = subsystem(NQN, &["mem:1MiB"]);
    let target = TestTarget::start_as(&toml, "ana = \"change\"");
    let options = target.options("a");
    let device = target.provider().device_for(options.remote, options.local);
    let mut now = Instant::now();
    let paths = [(device.unwrap(), options)];
    let mut disk = Multipath::begin(paths, MultipathOptions::new(1), now).unwrap();
    let ticket = disk.submit(command::flush(1), Data::None).unwrap();
    let poll_until =
        |disk: &mut Multipath, clock: &dyn Fn() -> Instant, ready: &dyn Fn(&PathEvent) -> bool| {
            let patience = Instant::now() + Duration::from_secs(20);
            while !std::iter::from_fn(|| disk.take_event()).any(|(_, event)| ready(&event)) {
                assert!(Instant::now() < patience, "{disk:?}");
                if !disk.poll(clock()) {
                    std::thread::yield_now();
                }
            }
        };
    let is_live = |event: &PathEvent| matches!(event, PathEvent::Controller(Event::Live { .. }));
    poll_until(&mut disk, &|| now, &|event| {
        matches!(event, PathEvent::Ana(Some(AnaState::CHANGE)))
    });
    now += Duration::from_secs(19);
    disk.poll(now);
    assert_eq!(disk.paths().next().unwrap().link, Link::Live);
    now += Duration::from_secs(2);
    let jumped = Instant::now();
    let going_on = || now + jumped.elapsed();
    poll_until(&mut disk, &going_on, &is_live);
    assert_eq!(disk.waiting(), 1, "the command waits for what comes of it");
    target.reload_as(&toml, "ana = \"optimized\"");
    poll_until(&mut disk, &going_on, &|event| {
        matches!(event, PathEvent::Ana(Some(AnaState::OPTIMIZED)))
    });
    let answer = disk.wait(ticket).answer.unwrap();
    assert!(answer.cqe.status().is_success());
    disk.close().unwrap();
}

#[test]
fn both_targets_are_killed_and_one_returns() {
    let disk = Scratch::new("both-killed", DISK_BYTES);
    let (mut one, mut two, mut load) = two_paths(&disk, Policy::RoundRobin);
    load.run(200);
    one.kill();
    two.kill();
    load.run_until("both to be lost", |load| {
        load.disk
            .paths()
            .all(|path| path.link == Link::Reconnecting)
    });
    load.run_until("all commands to wait", |load| {
        load.disk.waiting() == load.disk.outstanding()
    });
    assert!(load.disk.waiting() > 0);
    two.resume();
    load.run_until("the return of one", |load| uses(load, [false, true]));
    load.run(200);
    one.resume();
    load.run_until("the return of the other", |load| uses(load, [true, true]));
    load.run(200);
    load.finish().close().unwrap();
}

#[test]
fn commands_end_when_no_path_comes_back_soon_enough() {
    let disk = Scratch::new("no-path", DISK_BYTES);
    let mut one = Process::start(1, &shared(&disk));
    let options = HostOptions {
        recovery: Recovery {
            fast_io_fail_tmo: Some(Duration::from_millis(500)),
            ..one.options().recovery
        },
        ..one.options()
    };
    let mut multipath = connect(&[options], MultipathOptions::new(1)).unwrap();
    multipath.run(command::flush(1), Data::None).unwrap();
    one.kill();
    let error = multipath.run(command::flush(1), Data::None).unwrap_err();
    assert!(
        matches!(error, HostError::NoPath { paths: 1, .. }),
        "{error}"
    );
    let address = one.options().remote.to_string();
    let text = error.to_string();
    assert!(text.contains(&format!("to {address} is lost: ")), "{text}");
    one.resume();
    multipath
        .wait_until("its return", |multipath| {
            multipath.has_usable_path().then_some(())
        })
        .unwrap();
    multipath.run(command::flush(1), Data::None).unwrap();
    multipath.close().unwrap();
}

#[test]
fn a_command_that_was_given_up_is_never_sent() {
    const BLOCK: usize = 4096;
    let disk = Scratch::written("given-up", DISK_BYTES);
    let mut one = Process::start(1, &shared(&disk));
    let mut multipath = connect(&[one.options()], MultipathOptions::new(1)).unwrap();
    let mut buffer = multipath.buffer(BLOCK).unwrap();
    let mut write = |multipath: &mut Multipath, block: u64, byte: u8| {
        buffer.write(0, &[byte; BLOCK]);
        let data = Data::whole(&mut buffer);
        multipath.run(command::write(1, block, 1), data).map(drop)
    };
    let is_late = |result| matches!(result, Err(HostError::Timeout { .. }));
    one.pause();
    multipath.set_timeout(Duration::from_millis(300));
    assert!(is_late(write(&mut multipath, 5, b'A')));
    assert_eq!(multipath.outstanding(), 0);
    assert!(!multipath.has_usable_path());
    assert!(is_late(write(&mut multipath, 6, b'A')));
    assert_eq!(multipath.outstanding(), 0);
    one.kill();
    one.resume();
    multipath.set_timeout(Duration::from_secs(30));
    write(&mut multipath, 9, b'B').unwrap();
    multipath.run(command::flush(1), Data::None).unwrap();
    multipath.close().unwrap();
    let on_disk = std::fs::read(disk.path()).unwrap();
    let block = |at: usize| &on_disk[at * BLOCK..(at + 1) * BLOCK];
    assert_eq!(block(9), [b'B'; BLOCK]);
    for never_sent in [5, 6] {
        assert_eq!(block(never_sent), [0; BLOCK], "block {never_sent}");
    }
}

#[test]
fn a_path_to_another_namespace_is_not_used() {
    let (disk, larger) = (
        Scratch::new("this", DISK_BYTES),
        Scratch::new("larger", 2 * DISK_BYTES),
    );
    let named =
        |disk| "uuid = \"00000000-0000-4000-8000-000000000001\"\n".to_owned() + &shared(disk);
    for (one, two, expected) in [
        (shared(&disk), named(&disk), "identifiers"),
        (shared(&disk), shared(&larger), "identifiers"),
        (named(&disk), named(&larger), "blocks"),
    ] {
        let one = Process::start(1, &one);
        let two = Process::start(2, &two);
        let options = MultipathOptions::new(1);
        let mut multipath = connect(&[one.options(), two.options()], options).unwrap();
        let mut refused = Vec::new();
        while let Some((path, event)) = multipath.take_event() {
            if let PathEvent::Refused(why) = event {
                refused.push((path, why));
            }
        }
        let [(path, why)] = &refused[..] else {
            panic!("{refused:?}")
        };
        assert!(why.contains(expected), "{why}");
        let states: Vec<_> = multipath.paths().collect();
        assert!(
            !states[*path].usable && states[1 - path].usable,
            "{states:?}"
        );
        for _ in 0..8 {
            multipath.run(command::flush(1), Data::None).unwrap();
        }
        multipath.close().unwrap();
    }
}

#[test]
fn a_target_that_returns_with_another_disk_is_not_used() {
    let (disk, other) = (
        Scratch::new("before", DISK_BYTES),
        Scratch::new("after", DISK_BYTES),
    );
    let mut one = Process::start(1, &shared(&disk));
    let mut multipath = connect(&[one.options()], MultipathOptions::new(1)).unwrap();
    multipath.run(command::flush(1), Data::None).unwrap();
    one.kill();
    std::fs::rename(other.path(), disk.path()).unwrap();
    one.resume();
    let why = multipath
        .wait_until("the refusal", |multipath| {
            let mut events = std::iter::from_fn(|| multipath.take_event());
            events.find_map(|(_, event)| match event {
                PathEvent::Refused(why) => Some(why),
                _ => None,
            })
        })
        .unwrap();
    assert!(why.contains("identifiers"), "{why}");
    assert!(!multipath.has_usable_path());
}

#[test]
fn without_any_usable_path_connecting_says_why() {
    let disk = Scratch::new("unusable", DISK_BYTES);
    let mut one = Process::start(1, &shared(&disk));
    let absent = connect(&[one.options()], MultipathOptions::new(7)).unwrap_err();
    assert!(absent.to_string().contains("cannot be read"), "{absent}");
    let strange = MultipathOptions {
        uuid: Some([7; 16]),
        ..MultipathOptions::new(1)
    };
    let strange = connect(&[one.options()], strange).unwrap_err();
    assert!(strange.to_string().contains("UUID"), "{strange}");
    one.kill();
    let hasty = HostOptions {
        timeout: Duration::from_secs(1),
        ..one.options()
    };
    let result = connect(&[hasty], MultipathOptions::new(1)).unwrap_err();
    let blames_a_path = !matches!(result, HostError::NoPath { .. });
    assert!(blames_a_path, "{result}");
}

#[test]
fn after_a_killed_process_changes_wait_and_reads_do_not() {
    let disk = Scratch::new("doubted", DISK_BYTES);
    let one = Process::start(1, &shared(&disk));
    let options = MultipathOptions {
        write_hold: Some(Duration::from_secs(3)),
        ..MultipathOptions::new(1)
    };
    let mut multipath = connect(&[one.options()], options).unwrap();
    multipath.doubt_all_blocks();
    let mut submit = |sqe| {
        let buffer = multipath.buffer(4096).unwrap();
        multipath.submit(sqe, Data::whole(buffer)).unwrap()
    };
    let write = submit(command::write(1, 3, 1));
    let read = submit(command::read(1, 3, 1));
    assert_eq!(multipath.waiting(), 1);
    for expected in [read, write] {
        let ended = multipath.wait_any(Duration::from_secs(60)).unwrap();
        let (ticket, ended) = ended.expect("both commands end");
        assert_eq!(ticket, expected);
        assert!(ended.answer.unwrap().cqe.status().is_success());
    }
}

#[test]
fn a_command_that_timed_out_sends_nothing_of_its_reused_buffer() {
    const BLOCK: usize = 4096;
    let disk = Scratch::written("timed-out", DISK_BYTES);
    let mut one = Process::start(1, &shared(&disk));
    let mut host = Host::connect(&Soft::default(), one.options()).unwrap();
    let mut buffer = host.buffer(BLOCK).unwrap();
    buffer.write(0, &[b'A'; BLOCK]);
    one.pause();
    host.set_timeout(Duration::from_millis(300));
    let late = host.run(command::write(1, 5, 1), Data::whole(&mut buffer));
    assert!(matches!(late, Err(HostError::Timeout { .. })), "{late:?}");
    assert_eq!(host.controller().outstanding(IoQueue::FIRST), 0);
    buffer.write(0, &[b'B'; BLOCK]);
    one.kill();
    one.resume();
    host.set_timeout(Duration::from_secs(30));
    host.wait_live().unwrap();
    let data = Data::whole(&mut buffer);
    host.run(command::write(1, 9, 1), data).unwrap();
    host.run(command::flush(1), Data::None).unwrap();
    let on_disk = std::fs::read(disk.path()).unwrap();
    let block = |at: usize| &on_disk[at * BLOCK..(at + 1) * BLOCK];
    assert!(block(5).iter().all(|&byte| byte != b'B'), "reused bytes");
    assert!(block(9).iter().all(|&byte| byte == b'B'));
}
