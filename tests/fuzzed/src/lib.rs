//! Fuzz targets for parsers and state machines.
//!
//! `fuzz/` runs them with libFuzzer. The tests of this crate run them with random bytes and with
//! the corpora of `fuzz/corpus`.
//!
//! Each function panics if the tested code violates a promise: it must not panic itself, read
//! beyond its input, complete a command twice, or write other bytes than it has read.

mod authentication;
mod controller;
mod input;
mod nvme;
mod packets;
mod queue_pair;
mod text;

/// Function that runs one input.
pub type Target = fn(&[u8]);

/// All targets by name. `fuzz/fuzz_targets` has a program for each.
pub const TARGETS: [(&str, Target); 9] = [
    ("authentication", authentication::run),
    ("configuration", text::configuration),
    ("connections", packets::connections),
    ("control", text::control),
    ("controller", controller::run),
    ("discovery", controller::run_discovery),
    ("nvme", nvme::run),
    ("packets", packets::run),
    ("queue_pair", queue_pair::run),
];

/// Runs one input of the target with this name.
///
/// # Panics
/// If the name is unknown, or the input violates a promise.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|(own, _)| *own == name);
    let (_, target) = target.expect("the target is one of TARGETS");
    target(bytes);
}
