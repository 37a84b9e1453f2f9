//! Checks that configuration examples in the documentation are valid.

use cairn_config::{Config, Flags};

const README: &str = include_str!("../../README.md");
const GUIDE: &str = include_str!("../../docs/guide-target.md");
const MARKING: &str = include_str!("../../docs/roce/marking.md");
const PARTITIONS: &str = include_str!("../../docs/roce/partitions.md");

fn toml_blocks(page: &str) -> impl Iterator<Item = &str> {
    page.split("```toml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
}

#[test]
fn every_example_in_the_documentation_is_right() {
    let mut count = 0;
    for page in [README, GUIDE, MARKING, PARTITIONS] {
        for block in toml_blocks(page) {
            if let Err(error) = Config::parse("example", block, &Flags::default()) {
                panic!("{error}\nin\n{block}");
            }
            count += 1;
        }
    }
    assert_eq!(count, 11);
}

#[test]
fn the_guide_has_every_key_and_its_default() {
    let schema: serde_json::Value = serde_json::from_str(&cairn_config::schema()).unwrap();
    for (header, definition) in [
        ("### `[target]`", "TargetTable"),
        ("### `[metrics]`", "MetricsTable"),
        ("### `[audit]`", "AuditTable"),
        ("### `[control]`", "ControlTable"),
        ("### `[marking]`", "MarkingTable"),
        ("### `[[listener]]`", "ListenerTable"),
        ("### `[[listener.ana_group]]`", "AnaGroupTable"),
        ("### `[[referral]]`", "ReferralTable"),
        ("### `[[key]]`", "KeyTable"),
        ("### `[[host_group]]`", "HostGroupTable"),
        ("### `[[subsystem]]`", "SubsystemTable"),
        ("### `[[subsystem.ana]]`", "SubsystemAnaTable"),
        ("### `[[subsystem.host]]`", "HostTable"),
        ("### `[[subsystem.namespace]]`", "NamespaceTable"),
        ("### `limits = { .. }`", "LimitsTable"),
        ("### `ceph = { .. }`", "CephTable"),
    ] {
        let section = GUIDE
            .split(header)
            .nth(1)
            .unwrap_or_else(|| panic!("no {header}"));
        let section = section.split("\n### ").next().unwrap();
        let row = |key: &str| {
            section
                .lines()
                .find(|line| line.starts_with(&format!("| `{key}` |")))
        };
        let table = &schema["$defs"][definition];
        let properties = table["properties"].as_object().unwrap();
        for (key, property) in properties
            .iter()
            .filter(|(_, p)| p["type"] != "array" || p["items"]["$ref"].is_null())
        {
            let row = row(key).unwrap_or_else(|| panic!("{header} has no row for {key}"));
            let cell = row.split('|').nth(2).unwrap().trim();
            if let Some(default) = property
                .get("default")
                .filter(|default| !default.is_array())
            {
                assert_eq!(cell, format!("`{default}`"), "{key}");
            }
            let required = table["required"]
                .as_array()
                .is_some_and(|r| r.contains(&key.as_str().into()));
            assert_eq!(cell == "required", required, "{key}");
        }
        let known = |line: &str| {
            line.split('`')
                .nth(1)
                .is_none_or(|key| properties.contains_key(key))
        };
        let stray = section
            .lines()
            .filter(|line| line.starts_with("| `"))
            .find(|line| !known(line));
        assert_eq!(stray, None);
    }
}

#[test]
fn the_error_in_the_guide_is_what_is_printed() {
    let quoted = GUIDE
        .split("$ cairn-target check /etc/cairn/target.toml\n")
        .nth(1)
        .and_then(|rest| rest.split("\n```").next())
        .unwrap();
    let example = toml_blocks(GUIDE).next().unwrap();
    let broken = example.replacen("address", "adress", 1);
    let error = Config::parse("/etc/cairn/target.toml", &broken, &Flags::default());
    assert_eq!(error.unwrap_err().to_string(), quoted);
}
