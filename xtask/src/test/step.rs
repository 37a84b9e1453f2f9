//! Step of a test run: a program whose output is shown and parsed live.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, IsTerminal, pipe, stdout};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::failures::Failures;
use super::skips;
use super::tally::{Tally, without_escapes};

pub(super) const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

pub(crate) struct Step {
    pub(crate) name: &'static str,
    command: Command,
}

pub(crate) struct Outcome {
    pub(crate) success: bool,
    pub(super) tally: Tally,
    pub(super) skipped: Vec<String>,
    pub(super) failures: Failures,
}

impl Step {
    pub(crate) fn cargo(name: &'static str, arguments: &str) -> Self {
        Self::program(name, cargo(), arguments)
    }

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

    pub(crate) fn with_arguments<const N: usize>(mut self, arguments: [&str; N]) -> Self {
        self.command.args(arguments);
        self
    }

    pub(crate) fn with_env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

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
        // Closes the write ends of the pipe, so that reading ends.
        drop(self.command);
        let mut tally = Tally::default();
        let mut skipped = Vec::new();
        let mut failures = Failures::default();
        for line in BufReader::new(reader).split(b'\n') {
            let line = line.context("cannot read what the step prints")?;
            let line = String::from_utf8_lossy(&line);
            println!("{prefix}{line}");
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
    pub(super) fn counted(&self) -> Tally {
        let counted = self.tally.passed + self.tally.failed > 0;
        match (self.success, self.tally) {
            (true, tally) if !counted => Tally { passed: 1, ..tally },
            (false, tally) if tally.failed == 0 => Tally { failed: 1, ..tally },
            (_, tally) => tally,
        }
    }
}

pub(super) fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
