//! A target that is stopped for longer than KATO, or while a host disconnects. After it continues,
//! the target must not start disk operations of the lost host.
//!
//! The tests stop the target at each of its clock readings. A stop between two readings has the
//! same effect as a stop at the second reading.

use std::time::Instant;

use nvme_proto::wire::Sqe;
use nvme_proto::wire::feature::{Feature, Select};

use super::*;

const KATO: Duration = Duration::from_secs(5);
const STOP: Duration = Duration::from_secs(9);
const SHORT_STOP: Duration = Duration::from_secs(1);
const LOOKS_MAX: u64 = 10_000;

fn admin_commands() -> [Sqe; 4] {
    let kato_ms = KATO.as_millis() as u32;
    [
        command::keep_alive(),
        command::set_features(Feature::KEEP_ALIVE_TIMER.0, 0, kato_ms),
        command::get_features(Feature::KEEP_ALIVE_TIMER.0, Select::CURRENT, 0, 0),
        command::async_event_request(),
    ]
}

/// Connects `neighbours` hosts, then the tested host. The disk holds later writes.
fn host_of_held_writes(neighbours: usize, kato: Duration) -> (Bed, Vec<Controller>, Controller) {
    let mut bed = Bed::new("stopped");
    let names = ["first", "second"];
    let others = names[..neighbours].iter();
    let others = others.map(|name| bed.live_host(name, 0)).collect();
    let host = bed.live_host("fails-over", kato.as_millis() as u32);
    bed.disk.hold(Operation::Write);
    (bed, others, host)
}

fn send_write(host: &mut Controller, block: u64) {
    let data = Data::InCapsule(&[7; BLOCK]);
    host.submit(command::write(1, block, 1), data).unwrap();
}

impl Bed {
    fn step_until_stopped(&mut self, looks: u64, time: Duration) -> Option<Instant> {
        let now = self.clock.now();
        self.clock.stop_after(looks, time);
        self.target.step();
        (!self.clock.forget_stop()).then_some(now)
    }

    fn writes_since(&self, stopped_at: Instant) -> usize {
        let since = self.disk.waiting_since(Operation::Write);
        since.iter().filter(|&&since| since > stopped_at).count()
    }

    fn release_writes(&mut self) {
        self.disk.release(Operation::Write);
        self.pass(Duration::from_secs(1));
    }
}

fn writes_around(admin: Sqe, neighbours: usize, looks: u64) -> bool {
    let (mut bed, _others, mut host) = host_of_held_writes(neighbours, KATO);
    send_write(&mut host, 1);
    host.submit_admin(admin, Data::None).unwrap();
    send_write(&mut host, 2);
    let stopped = bed.step_until_stopped(looks, STOP);
    send_write(&mut host, 3);
    bed.pass(Duration::from_secs(1));
    let late = stopped.map_or(0, |at| bed.writes_since(at));
    assert_eq!(
        late, 0,
        "stale writes, {admin:?}, stopped after {looks} looks"
    );
    bed.release_writes();
    let third = if stopped.is_some() { 0 } else { 7 };
    assert_eq!(bed.block(3), [third; BLOCK], "stopped after {looks} looks");
    stopped.is_some()
}

#[test]
fn nothing_is_begun_after_one_that_is_longer_than_kato() {
    for admin in admin_commands() {
        for neighbours in 0..2 {
            let stops = (0..LOOKS_MAX).take_while(|&looks| writes_around(admin, neighbours, looks));
            assert!(stops.count() > 4, "the target looks at the clock");
        }
    }
}

fn writes_before_leaving(kato: Duration, neighbours: usize, looks: u64) -> bool {
    let (mut bed, _others, mut host) = host_of_held_writes(neighbours, kato);
    let buffer = [7; BLOCK];
    send_write(&mut host, 1);
    write(&mut host, 1, 2, &buffer);
    drop(host);
    let stopped = bed.step_until_stopped(looks, SHORT_STOP);
    bed.pass(Duration::from_secs(1));
    let late = stopped.map_or(0, |at| bed.writes_since(at));
    assert_eq!(late, 0, "stale writes, stopped after {looks} looks");
    bed.release_writes();
    stopped.is_some()
}

#[test]
fn nothing_is_begun_after_one_in_which_the_host_left() {
    for kato in [KATO, Duration::ZERO] {
        for neighbours in 0..2 {
            let stopped = |&looks: &u64| writes_before_leaving(kato, neighbours, looks);
            let stops = (0..LOOKS_MAX).take_while(stopped).count();
            assert!(stops > 4, "the target looks at the clock");
        }
    }
}

fn writes_of_one_who_stays(neighbours: usize, looks: u64) -> bool {
    let (mut bed, _others, mut host) = host_of_held_writes(neighbours, KATO);
    let tickets = [1, 2].map(|block| {
        let data = Data::InCapsule(&[7; BLOCK]);
        host.submit(command::write(1, block, 1), data).unwrap()
    });
    let stopped = bed.step_until_stopped(looks, SHORT_STOP);
    bed.disk.release(Operation::Write);
    for ticket in tickets {
        let status = bed.answer(&mut host, ticket);
        assert_eq!(status, Status::SUCCESS, "stopped after {looks} looks");
    }
    assert_eq!([bed.block(1), bed.block(2)], [[7; BLOCK], [7; BLOCK]]);
    stopped.is_some()
}

#[test]
fn one_that_is_shorter_costs_a_host_that_stays_nothing() {
    for neighbours in 0..2 {
        let stopped = |&looks: &u64| writes_of_one_who_stays(neighbours, looks);
        let stops = (0..LOOKS_MAX).take_while(stopped).count();
        assert!(stops > 4, "the target looks at the clock");
    }
}
