//! `cargo xtask miri`: tests of what is unsafe, or reads a peer's bytes, in an interpreter that
//! finds what the language leaves undefined: a reference that dangles, bytes that are not there,
//! two threads that meet without being atomic.
//!
//! It is some hundred times slower than the processor and knows few system calls, so each crate
//! has a list of what runs. It needs nightly Rust and its Miri: without them this is a skip.

use std::process::ExitCode;

use anyhow::Result;

use crate::nightly;
use crate::test::step::Step;

/// What is built, from one run to the next.
const OUTPUT: &str = "build/miri";

/// Properties are tried on so few cases: the same tests try hundreds without Miri.
const CASES: &str = "2";

/// What runs of a crate.
struct Part {
    package: &'static str,
    /// Which of its test programs.
    programs: &'static str,
    /// The beginnings of names of tests, and `--skip` with those that take too long.
    tests: &'static str,
}

const PARTS: [Part; 3] = [
    Part {
        package: "cairn-rdma",
        programs: "--lib",
        // The rest waits, asks the kernel or starts processes.
        tests: "address:: entropy:: loopback:: memory:: partition:: work::",
    },
    Part {
        package: "cairn-roce-proto",
        programs: "--lib --test arbitrary",
        // Hundreds of peers, and checksums of every bit.
        tests: "--skip a_flood --skip of_many_networks --skip a_claimed_address --skip debts_and_debtors \
                --skip proven_addresses --skip the_longest_ago --skip qp::congestion:: --skip wire::icrc::tests::a",
    },
    Part {
        package: "nvme-proto",
        programs: "--lib",
        // Every length at every place, every code, and choices by the thousand.
        tests: "--skip any_window_shows --skip field_keeps_every_bit \
                --skip the_choice_is_always",
    },
];

/// Runs each part; one that fails does not keep the others from running.
pub(crate) fn run() -> Result<ExitCode> {
    if !nightly::has_components(&["miri", "rust-src"]) {
        // The same words that nextest has for a test that it leaves out.
        println!("SKIP [        ] miri: nightly Rust or Miri cannot be installed here");
        return Ok(ExitCode::SUCCESS);
    }
    let mut failed = Vec::new();
    for part in &PARTS {
        println!("\n==> {}", part.package);
        if !examine(part)? {
            failed.push(part.package);
        }
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("error: Miri found something in {}", failed.join(", "));
    Ok(ExitCode::FAILURE)
}

fn examine(part: &Part) -> Result<bool> {
    let arguments = format!(
        "run nightly cargo miri test --locked --target-dir {OUTPUT} -p {} {} -- {}",
        part.package, part.programs, part.tests
    );
    let outcome = Step::program("miri", "rustup", &arguments)
        .with_env("PROPTEST_CASES", CASES)
        // Recorded inputs are files, and entropy is the system's.
        .with_env("MIRIFLAGS", "-Zmiri-disable-isolation")
        .run("")?;
    Ok(outcome.success)
}
