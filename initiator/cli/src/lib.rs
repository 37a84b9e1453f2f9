//! Command line of cairn-initiator, with commands of nvme-cli and a benchmark with fio's keys.
//!
//! Results are printed to stdout in the format of `-o`, everything else to stderr.

mod address;
mod bench;
mod bit_fields;
mod discover;
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
mod ping;
mod raw;
mod responder;
mod samples;
mod session;

use std::process::ExitCode;

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
    version,
    about = "A host of NVMe over Fabrics on RDMA, in user space: inspects controllers, \
             reads and writes blocks, measures and verifies",
    after_help = "Each command's --help has an example. Options that address a controller are \
                  those of nvme-cli; those of bench are fio's."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists the subsystems of a target, with their addresses
    #[command(after_help = "EXAMPLE:\n  cairn-initiator discover -t rdma -a 192.0.2.1 -s 4420")]
    Discover(discover::Discover),
    /// Connects all queues, shows the negotiated values, and disconnects
    #[command(
        after_help = "EXAMPLE:\n  cairn-initiator connect-check -t rdma -a 192.0.2.1 -n \
                            nqn.2024-01.com.example:disk --nr-io-queues 2"
    )]
    ConnectCheck(discover::ConnectCheck),
    /// Lists the namespaces of all subsystems, or of one
    #[command(after_help = "EXAMPLE:\n  cairn-initiator list -a 192.0.2.1")]
    List(list::List),
    /// Shows a controller's Identify data
    #[command(after_help = "EXAMPLES:\n  cairn-initiator id-ctrl -a 192.0.2.1 -n \
                            nqn.2024-01.com.example:disk -H\n  cairn-initiator id-ctrl -a \
                            192.0.2.1 -n nqn.2024-01.com.example:disk -o json")]
    IdCtrl(identify::IdCtrl),
    /// Shows a namespace's Identify data
    #[command(after_help = "EXAMPLE:\n  cairn-initiator id-ns -a 192.0.2.1 -n \
                            nqn.2024-01.com.example:disk -N 1 -H")]
    IdNs(identify::IdNs),
    /// Shows a log page
    #[command(after_help = "EXAMPLES:\n  cairn-initiator get-log -a 192.0.2.1 -n \
                            nqn.2024-01.com.example:disk --log-id smart\n  cairn-initiator \
                            get-log -a 192.0.2.1 -n nqn.2024-01.com.example:disk --log-id error \
                            -o json")]
    GetLog(logs::GetLog),
    /// Shows the SMART log
    #[command(after_help = "EXAMPLE:\n  cairn-initiator smart-log -a 192.0.2.1 -n \
                            nqn.2024-01.com.example:disk -o json")]
    SmartLog(nvme_names::SmartLog),
    /// Shows the error log
    #[command(after_help = "EXAMPLE:\n  cairn-initiator error-log -a 192.0.2.1 -n \
                            nqn.2024-01.com.example:disk")]
    ErrorLog(nvme_names::Detailed),
    /// Shows the firmware log
    #[command(after_help = "EXAMPLE:\n  cairn-initiator fw-log -a 192.0.2.1 -n \
                            nqn.2024-01.com.example:disk")]
    FwLog(nvme_names::Detailed),
    /// Lists the commands that a controller supports, and their effects
    #[command(
        after_help = "EXAMPLE:\n  cairn-initiator effects-log -a 192.0.2.1 -n \
                            nqn.2024-01.com.example:disk"
    )]
    EffectsLog(nvme_names::Detailed),
    /// Shows the ANA groups, their states and their namespaces
    #[command(after_help = "EXAMPLE:\n  cairn-initiator ana-log -a 192.0.2.1 -n \
                            nqn.2024-01.com.example:disk")]
    AnaLog(nvme_names::Named),
    /// Lists the numbers of a subsystem's namespaces
    #[command(after_help = "EXAMPLE:\n  cairn-initiator list-ns -a 192.0.2.1 -n \
                            nqn.2024-01.com.example:disk")]
    ListNs(nvme_names::Named),
    /// Lists the subsystems of a target, with the paths to each
    #[command(after_help = "EXAMPLE:\n  cairn-initiator list-subsys -a 192.0.2.1")]
    ListSubsys(nvme_names::Named),
    /// Shows the identifiers of a namespace
    #[command(after_help = "EXAMPLE:\n  cairn-initiator ns-descs -a 192.0.2.1 -n \
                            nqn.2024-01.com.example:disk -N 1")]
    NsDescs(nvme_names::NsDescs),
    /// Shows a controller's properties
    #[command(after_help = "EXAMPLE:\n  cairn-initiator show-regs -a 192.0.2.1 -n \
                            nqn.2024-01.com.example:disk -H")]
    ShowRegs(nvme_names::Detailed),
    /// Shows a feature's value
    #[command(
        after_help = "EXAMPLE:\n  cairn-initiator get-feature -a 192.0.2.1 -n \
                            nqn.2024-01.com.example:disk -f 0x06 -H"
    )]
    GetFeature(features::GetFeature),
    /// Sets a feature, until this command disconnects
    #[command(
        after_help = "EXAMPLE:\n  cairn-initiator set-feature -a 192.0.2.1 -n \
                            nqn.2024-01.com.example:disk -f 0x0b -V 0x100"
    )]
    SetFeature(features::SetFeature),
    /// Makes all written data durable
    #[command(after_help = "EXAMPLE:\n  cairn-initiator flush -a 192.0.2.1 -n \
                            nqn.2024-01.com.example:disk -N 1")]
    Flush(io::Flush),
    /// Reads blocks into a file, or to stdout
    #[command(after_help = "EXAMPLE:\n  cairn-initiator read -a 192.0.2.1 -n \
                            nqn.2024-01.com.example:disk --start-block 0 -c 7 -d blocks.bin")]
    Read(io::ReadBlocks),
    /// Writes blocks from a file, or from stdin; requires --destroy-data
    #[command(
        after_help = "EXAMPLE:\n  head -c 4096 /dev/urandom | cairn-initiator write -a \
                            192.0.2.1 -n nqn.2024-01.com.example:disk --start-block 0 -z 4096 \
                            --destroy-data"
    )]
    Write(io::Write),
    /// Compares blocks with a file, or with stdin
    #[command(
        after_help = "EXAMPLE:\n  head -c 4096 /dev/zero | cairn-initiator compare -a \
                            192.0.2.1 -n nqn.2024-01.com.example:disk --start-block 64 -z 4096"
    )]
    Compare(io::Compare),
    /// Sets blocks to zero; requires --destroy-data
    #[command(
        after_help = "EXAMPLE:\n  cairn-initiator write-zeroes -a 192.0.2.1 -n \
                            nqn.2024-01.com.example:disk --start-block 0 -c 7 --destroy-data"
    )]
    WriteZeroes(io::WriteZeroes),
    /// Dataset Management: deallocates blocks; requires --destroy-data
    #[command(after_help = "EXAMPLE:\n  cairn-initiator dsm -a 192.0.2.1 -n \
                            nqn.2024-01.com.example:disk --slbs 0,64 --blocks 8,8 --ad \
                            --destroy-data")]
    Dsm(io::Dsm),
    /// Runs a job with fio's keys: measures and verifies
    #[command(after_help = "EXAMPLES:\n  cairn-initiator bench -a 192.0.2.1 -n \
                            nqn.2024-01.com.example:disk --rw=randread --bs=4k --iodepth=32 \
                            --runtime=2 --time_based\n  cairn-initiator bench -a 192.0.2.1 -n \
                            nqn.2024-01.com.example:disk --destroy-data --rw=randrw --bs=4k \
                            --iodepth=16 --size=16m --verify=crc32c --output-format=json")]
    Bench(bench::Bench),
    /// Checks the blocks written by `bench --verify=crc32c`
    #[command(after_help = "EXAMPLE:\n  cairn-initiator verify -a 192.0.2.1 -n \
                            nqn.2024-01.com.example:disk --bs=4k --size=16m")]
    Verify(bench::Verify),
    /// Measures the shares of network, target and disk in the time of a read
    #[command(after_help = "EXAMPLE:\n  cairn-initiator ping -a 192.0.2.1 -n \
                            nqn.2024-01.com.example:disk")]
    Ping(ping::Ping),
    /// Measures the link between two machines, without NVMe and disks
    #[command(
        after_help = "EXAMPLE, with both ends on one machine:\n  cairn-initiator link \
                            --listen 127.4.18.2 --provider soft --once & sleep 1; \
                            cairn-initiator link -a 127.4.18.2 --provider soft --time 100"
    )]
    Link(link::LinkArgs),
    /// Shows the RoCE devices and settings of this machine, and changes some of them
    #[command(
        after_help = "EXAMPLES:\n  cairn-initiator fabric --all\n  cairn-initiator fabric \
                            -o json"
    )]
    Fabric(Box<cairn_doctor::cli::FabricArgs>),
    /// Finds problems of RoCE on this machine, and reports how to fix them
    #[command(
        after_help = "EXAMPLE:\n  cairn-initiator doctor --peer 192.0.2.1 || echo \"exit \
                            code $?: 1 is a warning, 2 an error\""
    )]
    Doctor(Box<cairn_doctor::cli::DoctorArgs>),
    /// Prints the completion script for a shell
    #[command(after_help = "EXAMPLE:\n  cairn-initiator completions bash")]
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

/// Runs the program with the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    let matches = Cli::command().try_get_matches_from(&arguments);
    let matches = matches.unwrap_or_else(|error| bench::explain(error, &arguments).exit());
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match run(cli.command).and_then(|code| output::check().map(|()| code)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
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
        Command::WriteZeroes(command) => command.run()?,
        Command::Dsm(command) => command.run()?,
        Command::Bench(command) => return command.run(),
        Command::Verify(command) => return command.run(),
        Command::Ping(command) => command.run()?,
        Command::Link(command) => command.run()?,
        Command::Fabric(args) => return Ok(cairn_doctor::cli::fabric(&args, CALLER)),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), PROGRAM, &mut text);
            output::print_bytes(&text)?;
        }
        Command::Manual { folder } => {
            let written = clap_mangen::generate_to(Cli::command(), &folder);
            written.map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        Command::Doctor(args) => {
            let intent = cairn_doctor::rules::Intent::of(CALLER);
            return Ok(ExitCode::from(cairn_doctor::cli::doctor(&args, intent)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Names and help texts of all subcommands.
#[must_use]
pub fn helps() -> Vec<(String, String)> {
    let mut cli = Cli::command();
    cli.build();
    cli.get_subcommands_mut()
        .filter(|command| command.get_name() != "help")
        .filter(|command| !command.is_hide_set())
        .map(|command| {
            let help = command.render_long_help().to_string();
            (command.get_name().to_owned(), help)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// nvme-cli accepts decimal and hexadecimal for every number.
    #[test]
    fn every_number_may_be_hexadecimal() {
        let numeric = [
            "NSID", "LBA", "BYTES", "N", "SECONDS", "PORT", "TOS", "DWORD", "HOPS",
        ];
        let mut seen = 0;
        for command in Cli::command().get_subcommands() {
            // These commands have the syntax of fio or no counterpart in nvme-cli.
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
                let alone = clap::Command::new("alone").arg(argument.clone().required(false));
                let given = format!("--{long}=0x20");
                let parsed = alone.try_get_matches_from(["alone", &given]);
                assert!(parsed.is_ok(), "{}: {parsed:?}", command.get_name());
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
                assert!(Cli::try_parse_from(words).is_ok(), "{command} {form}");
            }
        }
    }

    #[test]
    fn every_command_has_an_example_that_begins_with_the_program() {
        for (name, help) in helps() {
            let examples = help.split_once("EXAMPLE").map(|(_, examples)| examples);
            let examples = examples.unwrap_or_else(|| panic!("{name} has no example"));
            assert!(
                examples.contains(&format!("cairn-initiator {name} ")),
                "{name}"
            );
        }
    }
}
