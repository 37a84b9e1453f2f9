//! Rules of docs/cli.md for target and host: output formats, messages, errors and examples.

use std::fmt::Display;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Command, ValueEnum};

use crate::rules::Severity;

static IS_QUIET: AtomicBool = AtomicBool::new(false);
static HAS_NO_HEADERS: AtomicBool = AtomicBool::new(false);

/// Options of every command.
#[derive(Debug, Clone, Copy, Args)]
pub struct Common {
    /// Print no messages except warnings and errors
    #[arg(long, global = true)]
    pub quiet: bool,
    /// Print tables without their row of headings
    #[arg(long, global = true)]
    no_headers: bool,
}

impl Common {
    pub fn apply(self) {
        IS_QUIET.store(self.quiet, Ordering::Relaxed);
        HAS_NO_HEADERS.store(self.no_headers, Ordering::Relaxed);
    }
}

#[must_use]
pub fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

#[must_use]
pub fn has_headers() -> bool {
    !HAS_NO_HEADERS.load(Ordering::Relaxed)
}

pub fn print_message(text: impl Display) {
    if !is_quiet() {
        print_error(text);
    }
}

/// Prints a line to stderr, which may be closed.
pub fn print_error(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Prints a finding to stderr. `--quiet` suppresses notes.
pub fn print_finding(severity: Severity, text: &str) {
    match severity {
        Severity::Note => print_message(format_args!("{severity}: {text}")),
        Severity::Warning | Severity::Error => print_error(format_args!("{severity}: {text}")),
    }
}

#[must_use]
pub fn error_line(text: &str) -> String {
    format!("error: {}", text.trim_start_matches("error: "))
}

/// Formats of `--output`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text, with lists in columns
    #[value(alias = "normal")]
    Table,
    /// JSON
    Json,
    /// All columns
    Wide,
    /// Identifiers only, one record per line
    Name,
}

/// Option for the output format.
#[derive(Debug, Clone, Copy, Args)]
pub struct OutputArgs {
    /// Format of the result
    #[arg(
        short = 'o',
        long = "output",
        alias = "output-format",
        value_name = "FORMAT",
        default_value = "table",
        global = true
    )]
    pub format: Format,
}

/// Examples of the commands `fabric` and `completions` of target and host.
pub const EXAMPLES: &str = "\
PROGRAM fabric --all
PROGRAM fabric -o json
PROGRAM fabric watch --count 3
PROGRAM fabric explain IBV_WC_RETRY_EXC_ERR
PROGRAM fabric explain 'nvme nvme0: rdma connection establishment failed (-104)'
PROGRAM fabric set-mode mlx5_0 v2
PROGRAM fabric set-tos mlx5_0 96
PROGRAM completions bash
";

/// Adds examples to the help of each command. Only the commands in `records`, such as
/// `namespace list`, accept the output formats `wide` and `name`.
///
/// Each line of `examples` belongs to the command that it runs; `PROGRAM` stands for the name of
/// `command`.
#[must_use]
pub fn complete(command: Command, examples: &[&str], records: &[&str]) -> Command {
    let program = command.get_name().to_owned();
    let lines = examples.iter().flat_map(|text| text.lines());
    let lines: Vec<String> = lines
        .map(|line| line.replace("PROGRAM", &program))
        .collect();
    complete_at(command, &program, &lines, records)
}

/// Corrects a mistake of `clap_complete` in a completion script for bash.
///
/// If the program's name contains a hyphen, the script assigns names such as
/// `cairn__target__subcmd__check`, but its case labels are `cairn__subcmd__target__subcmd__check`.
/// The labels are replaced by the assigned names.
#[must_use]
pub fn repair_bash(script: &str, program: &str) -> String {
    let labels = program.replace('-', "__subcmd__") + "__subcmd__";
    script.replace(&labels, &(program.replace('-', "__") + "__subcmd__"))
}

fn complete_at(mut command: Command, path: &str, examples: &[String], records: &[&str]) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|one| one.get_name().to_owned())
        .collect();
    let is_below = |line: &str| {
        names
            .iter()
            .any(|name| has(line, &format!("{path} {name}")))
    };
    let own = examples
        .iter()
        .filter(|line| has(line, path) && !is_below(line));
    let own: Vec<&str> = own.map(String::as_str).collect();
    let is_record = path
        .split_once(' ')
        .is_some_and(|(_, path)| records.contains(&path));
    if !is_record && command.get_arguments().any(|one| one.get_id() == "format") {
        command = command.mut_arg("format", |arg| arg.value_parser(of_report()));
    }
    for name in &names {
        command = command.mut_subcommand(name, |one| {
            complete_at(one, &format!("{path} {name}"), examples, records)
        });
    }
    match own[..] {
        [] => command,
        [one] if path.contains(' ') => command.after_help(format!("EXAMPLE:\n  {one}")),
        _ if path.contains(' ') => command.after_help(format!("EXAMPLES:\n  {}", own.join("\n  "))),
        _ => command,
    }
}

fn has(line: &str, path: &str) -> bool {
    let mut at = line.match_indices(path);
    at.any(|(at, _)| matches!(line.as_bytes().get(at + path.len()), None | Some(b' ')))
}

fn of_report() -> impl TypedValueParser<Value = Format> {
    let table = PossibleValue::new("table").alias("normal");
    PossibleValuesParser::from([table, PossibleValue::new("json")]).map(|name| match &*name {
        "json" => Format::Json,
        _ => Format::Table,
    })
}
