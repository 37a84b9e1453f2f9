//! Random rounds of faults in target processes and disks, with hosts over user-space RoCE.
//!
//! After each round, the use of all resources must return to its initial level. `cargo xtask soak`
//! runs more rounds.
//!
//! | variable | meaning and default |
//! |---|---|
//! | `CAIRN_SOAK_SECONDS` | seconds in which rounds start; 40 |
//! | `CAIRN_SOAK_ROUNDS` | maximum number of rounds; no limit |
//! | `CAIRN_SOAK_SEED` | seed of the first round, increased by 1 for each further round; 1 |
//! | `CAIRN_SOAK_CONNECTS` | connects in the test of many connects; 2000 |

mod bed;
mod connects;
mod patience;
mod resources;
mod round;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use bed::Bed;
use round::Round;

#[test]
#[ignore = "it takes as long as it is given: cargo xtask soak"]
fn rounds() {
    let Some(mut bed) = Bed::new() else { return };
    let time = Duration::from_secs(number("CAIRN_SOAK_SECONDS").unwrap_or(40));
    let end = Instant::now().checked_add(time);
    let first = number("CAIRN_SOAK_SEED").unwrap_or(1);
    let limit = number("CAIRN_SOAK_ROUNDS").unwrap_or(u64::MAX);
    let mut rounds = 0;
    while rounds < limit && end.is_none_or(|end| Instant::now() < end) {
        let seed = first.wrapping_add(rounds);
        rounds += 1;
        println!("round {rounds}, seed {seed}");
        let outcome = catch_unwind(AssertUnwindSafe(|| Round::new(&mut bed, seed).run()));
        if let Err(panic) = outcome {
            println!(
                "round {rounds} fails with seed {seed}; to repeat it: \
                 cargo xtask soak --rounds 1 --seed {seed}"
            );
            resume_unwind(panic);
        }
    }
    bed.end();
    println!("{rounds} rounds from seed {first}");
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let value = text.parse();
    Some(value.unwrap_or_else(|_| panic!("{name} is {text}, no number")))
}
