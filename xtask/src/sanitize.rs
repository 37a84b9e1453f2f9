//! `cargo xtask sanitize`: tests with ThreadSanitizer (data races) or AddressSanitizer (accesses
//! out of bounds). Skipped without nightly Rust.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::nightly;
use crate::test::step::Step;

/// Explicit target platform: otherwise, cargo would also sanitize procedural macros.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

const ENGINE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../build/sanitize/address/x86_64-unknown-linux-gnu/debug/libcairn_fio.so"
);

const OPTIMISED: [&str; 7] = [
    "nvme-proto",
    "cairn-disk",
    "cairn-data-path",
    "cairn-roce-proto",
    "cairn-roce",
    "cairn-rdma",
    "cairn-base",
];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Sanitizer to run
    sanitizer: Sanitizer,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Sanitizer {
    /// Data races, in a target with two reactors
    Thread,
    /// Accesses out of bounds, in memory regions, verbs and fio's engine
    Address,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let components: &[&str] = match args.sanitizer {
        Sanitizer::Thread => &["rust-src"],
        Sanitizer::Address => &[],
    };
    let name = args.sanitizer.name();
    if let Err(reason) = nightly::require_components(components) {
        println!("SKIP [        ] sanitize {name}: nightly Rust cannot be installed: {reason}");
        return Ok(ExitCode::SUCCESS);
    }
    let clean = match args.sanitizer {
        Sanitizer::Thread => threads()?,
        Sanitizer::Address => addresses()? & engine()?,
    };
    if clean {
        return Ok(ExitCode::SUCCESS);
    }
    println!("error: the {name} sanitizer found something, or a test failed");
    Ok(ExitCode::FAILURE)
}

impl Sanitizer {
    fn name(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Address => "address",
        }
    }

    fn cargo(self, arguments: &str) -> Step {
        let name = self.name();
        let arguments = format!(
            "run nightly cargo {arguments} --locked --target {PLATFORM} \
             --target-dir build/sanitize/{name}"
        );
        Step::program("sanitize", "rustup", &arguments)
            .with_env("RUSTFLAGS", &format!("-Zsanitizer={name}"))
            .with_env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only")
            .with_env("CARGO_INCREMENTAL", "0")
    }
}

/// Runs tests with a sanitized standard library: with the precompiled library, ThreadSanitizer
/// reports false data races.
fn threads() -> Result<bool> {
    let tests = "test -Zbuild-std -p cairn-threads --lib";
    let quickly =
        OPTIMISED.map(|package| format!("--config=profile.dev.package.{package}.opt-level=0"));
    let step = Sanitizer::Thread
        .cargo(tests)
        .with_arguments(quickly.each_ref().map(String::as_str));
    Ok(step.run("")?.success)
}

fn addresses() -> Result<bool> {
    let tests = "test -p cairn-base -p cairn-rdma -p cairn-verbs --lib";
    Ok(Sanitizer::Address.cargo(tests).run("")?.success)
}

/// Tests the engine in fio. As fio is not sanitized, fio preloads the sanitizer's library.
fn engine() -> Result<bool> {
    let library = match preloaded() {
        Ok(library) => library,
        Err(reason) => {
            println!("SKIP [        ] sanitize address: the engine of fio: {reason}");
            return Ok(true);
        }
    };
    let built = Sanitizer::Address
        .cargo("build -p cairn-fio --lib")
        .run("")?;
    if !built.success {
        return Ok(false);
    }
    let tests = Step::cargo(
        "sanitize",
        "test --workspace --test jobs --locked -- --skip a_program_that_is_no_such_fio",
    );
    let outcome = tests
        .with_env("CAIRN_FIO_ENGINE", ENGINE)
        .with_env("CAIRN_FIO_PRELOAD", &library)
        .with_env("ASAN_OPTIONS", "detect_leaks=0")
        .run("")?;
    Ok(outcome.success)
}

/// Returns the path of gcc's sanitizer library. Rust's library can only be linked into programs,
/// not into the engine.
fn preloaded() -> Result<String, String> {
    cairn_skips::version(&mut Command::new("fio"), "fio")?;
    cairn_skips::version(&mut Command::new("gcc"), "gcc")?;
    let answer = cairn_skips::probe(Command::new("gcc").arg("-print-file-name=libasan.so"))?;
    let path = answer.trim();
    match Path::new(path).is_absolute() {
        true => Ok(path.to_owned()),
        false => Err(format!("gcc names no file for its library {path}")),
    }
}
