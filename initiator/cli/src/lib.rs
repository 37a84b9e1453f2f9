//! Command line of cairn-initiator, with commands of nvme-cli and a benchmark with fio's keys.
//!
//! Results are printed to stdout in the format of `-o`, everything else to stderr.

mod address;
mod attach;
mod bench;
mod bit_fields;
mod compare_and_write;
mod discover;
mod examples;
mod features;
mod fields;
mod identify;
mod io;
mod link;
mod list;
mod logs;
mod number;
mod nvme_names;
mod output;
mod paths;
mod ping;
mod raw;
mod reservations;
mod responder;
mod samples;
mod session;

use std::process::ExitCode;

use cairn_doctor::cli::{Common, exit};
use cairn_trouble::{Caller, End};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use nvme_proto::wire::log::LogPage;

use address::Address;
use output::Output;

type Result<T> = std::result::Result<T, String>;

const CALLER: Caller = Caller {
    end: End::Host,
    host: "cairn-initiator",
    target: "cairn-target",
};

const PROGRAM: &str = CALLER.host;

#[derive(Debug, Parser)]
#[command(
    name = PROGRAM,
    version = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("CAIRN_COMMIT"), ")"),
    about = "A host of NVMe over Fabrics on RDMA, in user space: inspects controllers, \
             reads and writes blocks, measures and verifies",
    after_help = "Each command's --help has an example. Options that address a controller are \
                  those of nvme-cli; those of bench are fio's."
)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists the subsystems of a target, with their addresses
    Discover(discover::Discover),
    /// Connects all queues, shows the negotiated values, and disconnects
    ConnectCheck(discover::ConnectCheck),
    /// Lists the namespaces of all subsystems, or of one
    List(list::List),
    /// Shows a controller's Identify data
    IdCtrl(identify::IdCtrl),
    /// Shows a namespace's Identify data
    IdNs(identify::IdNs),
    /// Shows a log page
    GetLog(logs::GetLog),
    /// Shows the SMART log
    SmartLog(nvme_names::SmartLog),
    /// Shows the error log
    ErrorLog(nvme_names::Detailed),
    /// Shows the firmware log
    FwLog(nvme_names::Detailed),
    /// Lists the commands that a controller supports, and their effects
    EffectsLog(nvme_names::Detailed),
    /// Shows the ANA groups, their states and their namespaces
    AnaLog(nvme_names::Named),
    /// Lists the numbers of a subsystem's namespaces
    ListNs(nvme_names::Named),
    /// Lists the subsystems of a target, with the paths to each
    ListSubsys(nvme_names::Named),
    /// Shows the identifiers of a namespace
    NsDescs(nvme_names::NsDescs),
    /// Shows a controller's properties
    ShowRegs(nvme_names::Detailed),
    /// Shows a feature's value
    GetFeature(features::GetFeature),
    /// Sets a feature, until this command disconnects
    SetFeature(features::SetFeature),
    /// Makes all written data durable
    Flush(io::Flush),
    /// Reads blocks into a file, or to stdout
    Read(io::ReadBlocks),
    /// Writes blocks from a file, or from stdin; requires --destroy-data
    Write(io::Write),
    /// Compares blocks with a file, or with stdin
    Compare(io::Compare),
    /// Writes a block if it has the expected data, as one atomic step; requires --destroy-data
    CompareAndWrite(compare_and_write::CompareAndWrite),
    /// Sets blocks to zero; requires --destroy-data
    WriteZeroes(io::WriteZeroes),
    /// Dataset Management: deallocates blocks; requires --destroy-data
    Dsm(io::Dsm),
    /// Registers, replaces or removes the reservation key of this host
    ResvRegister(reservations::Register),
    /// Acquires the reservation of a namespace, or preempts hosts
    ResvAcquire(reservations::Acquire),
    /// Releases the reservation of a namespace, or clears it with all registrations
    ResvRelease(reservations::Release),
    /// Shows the reservation of a namespace and its registrants
    ResvReport(reservations::Report),
    /// Copies blocks within a namespace; requires --destroy-data
    Copy(io::Copy),
    /// Makes a namespace a block device of this machine, or serves it to clients of NBD
    Attach(attach::Attach),
    /// Removes a block device of attach that no process serves any more
    Detach(attach::Detach),
    /// Runs a job with fio's keys: measures and verifies
    Bench(bench::Bench),
    /// Checks the blocks written by `bench --verify=crc32c`
    Verify(bench::Verify),
    /// Measures the shares of network, target and disk in the time of a read
    Ping(ping::Ping),
    /// Measures the link between two machines, without NVMe and disks
    Link(link::LinkArgs),
    /// Shows the RoCE devices and settings of this machine, and changes some of them
    Fabric(Box<cairn_doctor::cli::FabricArgs>),
    /// Finds problems of RoCE on this machine, and reports how to fix them
    Doctor(Box<cairn_doctor::cli::DoctorArgs>),
    /// Prints the completion script for a shell
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
    /// Writes the man pages
    #[command(hide = true)]
    Manual {
        /// Folder of the man pages
        folder: std::path::PathBuf,
    },
}

/// Selection of the controller, and output format.
#[derive(Debug, Args)]
struct Controller {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    address: Address,
}

/// Returns the definition of all commands and options.
#[must_use]
pub fn command_line() -> clap::Command {
    let examples = [examples::EXAMPLES, cairn_doctor::cli::EXAMPLES];
    cairn_doctor::cli::complete(Cli::command(), &examples, examples::RECORDS)
}

/// Runs the program with this process's command line.
#[must_use]
pub fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    let matches = command_line().try_get_matches_from(&arguments);
    let matches = matches.unwrap_or_else(|error| exit(&bench::explain(error, &arguments)));
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| exit(&error));
    cli.common.apply();
    if let Err(error) = cli.command.usage() {
        cairn_doctor::cli::print_error(cairn_doctor::cli::error_line(&error));
        return ExitCode::from(2);
    }
    match run(cli.command).and_then(|code| cairn_doctor::cli::check_stdout().map(|()| code)) {
        Ok(code) => code,
        Err(error) => {
            if error != output::UNREAD {
                cairn_doctor::cli::print_error(cairn_doctor::cli::error_line(&error));
            }
            ExitCode::FAILURE
        }
    }
}

impl Command {
    /// Returns an error for arguments that contradict each other or lack a confirmation.
    fn usage(&self) -> Result<()> {
        match self {
            Self::Write(command) => command.usage(),
            Self::CompareAndWrite(command) => command.usage(),
            Self::WriteZeroes(command) => command.usage(),
            Self::Dsm(command) => command.usage(),
            Self::Copy(command) => command.usage(),
            Self::Bench(command) => command.usage(),
            _ => Ok(()),
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Discover(command) => command.run()?,
        Command::ConnectCheck(command) => command.run()?,
        Command::List(command) => command.run()?,
        Command::IdCtrl(command) => command.run()?,
        Command::IdNs(command) => command.run()?,
        Command::GetLog(command) => command.run()?,
        Command::SmartLog(command) => command.run()?,
        Command::ErrorLog(command) => command.run(LogPage::ERROR_INFORMATION)?,
        Command::FwLog(command) => command.run(LogPage::FIRMWARE_SLOT)?,
        Command::EffectsLog(command) => command.effects()?,
        Command::AnaLog(command) => command.ana()?,
        Command::ListNs(command) => command.list_ns()?,
        Command::ListSubsys(command) => command.list_subsys()?,
        Command::NsDescs(command) => command.run()?,
        Command::ShowRegs(command) => command.show_regs()?,
        Command::GetFeature(command) => command.run()?,
        Command::SetFeature(command) => command.run()?,
        Command::Flush(command) => command.run()?,
        Command::Read(command) => command.run()?,
        Command::Write(command) => command.run()?,
        Command::Compare(command) => return command.run(),
        Command::CompareAndWrite(command) => return command.run(),
        Command::WriteZeroes(command) => command.run()?,
        Command::Dsm(command) => command.run()?,
        Command::ResvRegister(command) => command.run()?,
        Command::ResvAcquire(command) => command.run()?,
        Command::ResvRelease(command) => command.run()?,
        Command::ResvReport(command) => command.run()?,
        Command::Copy(command) => command.run()?,
        Command::Attach(command) => command.run()?,
        Command::Detach(command) => command.run()?,
        Command::Bench(command) => return command.run(),
        Command::Verify(command) => return command.run(),
        Command::Ping(command) => command.run()?,
        Command::Link(command) => command.run()?,
        Command::Fabric(args) => return Ok(cairn_doctor::cli::fabric(&args, CALLER)),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut command_line(), PROGRAM, &mut text);
            let mut text = String::from_utf8_lossy(&text).into_owned();
            if shell == clap_complete::Shell::Bash {
                text = cairn_doctor::cli::repair_bash(&text, PROGRAM);
            }
            output::print(text.trim_end());
        }
        Command::Manual { folder } => {
            let written = clap_mangen::generate_to(command_line(), &folder);
            written.map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        Command::Doctor(args) => {
            let intent = cairn_doctor::rules::Intent::of(CALLER);
            return Ok(ExitCode::from(cairn_doctor::cli::doctor(
                &args,
                intent,
                &[],
            )));
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command_line().debug_assert();
    }

    #[test]
    fn every_number_may_be_hexadecimal() {
        let numeric = [
            "NSID", "LBA", "BYTES", "N", "SECONDS", "PORT", "TOS", "DWORD", "HOPS",
        ];
        let mut seen = 0;
        for command in command_line().get_subcommands() {
            // These commands have fio's syntax or no counterpart in nvme-cli.
            if ["bench", "verify", "fabric", "doctor", "link", "ping"].contains(&command.get_name())
            {
                continue;
            }
            for argument in command.get_arguments() {
                let names = argument.get_value_names().unwrap_or_default();
                if !names.iter().any(|name| numeric.contains(&name.as_str())) {
                    continue;
                }
                let Some(long) = argument.get_long() else {
                    continue;
                };
                let alone = command.clone().mut_args(|one| one.required(false));
                let given = format!("--{long}=0x20");
                let parsed = alone.try_get_matches_from(["alone", &given]);
                // Values are parsed before a missing option is noticed.
                let is_accepted = parsed.as_ref().map_or_else(
                    |error| error.kind() == ErrorKind::MissingRequiredArgument,
                    |_| true,
                );
                assert!(is_accepted, "{}: {parsed:?}", command.get_name());
                seen += 1;
            }
        }
        assert!(seen > 100, "{seen}");
    }

    #[test]
    fn the_form_of_results_has_the_targets_words_too() {
        for command in ["list", "id-ctrl", "bench"] {
            for form in ["normal", "table", "json"] {
                let words = ["cairn-initiator", command, "-a", "192.0.2.1", "-o", form];
                assert!(
                    command_line().try_get_matches_from(words).is_ok(),
                    "{command} {form}"
                );
            }
        }
    }
}
