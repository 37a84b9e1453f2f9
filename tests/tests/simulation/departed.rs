//! A write of a host that disconnected while the target was stopped.
//!
//! The target must not execute the write, in whichever order its threads resume: the host may have
//! repeated the write on another path.

use std::time::Duration;

use cairn_initiator::{Data, command};
use cairn_sim::Random;
use cairn_sim::network::Weather;
use cairn_tests::harness::{NQN, Scratch, subsystem};

use crate::host::{Simulated, Traits};
use crate::world::{self, Plan, Stopped};

const BLOCK: usize = 4096;
/// Shorter than KATO, but enough for a disconnect.
const STOP: Duration = Duration::from_secs(1);
/// Time until sent packets have arrived.
const ARRIVAL: Duration = Duration::from_millis(100);

fn pass(time: Duration) {
    let end = world::now() + time;
    while world::now() < end {
        world::with(|world| world.advance(end));
    }
}

/// `goes_on_first` holds the threads that remain stopped while others resume.
fn is_made(seed: u64, goes_on_first: Stopped) -> bool {
    let mut random = Random::new(seed);
    let file = Scratch::in_memory(&format!("departed-{seed}"), 8 * BLOCK as u64);
    let config = format!(
        "[target]\nreactors = 1\npoll_idle_us = 0\nin_capsule_data = \"4KiB\"\n{}",
        subsystem(NQN, &[&file.export(BLOCK as u32)])
    );
    let plan = Plan {
        path_mtu: 5,
        ipv6: false,
        config,
        trace: false,
    };
    world::begin(&plan, Weather::FAIR, &mut random);
    let traits = Traits {
        number: 1,
        io_queues: 1,
        queue_entries: 16,
        kato_ms: 30_000,
        flow_control: true,
        mdts_bytes: 8192,
        recovers: false,
    };
    let mut host = Simulated::connect(&traits, true).expect("nothing ails it");
    // Every reactor is asleep now.
    pass(ARRIVAL);
    let all = Stopped {
        manager: true,
        target: true,
    };
    world::with(|world| world.stopped = all);
    let data = Data::InCapsule(&[7; BLOCK]);
    let write = command::write(1, 3, 1);
    host.controller.submit(1, write, data).expect("it is live");
    host.controller.poll(world::now());
    pass(ARRIVAL);
    drop(host);
    pass(STOP);
    world::with(|world| world.stopped = goes_on_first);
    pass(ARRIVAL);
    world::with(|world| world.stopped = Stopped::default());
    pass(ARRIVAL);
    world::end();
    let bytes = std::fs::read(file.path()).expect("the file is there");
    bytes[3 * BLOCK..4 * BLOCK] == [7; BLOCK]
}

#[test]
fn a_host_that_left_during_a_stop_writes_nothing_whichever_thread_goes_on_first() {
    let (manager, target) = (true, true);
    for (seed, stopped) in [
        Stopped::default(),
        Stopped {
            manager,
            ..Stopped::default()
        },
        Stopped {
            target,
            ..Stopped::default()
        },
    ]
    .into_iter()
    .enumerate()
    {
        assert!(!is_made(seed as u64, stopped), "a stale write: {stopped:?}");
    }
}
