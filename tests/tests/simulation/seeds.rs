//! Many seeds, or one.

use std::panic::RefUnwindSafe;

use crate::world;

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={value} is no number")))
}

/// Whether one seed is to be replayed, and printed.
pub(crate) fn is_replay() -> bool {
    number("CAIRN_SEED").is_some()
}

/// Runs `case` for many seeds, or for `CAIRN_SEED` alone. How many:
/// `CAIRN_SEEDS`, or `default`.
pub(crate) fn for_each_seed(test: &str, default: u64, case: impl Fn(u64) + RefUnwindSafe) {
    if is_replay() {
        let _ = tracing_subscriber::fmt()
            .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
            .without_time()
            .with_writer(std::io::stderr)
            .try_init();
    }
    let seeds = match number("CAIRN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("CAIRN_SEEDS").unwrap_or(default),
    };
    for seed in seeds {
        if std::panic::catch_unwind(|| case(seed)).is_err() {
            world::abandon();
            panic!(
                "seed {seed} fails; to see it packet by packet: \
                 CAIRN_SEED={seed} cargo test -p cairn-tests --test simulation {test} -- --nocapture"
            );
        }
    }
}
