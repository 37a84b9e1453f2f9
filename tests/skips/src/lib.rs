//! A test that cannot run on this machine is skipped, and a skip is not a pass.
//!
//! Rust's test harness has no such outcome, so the test records it here: on standard error, and
//! in a file if the environment names one. `cargo xtask test` names one, counts what is in it,
//! and fails if a skip is not on its list of skips that may be.

use std::fmt::Display;
use std::io::Write as _;
use std::panic::Location;

/// The environment variable with the path of the file that collects skips.
pub const FILE_VARIABLE: &str = "CAIRN_SKIPS";

/// Records that the calling test, or a part of it, is skipped, and why.
///
/// The record is one line: the source file, a tab, the test's thread, a tab, the reason.
///
/// # Panics
/// If the file that the environment names cannot be written: a skip must not be lost.
#[track_caller]
pub fn skip(reason: impl Display) {
    let place = Location::caller().file();
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("");
    let reason = reason.to_string().replace('\n', " ");
    eprintln!("skipped: {test} ({place}): {reason}");
    let Some(path) = std::env::var_os(FILE_VARIABLE) else {
        return;
    };
    // One write in append mode: other tests do the same at once.
    let line = format!("{place}\t{test}\t{reason}\n");
    std::fs::File::options()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
