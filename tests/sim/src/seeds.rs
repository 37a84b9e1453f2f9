//! Execution of a test with one seed or many.

use std::ops::Range;
use std::panic::RefUnwindSafe;

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={value} is no number")))
}

/// True if `CAIRN_SEED` selects a single seed; tests then print details.
#[must_use]
pub fn is_replay() -> bool {
    number("CAIRN_SEED").is_some()
}

fn share(seeds: u64) -> Range<u64> {
    let first = seeds.div_ceil(4);
    match std::env::var("CAIRN_SEEDS_SHARE").as_deref() {
        Ok("first") => 0..first,
        Ok("rest") => first..seeds,
        Ok(other) => panic!("CAIRN_SEEDS_SHARE={other} is neither `first` nor `rest`"),
        Err(_) => 0..seeds,
    }
}

/// Runs `case` for each seed.
///
/// `CAIRN_SEED` selects a single seed, `CAIRN_SEEDS` the number of seeds. Without these variables,
/// there are `default` seeds, of which `CAIRN_SEEDS_SHARE` can select the first quarter (`first`)
/// or the others (`rest`).
///
/// # Panics
/// If `case` panics; the message contains a command that repeats the seed.
pub fn for_each_seed(command: &str, default: u64, case: impl Fn(u64) + RefUnwindSafe) {
    let seeds = match number("CAIRN_SEED") {
        Some(seed) => seed..seed + 1,
        None => number("CAIRN_SEEDS").map_or_else(|| share(default), |seeds| 0..seeds),
    };
    for seed in seeds {
        if std::panic::catch_unwind(|| case(seed)).is_err() {
            panic!("seed {seed} fails; to see it: CAIRN_SEED={seed} {command} -- --nocapture");
        }
    }
}
