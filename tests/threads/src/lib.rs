//! Multi-threaded tests for `cargo xtask sanitize thread`. Two reactors serve changing hosts while
//! the configuration changes and metrics are read.
//!
//! This is a separate package, because a sanitizer recompiles all dependencies.
#![cfg(test)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cairn_initiator::{Data, HostOptions, command};
use cairn_sim::Random;
use cairn_tests::harness::{METRICS, NQN, TestTarget, subsystem};

const BLOCKS: u32 = 16;
const BYTES: usize = 16 * 512;
const STRETCHES: u64 = 40;

fn disks(exports: &[&str]) -> String {
    format!(
        "[target]\nreactors = 2\n{METRICS}{}",
        subsystem(NQN, exports)
    )
}

/// Stops the other threads on drop, also after a panic.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn write_and_read(target: &TestTarget, seed: u64) {
    let options = HostOptions {
        io_queues: 2,
        ..target.options(&format!("host{seed}"))
    };
    let mut host = target.try_connect(options).unwrap();
    let mut random = Random::new(seed);
    let mut buffer = host.buffer(BYTES).unwrap();
    for stretch in 0..STRETCHES {
        let slba = (seed * STRETCHES + stretch) * u64::from(BLOCKS);
        let bytes = random.bytes(BYTES);
        let [writes, reads] = [stretch, stretch + 1].map(|turn| host.io_queue(turn as usize));
        buffer.write(0, &bytes);
        let write = command::write(1, slba, BLOCKS);
        let data = Data::start_of(&mut buffer, BYTES as u32);
        host.run_on(writes, write, data).unwrap();
        buffer.write(0, &[0xee; BYTES]);
        let read = command::read(1, slba, BLOCKS);
        let data = Data::start_of(&mut buffer, BYTES as u32);
        host.run_on(reads, read, data).unwrap();
        assert!(buffer.bytes(0, BYTES) == bytes, "host {seed}, {stretch}");
    }
    host.shutdown().unwrap();
}

fn come_and_go(target: &TestTarget, done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        let mut host = target.connect("passer-by");
        for buffer in host.buffer(20 * BYTES).unwrap().split(BYTES) {
            let read = command::read(1, 0, BLOCKS);
            host.submit(read, Data::whole(buffer)).unwrap();
        }
        drop(host);
    }
}

fn change_and_look(target: &TestTarget, done: &AtomicBool) {
    let mut controllers = 0;
    while !done.load(Ordering::Relaxed) {
        target.reload(&disks(&["mem:4MiB block_size = 512", "null:1GiB"]));
        let page = target.scrape();
        controllers =
            controllers.max(page.count("cairn_subsystem_controllers", &[("subsystem", NQN)]));
        target.reload(&disks(&["mem:4MiB block_size = 512"]));
    }
    assert!(controllers >= 1, "the metrics showed no host");
}

#[test]
fn all_threads_of_a_target_meet() {
    let running = TestTarget::start(&disks(&["mem:4MiB block_size = 512"]));
    let done = AtomicBool::new(false);
    let (target, done) = (&running, &done);
    thread::scope(|scope| {
        let start = |seed| scope.spawn(move || write_and_read(target, seed));
        let hosts = [0, 1].map(start);
        scope.spawn(|| come_and_go(target, done));
        scope.spawn(|| change_and_look(target, done));
        let _done = Done(done);
        for host in hosts {
            host.join().unwrap();
        }
    });
    running.stop();
}
