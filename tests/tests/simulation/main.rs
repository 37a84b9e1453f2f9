//! Target and hosts on a simulated network with a simulated clock.
//!
//! Everything runs in one thread, and a seed determines every random choice. The reactors, the
//! control plane, the hosts and user-space RoCE are production code, which the test steps manually.
//! The network ([`weather`]) loses up to a tenth of all packets. It also repeats, delays, reorders
//! and damages packets, and tests can cut it. The tests check these rules:
//!
//! * Every command ends once. It succeeds unless its connection ended or the host aborted it. A
//!   read returns the last written data ([`disk`]).
//! * A connection ends only for a known reason.
//! * Everything ends in bounded time. The target then holds only the resources that it held before.
//! * No code panics.
//!
//! If several hosts use the same blocks ([`crowd`]), a correct disk must be able to explain
//! everything that the hosts saw ([`history`]).
//!
//! A failing seed prints a command that replays it and traces every packet. `CAIRN_SEEDS` sets the
//! number of seeds, for longer runs than in CI.

mod crowd;
mod departed;
mod disk;
mod history;
mod host;
mod scenario;
mod weather;
mod world;

use cairn_disk::Lie;
use crowd::Crowd;
use scenario::{Scenario, Trouble};
use weather::for_each_seed;

/// The simulation must find each planted bug within this number of seeds.
const PLANTED_SEEDS: u64 = 20;

/// I/O in fair weather without trouble succeeds, which validates the model.
#[test]
fn fair_weather() {
    for_each_seed("fair_weather", 100, |seed| {
        Scenario::new(seed, Trouble::None).run(false);
    });
}

/// Loss, duplication, reordering, corruption and delay cost time but no data.
#[test]
fn foul_weather() {
    for_each_seed("foul_weather", 800, |seed| {
        Scenario::new(seed, Trouble::None).run(true);
    });
}

/// Hosts reset controllers, leave with outstanding commands and return.
#[test]
fn coming_and_going() {
    for_each_seed("coming_and_going", 600, |seed| {
        Scenario::new(seed, Trouble::Leaving).run(true);
    });
}

/// The target releases all resources of hosts that vanish without a disconnect.
#[test]
fn vanishing() {
    for_each_seed("vanishing", 400, |seed| {
        Scenario::new(seed, Trouble::Vanishing).run(true);
    });
}

/// The network is cut and heals before or after the connections give up.
#[test]
fn partitions() {
    for_each_seed("partitions", 600, |seed| {
        Scenario::new(seed, Trouble::Partition).run(true);
    });
}

/// Two runs of a seed send the same packets, so a failure can be replayed.
#[test]
fn a_seed_is_a_run() {
    for_each_seed("a_seed_is_a_run", 20, |seed| {
        let digest = || Scenario::new(seed, Trouble::Leaving).run(true);
        assert_eq!(digest(), digest());
    });
}

/// Runs a crowd with this trouble for several seeds.
fn crowd(test: &str, seeds: u64, trouble: crowd::Trouble) {
    for_each_seed(test, seeds, |seed| {
        if let Err(violation) = Crowd::new(seed, trouble).run() {
            panic!("{violation}");
        }
    });
}

/// Disks reorder commands, are slow, transfer less data than requested and fail in bursts.
#[test]
fn disks_that_fail() {
    crowd("disks_that_fail", 120, crowd::Trouble::Disks);
}

/// Hosts die with outstanding commands and return at once.
#[test]
fn hosts_that_die() {
    crowd("hosts_that_die", 120, crowd::Trouble::Dying);
}

/// Hosts pause, in part for longer than their keep alive timeout.
#[test]
fn hosts_that_pause() {
    crowd("hosts_that_pause", 80, crowd::Trouble::HostPause);
}

/// The target pauses while packets wait for it and hosts give up.
#[test]
fn a_target_that_pauses() {
    crowd("a_target_that_pauses", 120, crowd::Trouble::TargetPause);
}

/// The target is killed and restarted.
#[test]
fn a_target_that_is_killed() {
    crowd("a_target_that_is_killed", 80, crowd::Trouble::Restart);
}

/// The power fails and the disks lose some or all unflushed data.
#[test]
fn power_cuts() {
    crowd("power_cuts", 120, crowd::Trouble::PowerCut);
}

/// Time passes without any visible clock change, as on a sleeping machine.
#[test]
fn clock_jumps() {
    crowd("clock_jumps", 80, crowd::Trouble::ClockJump);
}

/// Hosts move between two targets with a shared disk, with a wait before each move.
#[test]
fn two_targets_on_one_disk() {
    crowd("two_targets_on_one_disk", 200, crowd::Trouble::TwoTargets);
}

/// A hanging disk does not delay hosts that use other disks.
#[test]
fn a_disk_that_hangs() {
    crowd("a_disk_that_hangs", 80, crowd::Trouble::Hang);
}

/// The crowd runs find each planted disk bug within a few seeds.
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
