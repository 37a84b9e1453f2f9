//! Records of skipped tests.
//!
//! Rust's test harness cannot report a test as skipped at run time. Tests that cannot run on this
//! machine record that here: on standard error, and in a file if the environment names one. `cargo
//! xtask test` names one, counts its lines, and fails for a skip that is not allowed.

use std::fmt::Display;
use std::io::Write as _;
use std::panic::Location;

/// Environment variable with the path of the skip file.
pub const FILE_VARIABLE: &str = "CAIRN_SKIPS";

/// Records that the calling test, or a part of it, is skipped.
///
/// The record is one line: source file, tab, thread name of the test, tab, reason.
///
/// # Panics
/// If the skip file cannot be written, so that no skip is lost.
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
    // A single write in append mode, because other tests write at the same time.
    let line = format!("{place}\t{test}\t{reason}\n");
    std::fs::File::options()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
