//! What parsers and state machines do with any bytes. `fuzz/` has libFuzzer find the bytes, and
//! the tests of this crate feed the same functions with random ones and with the corpora of
//! `fuzz/corpus`.
//!
//! Each function panics if what it looks at breaks a promise: it must not panic itself, read past
//! its input, end a command twice, or write other bytes than it has read.

mod authentication;
mod controller;
mod input;
mod nvme;
mod packets;
mod queue_pair;
mod text;

/// Looks at one input.
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

/// Looks at one input of the target with this name.
///
/// # Panics
/// If there is no such target, or the input breaks a promise.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|(own, _)| *own == name);
    let (_, target) = target.expect("the target is one of TARGETS");
    target(bytes);
}
