//! Fuzz targets for parsers and state machines.
//!
//! `fuzz/` runs them with libFuzzer; tests run them with random bytes and the corpora of
//! `fuzz/corpus`.
//!
//! Each function panics if the tested code panics, reads beyond its input, completes a command
//! twice, or re-encodes to different bytes.

mod authentication;
mod controller;
mod input;
mod nvme;
mod packets;
mod queue_pair;
mod text;

/// Function that tests one input.
pub type Target = fn(&[u8]);

/// Targets by name, with a program for each in `fuzz/fuzz_targets`.
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

/// Runs an input of the named target.
///
/// # Panics
/// If the name is unknown, or the input violates a promise.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|(own, _)| *own == name);
    let (_, target) = target.expect("the target is one of TARGETS");
    target(bytes);
}
