//! Cost of a target with many queue pairs, hosts and controllers, and activity of an idle target.
//!
//! A separate executable, because the test counts all allocations of its process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cairn_initiator::{Buffer, Data, Host, HostOptions, command};
use cairn_rdma::Provider as _;
use cairn_roce::Soft;
use cairn_roce_proto::counters::Counters;
use cairn_tests::harness::{NQN, TestTarget, subsystem};

struct Counting;

thread_local! {
    /// True on the test's threads, whose allocations belong to hosts and are not counted.
    static IS_TEST: Cell<bool> = const { Cell::new(false) };
}

static BYTES: AtomicI64 = AtomicI64::new(0);

fn count(bytes: i64) {
    if !IS_TEST.try_with(Cell::get).unwrap_or(false) {
        BYTES.fetch_add(bytes, Ordering::Relaxed);
    }
}

// SAFETY: all calls are forwarded unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller fulfils the conditions of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Maximum memory in bytes of an idle queue pair, and of a controller with its admin queue.
const BYTES_MAX: i64 = 64 << 10;
const SETTLE: Duration = Duration::from_millis(200);

fn target(soft: &Soft, more: &str) -> TestTarget {
    IS_TEST.set(true);
    let disks = subsystem(NQN, &["mem:4MiB block_size = 4096"]);
    TestTarget::start_on_soft(
        soft.clone(),
        &format!("[target]\nreactors = 1\n{more}\n{disks}"),
    )
}

fn connect(target: &TestTarget, names: std::ops::Range<u16>, io_queues: u16) -> Vec<Host> {
    connect_by(target, names, |options| HostOptions {
        io_queues,
        ..options
    })
}

fn connect_by(
    target: &TestTarget,
    names: std::ops::Range<u16>,
    wish: impl Fn(HostOptions) -> HostOptions,
) -> Vec<Host> {
    let connect = |name: u16| {
        let options = wish(target.options(&format!("{name}")));
        let host = target.try_connect(options);
        let mut host = host.unwrap_or_else(|error| panic!("host {name}: {error}"));
        while host.poll() {}
        host
    };
    names.map(connect).collect()
}

fn disconnect(hosts: Vec<Host>) {
    for host in hosts {
        let _ = host.disconnect();
    }
}

fn rest(hosts: &mut [Host], length: Duration) {
    let end = Instant::now() + length;
    while Instant::now() < end {
        for host in &mut *hosts {
            host.poll();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_idle_queue_pair_and_a_controller_take_little_memory() {
    let _alone = alone();
    let soft = Soft::default();
    let target = target(&soft, "");
    let mut hosts = connect(&target, 0..1, 1);
    let mut grown_by = |names, io_queues| {
        let before = BYTES.load(Ordering::Relaxed);
        hosts.extend(connect(&target, names, io_queues));
        std::thread::sleep(SETTLE);
        BYTES.load(Ordering::Relaxed) - before
    };
    let controller = grown_by(1..21, 0) / 20;
    let with_queues = grown_by(21..25, 32) - 4 * controller;
    let queue_pair = with_queues / (4 * 32);
    println!("a controller has {controller} bytes, a queue pair {queue_pair}");
    assert!((1..BYTES_MAX).contains(&queue_pair), "{queue_pair}");
    assert!((1..BYTES_MAX).contains(&controller), "{controller}");
    disconnect(hosts);
    target.stop();
}

#[test]
fn a_thousand_queue_pairs_connect() {
    const HOSTS: u16 = 10;
    const OF_EACH: u16 = 100;
    let _alone = alone();
    let soft = Soft::default();
    let target = target(&soft, "");
    let mut hosts = Vec::new();
    let connect_next = |name| {
        let begun = Instant::now();
        hosts.extend(connect(&target, name..name + 1, OF_EACH - 1));
        begun.elapsed()
    };
    let took: Vec<Duration> = (0..HOSTS).map(connect_next).collect();
    println!("100 queue pairs each connect in {took:.2?}");
    for host in &mut hosts {
        assert_eq!(host.io_queues().len(), usize::from(OF_EACH - 1));
        let last = host.io_queues().last().expect("it has queues");
        host.run_on(last, command::flush(1), Data::None)
            .expect("its last queue works");
    }
    let fastest = |of: &[Duration]| *of.iter().min().expect("there are hosts");
    let (early, late) = took.split_at(took.len() / 2);
    assert!(fastest(late) < fastest(early) * 3, "{took:?}");
    disconnect(hosts);
    target.stop();
}

fn sleeps() -> u64 {
    let own = fs::read_link("/proc/thread-self").expect("/proc is mounted");
    let tasks = fs::read_dir("/proc/self/task").expect("/proc is mounted");
    let tasks = tasks.map(|task| task.expect("it can be listed").path());
    tasks
        .filter(|task| task.file_name() != own.file_name())
        .filter_map(|task| fs::read_to_string(task.join("status")).ok())
        .map(|status| {
            let line = status.split_once("\nvoluntary_ctxt_switches:");
            let number = line.and_then(|(_, rest)| rest.split_ascii_whitespace().next());
            number.map_or(0, |number| number.parse::<u64>().expect("a number"))
        })
        .sum()
}

#[test]
fn hosts_that_do_nothing_wake_the_target_for_keep_alives_alone() {
    const HOSTS: u16 = 32;
    const LENGTH: Duration = Duration::from_secs(2);
    let _alone = alone();
    let soft = Soft::default();
    let target = target(&soft, "");
    let mut hosts = connect_by(&target, 0..HOSTS, |options| HostOptions {
        io_queues: 4,
        kato_ms: 4000,
        ..options
    });
    rest(&mut hosts, SETTLE);
    let before = sleeps();
    rest(&mut hosts, LENGTH);
    let sleeps = sleeps() - before;
    println!("{HOSTS} hosts at rest: {sleeps} wake-ups in {LENGTH:?}");
    assert!(sleeps > 0, "no host stayed alive");
    assert!(sleeps < 16 * u64::from(HOSTS), "{sleeps}");
    disconnect(hosts);
    target.stop();
}

fn quickest_after(host: &mut Host, buffer: &mut Buffer, quiet: Duration) -> Duration {
    let mut read = || {
        rest(std::slice::from_mut(host), quiet);
        let begun = Instant::now();
        let read = command::read(1, 0, 1);
        host.run(read, Data::start_of(&mut *buffer, 4096))
            .expect("it can be read");
        begun.elapsed()
    };
    (0..12).map(|_| read()).min().expect("there are some")
}

#[test]
fn the_first_command_after_a_quiet_spell_waits_for_no_timer() {
    let _alone = alone();
    let soft = Soft::default();
    let target = target(&soft, "");
    let mut host = target.connect("seldom");
    let mut buffer = host.buffer(4096).expect("a page of memory");
    let busy = quickest_after(&mut host, &mut buffer, Duration::ZERO);
    let first = quickest_after(&mut host, &mut buffer, Duration::from_millis(150));
    println!("a read takes {busy:?} among others, {first:?} after a quiet spell");
    assert!(first < busy * 20, "{first:?} after {busy:?}");
    host.disconnect().expect("an orderly end");
    target.stop();
}

#[derive(Debug)]
struct Cost {
    packets: f64,
    datagrams: f64,
}

fn cost_over(queues: u16) -> Cost {
    const DEPTH: usize = 64;
    const COUNTED: u32 = 40_000;
    const BYTES: u32 = 4096;
    let soft = Soft::default();
    let target = target(&soft, "");
    let remote = target.remote();
    let _devices = [None, Some(remote.ip())].map(|local| soft.device_for(remote, local));
    let mut host = connect(&target, 0..1, queues).remove(0);
    let buffers = host.buffer(DEPTH * BYTES as usize).expect("memory");
    let buffers = buffers.split(BYTES as usize);
    let mut turn = 0;
    let mut submit = |host: &mut Host, slot: usize, buffer| {
        let queue = host.io_queue(turn);
        turn += 1;
        let data = Data::whole(buffer);
        let read = command::read(1, slot as u64, 1);
        host.submit_on(queue, read, data)
            .expect("the queues hold as many")
    };
    let begun = (0..)
        .zip(buffers)
        .map(|(slot, buffer)| submit(&mut host, slot, buffer));
    let mut flights: Vec<_> = begun.collect();
    let mut over = 0;
    while over < COUNTED {
        host.poll();
        for (slot, flight) in flights.iter_mut().enumerate() {
            if let Some(ended) = host.take(*flight) {
                assert!(ended.answer.expect("it holds").cqe.status().is_success());
                over += 1;
                *flight = submit(&mut host, slot, ended.buffer.expect("that of the read"));
            }
        }
    }
    host.disconnect().expect("an orderly end");
    target.stop();
    let mut sum = Counters::default();
    for (_, counters) in soft.counters() {
        sum.add(&counters);
    }
    Cost {
        packets: sum.sent_pkts as f64 / f64::from(COUNTED),
        datagrams: sum.sent_datagrams as f64 / f64::from(COUNTED),
    }
}

#[test]
fn spreading_commands_over_queue_pairs_costs_few_trips_through_the_network_stack() {
    let _alone = alone();
    let one = cost_over(1);
    let mut tries = (0..5).map(|_| cost_over(64)).inspect(|many| {
        println!("a read over 1 queue pair: {one:?}; over 64: {many:?}");
    });
    let many = tries.find(|many| many.datagrams < 2.0);
    let many = many.expect("packets of several queue pairs share a system call");
    assert!(one.packets > 2.9, "not all is counted: {one:?}");
    assert!(many.packets < 2.0 * one.packets);
}
