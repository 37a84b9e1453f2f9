//! Formats values of answers as text for people.

use serde_json::Value;

/// Formats a value with its unit, which `key` or its suffix determines (docs/control.md).
pub(super) fn cell(key: &str, value: &Value) -> String {
    let number = value.as_u64();
    let text = match (key, number) {
        ("bytes" | "block_bytes", Some(bytes)) => size(bytes),
        ("read" | "write" | "total", Some(bytes)) => format!("{}/s", size(bytes)),
        ("iops", Some(iops)) => format!("{iops}/s"),
        ("burst_ms", Some(ms)) => format!("{ms} ms"),
        ("for_s" | "first_s" | "last_s", Some(seconds)) => format!("{} ago", duration(seconds)),
        (_, Some(seconds)) if key.ends_with("_s") => duration(seconds),
        ("hosts" | "listeners", _) if value.is_null() => "all".to_owned(),
        ("listeners", _) if value.as_array().is_some_and(Vec::is_empty) => "none".to_owned(),
        _ => plain(value),
    };
    text.replace(char::is_control, "?")
}

fn plain(value: &Value) -> String {
    let or_none = |text: String| match text.is_empty() {
        true => "-".to_owned(),
        false => text,
    };
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(plain).collect();
            or_none(values.join(", "))
        }
        Value::Object(members) => {
            let members = members.iter().map(|(key, value)| match value {
                Value::Object(_) => format!("{key} ({})", plain(value)),
                value => format!("{key} {}", plain(value)),
            });
            or_none(members.collect::<Vec<_>>().join(", "))
        }
    }
}

pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(value < 99.95);
    format!("{value:.digits$} {}", UNITS[unit])
}

pub(super) fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sizes_have_three_digits_and_a_unit() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1 << 40, "1.0 TiB"),
            (120 << 20, "120 MiB"),
            ((1 << 30) - 1, "1.0 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn cells_have_units_and_no_json() {
        for (key, value, text) in [
            ("bytes", json!(1u64 << 40), "1.0 TiB"),
            ("read", json!(120 << 20), "120 MiB/s"),
            ("iops", json!(5000), "5000/s"),
            ("burst_ms", json!(100), "100 ms"),
            ("for_s", json!(190), "3 min ago"),
            ("uptime_s", json!(300_000), "3 d"),
            ("hosts", json!(["a", "b"]), "a, b"),
            ("hosts", json!([]), "-"),
            ("hosts", Value::Null, "all"),
            ("listeners", Value::Null, "all"),
            ("listeners", json!([]), "none"),
            ("ana_groups", json!({}), "-"),
            (
                "ana",
                json!({"[::1]:4420": {"2": "inaccessible"}}),
                "[::1]:4420 (2 inaccessible)",
            ),
            ("name", json!("\u{1b}[2J"), "?[2J"),
            ("nsid", Value::Null, "-"),
            ("drained", json!(true), "yes"),
            ("uptime_s", Value::Null, "-"),
        ] {
            assert_eq!(cell(key, &value), text, "{key}");
        }
    }
}
