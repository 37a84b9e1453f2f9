//! Configuration in force that no file has.

use std::path::Path;

use cairn_control::{Client, Effect};
use cairn_doctor::cli::print_finding;
use cairn_doctor::rules::Severity;
use serde_json::{Value, json};

use super::{At, PATIENCE_OF_READS};
use crate::cli::result_file::ResultFile;
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

/// Writes the configuration in force into a file.
///
/// # Errors
/// The file is the target's, with changes that the target has not read.
pub(super) fn write(
    result: &ResultFile,
    text: &str,
    answer: &Value,
    at: &At,
) -> Result<(), String> {
    let Some(path) = result.path() else {
        return Ok(());
    };
    if is_same(path, &answer["file"]) && has_unread_changes(at) {
        let file = path.display();
        return Err(format!(
            "{file} has changes that the target has not read: to apply them: cairn-target reload; \
             to drop them: mv {file} {file}.old, and repeat this command"
        ));
    }
    result.write(text)?;
    if text.contains(HIDDEN) {
        print_finding(
            Severity::Warning,
            &format!(
                "{} has asterisks in place of keys, and the target refuses it: write the keys into \
                 files, and name these",
                path.display()
            ),
        );
    }
    Ok(())
}

/// Start of a hidden key.
const HIDDEN: &str = "DHHC-*";

#[expect(clippy::disallowed_methods, reason = "a command for one file")]
fn is_same(path: &Path, served: &Value) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    let served = served.as_str().and_then(|path| real(Path::new(path)));
    served.is_some() && served == real(path)
}

fn has_unread_changes(at: &At) -> bool {
    let client = at.connect(PATIENCE_OF_READS);
    let status = client.and_then(|mut client| client.call("cairn_status", &json!({})));
    let status = status.unwrap_or_default();
    let mut problems = status["problems"].as_array().into_iter().flatten();
    problems.any(|one| one["kind"] == "reload")
}
