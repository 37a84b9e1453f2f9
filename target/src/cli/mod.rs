//! Command line of cairn-target.
//!
//! Output for scripts goes to stdout (the `nvme` commands, then `ready`), all else to stderr.

mod announce;
mod convert;
mod diagnosis;
mod key;
mod notify;
mod probe;
mod providers;
mod serve;
mod steer;
mod tables;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cairn_config::{Config, Flags};
use cairn_doctor::cli::FabricArgs;
use cairn_doctor::rules::Severity;
use cairn_rdma::PKey;
use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::ending::CALLER;
use crate::logging;
use crate::steering::Source;
use crate::top::{self, Top};

const PROGRAM: &str = CALLER.target;

#[derive(Debug, Parser)]
#[command(
    name = PROGRAM,
    version = crate::revision::LONG,
    about = "Exports disks over NVMe over Fabrics on RDMA"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Exports disks until SIGTERM; SIGHUP reads the configuration again
    Serve(Box<Serve>),
    /// Checks a configuration file, and whether this machine has the disks and addresses in it.
    /// Exit code: 0 if all is there, 1 if serve would start without something, 2 if serve would
    /// refuse the file
    Check {
        /// The configuration file
        file: PathBuf,
        /// Checks the file alone, not this machine
        #[arg(long)]
        offline: bool,
    },
    /// Shows the live activity of a running target
    Top(Top),
    #[command(flatten)]
    Steer(steer::Steer),
    /// Makes secrets for DH-HMAC-CHAP, and checks them
    #[command(subcommand)]
    Key(key::Key),
    /// Prints a configuration that does what another target's does
    #[command(subcommand)]
    Import(convert::Import),
    /// Prints a configuration for another target
    #[command(subcommand)]
    Export(convert::Export),
    /// Prints the JSON schema of configuration files
    Schema,
    /// Prints the completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Writes the man pages
    #[command(hide = true)]
    Manual {
        /// The folder
        folder: PathBuf,
    },
    /// Shows the RoCE devices and settings of this machine, and changes some of them
    Fabric(Box<FabricArgs>),
    /// Reports what is wrong with RoCE on this machine, and how to fix it
    Doctor(Box<diagnosis::Doctor>),
}

#[derive(Debug, Clone, Args)]
struct Serve {
    /// Listens for hosts at this address, at port 4420 or the one given: 192.0.2.1:4421, [2001:db8::1]:4421
    #[arg(long, value_name = "ADDR[:PORT]")]
    listen: Vec<String>,
    /// A file or block device, each file of a directory, a Ceph image, memory, or a null disk; each becomes the next
    /// namespace, and directories come last
    #[arg(
        long,
        value_name = "PATH|dir:DIRECTORY|rbd:POOL/IMAGE|mem:SIZE|null:SIZE"
    )]
    export: Vec<String>,
    /// The name of the subsystem of the exports [default: one of a UUID, made of this machine's id]
    #[arg(long, value_name = "NQN")]
    nqn: Option<String>,
    /// The RDMA provider: adapters, RoCE in user space, or the one that can listen there [default: auto]
    #[arg(long, value_name = "auto|verbs|soft")]
    provider: Option<String>,
    /// RoCE version in user space: v2 on UDP, v1 on Ethernet (requires CAP_NET_RAW) [default: v2]
    #[arg(long, value_name = "v1|v2")]
    roce: Option<String>,
    /// Whether congestion notifications slow RoCE v2 in user space down [default: on]
    #[arg(long, value_name = "on|off")]
    congestion_control: Option<String>,
    /// VID of the VLAN tags that RoCE v1 writes, on an interface that is no VLAN interface; 0: a priority and no VLAN
    /// [default: no tag]
    #[arg(long, value_name = "VID")]
    vlan: Option<u16>,
    /// Partition key of each --listen, such as 0x8001: hosts of other partitions are ignored [default: 0xffff]
    #[arg(long, value_name = "KEY")]
    pkey: Option<PKey>,
    /// Traffic class and hop limit of packets, such as tclass=104,dst_ip=192.0.2.0/24: see docs/roce/marking.md
    #[arg(long, value_name = "RULE")]
    mark: Vec<String>,
    /// Writes the packets of RoCE in user space into this file, for Wireshark
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Bytes after which --pcap ends, such as 64MiB
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = cairn_config::parse_size)]
    pcap_limit: u64,
    /// A configuration file; the other options add to it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Threads that do the I/O [default: half of the cores, at most 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    reactors: Option<u16>,
    /// Serves metrics to Prometheus over HTTP at this address; the port is 9464 unless given [default: nowhere]
    #[arg(long, value_name = "ADDR[:PORT]")]
    metrics: Option<String>,
    /// Path of the control socket, or off [default: in /run/cairn for root, in the user's folder for others]
    #[arg(long, value_name = "PATH|off")]
    control: Option<String>,
    /// Log filter, as in tracing: info, cairn_target=debug, ... [default: info]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Format of log lines [default: text]
    #[arg(long, value_name = "text|json")]
    log_format: Option<String>,
}

impl Serve {
    fn capture(&self) -> Option<(&Path, u64)> {
        Some((self.pcap.as_deref()?, self.pcap_limit))
    }

    fn source(&self) -> Source {
        let flags = Flags {
            listen: self.listen.clone(),
            export: self.export.clone(),
            nqn: self.nqn.clone(),
            provider: self.provider.clone(),
            roce: self.roce.clone(),
            congestion_control: self.congestion_control.clone(),
            vlan: self.vlan,
            pkey: self.pkey,
            metrics: self.metrics.clone(),
            control: self.control.clone(),
            mark: self.mark.clone(),
            log: self.log.clone(),
            log_format: self.log_format.clone(),
        };
        Source::new(self.config.clone(), flags, self.reactors)
    }
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(serve) => serve::run(&serve),
        Command::Check { file, offline } => return ExitCode::from(check(&file, offline)),
        Command::Top(top) => top::run(&top),
        Command::Steer(steer) => steer::run(&steer),
        Command::Key(key) => key::run(&key),
        Command::Import(import) => convert::import(&import),
        Command::Export(export) => convert::export(&export),
        Command::Schema => {
            print_line(cairn_config::schema().trim_end());
            Ok(())
        }
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), PROGRAM, &mut text);
            print_line(String::from_utf8_lossy(&text).trim_end());
            Ok(())
        }
        Command::Manual { folder } => clap_mangen::generate_to(Cli::command(), &folder)
            .map_err(|error| format!("error: {}: {error}", folder.display())),
        Command::Fabric(args) => return cairn_doctor::cli::fabric(&args, CALLER),
        Command::Doctor(doctor) => return ExitCode::from(diagnosis::run(&doctor)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            logging::print_failure(&error);
            ExitCode::FAILURE
        }
    }
}

fn check(file: &Path, offline: bool) -> u8 {
    let config = match Config::from_file(file, &Flags::default()) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("{error}");
            return Severity::Error.exit_code();
        }
    };
    for warning in config.warnings() {
        eprintln!("warning: {warning}");
    }
    print_line(&announce::summary(&config));
    if offline {
        return 0;
    }
    report(&probe::probe(&config))
}

fn report(findings: &[probe::Finding]) -> u8 {
    for probe::Finding { severity, text } in findings {
        eprintln!("{severity}: {text}");
    }
    let codes = findings.iter().map(|one| one.severity.exit_code());
    codes.max().unwrap_or(0)
}

/// A closed stdout is no error.
fn print_line(line: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_config::Reactors;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_help_of_serve_has_the_default_of_each_option() {
        let mut cli = Cli::command();
        let serve = cli.find_subcommand_mut("serve").unwrap();
        let has_none = [
            "listen", "export", "mark", "pcap", "config", "help", "version",
        ];
        for option in serve.get_arguments() {
            let name = option.get_id().as_str();
            let help = option.get_help().unwrap().to_string();
            let says = help.contains("[default: ") || !option.get_default_values().is_empty();
            assert_eq!(says, !has_none.contains(&name), "{name}: {help}");
        }
    }

    #[test]
    fn options_make_a_configuration() {
        let cli = Cli::parse_from([
            "cairn-target",
            "serve",
            "--listen",
            "192.0.2.1",
            "--listen",
            "[2001:db8::1]:4421",
            "--export",
            "mem:64MiB",
            "--export",
            "null:1GiB",
            "--reactors",
            "3",
        ]);
        let Command::Serve(serve) = cli.command else {
            panic!("it is serve")
        };
        let (_, config) = serve.source().read().unwrap();
        assert_eq!(config.listeners.len(), 2);
        assert_eq!(config.listeners[1].port, 4421);
        assert_eq!(config.subsystems[0].namespaces.len(), 2);
        assert_eq!(config.target.reactors, Reactors::Count(3));
    }
}
