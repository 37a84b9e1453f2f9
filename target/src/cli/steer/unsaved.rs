//! Changes that end with a target without a configuration file.

use cairn_control::{Client, Effect};
use cairn_doctor::cli::print_finding;
use cairn_doctor::rules::Severity;
use serde_json::json;

use crate::steering::effect;

const NO_FILE: &str = "the target has no configuration file, so this change ends with it: to keep \
                       it: cairn-target config show --file FILE, then cairn-target serve --config FILE";

/// True for a method whose change a configuration file would keep.
fn changes_configuration(method: &str) -> bool {
    const PASSING: [&str; 5] = [
        "cairn_connection_remove",
        "cairn_drain",
        "cairn_drain_undo",
        "cairn_log_set",
        "cairn_reservation_clear",
    ];
    effect(method) == Some(Effect::Changes) && !PASSING.contains(&method)
}

/// Prints a note after a successful request if its change would be in a configuration file.
pub(super) fn note(method: &str, client: &mut Client) {
    if !changes_configuration(method) {
        return;
    }
    let status = client.call("cairn_status", &json!({}));
    if status.is_ok_and(|status| status["config_file"].is_null()) {
        print_finding(Severity::Note, NO_FILE);
    }
}
