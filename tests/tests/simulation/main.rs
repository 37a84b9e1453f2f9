//! Target, hosts and the endpoints of both on a simulated network and a simulated
//! clock, in one thread, with nothing left to chance but by a seed.
//!
//! The target's reactors and control plane, the hosts, and user-space RoCE at both
//! ends are those of production, moved along by hand. The network ([`weather`])
//! loses up to a tenth of all packets, repeats, delays, reorders and damages some,
//! or is cut. What must hold, whatever it does:
//!
//! * every command ends once, and ends well unless its connection ended or it was
//!   aborted; what it read is what was written last ([`disk`]);
//! * a connection ends for a reason only;
//! * everything ends in bounded time, and then the target holds nothing that it did
//!   not hold before;
//! * nothing panics.
//!
//! Where several hosts use the same blocks ([`crowd`]), disks fail and machines stop,
//! what hosts saw is what some disk could have shown them ([`history`]).
//!
//! A failing seed prints the command that replays it, and prints each packet then.
//! `CAIRN_SEEDS` says how many seeds to run, for longer than CI does.

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

/// In so many seeds each planted bug has to be found.
const PLANTED_SEEDS: u64 = 20;

/// Nothing happens but I/O, in fair weather: the model itself is right.
#[test]
fn fair_weather() {
    for_each_seed("fair_weather", 100, |seed| {
        Scenario::new(seed, Trouble::None).run(false);
    });
}

/// Loss, duplication, reordering, corruption and delay cost time, never data.
#[test]
fn foul_weather() {
    for_each_seed("foul_weather", 800, |seed| {
        Scenario::new(seed, Trouble::None).run(true);
    });
}

/// Controllers are reset, hosts leave with commands under way, and come again.
#[test]
fn coming_and_going() {
    for_each_seed("coming_and_going", 600, |seed| {
        Scenario::new(seed, Trouble::Leaving).run(true);
    });
}

/// Hosts vanish without a word: all that they held comes back.
#[test]
fn vanishing() {
    for_each_seed("vanishing", 400, |seed| {
        Scenario::new(seed, Trouble::Vanishing).run(true);
    });
}

/// The network is cut, and heals before or after the connections have given up.
#[test]
fn partitions() {
    for_each_seed("partitions", 600, |seed| {
        Scenario::new(seed, Trouble::Partition).run(true);
    });
}

/// The same seed is the same run, packet by packet: else it could not be replayed.
#[test]
fn a_seed_is_a_run() {
    for_each_seed("a_seed_is_a_run", 20, |seed| {
        let digest = || Scenario::new(seed, Trouble::Leaving).run(true);
        assert_eq!(digest(), digest());
    });
}

/// Several hosts, and what troubles them, judged by what they saw.
fn crowd(test: &str, seeds: u64, trouble: crowd::Trouble) {
    for_each_seed(test, seeds, |seed| {
        if let Err(violation) = Crowd::new(seed, trouble).run() {
            panic!("{violation}");
        }
    });
}

/// Disks that reorder, are slow, move less than was asked, fail and storm.
#[test]
fn disks_that_fail() {
    crowd("disks_that_fail", 120, crowd::Trouble::Disks);
}

/// Hosts die with commands under way and return at once.
#[test]
fn hosts_that_die() {
    crowd("hosts_that_die", 120, crowd::Trouble::Dying);
}

/// Hosts stop, for longer than their keep alive timeout too.
#[test]
fn hosts_that_pause() {
    crowd("hosts_that_pause", 80, crowd::Trouble::HostPause);
}

/// The target stops while packets wait for it and hosts give up.
#[test]
fn a_target_that_pauses() {
    crowd("a_target_that_pauses", 120, crowd::Trouble::TargetPause);
}

/// The target is killed and started again.
#[test]
fn a_target_that_is_killed() {
    crowd("a_target_that_is_killed", 80, crowd::Trouble::Restart);
}

/// The power fails, and the disks lose what was not flushed, or some of it.
#[test]
fn power_cuts() {
    crowd("power_cuts", 120, crowd::Trouble::PowerCut);
}

/// No clock shows that time passes, as in a machine that sleeps.
#[test]
fn clock_jumps() {
    crowd("clock_jumps", 80, crowd::Trouble::ClockJump);
}

/// Hosts go from one target to another on the same disk, and wait in between.
#[test]
fn two_targets_on_one_disk() {
    crowd("two_targets_on_one_disk", 200, crowd::Trouble::TwoTargets);
}

/// A disk that hangs costs the hosts of others nothing.
#[test]
fn a_disk_that_hangs() {
    crowd("a_disk_that_hangs", 80, crowd::Trouble::Hang);
}

/// Each bug of a disk is found, in few seeds: else the runs above would prove nothing.
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
