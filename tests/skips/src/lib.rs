//! Records of skipped tests.
//!
//! Rust's test harness cannot skip a test at run time. A test that cannot run prints the reason and
//! appends it to the file in [`FILE_VARIABLE`]. `cargo xtask test` fails on skips that its list
//! does not allow.
//!
//! A [`probe`] checks whether the machine meets a requirement; its error is the reason of the skip.
//! A probe must not use the code under test: a failure there must fail the test.

use std::fmt::Display;
use std::io::{ErrorKind, Write as _};
use std::panic::Location;
use std::process::Command;

/// Environment variable with the path of the skip file.
pub const FILE_VARIABLE: &str = "CAIRN_SKIPS";

/// Records a skip of the calling test or a part of it.
///
/// The record is a line with source file, test name and reason, separated by tabs.
#[track_caller]
pub fn skip(reason: impl Display) {
    let place = Location::caller().file();
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("");
    let reason = reason.to_string().replace('\n', " ");
    eprintln!("skipped: {test} ({place}): {reason}");
    let Some(path) = std::env::var_os(FILE_VARIABLE) else {
        return;
    };
    let line = format!("{place}\t{test}\t{reason}\n");
    std::fs::File::options()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Runs a command that fails if this machine lacks a requirement. Returns the command's standard
/// output.
///
/// # Errors
/// The error contains the program's name, and its error message or exit status.
pub fn probe(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = message_of(&String::from_utf8_lossy(&output.stderr));
    Err(match message {
        message if message.is_empty() => format!("{program}: {}", output.status),
        message if message.starts_with(&program) => message,
        message => format!("{program}: {message}"),
    })
}

fn message_of(stderr: &str) -> String {
    let lines = || {
        stderr
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
    };
    let is_error = |line: &str| {
        let starts = ["E: ", "error", "Error"]
            .iter()
            .any(|mark| line.starts_with(mark));
        starts || line.contains("[ERROR]") || line.contains("level=error")
    };
    let first = lines().position(is_error).unwrap_or(0);
    lines().skip(first).collect::<Vec<_>>().join(" ")
}

/// True if a [`probe`] succeeds. Otherwise, records a skip with the probe's error.
#[track_caller]
pub fn can(command: &mut Command) -> bool {
    match probe(command) {
        Ok(_) => true,
        Err(reason) => {
            skip(reason);
            false
        }
    }
}

/// Returns the output of a program with the option `--version`.
///
/// # Errors
/// The program is not installed; the error names its Debian package.
///
/// # Panics
/// An installed program fails.
pub fn version(program: &mut Command, package: &str) -> Result<String, String> {
    let program = program.arg("--version");
    let name = program.get_program().to_string_lossy().into_owned();
    match program.output() {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => panic!("{name} is installed, and cannot say its version: {output:?}"),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(format!(
            "{name} is not installed ({error}): \"apt-get install {package}\" brings it"
        )),
        Err(error) => panic!("{name} is installed, and cannot be run: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        shell
    }

    #[test]
    fn a_probe_gives_the_error_that_it_observed() {
        for (script, expected) in [
            ("echo ready", Ok("ready\n")),
            ("echo a >&2; echo b >&2; exit 1", Err("sh: a b")),
            (
                "echo info: a >&2; echo error: b >&2; echo c >&2; exit 1",
                Err("sh: error: b c"),
            ),
            ("echo sh: denied >&2; exit 1", Err("sh: denied")),
            ("exit 7", Err("sh: exit status: 7")),
        ] {
            let seen = probe(&mut shell(script));
            let seen = seen.as_deref().map_err(String::as_str);
            assert_eq!(seen, expected, "{script}");
        }
        let missing = probe(&mut Command::new("/no/such/program"));
        assert!(missing.unwrap_err().contains("No such file"));
    }

    #[test]
    fn only_a_program_that_does_not_exist_is_missing() {
        let missing = version(&mut Command::new("/no/such/program"), "a-package").unwrap_err();
        assert!(missing.contains("No such file") && missing.contains("install a-package"));
        assert_eq!(version(&mut shell("echo 7"), "").unwrap(), "7\n");
        for program in ["exit 1", "kill $$"] {
            let failed = std::panic::catch_unwind(|| version(&mut shell(program), ""));
            assert!(failed.is_err(), "{program}");
        }
        let denied = std::panic::catch_unwind(|| version(&mut Command::new("/etc"), ""));
        assert!(denied.is_err());
    }
}
