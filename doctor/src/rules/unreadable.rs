//! Rule: unreadable facts are reported, because no other rule can check them.

use serde_json::Value;

use super::{Examination, Finding, Severity};

pub(super) const NAME: &str = "unreadable";

const EXAMPLES: usize = 4;

pub(super) fn check(examination: &Examination, findings: &mut Vec<Finding>) {
    let mut denied = Vec::new();
    // The search uses JSON, which marks unreadable facts in the same way at any depth.
    let read = (&examination.fabric, &examination.peer);
    if let Ok(value) = serde_json::to_value(read) {
        collect(&value, &mut denied);
    }
    denied.sort_unstable();
    denied.dedup();
    if denied.is_empty() {
        return;
    }
    let mut finding = Finding::new(
        NAME,
        Severity::Warning,
        "this user",
        format!(
            "{} facts could not be read for lack of permission",
            denied.len()
        ),
    )
    .because(
        "unreadable settings are not checked: the absence of a finding does not mean that they \
         are correct",
    )
    .fixed_by(format!(
        "sudo {} doctor",
        examination.intent.caller.program()
    ));
    for text in denied.iter().take(EXAMPLES) {
        let (path, reason) = text.rsplit_once(": ").unwrap_or((text, ""));
        finding = finding.seen(path.trim_start_matches("because "), reason);
    }
    findings.push(finding);
}

fn collect(value: &Value, denied: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(text)) = fields.get("unknown")
                && text.contains("permission denied")
            {
                denied.push(text.clone());
            }
            fields.values().for_each(|field| collect(field, denied));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, denied)),
        _ => {}
    }
}
