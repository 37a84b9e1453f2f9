use std::time::{Duration, Instant};

use cairn_initiator::Host;
use cairn_roce::Soft;
use serde_json::{Value, json};

use crate::target::{NQN, PATIENCE, Steered};

const ENOENT: i64 = -2;
const EEXIST: i64 = -17;
const EROFS: i64 = -30;
const ESTALE: i64 = -116;
const INVALID_PARAMS: i64 = -32602;

fn nsids(host: &mut Host) -> Vec<u32> {
    host.active_namespaces().unwrap()
}

#[test]
fn a_namespace_comes_and_goes_while_a_host_is_connected() {
    let mut target = Steered::start();
    let before = target.text();
    let mut host = target.connect("one");
    let add = json!({"nqn": NQN, "export": "mem:1MiB", "name": "second"});
    assert_eq!(target.done("cairn_namespace_add", add)["nsid"], 2);
    assert_eq!(nsids(&mut host), [1, 2]);
    let text = target.text();
    let added = "\n[[subsystem.namespace]]\nnsid = 2\nname = \"second\"\nexport = \"mem:1MiB\"\n";
    assert_eq!(text, format!("{before}{added}"));
    let twice = json!({"nqn": NQN, "export": "mem:2MiB", "nsid": 2});
    assert_eq!(target.refused("cairn_namespace_add", twice), EEXIST);
    assert_eq!(target.text(), text);

    drop(host);
    target.crash();
    let mut host = target.connect("two");
    assert_eq!(nsids(&mut host), [1, 2]);
    target.done("cairn_namespace_remove", json!({"nqn": NQN, "nsid": 2}));
    assert_eq!(nsids(&mut host), [1]);
    assert_eq!(target.text(), before);
    let gone = target.refused("cairn_namespace_remove", json!({"nqn": NQN, "nsid": 2}));
    assert_eq!(gone, ENOENT);
}

#[test]
fn what_cannot_be_had_changes_nothing() {
    let target = Steered::start();
    let before = target.text();
    for (method, params, code) in [
        (
            "cairn_namespace_add",
            json!({"nqn": NQN, "export": "/no/such/disk"}),
            INVALID_PARAMS,
        ),
        (
            "cairn_namespace_add",
            json!({"nqn": NQN, "export": "mem:1"}),
            INVALID_PARAMS,
        ),
        (
            "cairn_namespace_add",
            json!({"nqn": NQN, "export": "mem:1MiB", "nsid": 99999}),
            INVALID_PARAMS,
        ),
        (
            "cairn_namespace_add",
            json!({"nqn": "nqn.2024-01.com.example:none", "export": "mem:1MiB"}),
            ENOENT,
        ),
        ("cairn_namespace_add", json!({"nqn": NQN}), INVALID_PARAMS),
        (
            "cairn_namespace_add",
            json!({"nqn": NQN, "export": "mem:1MiB", "nsidd": 1}),
            INVALID_PARAMS,
        ),
        (
            "cairn_subsystem_add",
            json!({"nqn": NQN, "serial": "other"}),
            EEXIST,
        ),
        ("cairn_subsystem_add", json!({"nqn": ""}), INVALID_PARAMS),
        (
            "cairn_listener_add",
            json!({"address": target.address, "ana": "change"}),
            EEXIST,
        ),
        (
            "cairn_listener_add",
            json!({"address": "203.0.113.1"}),
            INVALID_PARAMS,
        ),
        (
            "cairn_listener_remove",
            json!({"address": "203.0.113.1"}),
            ENOENT,
        ),
        (
            "cairn_host_add",
            json!({"nqn": NQN, "host": ""}),
            INVALID_PARAMS,
        ),
        ("cairn_nonsense", json!({}), -32601),
    ] {
        assert_eq!(
            target.refused(method, params.clone()),
            code,
            "{method} {params}"
        );
    }
    assert_eq!(target.text(), before);
    let names: Vec<_> = std::fs::read_dir(target.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".new"))
        .collect();
    assert!(names.is_empty(), "{names:?}");
}

#[test]
fn hosts_subsystems_and_listeners_come_and_go() {
    let target = Steered::start();
    let other = "nqn.2024-01.com.example:other";
    target.done("cairn_subsystem_add", json!({"nqn": other, "serial": "S1"}));
    target.done(
        "cairn_namespace_add",
        json!({"nqn": other, "export": "null:1MiB"}),
    );
    let options = |name: &str| {
        let mut options = target.options(name);
        options.subnqn = cairn_tests::harness::nqn(other);
        options
    };
    let host = cairn_tests::harness::host_nqn("welcome");
    assert!(Host::connect(&Soft::default(), options("welcome")).is_err());
    let params = json!({"nqn": other, "host": host.raw()});
    let add = || target.done("cairn_host_add", params.clone());
    assert_eq!(add(), json!({"added": true, "warnings": []}));
    assert_eq!(add()["added"], false);
    let mut welcome = Host::connect(&Soft::default(), options("welcome")).unwrap();
    assert_eq!(nsids(&mut welcome), [1]);

    let connections = target.done("cairn_connection_list", json!({}));
    let connection = &connections[0];
    assert_eq!(connection["host"], host.raw());
    assert_eq!(connection["nqn"], other);
    let params_of = json!({"nqn": other, "cntlid": connection["cntlid"]});
    target.done("cairn_connection_remove", params_of);
    let deadline = Instant::now() + PATIENCE;
    while target.done("cairn_connection_list", json!({})) == connections {
        assert!(Instant::now() < deadline, "it is not disconnected");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(welcome);

    target.done("cairn_host_remove", params);
    assert!(Host::connect(&Soft::default(), options("welcome")).is_err());
    target.done("cairn_host_any", json!({"nqn": other, "allow": true}));
    Host::connect(&Soft::default(), options("welcome")).unwrap();
    let at = json!({"address": target.address, "port": 4421});
    target.done("cairn_listener_add", at.clone());
    let ports = |target: &Steered| {
        let listeners = target.done("cairn_listener_list", json!({}));
        let listeners = listeners.as_array().unwrap().iter();
        listeners
            .map(|one| one["port"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(ports(&target), [4420, 4421]);
    let set = json!({"address": target.address, "port": 4421, "ana": "inaccessible"});
    target.done("cairn_listener_set", set);
    target.done("cairn_listener_remove", at);
    assert_eq!(ports(&target), [4420]);
    target.done("cairn_subsystem_remove", json!({"nqn": other}));
    assert!(Host::connect(&Soft::default(), options("welcome")).is_err());
}

#[test]
fn a_file_that_others_change_is_read_before_it_is_written() {
    let target = Steered::start();
    let add = json!({"nqn": NQN, "export": "mem:1MiB"});
    let theirs = target
        .text()
        .replace("mem:4MiB\" # the first", "mem:4MiB\" # theirs");
    std::fs::write(target.config(), &theirs).unwrap();
    assert_eq!(target.refused("cairn_namespace_add", add.clone()), ESTALE);
    assert_eq!(target.text(), theirs);
    assert_eq!(target.done("cairn_status", json!({}))["namespaces"], 1);
    target.done("cairn_reload", json!({}));
    assert_eq!(target.done("cairn_namespace_add", add)["nsid"], 2);
    assert!(target.text().starts_with(&theirs));
    std::fs::write(target.config(), "[[").unwrap();
    assert_eq!(target.refused("cairn_reload", json!({})), INVALID_PARAMS);
    let status = target.done("cairn_status", json!({}));
    assert_eq!(status["namespaces"], 2);
    assert!(status["last_reload"]["error"].is_string());
}

#[test]
fn a_file_can_be_marked_read_only() {
    let target = Steered::start_with("read_only = true");
    let add = json!({"nqn": NQN, "export": "mem:1MiB"});
    assert_eq!(target.refused("cairn_namespace_add", add), EROFS);
    assert_eq!(target.done("cairn_status", json!({}))["read_only"], true);
    target.done("cairn_reload", json!({}));
}

#[test]
fn commands_have_tables_json_and_exit_codes() {
    let target = Steered::start();
    let say = |args: &[&str]| {
        let output = target.command(args);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success(),
            "{args:?}: {text} {:?}",
            String::from_utf8(output.stderr)
        );
        text
    };
    assert!(say(&["status"]).contains("namespace"));
    assert_eq!(
        say(&["namespace", "add", NQN, "mem:1MiB", "--name", "x"]),
        "2\n"
    );
    let table = say(&["namespace", "list"]);
    assert!(table.starts_with("NQN"), "{table}");
    assert_eq!(table.lines().count(), 3, "{table}");
    let list: Value = serde_json::from_str(&say(&["namespace", "list", "-o", "json"])).unwrap();
    assert_eq!(say(&["namespace", "list", "-o", "normal"]), table);
    assert_eq!(say(&["namespace", "list", "--output-format=table"]), table);
    assert_eq!(list[1]["name"], "x");
    assert_eq!(
        say(&["config", "show"]).trim_end(),
        target.text().trim_end()
    );
    assert_eq!(
        say(&["reload"]),
        "no changes
"
    );
    say(&["connection", "list"]);
    say(&["namespace", "remove", NQN, "2"]);
    let refused = target.command(&["namespace", "remove", NQN, "2"]);
    assert_eq!(refused.status.code(), Some(1));
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(
        error.starts_with("error: the configuration has no namespace 2"),
        "{error}"
    );
}

#[test]
fn groups_of_hosts_are_shown_and_changed() {
    let target = Steered::start();
    let [first, second] = ["first", "second"].map(|name| {
        let host = cairn_tests::harness::host_nqn(name);
        host.raw().to_owned()
    });
    let add = json!({"nqn": NQN, "export": "mem:1MiB", "hosts": ["@team"]});
    assert_eq!(
        target.refused("cairn_namespace_add", add.clone()),
        INVALID_PARAMS
    );
    let members = json!({"name": "team", "hosts": [first, second]});
    let added = || target.done("cairn_host_group_add", members.clone())["added"].clone();
    assert_eq!(added(), 2);
    assert_eq!(added(), 0);
    assert_eq!(target.done("cairn_namespace_add", add)["nsid"], 2);
    let shown = target.done("cairn_host_group_list", json!({}));
    let expected = json!([{"name": "team", "lists": 1, "hosts": [first, second]}]);
    assert_eq!(shown, expected);
    let namespaces = target.done("cairn_namespace_list", json!({}));
    assert_eq!(namespaces[1]["host_groups"], json!(["team"]));
    assert_eq!(namespaces[1]["hosts"], json!([]));
    assert_eq!(namespaces[0]["hosts"], Value::Null);
    let subsystems = target.done("nvmf_get_subsystems", json!({}));
    let hosts = &subsystems[1]["namespaces"][1]["hosts"];
    assert_eq!(*hosts, json!([first, second]));
    let hide = json!({"nqn": NQN, "nsid": 2, "host": first});
    assert!(target.call("nvmf_ns_remove_host", hide).is_err());

    let mut host = target.connect("second");
    assert_eq!(nsids(&mut host), [1, 2]);
    let removed = target.command(&["host", "group", "remove", "team", &second]);
    assert!(removed.status.success(), "{removed:?}");
    assert_eq!(nsids(&mut host), [1]);
    let added = target.command(&["host", "group", "add", "team", &second]);
    assert_eq!(String::from_utf8_lossy(&added.stdout), "1\n");
    assert_eq!(nsids(&mut host), [1, 2]);
    let table = target.command(&["host", "group", "list"]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.contains("team") && table.contains(&first), "{table}");

    let used = target.command(&["host", "group", "remove", "team"]);
    let why = String::from_utf8_lossy(&used.stderr).into_owned();
    let namer = format!("the list of namespace 2 of {NQN} names the host group \"team\"");
    let remedy = format!("cairn-target namespace set {NQN} 2 --host");
    assert!(why.contains(&namer) && why.contains(&remedy), "{why}");
    let unknown = json!({"name": "none"});
    assert_eq!(target.refused("cairn_host_group_remove", unknown), ENOENT);
    target.done("cairn_namespace_remove", json!({"nqn": NQN, "nsid": 2}));
    target.done("cairn_host_group_remove", json!({"name": "team"}));
    assert_eq!(target.done("cairn_host_group_list", json!({})), json!([]));
}

#[test]
fn a_reload_answers_what_waits_for_the_next_start() {
    let target = Steered::start_with("");
    let before = target.text();
    let reload = |text: String| {
        std::fs::write(target.config(), text).unwrap();
        target.done("cairn_reload", json!({}))["at_next_start"].clone()
    };
    assert_eq!(reload(before.clone()), json!([]));
    let slower = before.replace("[target]", "[target]\nqueue_depth = 64");
    assert_eq!(reload(slower.clone()), json!(["[target]"]));
    let named = slower.replace("allow_any_host", "serial = \"OTHER\"\nallow_any_host");
    let both = json!([
        "[target]",
        format!("serial, model and controller_ids of {NQN}")
    ]);
    assert_eq!(reload(named), both);
    assert_eq!(
        target.done("cairn_status", json!({}))["at_next_start"],
        both
    );
    assert_eq!(reload(before), json!([]));
}

#[test]
fn a_namespace_is_set_while_a_host_is_connected() {
    let target = Steered::start();
    target.done(
        "cairn_namespace_add",
        json!({"nqn": NQN, "export": "null:1MiB", "nsid": 2}),
    );
    let mut host = target.connect("one");
    assert_eq!(nsids(&mut host), [1, 2]);
    let set = |args: &[&str]| {
        let said = target.command(&[&["namespace", "set", NQN, "2"], args].concat());
        let text = String::from_utf8(said.stderr).unwrap();
        (said.status.success(), text)
    };
    let listed = || {
        let all = target.done("cairn_namespace_list", json!({}));
        all.as_array()
            .unwrap()
            .iter()
            .find(|one| one["nsid"] == 2)
            .unwrap()
            .clone()
    };
    assert!(
        set(&[
            "--name",
            "second",
            "--ana-group",
            "3",
            "--write-protection",
            "on"
        ])
        .0
    );
    assert!(set(&["--export", "null:2MiB"]).0);
    let now = listed();
    assert_eq!(
        (&now["name"], &now["ana_group"], &now["bytes"]),
        (&json!("second"), &json!(3), &json!(2 << 20))
    );
    let lines = "nsid = 2\nexport = \"null:2MiB\"\nname = \"second\"\nwrite_protection = true\nana_group = 3\n";
    assert!(target.text().ends_with(lines), "{}", target.text());
    assert!(set(&["--no-host", "--write-protection", "off"]).0);
    assert_eq!(nsids(&mut host), [1]);
    assert!(!target.text().contains("write_protection"));
    let name = cairn_tests::harness::host_nqn("one");
    assert!(set(&["--host", name.raw()]).0);
    assert_eq!(nsids(&mut host), [1, 2]);
    assert_eq!(listed()["hosts"], json!([name.raw()]));
    assert!(set(&["--every-host"]).0);
    assert_eq!(listed()["hosts"], Value::Null);
    assert!(set(&["--read-only", "on"]).0);
    assert_eq!(listed()["read_only"], true);
    let before = target.text();
    for (args, said) in [
        (&["--ana-group", "999"][..], "999"),
        (&["--export", "/no/such/disk"], "does not exist"),
        (&["--host", "a", "--every-host"], "cannot be used with"),
        (&[], "required"),
    ] {
        let (done, text) = set(args);
        assert!(!done && text.contains(said), "{args:?}: {text}");
    }
    let none = json!({"nqn": NQN, "nsid": 9, "name": "x"});
    assert_eq!(target.refused("cairn_namespace_set", none), ENOENT);
    let both = json!({"nqn": NQN, "nsid": 2, "hosts": [], "every_host": true});
    assert_eq!(target.refused("cairn_namespace_set", both), INVALID_PARAMS);
    assert_eq!(
        target.refused("cairn_namespace_set", json!({"nqn": NQN, "nsid": 2})),
        INVALID_PARAMS
    );
    assert_eq!(target.text(), before);
}

#[test]
fn a_subsystem_is_set_for_the_next_start() {
    let mut target = Steered::start();
    let serial = |target: &Steered| {
        let sn = target.connect("one").identity().sn;
        String::from_utf8(sn.to_vec())
            .unwrap()
            .trim_end()
            .to_owned()
    };
    let before = serial(&target);
    let said = target.command(&[
        "subsystem",
        "set",
        NQN,
        "--serial",
        "S2",
        "--controller-ids",
        "5-9",
    ]);
    let text = String::from_utf8(said.stdout).unwrap();
    assert!(said.status.success());
    let waits =
        format!("takes effect at the next start: serial, model and controller_ids of {NQN}\n");
    assert_eq!(text, waits);
    assert_eq!(serial(&target), before);
    let status = target.done("cairn_status", json!({}));
    assert_eq!(status["at_next_start"].as_array().unwrap().len(), 1);
    let back = json!({"nqn": NQN, "serial": before, "controller_ids": "1-65519"});
    assert_eq!(
        target.done("cairn_subsystem_set", back),
        json!({"at_next_start": [], "warnings": []})
    );
    target.done("cairn_subsystem_set", json!({"nqn": NQN, "serial": "S3"}));
    target.crash();
    assert_eq!(serial(&target), "S3");
    for (params, code) in [
        (json!({"nqn": NQN}), INVALID_PARAMS),
        (
            json!({"nqn": NQN, "serial": "much longer than 20 characters"}),
            INVALID_PARAMS,
        ),
        (json!({"nqn": NQN, "controller_ids": "9-5"}), INVALID_PARAMS),
        (
            json!({"nqn": "nqn.2024-01.com.example:none", "serial": "S"}),
            ENOENT,
        ),
    ] {
        assert_eq!(
            target.refused("cairn_subsystem_set", params.clone()),
            code,
            "{params}"
        );
    }
}

#[test]
fn the_hosts_of_a_subsystem_are_listed() {
    let target = Steered::start();
    let other = "nqn.2024-01.com.example:other";
    let [single, grouped] = ["single", "grouped"].map(cairn_tests::harness::host_nqn);
    target.done(
        "cairn_host_group_add",
        json!({"name": "g", "hosts": [grouped.raw()]}),
    );
    target.done(
        "cairn_subsystem_add",
        json!({"nqn": other, "hosts": [single.raw(), "@g"]}),
    );
    let mut options = target.options("grouped");
    options.subnqn = cairn_tests::harness::nqn(other);
    let host = Host::connect(&Soft::default(), options).unwrap();
    let row = |host: &str, group: Option<&str>, controllers: u32| json!({"host": host, "group": group, "authenticates": false, "lacks_key": false, "controllers": controllers});
    let hosts = json!([row(single.raw(), None, 0), row(grouped.raw(), Some("g"), 1)]);
    assert_eq!(
        target.done("cairn_host_list", json!({"nqn": other})),
        json!({"allow_any_host": false, "hosts": hosts})
    );
    drop(host);
    let shown = |nqn: &str| {
        let said = target.command(&["host", "list", nqn]);
        assert!(said.status.success());
        String::from_utf8(said.stdout).unwrap()
    };
    let table = shown(other);
    assert!(
        table.starts_with("HOST ") && table.contains(single.raw()),
        "{table}"
    );
    assert!(shown(NQN).contains("Every host may connect"));
    let none = json!({"nqn": "nqn.2024-01.com.example:none"});
    assert_eq!(target.refused("cairn_host_list", none), ENOENT);
}

#[test]
fn referrals_come_and_go() {
    let target = Steered::start();
    let before = target.text();
    let run = |args: &[&str]| {
        let said = target.command(&[&["referral"], args].concat());
        let text = String::from_utf8(said.stdout).unwrap();
        (said.status.success(), text)
    };
    assert_eq!(
        run(&["add", "192.0.2.9", "--port", "4421"]),
        (true, String::new())
    );
    assert_eq!(
        target.done(
            "cairn_referral_add",
            json!({"address": "192.0.2.9", "port": 4421})
        ),
        false
    );
    assert!(
        target
            .text()
            .contains("[[referral]]\naddress = \"192.0.2.9\"\nport = 4421\n")
    );
    let own = "nqn.2024-01.com.example:discovery";
    assert!(run(&["add", "2001:db8::1", "--nqn", own]).0);
    let all = json!([
        {"address": "192.0.2.9", "port": 4421, "nqn": "nqn.2014-08.org.nvmexpress.discovery"},
        {"address": "2001:db8::1", "port": 4420, "nqn": own},
    ]);
    assert_eq!(target.done("cairn_referral_list", json!({})), all);
    let (_, json) = run(&["list", "-o", "json"]);
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), all);
    assert!(run(&["list"]).1.starts_with("ADDRESS "));
    assert!(run(&["remove", "192.0.2.9", "--port", "4421"]).0);
    assert!(run(&["remove", "2001:db8::1", "--nqn", own]).0);
    assert_eq!(target.text(), before);
    let gone = json!({"address": "192.0.2.9", "port": 4421});
    assert_eq!(target.refused("cairn_referral_remove", gone), ENOENT);
}
