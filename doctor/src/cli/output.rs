//! Output to stdout; a closed pipe is no error.

use std::io::{Error, ErrorKind, Write};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use super::{Failure, error_line, print_error};

static FAILURE: Mutex<Option<String>> = Mutex::new(None);

/// Prints a line to stdout. An error is stored for [`check_stdout`].
pub fn print_line(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let written = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        let mut first = FAILURE.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| stdout_failure(&error));
    }
}

/// Returns the first error of [`print_line`], except a closed pipe.
pub fn check_stdout() -> Result<(), String> {
    let first = FAILURE.lock().unwrap_or_else(PoisonError::into_inner);
    first.clone().map_or(Ok(()), Err)
}

#[must_use]
pub fn stdout_failure(error: &Error) -> String {
    format!("writing to stdout: {error}")
}

/// Prints help, a version or a usage error, and ends the process.
pub fn exit(error: &clap::Error) -> ! {
    let printed = error.print().and_then(|()| std::io::stdout().flush());
    match printed {
        Err(failed) if !error.use_stderr() && failed.kind() != ErrorKind::BrokenPipe => {
            print_error(error_line(&stdout_failure(&failed)));
            std::process::exit(1)
        }
        _ => std::process::exit(error.exit_code()),
    }
}

pub(super) fn text(text: &str, out: &mut dyn Write) -> Result<(), Failure> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(()),
    }
}

pub(super) fn json(value: &impl Serialize, out: &mut dyn Write) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(value).map_err(|error| error.to_string())?;
    text(&format!("{json}\n"), out)
}

pub(super) fn json_line(value: &impl Serialize, out: &mut dyn Write) -> Result<(), Failure> {
    let json = serde_json::to_string(value).map_err(|error| error.to_string())?;
    text(&format!("{json}\n"), out)
}
