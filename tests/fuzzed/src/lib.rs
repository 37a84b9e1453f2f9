//! Fuzz targets for parsers and state machines.
//!
//! Programs in `fuzz/` run the fuzz targets with libFuzzer, `tests/targets.rs` with random bytes
//! and the inputs in `fuzz/corpus`. A fuzz target panics if the tested code panics, reads beyond
//! its input, completes a command twice, or encodes a parsed value differently.

mod authentication;
mod controller;
mod input;
mod nvme;
mod packets;
mod queue_pair;
mod reservations;
mod text;

/// Entry point of a fuzz target.
pub type Target = fn(&[u8]);

/// Fuzz targets by name; `fuzz/fuzz_targets` has a program for each.
pub const TARGETS: [(&str, Target); 10] = [
    ("authentication", authentication::run),
    ("configuration", text::configuration),
    ("connections", packets::connections),
    ("control", text::control),
    ("controller", controller::run),
    ("discovery", controller::run_discovery),
    ("nvme", nvme::run),
    ("packets", packets::run),
    ("queue_pair", queue_pair::run),
    ("reservations", reservations::run),
];

/// Runs the fuzz target `name` of [`TARGETS`].
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|(own, _)| *own == name);
    let (_, target) = target.expect("the target is one of TARGETS");
    target(bytes);
}
