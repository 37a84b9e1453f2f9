//! `cargo xtask miri`: tests under Miri, an interpreter that detects undefined behaviour.
//!
//! Miri is slow and supports few system calls, so only tests of unsafe code and of parsers of peer
//! input run.

use std::process::ExitCode;

use anyhow::Result;

use crate::nightly;
use crate::test::step::Step;

const OUTPUT: &str = "build/miri";

const CASES: &str = "2";

struct Part {
    package: &'static str,
    programs: &'static str,
    tests: &'static str,
}

const PARTS: [Part; 4] = [
    Part {
        package: "cairn-base",
        programs: "--lib",
        tests: "address:: entropy:: mapping::",
    },
    Part {
        package: "cairn-rdma",
        programs: "--lib",
        tests: "loopback:: partition:: work::",
    },
    Part {
        package: "cairn-roce-proto",
        programs: "--lib --test arbitrary",
        tests: "--skip a_flood --skip of_many_networks --skip a_claimed_address --skip debts_and_debtors \
                --skip proven_addresses --skip the_longest_ago --skip qp::congestion:: --skip wire::icrc::tests::a",
    },
    Part {
        package: "nvme-proto",
        programs: "--lib",
        tests: "--skip any_window_shows --skip field_keeps_every_bit \
                --skip the_choice_is_always --skip planted",
    },
];

pub(crate) fn run() -> Result<ExitCode> {
    if let Err(reason) = nightly::require_components(&["miri", "rust-src"]) {
        println!("SKIP [        ] miri: nightly Rust or Miri cannot be installed: {reason}");
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
        .with_env("MIRIFLAGS", "-Zmiri-disable-isolation")
        .run("")?;
    Ok(outcome.success)
}
