//! A panic must end only one reactor and its queues, or one device's connections.

mod rig;

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use cairn_disk::Operation;
use cairn_initiator::{Data, Host, HostError, command};
use cairn_roce::Soft;
use cairn_sim::Random;
use cairn_tests::exposition;
use cairn_tests::harness::own_loopback_address;
use cairn_tests::logged;
use cairn_tests::saboteur::MESSAGE;

use rig::{BLOCK, FATAL_BLOCKS, Rig, alone, on_loopback, on_soft, on_soft_that_panics};

const HALF: u64 = 64;

#[test]
fn a_panic_ends_one_reactor_and_no_other_host_notices() {
    let _alone = alone();
    one_panic(Rig::start("one", on_loopback()));
}

#[test]
fn a_panic_ends_one_reactor_over_roce_in_user_space() {
    let _alone = alone();
    one_panic(Rig::start("one-soft", on_soft()));
}

fn one_panic(rig: Rig) {
    logged::listen();
    let (ready, is_ready) = mpsc::channel();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| watch(&rig, &ready, &stop));
        is_ready.recv().unwrap();
        let _stop = Stop(&stop);
        panic_before(&rig);
        drop(_stop);
        assert!(watch.join().unwrap() > 1);
    });
    rig.target.stop().unwrap();
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn watch(rig: &Rig, ready: &mpsc::Sender<()>, stop: &AtomicBool) -> u32 {
    let mut bystander = rig.connect_apart("bystander");
    ready.send(()).unwrap();
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        let data = write_all(&mut bystander, HALF);
        assert_eq!(read_all(&mut bystander, HALF), data);
        rounds += 1;
    }
    bystander.shutdown().unwrap();
    rounds
}

fn panic_before(rig: &Rig) {
    let mut victim = rig.connect_back("victim");
    let mut torn = rig.connect_torn("torn");
    assert_eq!(rig.reactors_of("bystander"), [1, 1]);
    assert_eq!(rig.reactors_of("victim"), [0, 0]);
    let written = write_all(&mut victim, 0);
    let fds = open_files(|| {
        torn.poll();
    });
    let cntlid = torn.cntlid();
    rig.saboteur.arm(1);
    let bytes = read(&mut victim, 0, FATAL_BLOCKS).unwrap();
    assert_eq!(bytes, written[..bytes.len()]);
    assert_eq!(read_all(&mut victim, 0), written);
    rig.until("the torn host's new association", || {
        torn.poll();
        torn.is_live() && torn.cntlid() != cntlid
    });
    assert_eq!(rig.panics(0), 1);
    assert_eq!(rig.panics(1), 0);
    let line = logged::lines(&["a reactor panicked", MESSAGE, "reactor=0", "hosts=2"]);
    assert!(!line.is_empty(), "{:?}", logged::lines(&["panicked"]));
    rig.until("an end of all that the reactor held", || {
        torn.poll();
        rig.is_at_rest(0)
    });
    let mut alive = || {
        victim.poll();
        torn.poll();
    };
    rig.until("as many queues as before", || {
        alive();
        rig.queue_pairs() == 2 + 2 + 3
    });
    assert!(open_files(alive) <= fds);
    for host in [victim, torn] {
        host.shutdown().unwrap();
    }
}

#[test]
fn work_that_the_device_refuses_ends_one_queue_and_no_reactor() {
    let _alone = alone();
    logged::listen();
    let rig = Rig::start("refused", on_loopback());
    let mut bystander = rig.connect_once("bystander");
    let mut victim = rig.connect_once("victim");
    rig.saboteur.arm_refusal();
    let lost = read(&mut victim, 0, FATAL_BLOCKS);
    assert!(matches!(lost, Err(HostError::Lost { .. })), "{lost:?}");
    rig.until("the count of the fault", || rig.device_faults() == 1);
    let line = logged::lines(&["disconnected", "device fault"]);
    assert!(!line.is_empty(), "{:?}", logged::lines(&["disconnected"]));
    drop(victim);
    let data = write_all(&mut bystander, 0);
    assert_eq!(read_all(&mut bystander, 0), data);
    assert_eq!(rig.panics(0) + rig.panics(1), 0);
    rig.connect_once("victim").shutdown().unwrap();
    bystander.shutdown().unwrap();
    rig.target.stop().unwrap();
}

#[test]
fn what_a_disk_holds_is_waited_for() {
    let _alone = alone();
    let rig = Rig::start("held", on_loopback());
    let bystander = rig.connect_apart("bystander");
    let mut victim = rig.connect_once("victim");
    write_all(&mut victim, 0);
    rig.disk().hold(Operation::Write);
    let mut old = victim.buffer(BLOCK).unwrap();
    old.write(0, &[1; BLOCK]);
    let held = Data::whole(old);
    let ticket = victim.submit(command::write(1, 7, 1), held).unwrap();
    rig.until("a write at the disk", || {
        victim.poll();
        rig.disk().waiting(Operation::Write) == 1
    });
    victim.forget(ticket);
    rig.saboteur.arm(1);
    let lost = read(&mut victim, 0, FATAL_BLOCKS);
    assert!(matches!(lost, Err(HostError::Lost { .. })), "{lost:?}");
    drop(victim);

    let mut next = rig.connect_once("victim");
    assert_eq!(rig.orphans(0), 1);
    rig.disk().hold_no_more(Operation::Write);
    write(&mut next, 8, &[2; BLOCK]).unwrap();
    let mut newer = next.buffer(BLOCK).unwrap();
    newer.write(0, &[2; BLOCK]);
    let data = Data::whole(newer);
    let waits = next.submit(command::write(1, 7, 1), data).unwrap();
    let end = Instant::now() + Duration::from_millis(300);
    while Instant::now() < end {
        next.poll();
    }
    assert!(next.take(waits).is_none(), "an older one is at the disk");
    rig.disk().release(Operation::Write);
    assert!(next.wait(waits).answer.unwrap().cqe.status().is_success());
    assert_eq!(rig.orphans(0), 0);
    assert_eq!(rig.in_progress(1), 0);
    assert_eq!(read(&mut next, 7, 1).unwrap(), [2; BLOCK]);
    rig.until("an end of all that the reactor held", || rig.is_at_rest(0));
    assert_eq!(rig.panics(0), 1);
    drop((bystander, next));
    rig.target.stop().unwrap();
}

#[test]
fn a_read_that_a_disk_ends_late_hits_no_memory_of_others() {
    let _alone = alone();
    let rig = Rig::start("late", on_loopback());
    let bystander = rig.connect_apart("bystander");
    let mut victim = rig.connect_once("victim");
    let written = write_all(&mut victim, 0);
    rig.disk().hold(Operation::Read);
    let tickets = [1, 2, 3].map(|at| {
        let data = Data::whole(victim.buffer(BLOCK).unwrap());
        victim.submit(command::read(1, at, 1), data).unwrap()
    });
    rig.until("reads at the disk", || {
        victim.poll();
        rig.disk().waiting(Operation::Read) == tickets.len()
    });
    tickets.into_iter().for_each(|ticket| victim.forget(ticket));
    rig.saboteur.arm(1);
    let lost = read_of(&mut victim, 2, 0, FATAL_BLOCKS);
    assert!(matches!(lost, Err(HostError::Lost { .. })), "{lost:?}");
    drop(victim);
    let mut next = rig.connect_once("victim");
    assert_eq!(rig.orphans(0), tickets.len() as u64);
    rig.disk().release(Operation::Read);
    assert_eq!(read_all(&mut next, 0), written);
    rig.until("an end of all that the reactor held", || rig.is_at_rest(0));
    drop((bystander, next));
    rig.target.stop().unwrap();
}

#[test]
fn a_panic_in_the_middle_of_a_connect_leaves_no_controller() {
    let _alone = alone();
    let rig = Rig::start("connect", on_loopback());
    rig.saboteur.arm_connect();
    assert!(rig.try_connect_once("first").is_err());
    assert_eq!(rig.panics(0) + rig.panics(1), 1);
    rig.until_controllers(0);
    let mut host = rig.connect_once("first");
    write(&mut host, 7, &[1; BLOCK]).unwrap();
    host.shutdown().unwrap();
    rig.target.stop().unwrap();
}

#[test]
fn a_panic_amid_much_work_loses_nothing_that_was_acknowledged() {
    let _alone = alone();
    let rig = Rig::start_on_file("amid", on_loopback());
    let bystander = rig.connect_apart("bystander");
    for round in 1..=3 {
        let mut victim = rig.connect_once("victim");
        let written = write_all(&mut victim, 0);
        for slba in 0..HALF - 8 {
            let mut buffer = victim.buffer(BLOCK).unwrap();
            buffer.write(0, &[round; BLOCK]);
            let sqe = match slba % 2 {
                0 => command::write(1, HALF + slba, 1),
                _ => command::read(1, HALF + slba, 1),
            };
            let ticket = victim.submit(sqe, Data::whole(buffer)).unwrap();
            victim.forget(ticket);
        }
        rig.saboteur.arm(1);
        let lost = read_of(&mut victim, 2, 0, FATAL_BLOCKS);
        assert!(matches!(lost, Err(HostError::Lost { .. })), "{lost:?}");
        drop(victim);
        let mut next = rig.connect_once("victim");
        assert_eq!(read_all(&mut next, 0), written);
        assert_eq!(write_all(&mut next, HALF), read_all(&mut next, HALF));
        next.shutdown().unwrap();
        rig.until("an end of all that the reactor held", || rig.is_at_rest(0));
        assert_eq!(rig.panics(0), u64::from(round));
    }
    drop(bystander);
    rig.target.stop().unwrap();
}

#[test]
fn a_panic_over_one_connection_request_refuses_it_and_no_other() {
    let _alone = alone();
    let rig = Rig::start("request", on_loopback());
    let mut host = rig.connect_once("first");
    rig.saboteur.arm_request();
    let refused = rig.try_connect_once("second");
    assert!(refused.is_err());
    rig.until("the count", || rig.control_panics("connect") == 1);
    write(&mut host, 7, &[1; BLOCK]).unwrap();
    let second = rig.connect_once("second");
    assert_eq!(rig.panics(0) + rig.panics(1), 0);
    drop((host, second));
    rig.target.stop().unwrap();
}

#[test]
fn a_panic_in_connection_management_ends_the_connections_of_its_device() {
    let _alone = alone();
    logged::listen();
    let (network, panics) = on_soft_that_panics();
    let mut rig = Rig::start("device", network);
    let other = Rig::start("other-device", on_soft());
    rig.separate_hosts();
    let (ready, is_ready) = mpsc::channel();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| watch(&other, &ready, &stop));
        is_ready.recv().unwrap();
        let _stop = Stop(&stop);
        for round in 1..=2 {
            let before = rig.control_panics("device");
            let mut victim = rig.connect_back("victim");
            let written = write_all(&mut victim, 0);
            let cntlid = victim.cntlid();
            panics.store(1, Ordering::Relaxed);
            let mut second = rig.connect_once("second");
            rig.until("the victim's new association", || {
                victim.poll();
                second.poll();
                victim.is_live() && victim.cntlid() != cntlid
            });
            assert_eq!(read_all(&mut victim, 0), written, "in round {round}");
            write(&mut second, 7, &[1; BLOCK]).unwrap();
            assert_eq!(rig.control_panics("device"), before + 1);
            rig.until_controllers(2);
            victim.shutdown().unwrap();
            second.shutdown().unwrap();
            rig.until_controllers(0);
        }
        drop(_stop);
        assert!(watch.join().unwrap() > 1);
    });
    assert_eq!(rig.panics(0) + rig.panics(1), 0);
    let lines = logged::lines(&["part=\"device\"", MESSAGE]);
    assert!(!lines.is_empty(), "{:?}", logged::lines(&["panicked"]));
    rig.target.stop().unwrap();
    other.target.stop().unwrap();
}

#[test]
fn a_panic_over_one_request_for_metrics_is_answered_and_counted() {
    let _alone = alone();
    logged::listen();
    let rig = Rig::start("metrics", on_loopback());
    rig.saboteur.arm_metrics();
    let (head, _) = exposition::get(rig.target.metrics_address().unwrap(), "/metrics");
    assert!(head.starts_with("HTTP/1.1 500 "), "{head}");
    assert_eq!(rig.control_panics("metrics"), 1);
    let lines = logged::lines(&["part=\"metrics\"", MESSAGE]);
    assert!(!lines.is_empty(), "{:?}", logged::lines(&["panicked"]));
    rig.target.stop().unwrap();
}

#[test]
fn panics_without_end_end_the_process() {
    let mut target = Command::new(env!("CARGO_BIN_EXE_cairn-sabotaged-target"))
        .arg((FATAL_BLOCKS as usize * BLOCK).to_string())
        .arg(own_loopback_address().to_string())
        .env_remove("RUST_BACKTRACE")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(target.stdout.take().unwrap()).lines();
    let remote = lines.next().unwrap().unwrap().parse().unwrap();
    let errors = target.stderr.take().unwrap();
    let errors = thread::spawn(|| std::io::read_to_string(errors).unwrap());
    let end = Instant::now() + Duration::from_secs(60);
    let status = loop {
        if let Some(status) = target.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < end, "it goes on");
        if let Ok(mut host) = Host::connect(&Soft::default(), rig::lone_host(remote)) {
            let lost = read(&mut host, 0, FATAL_BLOCKS);
            assert!(lost.is_err());
        }
    };
    assert_eq!(status.signal(), Some(libc::SIGABRT), "{status}");
    let errors = errors.join().unwrap();
    let panicked = || {
        errors
            .lines()
            .filter(|line| line.contains("a reactor panicked:"))
    };
    assert_eq!(panicked().count(), 5, "{errors}");
    let with_place = |line: &str| line.contains(MESSAGE) && line.contains("saboteur.rs:");
    assert!(panicked().all(with_place), "{errors}");
    let last = errors.lines().last().unwrap_or_default();
    assert!(last.contains("6 panics in 60 s"), "{errors}");
    assert!(
        !errors.contains("thread '"),
        "confined panics print nothing: {errors}"
    );
}

fn write(host: &mut Host, slba: u64, bytes: &[u8]) -> Result<(), HostError> {
    let mut buffer = host.buffer(bytes.len())?;
    buffer.write(0, bytes);
    let blocks = (bytes.len() / BLOCK) as u32;
    let data = Data::start_of(&mut buffer, bytes.len() as u32);
    host.run(command::write(1, slba, blocks), data)?;
    Ok(())
}

fn read(host: &mut Host, slba: u64, blocks: u32) -> Result<Vec<u8>, HostError> {
    read_of(host, 1, slba, blocks)
}

fn read_of(host: &mut Host, nsid: u32, slba: u64, blocks: u32) -> Result<Vec<u8>, HostError> {
    let length = blocks as usize * BLOCK;
    let mut buffer = host.buffer(length)?;
    let data = Data::start_of(&mut buffer, length as u32);
    host.run(command::read(nsid, slba, blocks), data)?;
    Ok(buffer.bytes(0, length))
}

fn write_all(host: &mut Host, first: u64) -> Vec<u8> {
    static SEED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    let mut random = Random::new(SEED.fetch_add(1, Ordering::Relaxed));
    let bytes = random.bytes(HALF as usize * BLOCK);
    for (slba, block) in (first..).zip(bytes.chunks(BLOCK)) {
        write(host, slba, block).unwrap();
    }
    bytes
}

fn read_all(host: &mut Host, first: u64) -> Vec<u8> {
    let blocks = (first..first + HALF).map(|slba| read(host, slba, 1).unwrap());
    blocks.flatten().collect()
}

fn open_files(mut meanwhile: impl FnMut()) -> usize {
    let until = Instant::now() + Duration::from_secs(1);
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mut least = count();
    while Instant::now() < until {
        least = least.min(count());
        meanwhile();
    }
    least
}
