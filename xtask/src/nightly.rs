//! Nightly Rust, installed by rustup, for tasks that stable Rust does not support.

use std::process::Command;

use crate::cache::succeeds;

/// Installs nightly Rust if it is missing, and returns whether it is available.
pub(crate) fn is_there() -> bool {
    has("rustc")
        || (install(["toolchain", "install", "nightly", "--profile", "minimal"]) && has("rustc"))
}

/// Installs these components of nightly Rust if they are missing, and returns whether all are
/// available. A component is a program or a folder of sources.
pub(crate) fn has_components(components: &[&str]) -> bool {
    is_there()
        && components.iter().all(|component| {
            // Succeeds for an installed component without contacting the server.
            install(["component", "add", "--toolchain", "nightly", component])
        })
}

fn has(program: &str) -> bool {
    succeeds(Command::new("rustup").args(["run", "nightly", program, "--version"]))
}

fn install<const N: usize>(arguments: [&str; N]) -> bool {
    succeeds(Command::new("rustup").args(arguments))
}
