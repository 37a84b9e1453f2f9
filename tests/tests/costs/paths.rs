//! Cost of keeping the writes of several associations in order.

use super::{Adapter, Bounds, Counted, NO_ADAPTER, counted_program};

/// Maximum additional instructions per command after another association has ended.
const ALONE_INSTRUCTIONS: f64 = 2.0;
/// Maximum additional instructions per command with two associations and queue depth 32.
const PATHS_INSTRUCTIONS: f64 = 1030.0;
/// Maximum atomic operations per command; a write acquires the disk's ordering lock three times.
const PATHS_LOCKED: f64 = 6.1;

fn bounds(job: &'static str) -> Bounds {
    Bounds {
        fabric: "loopback",
        job,
        disk: "null",
        bytes: 4 * 1024,
        commands: 4096,
        depth: 32,
        queues: 1,
        instructions: f64::INFINITY,
        locked: f64::INFINITY,
        system_calls: f64::INFINITY,
        packets: f64::INFINITY,
        adapter: Adapter { ..NO_ADAPTER },
    }
}

#[test]
#[ignore = "builds for release, and needs valgrind: cargo xtask test runs it"]
fn the_order_of_changes_costs_what_it_may() {
    let program = counted_program();
    for job in ["read", "write", "fetch"] {
        let bounds = bounds(job);
        let count = |more: &[&str]| {
            let counted = Counted::run(&program, &bounds, more);
            assert_eq!(counted.forbidden(), [""; 0], "{job} {more:?}");
            let logic = counted.logic(&bounds);
            let each = |count: u64| count as f64 / f64::from(bounds.commands);
            (each(logic.instructions), each(logic.locked))
        };
        let (alone, _) = count(&[]);
        let (after_another, _) = count(&["--others", "1", "--former"]);
        let (beside_another, locked) = count(&["--others", "1"]);
        println!(
            "{job:>6}: {alone:.1} instructions, {after_another:.1} after another association, \
             {beside_another:.1} and {locked:.2} atomics beside another one"
        );
        assert!(after_another <= alone + ALONE_INSTRUCTIONS);
        assert!(beside_another <= alone + PATHS_INSTRUCTIONS);
        assert!(locked <= PATHS_LOCKED);
    }
}
