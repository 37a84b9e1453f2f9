//! Command line of cairn-target. Stdout has only output for scripts: for `serve`, `nvme` commands
//! and then `ready`.

mod announce;
mod check;
mod complete;
mod convert;
mod diagnosis;
mod examples;
mod key;
mod notify;
mod probe;
mod providers;
mod result_file;
mod schemas;
mod serve;
mod steer;
mod tables;
mod units;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cairn_config::{Flags, resolved_export};
use cairn_doctor::cli::{Common, FabricArgs, check_stdout, print_line};
use cairn_rdma::PKey;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::steering::Source;
use crate::top::{self, Top};
use crate::{files, logging};
use cairn_data_path::ending::CALLER;

const PROGRAM: &str = CALLER.target;

#[derive(Debug, Parser)]
#[command(
    name = PROGRAM,
    version = crate::revision::LONG,
    about = "Exports disks over NVMe over Fabrics on RDMA"
)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Exports disks until SIGTERM; SIGHUP reloads the configuration
    Serve(Box<Serve>),
    /// Checks a configuration file, and whether its disks and addresses exist on this machine. The
    /// last line and the exit code are the verdict: ok (0), degraded (1) if serve would start
    /// without a part, refused (2) if serve would not start
    Check(check::Check),
    /// Shows the live activity of a running target
    Top(Top),
    #[command(flatten)]
    Steer(steer::Steer),
    /// Makes secrets for DH-HMAC-CHAP, and checks them
    #[command(subcommand)]
    Key(key::Key),
    /// Converts the configuration of another target
    #[command(subcommand)]
    Import(convert::Import),
    /// Converts a configuration for another target
    #[command(subcommand)]
    Export(convert::Export),
    /// Prints the JSON schema of configuration files, or of the JSON that a command prints
    Schema {
        /// Command, such as status or "namespace list"
        #[arg(long, value_name = "COMMAND")]
        of: Option<String>,
    },
    /// Prints the completion script for a shell
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
    /// Prints the names of a running target that complete the last word
    #[command(name = "__complete", hide = true)]
    Names {
        /// Words of the command line, after the program
        #[arg(last = true)]
        words: Vec<String>,
    },
    /// Writes the man pages
    #[command(hide = true)]
    Manual {
        /// Folder of the man pages
        folder: PathBuf,
    },
    /// Shows the RoCE devices and settings of this machine, and changes some of them
    Fabric(Box<FabricArgs>),
    /// Finds problems of RoCE on this machine, and reports how to fix them
    Doctor(Box<diagnosis::Doctor>),
}

#[derive(Debug, Clone, Args)]
struct Serve {
    /// Address to accept hosts at, with port 4420 by default: 192.0.2.1:4421, [2001:db8::1]:4421;
    /// repeatable
    #[arg(long, value_name = "ADDR[:PORT]")]
    listen: Vec<String>,
    /// File, block device, files of a directory, Ceph image, memory, or null disk; repeatable.
    /// Namespaces are numbered in this order, but files of directories come last
    #[arg(
        long,
        value_name = "PATH|dir:DIRECTORY|rbd:POOL/IMAGE|mem:SIZE|null:SIZE"
    )]
    export: Vec<String>,
    /// Name of the subsystem of the exports [default: a UUID made from this machine's ID]
    #[arg(long, value_name = "NQN")]
    nqn: Option<String>,
    /// RDMA provider: verbs (RDMA adapters), soft (RoCE in user space), or auto (verbs if an
    /// adapter has the address) [default: auto]
    #[arg(long, value_name = "auto|verbs|soft")]
    provider: Option<String>,
    /// RoCE version in user space: v2 on UDP, v1 on Ethernet (requires CAP_NET_RAW) [default: v2]
    #[arg(long, value_name = "v1|v2")]
    roce: Option<String>,
    /// Whether congestion notifications slow RoCE v2 in user space [default: on]
    #[arg(long, value_name = "on|off")]
    congestion_control: Option<String>,
    /// VID of the VLAN tags that RoCE v1 writes, on an interface that is not a VLAN interface; 0: a
    /// tag with only a priority [default: no tag]
    #[arg(long, value_name = "VID")]
    vlan: Option<u16>,
    /// Partition key of each --listen, such as 0x8001: hosts of other partitions are ignored [default: 0xffff]
    #[arg(long, value_name = "KEY")]
    pkey: Option<PKey>,
    /// Rule for traffic class and hop limit of packets, such as tclass=104,dst_ip=192.0.2.0/24
    /// (docs/roce/marking.md); repeatable
    #[arg(long, value_name = "RULE")]
    mark: Vec<String>,
    /// File for the packets of RoCE in user space, for Wireshark
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Bytes after which the capture of --pcap ends, such as 64MiB
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = cairn_config::parse_size)]
    pcap_limit: u64,
    /// Configuration file; the other options add to it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Threads of the data path [default: half of the cores, at most 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    reactors: Option<u16>,
    /// Address that serves metrics to Prometheus over HTTP, with port 9464 by default [default: no
    /// metrics]
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

fn quiet() -> Option<String> {
    cairn_doctor::cli::is_quiet().then(|| "error".to_owned())
}

impl Serve {
    fn capture(&self) -> Option<(&Path, u64)> {
        Some((self.pcap.as_deref()?, self.pcap_limit))
    }

    /// Refuses files such as `/etc/hostname`, whose size is not a multiple of 512, because hosts
    /// would overwrite them. Only a configuration file can export them.
    fn check_exports(&self) -> Result<(), String> {
        const SECTOR_BYTES: u64 = 512;
        #[expect(clippy::disallowed_methods, reason = "on a thread of `files`")]
        fn length(path: &Path) -> Option<u64> {
            let about = std::fs::metadata(path).ok()?;
            about.is_file().then_some(about.len())
        }
        for export in &self.export {
            let length = files::call_here(Path::new(export), length);
            if let Ok(Some(length)) = length
                && length % SECTOR_BYTES != 0
            {
                return Err(format!(
                    "error: --export {export} is not a disk image: it has {length} bytes, which is not a \
                     multiple of {SECTOR_BYTES}; if it is one, export it by --config, without its last bytes"
                ));
            }
        }
        Ok(())
    }

    fn source(&self) -> Source {
        let flags = Flags {
            listen: self.listen.clone(),
            export: self.export.clone(),
            nqn: self.nqn.clone(),
            first_export: self.export.first().and_then(|export| {
                let resolve = |export: &Path| export.to_str().map(resolved_export);
                files::call_here(Path::new(export), resolve).ok()?
            }),
            provider: self.provider.clone(),
            roce: self.roce.clone(),
            congestion_control: self.congestion_control.clone(),
            vlan: self.vlan,
            pkey: self.pkey,
            metrics: self.metrics.clone(),
            control: self.control.clone(),
            mark: self.mark.clone(),
            log: self.log.clone().or_else(quiet),
            log_format: self.log_format.clone(),
        };
        Source::new(self.config.clone(), flags, self.reactors)
    }
}

/// Returns the grammar of the command line.
#[must_use]
pub fn command_line() -> clap::Command {
    let examples = [examples::EXAMPLES, cairn_doctor::cli::EXAMPLES];
    cairn_doctor::cli::complete(Cli::command(), &examples, examples::RECORDS)
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let matches = command_line().try_get_matches();
    let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = cli.unwrap_or_else(|error| cairn_doctor::cli::exit(&error));
    cli.common.apply();
    let result = match cli.command {
        Command::Serve(serve) => return serve::run(&serve),
        Command::Check(check) => return exit(Ok(check.run())),
        Command::Top(top) => top::run(&top),
        Command::Steer(steer::Steer::Status { check: true, at }) => {
            return exit(Ok(steer::check(&at)));
        }
        Command::Steer(steer) => steer::run(&steer),
        Command::Key(key) => key::run(&key),
        Command::Import(import) => return exit(convert::import(&import)),
        Command::Export(export) => return exit(convert::export(&export)),
        Command::Schema { of: Some(command) } => {
            schemas::schema(&command).map(|schema| print_line(&schema))
        }
        Command::Schema { of: None } => {
            print_line(cairn_config::schema().trim_end());
            Ok(())
        }
        Command::Completions { shell } => {
            print_line(complete::script(command_line(), shell).trim_end());
            Ok(())
        }
        Command::Names { words } => {
            let names = complete::names(command_line(), &words);
            names.iter().for_each(|name| print_line(name));
            Ok(())
        }
        Command::Manual { folder } => clap_mangen::generate_to(command_line(), &folder)
            .map_err(|error| format!("{}: {error}", folder.display())),
        Command::Fabric(args) => return cairn_doctor::cli::fabric(&args, CALLER),
        Command::Doctor(doctor) => return ExitCode::from(diagnosis::run(&doctor)),
    };
    exit(result.map(|()| 0))
}

fn exit(result: Result<u8, String>) -> ExitCode {
    let failed = |error: String| {
        logging::print_failure(&error);
        1
    };
    let code = result.unwrap_or_else(failed);
    let printed = check_stdout().map_or_else(failed, |()| 0);
    ExitCode::from(code.max(printed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_config::Reactors;

    #[test]
    fn the_command_line_is_consistent() {
        command_line().debug_assert();
    }

    fn with_force(command: &clap::Command, name: &str, found: &mut Vec<String>) {
        if command
            .get_arguments()
            .any(|one| one.get_long() == Some("force"))
        {
            found.push(name.to_owned());
        }
        for next in command.get_subcommands() {
            with_force(next, &format!("{name} {}", next.get_name()), found);
        }
    }

    #[test]
    fn only_the_commands_of_the_page_have_force() {
        const PAGE: &str = include_str!("../../../docs/cli.md");
        let mut found = Vec::new();
        with_force(&command_line(), "", &mut found);
        assert_eq!(found, [" subsystem remove", " namespace remove"]);
        let (_, section) = PAGE.split_once("## `--force`\n").unwrap();
        let section = section.split("\n## ").next().unwrap();
        for name in found {
            assert!(section.contains(&format!("(`{}`)", name.trim())), "{name}");
        }
    }

    #[test]
    fn the_help_of_serve_has_the_default_of_each_option() {
        let mut cli = command_line();
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
