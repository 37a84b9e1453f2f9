use std::fmt::Write;

use cairn_doctor::cli::has_headers;
use serde_json::Value;

use super::units::cell;

pub(super) fn wide(rows: &Value, columns: &[(&str, &str)]) -> String {
    let first = rows.get(0).and_then(Value::as_object);
    let keys = first.into_iter().flat_map(|row| row.keys());
    let is_other = |key: &&String| columns.iter().all(|(_, known)| known != key);
    let others: Vec<(String, &String)> = keys
        .filter(is_other)
        .map(|key| (key.replace('_', " ").to_uppercase(), key))
        .collect();
    let others = others.iter().map(|(name, key)| (&**name, &***key));
    let columns: Vec<(&str, &str)> = columns.iter().copied().chain(others).collect();
    table(rows, &columns)
}

pub(super) fn table(rows: &Value, columns: &[(&str, &str)]) -> String {
    let rows: Vec<Vec<String>> = rows
        .as_array()
        .into_iter()
        .flatten()
        .map(|row| {
            columns
                .iter()
                .map(|(_, key)| cell(key, &row[*key]))
                .collect()
        })
        .collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        let heading = has_headers().then_some(columns[column].0.len());
        cells.chain(heading).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let heading = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
    let mut text = String::new();
    let heading = has_headers().then_some(&heading);
    for row in heading.into_iter().chain(&rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text.trim_end().to_owned()
}

pub(super) fn members(object: &Value, left_out: &[&str]) -> String {
    let members: Vec<(&String, String)> = object
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, value)| !left_out.contains(&key.as_str()) && !value.is_null())
        .map(|(key, value)| (key, cell(key, value)))
        .collect();
    let width = members.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    let lines = members
        .iter()
        .map(|(key, value)| format!("{key:width$}  {value}"));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_are_as_wide_as_they_need() {
        let rows = json!([{"a": "long one", "b": 1}, {"a": "\u{1b}[2J", "b": null}]);
        assert_eq!(
            table(&rows, &[("A", "a"), ("B", "b")]),
            "A         B\nlong one  1\n?[2J      -"
        );
        assert_eq!(
            members(&json!({"a": true, "bb": null, "ccc": 2}), &[]),
            "a    yes\nccc  2"
        );
    }
}
