//! Command line of `fabric` and `doctor`, subcommands of target and host.

mod doctor;
mod explain;
mod grammar;
mod output;
mod record;
mod set;
mod show;
mod table;
mod watch;

pub use grammar::{
    Common, EXAMPLES, Format, OutputArgs, complete, error_line, has_headers, is_quiet, print_error,
    print_finding, print_message, repair_bash,
};
pub use output::{check_stdout, exit, print_line, stdout_failure};
pub use record::create;
pub use table::Table;

use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use cairn_trouble::Caller;
use clap::{Args, Subcommand, ValueEnum};

use crate::facts::{Fabric, RoceVersion};
use crate::rules::{Choice, Intent, Severity};
use crate::source::{Live, Recorder, Recording, Source};

const FAILED: u8 = 3;

/// Devices and settings of RoCE on this machine.
#[derive(Debug, Clone, Args)]
pub struct FabricArgs {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    machine: MachineArgs,
    /// Also show counters that are zero
    #[arg(long)]
    all: bool,
    /// File to write a recording to; --root FILE shows it on another machine
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

/// Further commands.
#[derive(Debug, Clone, Subcommand)]
enum Action {
    /// Shows rates of counters, until interrupted
    Watch {
        /// Seconds between two readings
        #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
        interval: f64,
        /// Stop after this many readings
        #[arg(long, value_name = "N")]
        count: Option<u64>,
    },
    /// Explains an error: its meaning, its causes, and the next command
    Explain {
        /// Name, part of a name, number, or line of a log in quotes: "rnr", "12", "sct 0x3 sc 0x0",
        /// "nvme nvme0: rdma connection establishment failed (-104)" [default: every error]
        #[arg(allow_hyphen_values = true)]
        error: Option<String>,
        /// Address of the other end of the connection
        #[arg(short = 'a', long, visible_alias = "traddr", value_name = "ADDR")]
        peer: Option<IpAddr>,
    },
    /// Sets the default RoCE version of connections
    SetMode {
        /// RDMA device
        device: String,
        /// v1 or v2
        version: VersionArg,
        /// Port [default: every port]
        #[arg(long, value_name = "N")]
        port: Option<u32>,
    },
    /// Sets the default ToS of connections
    SetTos {
        /// RDMA device
        device: String,
        /// ToS from 0 to 255; DSCP is ToS / 4
        tos: u8,
        /// Port [default: every port]
        #[arg(long, value_name = "N")]
        port: Option<u32>,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum VersionArg {
    V1,
    V2,
}

/// Selection of the machine, and output format.
#[derive(Debug, Clone, Args)]
struct MachineArgs {
    #[command(flatten)]
    output: OutputArgs,
    /// Directory or recording to read instead of this machine
    #[arg(long, value_name = "DIR|FILE", global = true)]
    root: Option<PathBuf>,
}

/// Finds problems of RoCE on this machine, and reports how to fix them.
///
/// The exit code is 0 without findings or with notes only, 1 for a warning, 2 for an error, and 3
/// if the doctor itself failed.
#[derive(Debug, Clone, Args)]
pub struct DoctorArgs {
    /// Also check the route to this address, by sending packets to it
    #[arg(short = 'a', long, visible_alias = "traddr", value_name = "ADDR")]
    peer: Option<IpAddr>,
    /// Address to listen at or to connect from; repeatable [default: each address of an RDMA
    /// device]
    #[arg(long, visible_alias = "host-traddr", value_name = "ADDR")]
    address: Vec<IpAddr>,
    /// ToS that connections will have, 0 to 255
    #[arg(short = 'T', long, value_name = "TOS")]
    tos: Option<u8>,
    /// Check for RoCE in user space, even if there are RDMA devices
    #[arg(long)]
    soft: bool,
    /// Seconds between two readings of the counters; 0: a single reading
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    interval: f64,
    /// Run the safe commands, each after a question
    #[arg(long)]
    fix: bool,
    /// Run the safe commands without questions
    #[arg(long, requires = "fix")]
    yes: bool,
    #[command(flatten)]
    machine: MachineArgs,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds, up to a day".to_owned()),
    }
}

pub(crate) type Failure = String;

#[must_use]
pub fn fabric(args: &FabricArgs, caller: Caller) -> ExitCode {
    let mut stdout = std::io::stdout().lock();
    match run_fabric(args, caller, &mut stdout) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            print_error(error_line(&failure));
            ExitCode::FAILURE
        }
    }
}

/// Returns the exit code of the worst finding. `printed` contains severities of findings that the
/// caller printed.
#[must_use]
pub fn doctor(args: &DoctorArgs, intent: Intent, printed: &[Severity]) -> u8 {
    let mut stdout = std::io::stdout().lock();
    run_doctor(args, intent, printed, &mut stdout).unwrap_or_else(|failure| {
        print_error(error_line(&failure));
        FAILED
    })
}

pub fn run_fabric(args: &FabricArgs, caller: Caller, out: &mut dyn Write) -> Result<(), Failure> {
    let root = args.machine.root.as_deref();
    match &args.action {
        Some(Action::SetMode {
            device,
            version,
            port,
        }) => {
            let version = match version {
                VersionArg::V1 => RoceVersion::V1,
                VersionArg::V2 => RoceVersion::V2,
            };
            let setting = set::Setting::mode(caller, device, version);
            setting.apply(root, *port, args.machine.output.format, out)
        }
        Some(Action::SetTos { device, tos, port }) => {
            let setting = set::Setting::tos(caller, device, *tos);
            setting.apply(root, *port, args.machine.output.format, out)
        }
        Some(Action::Explain { error, peer }) => explain::run(
            error.as_deref(),
            caller,
            *peer,
            args.machine.output.format,
            out,
        ),
        Some(Action::Watch { interval, count }) => {
            let source = args.machine.source()?;
            let interval = Duration::from_secs_f64(*interval);
            watch::run(&*source, interval, *count, args.machine.output.format, out)
        }
        None => {
            let source = args.machine.source()?;
            let recorder = Recorder::new(&*source);
            let fabric = Fabric::read(&recorder);
            if let Some(file) = &args.record {
                record::write(file, &recorder.text())
                    .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
            }
            match args.machine.output.format {
                Format::Json => output::json(&fabric, out),
                _ => output::text(&show::describe(&fabric, args.all), out),
            }
        }
    }
}

pub fn run_doctor(
    args: &DoctorArgs,
    mut intent: Intent,
    printed: &[Severity],
    out: &mut dyn Write,
) -> Result<u8, Failure> {
    if !args.address.is_empty() {
        intent.addresses.clone_from(&args.address);
    }
    if let Some(tos) = args.tos {
        intent.tos = vec![Choice {
            tos: crate::tos::Tos(tos),
            by: format!("{} is configured to use it", intent.caller.program()),
            source: None,
        }];
    }
    intent.is_soft |= args.soft;
    doctor::run(args, intent, printed, out)
}

impl MachineArgs {
    fn source(&self) -> Result<Box<dyn Source>, Failure> {
        let Some(root) = &self.root else {
            return Ok(Box::new(Live::machine()));
        };
        if root.is_dir() {
            return Ok(Box::new(Live::tree(root)));
        }
        Ok(Box::new(Recording::open(root)?))
    }
}
