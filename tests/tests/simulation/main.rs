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
//! * nobody panics.
//!
//! A failing seed prints the command that replays it, and tells each packet then.
//! `CAIRN_SEEDS` says how many seeds to run, for longer than CI does.

mod disk;
mod host;
mod scenario;
mod seeds;
mod weather;
mod world;

use scenario::{Scenario, Trouble};
use seeds::for_each_seed;

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
