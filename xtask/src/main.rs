//! The project's chores. `cargo xtask --help` lists them.

mod bindings;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's chores", version)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Regenerate the libibverbs and librdmacm bindings from rdma-core's headers
    Bindings,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().chore {
        Chore::Bindings => bindings::run().map(|()| ExitCode::SUCCESS),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
