//! Nightly Rust, installed by rustup.

use std::process::Command;

use crate::cache::succeeds;

pub(crate) fn is_there() -> bool {
    has("rustc")
        || (install(["toolchain", "install", "nightly", "--profile", "minimal"]) && has("rustc"))
}

pub(crate) fn has_components(components: &[&str]) -> bool {
    is_there()
        && components.iter().all(|component| {
            // This succeeds for an installed component without contacting the server.
            install(["component", "add", "--toolchain", "nightly", component])
        })
}

fn has(program: &str) -> bool {
    succeeds(Command::new("rustup").args(["run", "nightly", program, "--version"]))
}

fn install<const N: usize>(arguments: [&str; N]) -> bool {
    succeeds(Command::new("rustup").args(arguments))
}
