//! Execution of a test with many seeds or one.

use std::panic::RefUnwindSafe;

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={value} is no number")))
}

/// True if `CAIRN_SEED` selects a seed, whose run should print details.
#[must_use]
pub fn is_replay() -> bool {
    number("CAIRN_SEED").is_some()
}

/// Runs `case` for `CAIRN_SEED`, or for `CAIRN_SEEDS` seeds, `default` if unset.
///
/// # Panics
/// At the first seed that fails, with a message how to repeat it by `command`.
pub fn for_each_seed(command: &str, default: u64, case: impl Fn(u64) + RefUnwindSafe) {
    let seeds = match number("CAIRN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("CAIRN_SEEDS").unwrap_or(default),
    };
    for seed in seeds {
        if std::panic::catch_unwind(|| case(seed)).is_err() {
            panic!("seed {seed} fails; to see it: CAIRN_SEED={seed} {command} -- --nocapture");
        }
    }
}
