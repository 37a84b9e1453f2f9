//! Records of skipped tests.
//!
//! Rust's test harness cannot skip a test at run time. A test that cannot run prints the reason and
//! appends it to the file in [`FILE_VARIABLE`]. `cargo xtask test` fails for skips that are not
//! allowed.

use std::fmt::Display;
use std::io::Write as _;
use std::panic::Location;

/// Environment variable with the path of the skip file.
pub const FILE_VARIABLE: &str = "CAIRN_SKIPS";

/// Records that the calling test, or a part of it, is skipped.
///
/// The record is a line of source file, test thread's name and reason, separated by tabs.
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
    let line = format!("{place}\t{test}\t{reason}\n");
    std::fs::File::options()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
