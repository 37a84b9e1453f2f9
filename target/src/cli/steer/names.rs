//! Output format `name`: prints each object as the arguments that identify it in other commands.

use std::net::IpAddr;

use cairn_config::Trid;
use serde_json::Value;

pub(super) fn names(method: &str, rows: &Value) -> String {
    let rows = rows.as_array().into_iter().flatten();
    let lines = rows.map(|row| match method {
        "cairn_subsystem_list" => text(row, "nqn"),
        "cairn_host_list" => text(row, "host"),
        "cairn_host_group_list" => text(row, "name"),
        "cairn_host_key_list" => both(row, "nqn", "host"),
        "cairn_namespace_list" | "cairn_reservation_list" => both(row, "nqn", "nsid"),
        "cairn_connection_list" => both(row, "nqn", "cntlid"),
        "cairn_limit_list" => limited(row),
        _ => place(row),
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn text(row: &Value, key: &str) -> String {
    let text = match &row[key] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    text.replace(char::is_control, "?")
}

fn both(row: &Value, first: &str, second: &str) -> String {
    format!("{} {}", text(row, first), text(row, second))
}

fn limited(row: &Value) -> String {
    if row["each_host"] == true {
        return format!("{} --each-host", text(row, "nqn"));
    }
    match (&row["nsid"], &row["host"]) {
        (Value::Null, Value::Null) => text(row, "nqn"),
        (Value::Null, _) => format!("{} --host {}", text(row, "nqn"), text(row, "host")),
        _ => both(row, "nqn", "nsid"),
    }
}

pub(in crate::cli) fn place(row: &Value) -> String {
    let (address, port) = (text(row, "address"), text(row, "port"));
    match (address.parse::<IpAddr>(), port.parse()) {
        (Ok(address), Ok(port)) => Trid::new(address, port).to_string(),
        _ => format!("{address}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::names;
    use serde_json::json;

    #[test]
    fn a_name_is_what_other_commands_take() {
        let limits = json!([
            {"nqn": "a", "nsid": 1, "each_host": false, "host": null},
            {"nqn": "a", "nsid": null, "each_host": true, "host": null},
            {"nqn": "a", "nsid": null, "each_host": false, "host": "h"},
            {"nqn": "a", "nsid": null, "each_host": false, "host": null},
        ]);
        let named = names("cairn_limit_list", &limits);
        assert_eq!(named, "a 1\na --each-host\na --host h\na");
        let listeners = json!([
            {"address": "192.0.2.1", "port": 4420},
            {"address": "2001:db8::1", "port": 4421},
        ]);
        let named = names("cairn_listener_list", &listeners);
        assert_eq!(named, "192.0.2.1:4420\n[2001:db8::1]:4421");
    }
}
