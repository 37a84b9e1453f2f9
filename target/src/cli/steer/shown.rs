//! Text of `status`, `status --check` and `reload`.

use cairn_doctor::cli::print_finding;
use cairn_doctor::rules::Severity;
use serde_json::{Value, json};

use super::LISTENER_COLUMNS;
use super::reservations::RESERVATIONS;
use crate::answers::Problem;
use crate::cli::tables;
use crate::cli::units::{cell, duration};
use crate::nouns::count;

/// Maximum reservations in a status text; `reservation list` shows more.
const RESERVATIONS_MAX: usize = 32;

/// Keys of a status whose values appear elsewhere in the text.
const ELSEWHERE: &[&str] = &[
    "associations",
    "changes",
    "deleted_namespaces",
    "failed_namespaces",
    "health",
    "last_reload",
    "listeners",
    "missing",
    "namespaces",
    "problems",
    "refused",
    "reservations",
    "subsystems",
    "uptime_s",
    "warnings",
];

pub(super) fn is_ok(status: &Value) -> bool {
    status["health"] == "ok"
}

/// Returns, for example, "ok: 3 subsystems, 5 namespaces, 12 hosts connected, up 3 d".
pub(super) fn health(status: &Value) -> String {
    let number = |key: &str| status[key].as_u64().unwrap_or(0);
    let serves = format!(
        "{}, {}, {} connected, up {}",
        count(number("subsystems"), "subsystem"),
        count(number("namespaces"), "namespace"),
        count(number("associations"), "host"),
        duration(number("uptime_s")),
    );
    if is_ok(status) {
        return format!("ok: {serves}");
    }
    let problems = status["problems"].as_array().into_iter().flatten();
    let problems = problems
        .filter(|one| one["kind"] != Problem::REFUSED)
        .count();
    format!("degraded: {}; {serves}", count(problems as u64, "problem"))
}

pub(super) fn check(status: &Value) -> String {
    let mut text = health(status);
    for problem in status["problems"].as_array().into_iter().flatten() {
        let of = |key: &str| cell(key, &problem[key]);
        text += &format!("\n{}: {}: {}", of("what"), why(problem), of("remedy"));
    }
    text
}

fn why(problem: &Value) -> String {
    let [what, why] = ["what", "why"].map(|key| cell(key, &problem[key]));
    let rest = why
        .strip_prefix(&what)
        .and_then(|rest| rest.strip_prefix(": "));
    rest.map(str::to_owned).unwrap_or(why)
}

pub(super) fn status(status: &Value) -> String {
    let mut text = health(status) + "\n";
    for problem in status["problems"].as_array().into_iter().flatten() {
        let of = |key: &str| cell(key, &problem[key]);
        text += &format!("\n{}", of("what"));
        if !problem["for_s"].is_null() {
            text += &format!(" ({})", of("for_s"));
        }
        text += &format!(": {}\n  {}\n", why(problem), of("remedy"));
    }
    text += "\n";
    text += &tables::members(status, ELSEWHERE);
    if let Some(at) = status["last_reload"]["at"].as_u64() {
        let ended = match status["last_reload"]["error"].is_null() {
            true => "succeeded",
            false => "failed",
        };
        text += &format!("\nthe last reload {ended} {}", since(at));
    }
    if status["listeners"]
        .as_array()
        .is_some_and(|all| !all.is_empty())
    {
        text += "\n\n";
        text += &tables::table(&status["listeners"], LISTENER_COLUMNS);
    }
    text += &reservations(status);
    text + &warnings(status)
}

fn reservations(status: &Value) -> String {
    let all = status["reservations"].as_array();
    let all = all.map_or(&[][..], |all| all);
    let (shown, more) = all.split_at(all.len().min(RESERVATIONS_MAX));
    if shown.is_empty() {
        return String::new();
    }
    let mut text = format!("\n\n{}", tables::table(&json!(shown), RESERVATIONS));
    if !more.is_empty() {
        let more = count(more.len() as u64, "more namespace");
        text += &format!("\n{more}: see cairn-target reservation list");
    }
    text
}

pub(super) fn reload(answer: &Value) -> String {
    let changes = answer["changes"].as_array().into_iter().flatten();
    let mut lines: Vec<String> = changes
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    if lines.is_empty() {
        lines.push("no changes".to_owned());
    }
    lines.extend(super::waiting(answer));
    if !is_ok(answer) {
        lines.push(format!("{}: see cairn-target status", health(answer)));
    }
    lines.join("\n") + &warnings(answer)
}

fn warnings(status: &Value) -> String {
    let warnings = status["warnings"].as_array().into_iter().flatten();
    let warnings = warnings.filter_map(Value::as_str);
    warnings
        .map(|warning| format!("\nnote: {warning}"))
        .collect()
}

pub(super) fn print_warnings(answer: &Value) {
    let warnings = answer["warnings"].as_array().into_iter().flatten();
    for warning in warnings.filter_map(Value::as_str) {
        print_finding(Severity::Warning, warning);
    }
}

fn since(at: u64) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(at, |now| now.as_secs());
    format!("{} ago", duration(now.saturating_sub(at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ok() -> Value {
        json!({
            "health": "ok", "problems": [], "subsystems": 3, "namespaces": 5, "associations": 12,
            "uptime_s": 3 * 86_400, "version": "1.0.0", "listeners": [], "warnings": [],
            "at_next_start": [], "last_reload": null,
        })
    }

    #[test]
    fn a_status_opens_with_one_line_of_health() {
        assert_eq!(
            health(&ok()),
            "ok: 3 subsystems, 5 namespaces, 12 hosts connected, up 3 d"
        );
        let mut bad = ok();
        bad["health"] = json!("degraded");
        bad["problems"] = json!([{
            "kind": "missing", "what": "namespace 2 of x", "for_s": 180, "why": "namespace 2 of x: it is gone",
            "remedy": "find it",
        }]);
        assert_eq!(
            status(&bad),
            "degraded: 1 problem; 3 subsystems, 5 namespaces, 12 hosts connected, up 3 d\n\n\
             namespace 2 of x (3 min ago): it is gone\n  find it\n\n\
             at_next_start  -\nversion        1.0.0"
        );
    }

    #[test]
    fn a_reload_prints_its_changes_one_a_line() {
        let mut answer = ok();
        answer["changes"] = json!(["subsystem X: added namespace 2", "listener Y: removed"]);
        assert_eq!(
            reload(&answer),
            "subsystem X: added namespace 2\nlistener Y: removed"
        );
        answer["changes"] = json!([]);
        answer["at_next_start"] = json!(["[target] reactors"]);
        answer["warnings"] = json!(["there is no listener"]);
        assert_eq!(
            reload(&answer),
            "no changes\ntakes effect at the next start: [target] reactors\n\
             note: there is no listener"
        );
    }
}
