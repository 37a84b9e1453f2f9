//! Configuration in force that no file has.

use cairn_config::without_secrets;
use cairn_control::{Client, Effect};
use cairn_doctor::cli::print_finding;
use cairn_doctor::rules::Severity;
use serde_json::{Value, json};

use super::socket::SocketOption;
use crate::cli::probe::running::is_same;
use crate::cli::result_file::ResultFile;
use crate::files;
use crate::steering::{effect, remedy_of_file};

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

/// Start of a hidden key.
const HIDDEN: &str = "DHHC-*";

/// Prints a note after a successful request if its change would be in a configuration file.
pub(super) fn note(method: &str, client: &mut Client, option: &SocketOption) {
    if !changes_configuration(method) {
        return;
    }
    let status = client.call("cairn_status", &json!({}));
    if status.is_ok_and(|status| status["config_file"].is_null()) {
        print_finding(Severity::Note, &option.add_to(NO_FILE));
    }
}

/// Writes the configuration in force into a file. The target's own file stays as it is.
///
/// # Errors
/// The target's own file differs.
pub(super) fn write(result: &ResultFile, text: &str, answer: &Value) -> Result<(), String> {
    let Some(path) = result.path() else {
        return Ok(());
    };
    if is_same(&answer["file"], Some(path)) {
        let read = files::call_here(path, cairn_config::read_file);
        let own = read.ok().and_then(Result::ok).unwrap_or_default();
        // Writing an equal text would replace its keys by asterisks.
        return match without_secrets(&own).trim_end() == text.trim_end() {
            true => Ok(()),
            false => Err(format!(
                "{} has changes that the target has not read: {}",
                path.display(),
                remedy_of_file(path, true)
            )),
        };
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
