//! Instructions and system calls of the target per command of a host while another host attacks.
//!
//! Attacker, host and target alternate in one thread ([`cairn_tests::attacker`]). Only the target's
//! part is counted.

use crate::{Bounds, Counted, NO_ADAPTER, counted_program};

const MOST: f64 = 10.0;
const MOST_CALLS: f64 = 20.0;

const ATTACKS: [&str; 6] = [
    "silent",
    "wrong-name",
    "wrong-key",
    "reconnect",
    "admin",
    "io",
];
/// Attack with packets to guessed queue pair numbers, which socket filters drop before the target
/// receives them.
const GUESSES: &str = "garbage";
const MOST_OF_GUESSES: f64 = 1.0;

#[test]
#[ignore = "counts for two minutes, and needs valgrind: `cargo xtask test --all` runs it"]
fn attackers_slow_other_hosts_by_a_tenth_at_most() {
    compare(&reads("loopback", 40 * 1024), &ATTACKS);
}

#[test]
#[ignore = "counts for many minutes, and needs valgrind: by hand"]
fn over_soft_roce_attackers_slow_them_no_more() {
    let attacks = [&ATTACKS[..], &[GUESSES]].concat();
    compare(&reads("soft", 80 * 1024), &attacks);
}

fn compare(bounds: &Bounds, attacks: &[&str]) {
    let program = counted_program();
    let fabric = bounds.fabric;
    let mut faults = Vec::new();
    println!(
        "{:>9} {:>11} {:>13} {:>13} {:>8}",
        "fabric", "attack", "instructions", "system calls", "attacks"
    );
    let (alone, calls_alone, _) = costs(&Counted::run(&program, bounds, &[]), bounds);
    println!(
        "{fabric:>9} {:>11} {alone:>13.0} {calls_alone:>13.3}",
        "none"
    );
    for &attack in attacks {
        let counted = Counted::run(&program, bounds, &["--attack", attack]);
        let (instructions, calls, made) = costs(&counted, bounds);
        println!("{fabric:>9} {attack:>11} {instructions:>13.0} {calls:>13.3} {made:>8}");
        let more = 100.0 * (instructions / alone - 1.0);
        let more_calls = 100.0 * (calls - 0.01) / (calls_alone + 0.01) - 100.0;
        let most = if attack == GUESSES {
            MOST_OF_GUESSES
        } else {
            MOST
        };
        if more > most || more_calls > MOST_CALLS {
            faults.push(format!(
                "{fabric}, {attack}: {more:.1} % more instructions, {more_calls:.1} % more \
                 system calls"
            ));
        }
        if made == 0.0 {
            faults.push(format!("{fabric}, {attack}: there was no attack"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn reads(fabric: &'static str, commands: u32) -> Bounds {
    Bounds {
        fabric,
        job: "read",
        disk: "null",
        bytes: 4096,
        commands,
        depth: 32,
        queues: 1,
        instructions: f64::MAX,
        locked: f64::MAX,
        system_calls: f64::MAX,
        packets: f64::MAX,
        adapter: NO_ADAPTER,
    }
}

fn costs(counted: &Counted, bounds: &Bounds) -> (f64, f64, f64) {
    let target = counted.target(bounds);
    let commands = f64::from(bounds.commands);
    let made = counted.figures.get("attacks").copied().unwrap_or_default();
    (
        target.instructions as f64 / commands,
        target.system_calls as f64 / commands,
        made,
    )
}
