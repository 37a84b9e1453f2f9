//! The project's chores. `cargo xtask --help` lists them.

mod vm;

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
    /// Judge cairn-target by a real Linux kernel (rdma_rxe, nvme-rdma, nvme-cli, fio) in QEMU
    Vm(vm::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().chore {
        Chore::Vm(args) => vm::run(&args),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
