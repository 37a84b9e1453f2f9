//! `status --check`, for monitoring.

use std::time::Duration;

use cairn_doctor::cli::Format;
use serde_json::json;

use super::{At, shown};
use crate::cli::print_line;
use crate::logging::print_failure;

/// Maximum wait for a response, shorter than the timeout of monitoring systems.
const PATIENCE: Duration = Duration::from_secs(8);

pub(crate) fn check(at: &At) -> u8 {
    let status = at
        .connect(PATIENCE)
        .and_then(|mut client| client.call("cairn_status", &json!({})));
    let status = match status {
        Ok(status) => status,
        Err(error) => {
            print_failure(&error.to_string());
            return 2;
        }
    };
    match at.output.format {
        Format::Json => print_line(&format!("{status:#}")),
        _ => print_line(&at.socket_option().add_to(&shown::check(&status))),
    }
    u8::from(!shown::is_ok(&status))
}
