//! One step: a program whose output is shown as it comes, and read along.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, IsTerminal, pipe, stdout};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::failures::Failures;
use super::skips;
use super::tally::{Tally, without_escapes};

/// Where steps run, from wherever they were asked for.
pub(super) const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// A program to run.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    command: Command,
}

/// What came of a step.
pub(crate) struct Outcome {
    pub(crate) success: bool,
    /// The tests that it said it had run.
    pub(super) tally: Tally,
    /// Those that it said it had not.
    pub(super) skipped: Vec<String>,
    /// What it said had failed.
    pub(super) failures: Failures,
}

impl Step {
    /// Cargo with these arguments, which hold no spaces.
    pub(crate) fn cargo(name: &'static str, arguments: &str) -> Self {
        Self::program(name, cargo(), arguments)
    }

    /// A program with these arguments, which hold no spaces.
    pub(crate) fn program(name: &'static str, program: impl AsRef<OsStr>, arguments: &str) -> Self {
        let mut command = Command::new(program);
        command
            .args(arguments.split_whitespace())
            .current_dir(WORKSPACE);
        if stdout().is_terminal() {
            command.env("CARGO_TERM_COLOR", "always");
        }
        Self { name, command }
    }

    /// With arguments that hold spaces.
    pub(crate) fn with_arguments<const N: usize>(mut self, arguments: [&str; N]) -> Self {
        self.command.args(arguments);
        self
    }

    pub(crate) fn with_env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// As one would type it.
    pub(crate) fn command_line(&self) -> String {
        let environment = self.command.get_envs().filter_map(|(name, value)| {
            Some(format!("{}={:?}", name.to_str()?, value?.to_str()?))
                .filter(|assignment| !assignment.starts_with("CARGO_TERM_COLOR"))
        });
        let program = std::path::Path::new(self.command.get_program());
        let words = program
            .file_name()
            .into_iter()
            .chain(self.command.get_args());
        environment
            .chain(words.map(|word| word.to_string_lossy().into_owned()))
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Runs it to its end. Each line that it prints is shown after the prefix.
    pub(crate) fn run(mut self, prefix: &str) -> Result<Outcome> {
        let (reader, writer) = pipe().context("cannot make a pipe")?;
        self.command
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer);
        let mut child = self
            .command
            .spawn()
            .with_context(|| format!("cannot run {}", self.command_line()))?;
        // It holds the pipe's writing end, too, and reading ends only when no process does.
        drop(self.command);
        let mut tally = Tally::default();
        let mut skipped = Vec::new();
        let mut failures = Failures::default();
        for line in BufReader::new(reader).split(b'\n') {
            let line = line.context("cannot read what the step prints")?;
            let line = String::from_utf8_lossy(&line);
            println!("{prefix}{line}");
            // What a failed test of nextest has printed is indented, its closing line too.
            if !line.starts_with("    test result:") {
                tally = tally + Tally::of_line(&line);
            }
            let plain = without_escapes(&line);
            skipped.extend(skips::of_line(&plain));
            failures.read(&plain);
        }
        Ok(Outcome {
            success: child.wait()?.success(),
            tally,
            skipped,
            failures,
        })
    }
}

impl Outcome {
    /// The step's part of the sum. It failed even if none of its tests did.
    pub(super) fn counted(&self) -> Tally {
        let counted = self.tally.passed + self.tally.failed > 0;
        match (self.success, self.tally) {
            (true, tally) if !counted => Tally { passed: 1, ..tally },
            (false, tally) if tally.failed == 0 => Tally { failed: 1, ..tally },
            (_, tally) => tally,
        }
    }
}

/// The cargo that runs us.
pub(super) fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
