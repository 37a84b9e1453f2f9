//! Write of a host that disconnected while threads of the target were stopped.
//!
//! The host may have sent the write again on another path, so the target must not execute it. The
//! tests resume the target's threads in all possible orders.

use std::time::Duration;

use cairn_initiator::{Data, command};
use cairn_sim::Random;
use cairn_sim::network::Weather;
use cairn_tests::harness::{NQN, Scratch, subsystem};

use crate::host::{Simulated, Traits};
use crate::world::{self, Plan, Stopped};

const BLOCK: usize = 4096;
const STOP: Duration = Duration::from_secs(1);
const ARRIVAL: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resumes {
    Manager,
    Target,
    Workers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopsAt {
    Network,
    /// A worker has received the write, but not yet read the clock.
    Worker,
}

const ALL: Stopped = Stopped {
    manager: true,
    target: true,
    workers: true,
};

fn orders() -> Vec<Vec<Resumes>> {
    use Resumes::{Manager, Target, Workers};
    let mut orders = vec![Vec::new()];
    for _ in 0..4 {
        orders = orders
            .into_iter()
            .flat_map(|order: Vec<Resumes>| {
                let next = [Manager, Target, Workers].into_iter().filter(|next| {
                    let count = order.iter().filter(|it| *it == next).count();
                    count < if *next == Workers { 2 } else { 1 }
                });
                let longer = next.map(|next| [order.as_slice(), &[next]].concat());
                longer.collect::<Vec<_>>()
            })
            .collect();
    }
    orders
}

fn pass(time: Duration) {
    let end = world::now() + time;
    while world::now() < end {
        world::with(|world| world.advance(end));
    }
}

fn is_made(seed: u64, stops_at: StopsAt, order: &[Resumes], planted: bool) -> bool {
    let mut random = Random::new(seed);
    let name = format!("departed-{planted}-{seed}");
    let file = Scratch::in_memory(&name, 8 * BLOCK as u64);
    let config = format!(
        "[target]\nreactors = 1\npoll_idle_us = 0\nin_capsule_data = \"4KiB\"\n{}",
        subsystem(NQN, &[&file.export(BLOCK as u32)])
    );
    let plan = Plan {
        payload_max: 4096,
        ipv6: false,
        config,
        trace: false,
    };
    world::begin(&plan, Weather::FAIR, &mut random);
    world::with(|world| world.loses_cancellations = planted);
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
    pass(ARRIVAL);
    let first = match stops_at {
        StopsAt::Network => ALL,
        StopsAt::Worker => Stopped {
            workers: true,
            ..Stopped::default()
        },
    };
    world::with(|world| world.stopped = first);
    let data = Data::InCapsule(&[7; BLOCK]);
    let write = command::write(1, 3, 1);
    host.controller.submit(write, data).expect("it is live");
    host.controller.poll(world::now());
    pass(ARRIVAL);
    world::with(|world| world.stopped = ALL);
    drop(host);
    pass(STOP);
    for resumes in order {
        world::with(|world| match resumes {
            Resumes::Manager => world.stopped.manager = false,
            Resumes::Target => world.stopped.target = false,
            Resumes::Workers => _ = world.step_workers(),
        });
        pass(ARRIVAL);
    }
    world::with(|world| world.stopped = Stopped::default());
    pass(ARRIVAL);
    world::end();
    let bytes = std::fs::read(file.path()).expect("the file is there");
    bytes[3 * BLOCK..4 * BLOCK] == [7; BLOCK]
}

#[test]
fn a_host_that_left_during_a_stop_writes_nothing_whichever_thread_goes_on_first() {
    for stops_at in [StopsAt::Network, StopsAt::Worker] {
        for (seed, order) in orders().iter().enumerate() {
            let is_made = is_made(seed as u64, stops_at, order, false);
            assert!(!is_made, "a stale write: {stops_at:?}, {order:?}");
        }
    }
}

#[test]
fn a_cancellation_that_gets_lost_is_found() {
    let found = |order: &Vec<Resumes>| is_made(0, StopsAt::Worker, order, true);
    let orders = orders();
    assert_eq!(orders.len(), 12);
    assert!(orders.iter().any(found), "the planted bug is not found");
}
