//! The project's chores. `cargo xtask --help` lists them.

fn main() {}
