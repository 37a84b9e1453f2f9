//! Rate limits. The clock is simulated, so results are exact.

use std::collections::VecDeque;
use std::time::Duration;

use cairn_initiator::{Data, Ticket, command};
use cairn_tests::harness::{METRICS, NQN, TestTarget, host_nqn, subsystem};
use nvme_proto::wire::{Sqe, Status};

use super::isolation::{BLOCK, Bed, status_of};

pub(super) struct Demand {
    host: usize,
    sqe: Sqe,
    bytes: u32,
    open: VecDeque<Ticket>,
    done: u64,
}

impl Demand {
    pub(super) fn new(bed: &mut Bed, host: usize, sqe: Sqe, blocks: u32, depth: usize) -> Self {
        let bytes = blocks * BLOCK;
        let mut demand = Self {
            host,
            sqe,
            bytes,
            open: VecDeque::new(),
            done: 0,
        };
        for _ in 0..depth {
            demand.submit(bed);
        }
        demand
    }

    fn submit(&mut self, bed: &mut Bed) {
        let buffer = bed.host(self.host).buffer(self.bytes as usize).unwrap();
        let data = Data::whole(buffer);
        self.open.push_back(bed.submit(self.host, self.sqe, data));
    }

    pub(super) fn go_on(&mut self, bed: &mut Bed) {
        for _ in 0..self.open.len() {
            let Some(ticket) = self.open.pop_front() else {
                return;
            };
            match bed.host(self.host).take(ticket) {
                None => self.open.push_back(ticket),
                Some(ended) => {
                    assert!(ended.answer.unwrap().cqe.status().is_success());
                    self.done += 1;
                    self.submit(bed);
                }
            }
        }
    }

    pub(super) fn bytes_done(&self) -> u64 {
        self.done * u64::from(self.bytes)
    }
}

fn run(bed: &mut Bed, time: Duration, demands: &mut [Demand]) {
    let end = bed.clock.now() + time;
    while bed.clock.now() < end {
        bed.turn();
        for demand in demands.iter_mut() {
            demand.go_on(bed);
        }
    }
}

fn assert_within(done: u64, allowed: u64, what: &str) {
    let hundredths = done * 100 / allowed;
    assert!(
        (95..=105).contains(&hundredths),
        "{what}: {done} of {allowed}"
    );
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn commands_of_a_second_are_those_of_the_limit_and_other_disks_have_none() {
    let mut bed = Bed::limited("iops", "", ["limits = { iops = 1000 }", ""]);
    let [one, other] = ["one", "other"].map(|name| bed.connect(name, 1, 32));
    let limited = Demand::new(&mut bed, one, command::read(1, 0, 1), 1, 16);
    let free = Demand::new(&mut bed, other, command::read(2, 0, 1), 1, 4);
    let mut demands = [limited, free];
    run(&mut bed, SECOND, &mut demands);
    let [limited, free] = demands.each_ref().map(|demand| demand.done);
    assert_within(limited, 1000, "the limited disk");
    assert!(free > 10 * limited, "{free} beside {limited}");
    bed.quiet();
}

#[test]
fn reads_and_writes_have_limits_of_their_own() {
    let limits = "limits = { read = \"1MiB\", write = \"2MiB\" }";
    let mut bed = Bed::limited("both", "", [limits, "limits = { total = \"2MiB\" }"]);
    let host = bed.connect("one", 1, 32);
    let mut readers = [1, 2].map(|nsid| {
        let read = command::read(nsid, 0, 2);
        Demand::new(&mut bed, host, read, 2, 4)
    });
    run(&mut bed, SECOND, &mut readers);
    assert_within(readers[0].bytes_done(), 1 << 20, "read");
    assert_within(readers[1].bytes_done(), 2 << 20, "total of reads");
    let other = bed.connect("other", 1, 32);
    let write = command::write(1, 0, 8);
    let mut writers = [Demand::new(&mut bed, other, write, 8, 4)];
    run(&mut bed, SECOND, &mut writers);
    assert_within(writers[0].bytes_done(), 2 << 20, "write");
    bed.quiet();
}

#[test]
fn hosts_share_a_limit_evenly_whatever_the_size_of_their_commands() {
    let mut bed = Bed::limited("fair", "", ["limits = { total = \"16MiB\" }", ""]);
    let mut demands =
        [("small", 1, 16), ("large", 32, 16), ("few", 4, 8)].map(|(name, blocks, depth)| {
            let host = bed.connect(name, 1, 32);
            Demand::new(&mut bed, host, command::read(1, 0, blocks), blocks, depth)
        });
    run(&mut bed, 2 * SECOND, &mut demands);
    let each = demands.each_ref().map(Demand::bytes_done);
    assert_within(each.iter().sum(), 32 << 20, "all");
    for bytes in each {
        assert!(bytes * 10 >= (32 << 20) / 3 * 8, "shares are {each:?}");
    }
    bed.quiet();
}

#[test]
fn hosts_share_a_limit_by_their_weights() {
    let more = format!(
        "limited_host = [{{ nqn = \"{}\", weight = 3 }}]",
        host_nqn("heavy")
    );
    let lines = ["limits = { total = \"16MiB\" }", ""];
    let mut bed = Bed::with("weights", "", &more, lines);
    let mut demands = [("heavy", 4), ("one", 4), ("other", 32)].map(|(name, blocks)| {
        let host = bed.connect(name, 1, 32);
        Demand::new(&mut bed, host, command::read(1, 0, blocks), blocks, 16)
    });
    run(&mut bed, 2 * SECOND, &mut demands);
    let each = demands.each_ref().map(Demand::bytes_done);
    assert_within(each.iter().sum(), 32 << 20, "all");
    for (bytes, weight) in each.into_iter().zip([3, 1, 1]) {
        let part = (32 << 20) / 5 * weight;
        assert!(bytes * 10 >= part * 8, "shares are {each:?}");
    }
    bed.quiet();
}

#[test]
fn a_host_that_comes_late_takes_no_more_than_its_share() {
    let limit = "limits = { total = \"2MiB\" }";
    let mut bed = Bed::limited("late", "", [limit, limit]);
    let demand = |bed: &mut Bed, name, nsid| {
        let host = bed.connect(name, 1, 32);
        Demand::new(bed, host, command::read(nsid, 0, 4), 4, 16)
    };
    let demands = [("one", 1), ("two", 1), ("early", 2)];
    let mut demands = demands.map(|(name, nsid)| demand(&mut bed, name, nsid));
    run(&mut bed, 4 * SECOND, &mut demands);
    let [one, two, early] = demands;
    let late = demand(&mut bed, "late", 2);
    let before = early.bytes_done();
    let mut demands = [one, two, early, late];
    run(&mut bed, SECOND, &mut demands);
    let each = [demands[2].bytes_done() - before, demands[3].bytes_done()];
    for bytes in each {
        assert!(bytes * 10 >= (2 << 20) / 2 * 8, "shares are {each:?}");
    }
    bed.quiet();
}

#[test]
fn each_host_has_a_limit_of_its_own_for_all_disks_and_connections_together() {
    let mut bed = Bed::with("hosts", "", "limits_per_host = { iops = 500 }", ["", ""]);
    let mut demands = [("one", 1), ("one", 2), ("other", 1)].map(|(name, nsid)| {
        let host = bed.connect(name, 1, 32);
        Demand::new(&mut bed, host, command::read(nsid, 0, 1), 1, 8)
    });
    run(&mut bed, SECOND, &mut demands);
    let [first, second, other] = demands.each_ref().map(|demand| demand.done);
    assert_within(first + second, 500, "one host");
    assert!(first.min(second) > 150, "{first} {second}");
    assert_within(other, 500, "the other host");
    bed.quiet();
}

#[test]
fn a_host_has_the_limit_of_its_name_in_place_of_that_of_each() {
    let (named, free) = (host_nqn("named"), host_nqn("free"));
    let more = format!(
        "limits_per_host = {{ iops = 300 }}\nlimited_host = [{{ nqn = \"{named}\", limits = {{ \
         iops = 600 }} }}, {{ nqn = \"{free}\" }}]"
    );
    let mut bed = Bed::with("named", "", &more, ["", ""]);
    let mut demands = ["named", "other", "free"].map(|name| {
        let host = bed.connect(name, 1, 32);
        Demand::new(&mut bed, host, command::read(1, 0, 1), 1, 8)
    });
    run(&mut bed, SECOND, &mut demands);
    let [named, other, free] = demands.each_ref().map(|demand| demand.done);
    assert_within(named, 600, "the host that is named");
    assert_within(other, 300, "another one");
    assert!(free > 700, "{free}");
    bed.quiet();
}

#[test]
fn a_subsystem_has_a_limit_for_all_hosts_and_disks_together() {
    let more = "limits = { iops = 600 }\nlimits_per_host = { iops = 500 }";
    let mut bed = Bed::with("subsystem", "", more, ["", "limits = { iops = 50 }"]);
    let mut demands = [("one", 1), ("other", 1), ("other", 2)].map(|(name, nsid)| {
        let host = bed.connect(name, 1, 32);
        Demand::new(&mut bed, host, command::read(nsid, 0, 1), 1, 8)
    });
    run(&mut bed, SECOND, &mut demands);
    let [one, other, slow] = demands.each_ref().map(|demand| demand.done);
    assert_within(one + other + slow, 600, "all");
    assert!(
        (40..=53).contains(&slow),
        "the disk's own limit counts, too: {slow}"
    );
    assert!(one.min(other) > 200, "{one} {other} {slow}");
    bed.quiet();
}

#[test]
fn what_was_not_taken_is_a_burst_of_the_configured_time_at_most() {
    let limits = "limits = { iops = 100, burst_ms = 200 }";
    let mut bed = Bed::limited("burst", "", [limits, ""]);
    let host = bed.connect("one", 1, 64);
    bed.pass(2 * SECOND);
    let mut demands = [Demand::new(&mut bed, host, command::read(1, 0, 1), 1, 60)];
    run(&mut bed, Duration::from_millis(20), &mut demands);
    let burst = demands[0].done;
    assert!((19..=23).contains(&burst), "{burst}");
    bed.quiet();
}

#[test]
fn flushes_and_admin_commands_do_not_wait() {
    let mut bed = Bed::limited("flush", "", ["limits = { iops = 1 }", ""]);
    let host = bed.connect("one", 1, 64);
    let held = bed.flood(host, 1, 20, command::read(1, 0, 1), BLOCK);
    let began = bed.clock.now();
    let flushed = bed.run(host, command::flush(1), Data::None).unwrap();
    assert!(flushed.cqe.status().is_success());
    let keep_alive = bed.submit_admin(host, command::keep_alive());
    bed.collect(host, vec![keep_alive]);
    bed.check_io(host, 2);
    let took = bed.clock.now() - began;
    assert!(took < Duration::from_millis(50), "{took:?}");
    let waiting = held
        .iter()
        .filter(|ticket| bed.host(host).take(**ticket).is_none());
    assert!(waiting.count() >= 18);
    bed.quiet();
}

#[test]
fn time_that_a_command_waits_is_not_the_disk_s() {
    let mut bed = Bed::limited("timeout", "io_timeout_s = 1", ["limits = { iops = 1 }", ""]);
    let host = bed.connect("one", 1, 32);
    let held = bed.flood(host, 1, 4, command::read(1, 0, 1), BLOCK);
    bed.pass(6 * SECOND);
    bed.collect(host, held);
    bed.quiet();
}

#[test]
fn a_command_that_waits_is_aborted_and_the_next_one_has_its_turn() {
    let mut bed = Bed::limited("abort", "", ["limits = { iops = 1 }", ""]);
    let host = bed.connect("one", 1, 32);
    let held = bed.flood(host, 1, 6, command::read(1, 0, 1), BLOCK);
    let answers: Vec<_> = held
        .iter()
        .map(|ticket| bed.host(host).take(*ticket))
        .collect();
    let first = answers.iter().position(Option::is_none).unwrap();
    let abort = command::abort(1, held[first].cid());
    let ticket = bed.submit_admin(host, abort);
    let mut answer = None;
    bed.until("the end of the Abort", |bed| {
        answer = bed.host(host).take(ticket);
        answer.is_some()
    });
    let response = answer.unwrap().answer.unwrap();
    assert_eq!(response.cqe.dw0.get() & 1, 0, "it was aborted");
    let victim = bed.host(host).take(held[first]).unwrap();
    assert_eq!(status_of(victim.answer), Status::ABORT_REQUESTED);
    let last = held.len() - 1;
    bed.pass(8 * SECOND);
    bed.collect(host, held[first + 1..=last].to_vec());
    bed.quiet();
}

#[test]
fn a_host_that_goes_while_it_waits_leaves_nothing_behind_and_no_time_to_others() {
    let mut bed = Bed::limited("goes", "", ["limits = { total = \"64KiB\" }", ""]);
    let (one, other) = (bed.connect("one", 2, 32), bed.connect("other", 1, 32));
    bed.flood(one, 2, 20, command::read(1, 0, 128), 128 * BLOCK);
    bed.pass(3 * SECOND);
    bed.kill(one);
    let mut demands = [Demand::new(&mut bed, other, command::read(1, 0, 1), 1, 8)];
    run(&mut bed, 4 * SECOND, &mut demands);
    assert_within(demands[0].bytes_done(), 256 << 10, "what is left");
    bed.quiet();
}

#[test]
fn a_host_that_waits_keeps_requests_and_receives_from_no_other() {
    let mut bed = Bed::limited("crowd", "receives = 64", ["limits = { iops = 20 }", ""]);
    let greedy = bed.connect("greedy", 4, 64);
    let bystander = bed.connect("bystander", 1, 32);
    let held = bed.flood(greedy, 4, 60, command::read(1, 0, 1), BLOCK);
    for _ in 0..100 {
        let began = bed.clock.now();
        bed.check_io(bystander, 2);
        let took = bed.clock.now() - began;
        assert!(took < Duration::from_millis(5), "{took:?}");
    }
    assert!(bed.target.usage().requests < 16, "{:?}", bed.target);
    bed.check_io(greedy, 2);
    let newcomer = bed.connect("newcomer", 1, 32);
    bed.check_io(newcomer, 2);
    bed.pass(14 * SECOND);
    bed.collect(greedy, held);
    bed.quiet();
}

#[test]
fn a_reload_lifts_a_limit_for_those_that_wait() {
    let toml = |limits: &str| {
        let export = format!("mem:1MiB {limits}");
        format!("{METRICS}{}", subsystem(NQN, &[&export]))
    };
    let target = TestTarget::start(&toml("limits = { iops = 1 }"));
    let mut host = target.connect("one");
    let submit = |host: &mut cairn_initiator::Host| {
        let data = Data::whole(host.buffer(512).unwrap());
        host.submit(command::read(1, 0, 1), data).unwrap()
    };
    let tickets: Vec<Ticket> = (0..100).map(|_| submit(&mut host)).collect();
    host.run_admin(command::keep_alive(), Data::None).unwrap();
    target.reload(&toml(""));
    for ticket in tickets {
        host.wait(ticket).answer.unwrap();
    }
    let scrape = target.scrape();
    let waits = scrape.count("cairn_namespace_limit_waits_total", &[("nsid", "1")]);
    assert!(waits > 50, "{waits}");
    host.shutdown().unwrap();
    target.stop();
}
