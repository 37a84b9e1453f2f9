//! Captures dissected by tshark, one row per frame.

use std::path::Path;
use std::process::Command;

const REQUIRED: &str = "CAIRN_TSHARK";

/// True if tshark is installed. Otherwise records a skip, or panics if tshark is required.
pub(crate) fn can_run() -> bool {
    let Err(missing) = cairn_skips::version(&mut Command::new("tshark"), "tshark") else {
        return true;
    };
    assert!(std::env::var_os(REQUIRED).is_none(), "{missing}");
    cairn_skips::skip(missing);
    false
}

#[derive(Debug, Clone)]
pub(crate) struct Row {
    fields: &'static [&'static str],
    values: Vec<String>,
}

impl Row {
    pub(crate) fn text(&self, field: &str) -> &str {
        let at = self.fields.iter().position(|known| *known == field);
        &self.values[at.unwrap_or_else(|| panic!("{field} was not asked for"))]
    }

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
