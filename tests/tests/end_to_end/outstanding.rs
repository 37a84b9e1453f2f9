//! Limit of outstanding commands at a disk, and its division between hosts.
//!
//! The simulated disk completes its oldest command before each step of the test.

use cairn_disk::Operation;
use cairn_initiator::{Data, Ticket, command};
use cairn_tests::harness::{METRICS, NQN, Scratch, TestTarget, host_nqn, subsystem};

use super::isolation::{BLOCK, Bed};
use super::limits::Demand;

fn run(bed: &mut Bed, turns: usize, most: usize, demands: &mut [Demand]) {
    for _ in 0..turns {
        bed.disks[0].release_oldest(Operation::Read);
        bed.turn();
        let there = bed.disks[0].in_flight();
        assert!(there <= most, "the disk has {there} commands");
        for demand in demands.iter_mut() {
            demand.go_on(bed);
        }
    }
}

fn shares(name: &str, weight: u32, limit: &str, hosts: [(u32, usize); 3]) -> [u64; 3] {
    let most = if limit.is_empty() { 1024 } else { 8 };
    let heavy = host_nqn("heavy");
    let more = format!("limited_host = [{{ nqn = \"{heavy}\", weight = {weight} }}]");
    let mut bed = Bed::with(name, "", &more, [limit, ""]);
    bed.disks[0].hold(Operation::Read);
    let names = ["heavy", "one", "other"];
    let mut demands = [0, 1, 2].map(|at| {
        let (blocks, depth) = hosts[at];
        let host = bed.connect(names[at], 1, 64);
        Demand::new(&mut bed, host, command::read(1, 0, blocks), blocks, depth)
    });
    run(&mut bed, 6000, most, &mut demands);
    let each = demands.each_ref().map(Demand::bytes_done);
    bed.disks[0].release_all();
    bed.quiet();
    each
}

const LIMIT: &str = "limits = { outstanding = 8 }";

#[track_caller]
fn assert_parts(each: [u64; 3], weights: [u64; 3]) {
    let (all, parts) = (each.iter().sum::<u64>(), weights.iter().sum::<u64>());
    for (bytes, weight) in each.into_iter().zip(weights) {
        let part = all * weight / parts;
        assert!(
            bytes * 10 >= part * 9 && bytes * 10 <= part * 11,
            "{each:?}, of {all}"
        );
    }
}

#[test]
fn without_a_limit_who_sends_more_has_more() {
    let [few, _, many] = shares("unlimited", 1, "", [(1, 8), (1, 8), (1, 48)]);
    assert!(many > 4 * few, "{many} {few}");
}

#[test]
fn a_busy_disk_is_shared_evenly_whatever_hosts_send() {
    assert_parts(
        shares("even", 1, LIMIT, [(1, 8), (1, 16), (1, 48)]),
        [1, 1, 1],
    );
    assert_parts(
        shares("sizes", 1, LIMIT, [(1, 16), (4, 16), (16, 4)]),
        [1, 1, 1],
    );
}

#[test]
fn a_busy_disk_is_shared_by_weights() {
    assert_parts(
        shares("weights", 3, LIMIT, [(1, 16), (1, 16), (1, 48)]),
        [3, 1, 1],
    );
}

#[test]
fn what_a_host_does_not_take_is_the_others() {
    let [little, one, other] = shares("rest", 1, LIMIT, [(1, 1), (1, 32), (1, 32)]);
    assert!(little > 0 && one > 2 * little, "{little} {one}");
    assert!(
        one * 10 >= other * 9 && other * 10 >= one * 9,
        "{one} {other}"
    );
}

#[test]
fn a_disk_that_hangs_lets_no_more_in_and_loses_none() {
    let mut bed = Bed::with("hangs", "", "", [LIMIT, ""]);
    let (host, bystander) = (bed.connect("a", 1, 64), bed.connect("b", 1, 32));
    bed.disks[0].hold(Operation::Read);
    let held = bed.flood(host, 1, 60, command::read(1, 0, 1), BLOCK);
    assert_eq!(bed.disks[0].in_flight(), 8);
    bed.check_io(bystander, 2);
    bed.check_io(host, 2);
    let flush = bed.submit(host, command::flush(1), Data::None);
    bed.collect(host, vec![flush]);
    bed.disks[0].release(Operation::Read);
    bed.collect(host, held);
    bed.check_io(host, 1);
    bed.quiet();
}

#[test]
fn waits_are_counted_and_a_reload_lifts_the_limit() {
    let file = Scratch::in_memory("outstanding", 4 << 20);
    let toml = |limits: &str| {
        let export = format!("{}\n{limits}", file.export(BLOCK));
        format!("{METRICS}{}", subsystem(NQN, &[&export]))
    };
    let target = TestTarget::start(&toml("limits = { outstanding = 1 }"));
    let mut host = target.connect("one");
    let mut read_all = || {
        let submitted = (0..100).map(|_| {
            let data = Data::whole(host.buffer(BLOCK as usize).unwrap());
            host.submit(command::read(1, 0, 1), data).unwrap()
        });
        let tickets: Vec<Ticket> = submitted.collect();
        for ticket in tickets {
            host.wait(ticket).answer.unwrap();
        }
        let scrape = target.scrape();
        scrape.count("cairn_namespace_limit_waits_total", &[("nsid", "1")])
    };
    let waits = read_all();
    assert!((1..=99).contains(&waits), "{waits}");
    target.reload(&toml(""));
    assert_eq!(read_all(), waits);
    host.shutdown().unwrap();
    target.stop();
}
