//! Records of skipped tests.
//!
//! Rust's test harness cannot skip a test at run time. A test that cannot run here records that on
//! standard error, and in a file if the environment names one. `cargo xtask test` fails for a skip
//! that is not allowed.

use std::fmt::Display;
use std::io::Write as _;
use std::panic::Location;

/// Environment variable with the path of the skip file.
pub const FILE_VARIABLE: &str = "CAIRN_SKIPS";

/// Records a skip of the calling test, or part of it.
///
/// The record is a line: source file, thread name of the test and reason, separated by tabs.
///
/// # Panics
/// If the skip file cannot be written.
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
    // One write in append mode, because other tests write too.
    let line = format!("{place}\t{test}\t{reason}\n");
    std::fs::File::options()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
