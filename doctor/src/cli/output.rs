//! Output to stdout; a closed pipe is no error.

use std::io::{ErrorKind, Write};

use serde::Serialize;

use super::Failure;

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
