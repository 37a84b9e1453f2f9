//! Nightly Rust, by rustup, for the chores that need what stable Rust does not have.

use std::process::Command;

use crate::cache::succeeds;

/// Whether there is nightly Rust. Installs it if it can.
pub(crate) fn is_there() -> bool {
    has("rustc")
        || (install(["toolchain", "install", "nightly", "--profile", "minimal"]) && has("rustc"))
}

/// Whether nightly Rust has these components, of which each brings a program or a folder of
/// sources. Installs what is missing if it can.
pub(crate) fn has_components(components: &[&str]) -> bool {
    is_there()
        && components.iter().all(|component| {
            // One that is there already is a success, without asking the server.
            install(["component", "add", "--toolchain", "nightly", component])
        })
}

fn has(program: &str) -> bool {
    succeeds(Command::new("rustup").args(["run", "nightly", program, "--version"]))
}

fn install<const N: usize>(arguments: [&str; N]) -> bool {
    succeeds(Command::new("rustup").args(arguments))
}
