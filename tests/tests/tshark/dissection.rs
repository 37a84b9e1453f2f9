//! What tshark makes of a capture: one row a frame, of the fields that were asked for.

use std::path::Path;
use std::process::Command;

/// Set by `cargo xtask test`, which has installed tshark: then a missing one is a failure.
const REQUIRED: &str = "CAIRN_TSHARK";

/// Whether tshark can be run here. Says so if not.
///
/// # Panics
/// If it must be there, and is not.
pub(crate) fn can_run() -> bool {
    let version = Command::new("tshark").arg("--version").output();
    if version.is_ok_and(|output| output.status.success()) {
        return true;
    }
    let missing = "tshark is not installed: \"apt-get install tshark\" brings it";
    assert!(std::env::var_os(REQUIRED).is_none(), "{missing}");
    cairn_skips::skip(missing);
    false
}

/// A frame's values, in the order of the fields asked for; empty where it lacks a field.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    fields: &'static [&'static str],
    values: Vec<String>,
}

impl Row {
    /// A field's words.
    pub(crate) fn text(&self, field: &str) -> &str {
        let at = self.fields.iter().position(|known| *known == field);
        &self.values[at.unwrap_or_else(|| panic!("{field} was not asked for"))]
    }

    /// A field's number, if the frame has the field.
    pub(crate) fn number(&self, field: &str) -> Option<u64> {
        let text = self.text(field);
        if text.is_empty() {
            return None;
        }
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        Some(number.unwrap_or_else(|_| panic!("{field} is no number: {text}")))
    }
}

/// Has tshark read a capture.
///
/// # Panics
/// If it cannot, or knows no such field.
pub(crate) fn dissect(capture: &Path, fields: &'static [&'static str]) -> Vec<Row> {
    let mut tshark = Command::new("tshark");
    tshark.args([
        "-n",
        "-T",
        "fields",
        "-E",
        "separator=/t",
        "-E",
        "occurrence=f",
    ]);
    tshark.args(fields.iter().flat_map(|field| ["-e", field]));
    let output = tshark.arg("-r").arg(capture).output().expect("tshark runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tshark: {stderr}");
    let text = String::from_utf8(output.stdout).expect("fields are text");
    text.lines()
        .map(|line| {
            let values: Vec<_> = line.split('\t').map(str::to_owned).collect();
            assert_eq!(values.len(), fields.len(), "{line:?}");
            Row { fields, values }
        })
        .collect()
}
