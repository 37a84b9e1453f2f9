//! JSON output of commands, which must match the published schemas.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Map, Value, json};

use crate::reservations::Member;
use crate::target::{NQN, Steered, until};

/// Checks a value against a schema. Unlike JSON Schema, refuses members that the schema does not
/// describe.
fn check(schema: &Value, value: &Value, root: &Value, place: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        let target = root.pointer(name.trim_start_matches('#')).unwrap();
        return check(target, value, root, place);
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let is_null = |one: &&Value| (one["type"] == "null") == value.is_null();
        let choice = choices.iter().find(is_null).expect(place);
        return check(choice, value, root, place);
    }
    if let Some(words) = schema["enum"].as_array() {
        assert!(words.contains(value), "{place}: {value}");
    }
    let name = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let is = |one: &Value| one == name || (one == "number" && name == "integer");
    let types = &schema["type"];
    let fits = types
        .as_array()
        .map_or_else(|| is(types), |all| all.iter().any(is));
    assert!(fits, "{place}: {value} is not of type {types}");
    match value {
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                check(&schema["items"], value, root, &format!("{place}[{index}]"));
            }
        }
        Value::Object(members) => check_members(schema, members, root, place),
        _ => {}
    }
}

fn check_members(schema: &Value, members: &Map<String, Value>, root: &Value, place: &str) {
    let others = &schema["additionalProperties"];
    for (key, value) in members {
        let place = format!("{place}.{key}");
        let known = &schema["properties"][key];
        let member = if known.is_null() { others } else { known };
        assert!(!member.is_null(), "{place}: not in the schema");
        check(member, value, root, &place);
    }
    for key in schema["required"].as_array().into_iter().flatten() {
        let key = key.as_str().unwrap();
        assert!(members.contains_key(key), "{place}.{key} is required");
    }
}

fn printed(target: &Steered, args: &[&str]) -> Value {
    let output = target.command(args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{args:?}: {error}"))
}

#[track_caller]
fn keeps(target: &Steered, command: &str, more: &[&str]) -> Value {
    let schema = printed(target, &["schema", "--of", command]);
    let words: Vec<&str> = command.split(' ').chain(more.iter().copied()).collect();
    let value = printed(target, &[&words[..], &["-o", "json"]].concat());
    check(&schema, &value, &schema, command);
    value
}

fn is_filled(value: &Value) -> bool {
    value.as_array().is_some_and(|all| !all.is_empty())
}

fn lists_are_filled(target: &Steered) {
    for command in [
        "subsystem list",
        "listener list",
        "host group list",
        "referral list",
        "reservation list",
        "connection list",
    ] {
        assert!(is_filled(&keeps(target, command, &[])), "{command}");
    }
}

#[test]
fn each_command_prints_what_its_schema_says() {
    let host = "nqn.2024-01.com.example:h1";
    let target = Steered::start_after(|folder, _| {
        let key = folder.join("key");
        fs::write(
            &key,
            "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:\n",
        )
        .unwrap();
        format!(
            "[[subsystem.namespace]]\nnsid = 2\nexport = \"{}\"\nlimits = {{ iops = 100, read = \"1MiB\" }}\n\n\
             [[host_group]]\nname = \"team\"\nhosts = [\"{host}\"]\n\n\
             [[referral]]\naddress = \"192.0.2.9\"\n",
            folder.join("gone.img").display()
        )
    });
    let connected = target.connect("guest");
    let mut other = target.options("stranger");
    other.subnqn = cairn_tests::harness::nqn("nqn.2024-01.com.example:none");
    let soft = cairn_roce::Soft::default();
    assert!(cairn_initiator::Host::connect(&soft, other).is_err());

    let _member = Member::registered(&target, "member", 1);
    let status = keeps(&target, "status", &[]);
    for list in [
        "problems",
        "refused",
        "missing",
        "listeners",
        "reservations",
    ] {
        assert!(is_filled(&status[list]), "{list}: {status}");
    }
    let namespaces = keeps(&target, "namespace list", &[]);
    assert_eq!(namespaces[1]["state"], "missing");
    let limits = keeps(&target, "limit list", &[]);
    assert_eq!(limits[0]["read"], 1 << 20, "limits are numbers");
    lists_are_filled(&target);
    let shown = keeps(&target, "reservation show", &[NQN, "1"]);
    assert!(is_filled(&shown["hosts"]));
    drop(connected);
    keeps(&target, "reload", &[]);
    keeps(&target, "config show", &[]);
    keeps(&target, "log", &[]);
    keeps(&target, "namespace add", &[NQN, "mem:1MiB"]);
    keeps(&target, "host add", &[NQN, host]);
    keeps(
        &target,
        "host group add",
        &["team", "nqn.2024-01.com.example:h2"],
    );
    assert!(is_filled(&keeps(&target, "host list", &[NQN])["hosts"]));
    let key = target.folder.path().join("key");
    let command = ["host", "key", "set", NQN, host, "--key"];
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let set = target.command(&[&command[..], &[key.to_str().unwrap()]].concat());
    assert!(set.status.success(), "{set:?}");
    assert!(is_filled(&keeps(&target, "host key show", &[])));
    let waiting = keeps(&target, "subsystem set", &[NQN, "--serial", "S1"]);
    assert!(is_filled(&waiting["at_next_start"]), "{waiting}");
    keeps(&target, "top", &["--interval", "0.1", "--count", "1"]);
    until("the host to be gone", || {
        target.done("cairn_connection_list", json!({})) == json!([])
    });
    assert!(is_filled(&keeps(&target, "drain", &[])));
    assert_eq!(
        target.command(&["schema", "--of", "stauts"]).status.code(),
        Some(1)
    );
}
