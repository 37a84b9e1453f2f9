//! Development tasks, listed by `cargo xtask --help`.

mod aarch64;
mod abi;
mod bench;
mod bindings;
mod cache;
mod compiled;
mod fio_report;
mod fuzz;
mod hardware;
mod loom;
mod miri;
mod msrv;
mod nightly;
mod package;
mod pictures;
mod results;
mod sanitize;
mod semver;
mod soak;
mod spdk_client;
mod stops;
mod test;
mod times;
mod vm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Development tasks", version)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Check the workspace for aarch64, and run its tests of wire formats under qemu-user
    Aarch64,
    /// Compare the bindings with the layouts and constants of this machine's rdma-core headers
    Abi,
    /// Measure target and host on this machine, and compare results
    Bench(Box<bench::Args>),
    /// Regenerate the libibverbs and librdmacm bindings from rdma-core's headers
    Bindings,
    /// Share compiled dependencies between clones, through the cache
    Compiled(compiled::Args),
    /// Check licences, sources and duplicates of dependencies with cargo-deny
    Dependencies,
    /// Search for input that breaks a parser or a state machine, with libFuzzer
    Fuzz(fuzz::Args),
    /// Measure Cairn and nvmet between two ports of RDMA adapters, and write a report
    Hardware(hardware::Args),
    /// Try every interleaving of threads at a mailbox and at the loopback provider
    Loom,
    /// Run tests of memory, packets and capsules under Miri, which finds undefined behaviour
    Miri,
    /// Check that everything compiles with the minimum Rust version of Cargo.toml
    Msrv,
    /// Make packages of a release build: .deb, .rpm, tar.gz and an OCI image archive
    Package(package::Args),
    /// Draw the pictures of the documentation
    Pictures,
    /// Run tests with a sanitizer, which finds data races or accesses out of bounds
    Sanitize(sanitize::Args),
    /// Check that public items of nvme-proto and cairn-initiator fit their version, with
    /// cargo-semver-checks
    Semver(semver::Args),
    /// Disturb targets, hosts and disks at random for hours, and check that no data is lost and no
    /// resource leaks
    Soak(soak::Args),
    /// Run the end-to-end tests while their processes are stopped and continued repeatedly
    Stops(stops::Args),
    /// Run a test's program, and stop and continue it repeatedly (runner of `stops`)
    #[command(hide = true)]
    Stopped(stops::RunnerArgs),
    /// Fetch SPDK's client into the cache, and print its folder
    SpdkClient,
    /// Run the tests, also against a real kernel; the last line is the summary
    Test(test::Args),
    /// Test cairn-target with a real Linux kernel (rdma_rxe, nvme-rdma, nvme-cli, fio) in QEMU
    Vm(vm::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().chore {
        Chore::Aarch64 => aarch64::run(),
        Chore::Abi => abi::run(),
        Chore::Bench(args) => bench::run(&args),
        Chore::Bindings => bindings::run().map(|()| ExitCode::SUCCESS),
        Chore::Compiled(args) => compiled::run(&args),
        Chore::Dependencies => test::check_dependencies(),
        Chore::Fuzz(args) => fuzz::run(&args),
        Chore::Hardware(args) => hardware::run(&args),
        Chore::Loom => loom::run(),
        Chore::Miri => miri::run(),
        Chore::Msrv => msrv::run(),
        Chore::Package(args) => package::run(&args),
        Chore::Pictures => pictures::run().map(|()| ExitCode::SUCCESS),
        Chore::Sanitize(args) => sanitize::run(&args),
        Chore::Semver(args) => semver::run(&args),
        Chore::Soak(args) => soak::run(&args),
        Chore::Stops(args) => stops::run(&args),
        Chore::Stopped(args) => stops::run_stopped(&args),
        Chore::SpdkClient => spdk_client::run(),
        Chore::Test(args) => test::run(&args),
        Chore::Vm(args) => vm::run(&args),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
