//! `cargo xtask sanitize`: programs of ours with the checks of a sanitizer compiled in.
//!
//! ThreadSanitizer watches the threads of a target for accesses that nothing keeps apart, and
//! AddressSanitizer what is `unsafe` for accesses beyond what was allocated. Both need nightly
//! Rust: without it this is a skip.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::cache::succeeds;
use crate::nightly;
use crate::test::step::Step;

/// Sanitizers need a platform that is named, or they would be compiled into procedural macros.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Where fio's engine is when it is built for AddressSanitizer.
const ENGINE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../build/sanitize/address/x86_64-unknown-linux-gnu/debug/libcairn_fio.so"
);

/// Packages of ours that the development profile optimises.
const OPTIMISED: [&str; 6] = [
    "nvme-proto",
    "cairn-disk",
    "cairn-target",
    "cairn-roce-proto",
    "cairn-roce",
    "cairn-rdma",
];

/// What the command line asks for.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// For what to look
    sanitizer: Sanitizer,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Sanitizer {
    /// Accesses of threads that nothing keeps apart, in a target with two reactors
    Thread,
    /// Accesses beyond what was allocated, in memory regions, verbs and fio's engine
    Address,
}

/// Builds and runs what the sanitizer is to look at.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let components: &[&str] = match args.sanitizer {
        Sanitizer::Thread => &["rust-src"],
        Sanitizer::Address => &[],
    };
    let name = args.sanitizer.name();
    if !nightly::has_components(components) {
        // The same words that nextest has for a test that it leaves out.
        println!("SKIP [        ] sanitize {name}: nightly Rust cannot be installed here");
        return Ok(ExitCode::SUCCESS);
    }
    let clean = match args.sanitizer {
        Sanitizer::Thread => threads()?,
        // Both, whatever comes of the first.
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

    /// Nightly cargo with the sanitizer for what it compiles.
    fn cargo(self, arguments: &str) -> Step {
        let name = self.name();
        let arguments = format!(
            "run nightly cargo {arguments} --locked --target {PLATFORM} \
             --target-dir build/sanitize/{name}"
        );
        Step::program("sanitize", "rustup", &arguments)
            .with_env("RUSTFLAGS", &format!("-Zsanitizer={name}"))
            // Enough for the lines of a report, and half the time to compile.
            .with_env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only")
            .with_env("CARGO_INCREMENTAL", "0")
    }
}

/// The standard library is compiled anew: the sanitizer cannot see that the locks and channels
/// of the one that comes with Rust keep anything apart.
fn threads() -> Result<bool> {
    let tests = "test -Zbuild-std -p cairn-threads --lib";
    // What is optimised elsewhere is run once here, and compiled for it.
    let quickly =
        OPTIMISED.map(|package| format!("--config=profile.dev.package.{package}.opt-level=0"));
    let step = Sanitizer::Thread
        .cargo(tests)
        .with_arguments(quickly.each_ref().map(String::as_str));
    Ok(step.run("")?.success)
}

/// What needs no device.
fn addresses() -> Result<bool> {
    let tests = "test -p cairn-rdma -p cairn-verbs --lib";
    Ok(Sanitizer::Address.cargo(tests).run("")?.success)
}

/// The engine alone is built for the sanitizer, and its tests have fio load it. fio is not, so
/// that the sanitizer's own library must be there before it.
fn engine() -> Result<bool> {
    let Some(library) = preloaded() else {
        println!("SKIP [        ] sanitize address: gcc has no libasan here, or fio is missing");
        return Ok(true);
    };
    let built = Sanitizer::Address
        .cargo("build -p cairn-fio --lib")
        .run("")?;
    if !built.success {
        return Ok(false);
    }
    // The whole workspace, whose ordinary tests have compiled the same. The last of these tests
    // has no fio, but loads the engine itself.
    let tests = Step::cargo(
        "sanitize",
        "test --workspace --test jobs --locked -- --skip a_program_that_is_no_such_fio",
    );
    let outcome = tests
        .with_env("CAIRN_FIO_ENGINE", ENGINE)
        .with_env("CAIRN_FIO_PRELOAD", &library)
        // fio frees little at its end.
        .with_env("ASAN_OPTIONS", "detect_leaks=0")
        .run("")?;
    Ok(outcome.success)
}

/// gcc's runtime library of the sanitizer: Rust's is part of programs alone.
fn preloaded() -> Option<String> {
    if !succeeds(Command::new("fio").arg("--version")) {
        return None;
    }
    let asked = Command::new("gcc")
        .arg("-print-file-name=libasan.so")
        .output();
    let path = String::from_utf8(asked.ok()?.stdout)
        .ok()?
        .trim()
        .to_owned();
    // gcc answers with the bare name if there is none.
    Path::new(&path).is_absolute().then_some(path)
}
