//! Target and hosts on a simulated network and clock.
//!
//! One thread executes production code step by step, with random choices from a seed. The tests
//! check these rules:
//!
//! * Every command ends once, and succeeds unless its connection ended or the host aborted it. A
//!   read returns the last written data ([`disk`]).
//! * A connection ends only for a known reason.
//! * Everything ends in bounded time, and leaves no additional resources in the target.
//! * The results of several hosts' commands ([`crowd`]) are possible with a correct disk
//!   ([`history`]).

mod crowd;
mod departed;
mod disk;
mod history;
mod host;
mod members;
mod scenario;
mod weather;
mod world;

use cairn_disk::Lie;
use crowd::Crowd;
use scenario::{Scenario, Trouble};
use weather::for_each_seed;

const PLANTED_SEEDS: u64 = 20;

#[test]
fn fair_weather() {
    for_each_seed("fair_weather", 100, |seed| {
        Scenario::new(seed, Trouble::None).run(false);
    });
}

#[test]
fn foul_weather() {
    for_each_seed("foul_weather", 800, |seed| {
        Scenario::new(seed, Trouble::None).run(true);
    });
}

#[test]
fn coming_and_going() {
    for_each_seed("coming_and_going", 600, |seed| {
        Scenario::new(seed, Trouble::Leaving).run(true);
    });
}

#[test]
fn vanishing() {
    for_each_seed("vanishing", 400, |seed| {
        Scenario::new(seed, Trouble::Vanishing).run(true);
    });
}

#[test]
fn partitions() {
    for_each_seed("partitions", 600, |seed| {
        Scenario::new(seed, Trouble::Partition).run(true);
    });
}

#[test]
fn a_seed_is_a_run() {
    for_each_seed("a_seed_is_a_run", 20, |seed| {
        let digest = || Scenario::new(seed, Trouble::Leaving).run(true);
        assert_eq!(digest(), digest());
    });
}

fn crowd(test: &str, seeds: u64, trouble: crowd::Trouble) {
    for_each_seed(test, seeds, |seed| {
        if let Err(violation) = Crowd::new(seed, trouble).run() {
            panic!("{violation}");
        }
    });
}

#[test]
fn disks_that_fail() {
    crowd("disks_that_fail", 120, crowd::Trouble::Disks);
}

#[test]
fn hosts_that_die() {
    crowd("hosts_that_die", 120, crowd::Trouble::Dying);
}

#[test]
fn hosts_that_pause() {
    crowd("hosts_that_pause", 80, crowd::Trouble::HostPause);
}

#[test]
fn a_target_that_pauses() {
    crowd("a_target_that_pauses", 120, crowd::Trouble::TargetPause);
}

#[test]
fn a_target_that_is_killed() {
    crowd("a_target_that_is_killed", 80, crowd::Trouble::Restart);
}

#[test]
fn power_cuts() {
    crowd("power_cuts", 120, crowd::Trouble::PowerCut);
}

#[test]
fn clock_jumps() {
    crowd("clock_jumps", 80, crowd::Trouble::ClockJump);
}

#[test]
fn two_targets_on_one_disk() {
    crowd("two_targets_on_one_disk", 200, crowd::Trouble::TwoTargets);
}

#[test]
fn a_disk_that_hangs() {
    crowd("a_disk_that_hangs", 80, crowd::Trouble::Hang);
}

#[test]
fn hosts_that_reserve() {
    for_each_seed("hosts_that_reserve", 40, members::run);
}

#[test]
fn planted_bugs_of_reservations_are_found() {
    assert_eq!(members::bugs_not_found(), [""; 0]);
}

#[test]
fn planted_bugs_are_found() {
    for (lie, trouble) in [
        (Lie::LostWrite, crowd::Trouble::Disks),
        (Lie::TornWrite, crowd::Trouble::Disks),
        (Lie::LateWrite, crowd::Trouble::Disks),
        (Lie::MisplacedWrite, crowd::Trouble::Disks),
        (Lie::OldRead, crowd::Trouble::Disks),
        (Lie::TornRead, crowd::Trouble::Disks),
        (Lie::EmptyFlush, crowd::Trouble::PowerCut),
        (Lie::LostWrite, crowd::Trouble::PowerCut),
        (Lie::LateWrite, crowd::Trouble::Dying),
    ] {
        let found = |seed: &u64| Crowd::new(*seed, trouble).with_lie(lie).run().is_err();
        let first = (0..PLANTED_SEEDS).find(found);
        assert!(first.is_some(), "{lie:?} under {trouble:?} is not found");
    }
}
