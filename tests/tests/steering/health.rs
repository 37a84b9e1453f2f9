//! Output of `status` and `reload`, including problems and refused hosts.

use std::fs;
use std::process::Command;

use cairn_initiator::{Host, HostOptions};
use cairn_roce::Soft;
use cairn_tests::harness::{host_nqn, nqn, own_loopback_address};
use cairn_tests::process::program;
use serde_json::{Value, json};

use crate::target::{NQN, Steered, until};

fn stdout(target: &Steered, args: &[&str]) -> String {
    String::from_utf8(target.command(args).stdout).unwrap()
}

fn code(target: &Steered, args: &[&str]) -> Option<i32> {
    target.command(args).status.code()
}

fn problems(target: &Steered) -> Vec<Value> {
    let status = target.done("cairn_status", json!({}));
    let problems = status["problems"].as_array().unwrap().clone();
    let health = if problems.iter().all(|one| one["kind"] == "refused") {
        "ok"
    } else {
        "degraded"
    };
    assert_eq!(status["health"], health);
    problems
}

#[track_caller]
fn assert_problem(target: &Steered, words: &[&str]) {
    let all = problems(target);
    let says = |one: &Value| {
        let text = format!("{} {} {}", one["what"], one["why"], one["remedy"]);
        words.iter().all(|word| text.contains(word))
    };
    assert!(all.iter().any(says), "{words:?} is not in {all:#?}");
}

fn stderr(target: &Steered, args: &[&str]) -> String {
    String::from_utf8(target.command(args).stderr).unwrap()
}

fn refuse(target: &Steered, name: &str) {
    assert!(Host::connect(&Soft::default(), target.options(name)).is_err());
}

#[test]
fn a_status_opens_with_the_health_and_check_returns_it() {
    let target = Steered::start();
    let shown = stdout(&target, &["status"]);
    let first = "ok: 1 subsystem, 1 namespace, 0 hosts connected, up ";
    assert!(shown.starts_with(first), "{shown}");
    assert!(!shown.contains('{') && !shown.contains('['), "{shown}");
    assert_eq!(code(&target, &["status", "--check"]), Some(0));

    let in_force = target.text();
    fs::write(target.config(), "[[").unwrap();
    assert_problem(&target, &["configuration file", "a reload would fail"]);
    let shown = stdout(&target, &["status", "--check"]);
    assert!(
        shown.starts_with("degraded: 1 problem; 1 subsystem"),
        "{shown}"
    );
    assert!(shown.contains("cairn-target reload"), "{shown}");
    assert_eq!(code(&target, &["status", "--check"]), Some(1));

    let error = stderr(&target, &["reload"]);
    assert_eq!(error.matches("target.toml").count(), 1, "{error}");
    assert_problem(&target, &["the last reload failed"]);
    let broken = fs::read(target.config()).unwrap();
    fs::write(target.config(), &in_force).unwrap();
    assert_eq!(code(&target, &["status", "--check"]), Some(0));
    fs::write(target.config(), broken).unwrap();
    assert_problem(&target, &["the last reload failed"]);
    let refused = stderr(&target, &["namespace", "add", NQN, "mem:1MiB"]);
    let file = target.config();
    let restore = ["config", "show", "--file", file.to_str().unwrap()];
    for shown in [&refused, &stdout(&target, &["status"])] {
        assert!(shown.contains(&restore.join(" ")), "{shown}");
    }
    let elsewhere = Command::new(program("cairn-target-process"))
        .args(["status", "--socket"])
        .arg(target.socket())
        .env_remove("CAIRN_CONTROL")
        .output()
        .unwrap();
    let elsewhere = String::from_utf8(elsewhere.stdout).unwrap();
    let socket = target.socket();
    let named = format!("config show --socket {} --file", socket.display());
    assert!(elsewhere.contains(&named), "{elsewhere}");
    fs::remove_file(&file).unwrap();
    let refused = stderr(&target, &["namespace", "add", NQN, "mem:1MiB"]);
    assert!(refused.contains(&restore.join(" ")), "{refused}");
    stdout(&target, &restore);
    stdout(&target, &["reload"]);
    assert_eq!(code(&target, &["status", "--check"]), Some(0));
    let nowhere = ["status", "--check", "--socket", "/nonexistent/target.sock"];
    assert_eq!(code(&target, &nowhere), Some(2));
}

#[test]
fn a_reload_names_each_change_once() {
    let target = Steered::start_logged_after(|_, _| {
        "[[subsystem.namespace]]\nnsid = 2\nexport = \"mem:1MiB\"\n".to_owned()
    });
    assert_eq!(stdout(&target, &["reload"]), "no changes\n");
    let text = target.text();
    let two = "nsid = 2\nexport = \"mem:1MiB\"";
    fs::write(
        target.config(),
        text.replace(two, "nsid = 3\nexport = \"mem:1MiB\""),
    )
    .unwrap();
    assert_problem(&target, &["the file has changed since the target read it"]);
    target.command(&["log", "info"]);
    let shown = stdout(&target, &["reload"]);
    let expected = format!("subsystem {NQN}: added namespace 3; removed namespace 2");
    assert_eq!(shown, format!("{expected}\n"));
    assert!(problems(&target).is_empty());
    let log = target.log();
    let lines = log.lines().filter(|line| line.contains(&expected));
    assert_eq!(lines.count(), 1, "{log}");
}

#[test]
fn a_file_that_was_moved_is_a_problem_until_it_is_back() {
    let target = Steered::start_after(|folder, _| {
        let path = folder.join("disk.img");
        fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let path = path.display();
        format!("[[subsystem.namespace]]\nnsid = 2\nexport = \"{path}\"\n")
    });
    let [path, elsewhere] =
        ["disk.img", "elsewhere.img"].map(|name| target.folder.path().join(name));
    assert!(problems(&target).is_empty());
    fs::rename(&path, &elsewhere).unwrap();
    until("the problem", || !problems(&target).is_empty());
    assert_problem(&target, &["namespace 2 of", "no longer leads", "disk.img"]);
    fs::write(&path, "another file").unwrap();
    assert_problem(&target, &["no longer leads"]);
    fs::rename(&elsewhere, &path).unwrap();
    until("no problem", || problems(&target).is_empty());
}

#[test]
fn a_missing_namespace_is_listed() {
    let target = Steered::start_after(|folder, _| {
        let path = folder.join("gone.img").display().to_string();
        format!("[[subsystem.namespace]]\nnsid = 7\nexport = \"{path}\"\n")
    });
    let all = target.done("cairn_namespace_list", json!({}));
    let states: Vec<_> = all
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["state"])
        .collect();
    assert_eq!(states, ["ok", "missing"]);
    assert!(
        all[1]["reason"]
            .as_str()
            .unwrap()
            .contains("does not exist")
    );
    let shown = stdout(&target, &["namespace", "list"]);
    assert!(
        shown.contains("4.0 MiB") && shown.contains("missing"),
        "{shown}"
    );
    let remove = format!("cairn-target namespace remove {NQN} 7");
    assert_problem(&target, &["gone.img", &remove]);
}

#[test]
fn each_refused_host_of_one_second_is_named_with_the_line_that_admits_it() {
    let target = Steered::start();
    target.done("cairn_host_any", json!({"nqn": NQN, "allow": false}));
    let names = ["one", "two", "three"];
    for name in names {
        refuse(&target, name);
    }
    for name in names {
        let host = host_nqn(name);
        let line = format!("cairn-target host add {NQN} {}", host.raw());
        assert_problem(&target, &["does not permit this host", &line]);
    }
    let status = target.done("cairn_status", json!({}));
    assert_eq!(status["refused"].as_array().unwrap().len(), 3);
    let admit = format!("\"{}\"", host_nqn("three").raw());
    let edit = format!("add the element {admit} to allowed_hosts of subsystem {NQN}");
    let remedy = status["problems"][0]["remedy"].as_str().unwrap();
    assert!(remedy.ends_with(&edit), "{remedy}");
    assert_eq!(status["refused"][0]["admit"], json!(admit));
    target.done(
        "cairn_host_add",
        json!({"nqn": NQN, "host": host_nqn("two").raw()}),
    );
    let status = target.done("cairn_status", json!({}));
    let hosts = status["refused"].as_array().unwrap().iter();
    let hosts: Vec<_> = hosts.map(|one| one["host"].clone()).collect();
    assert_eq!(hosts, [host_nqn("three").raw(), host_nqn("one").raw()]);

    let mut options = target.options("lost");
    options.subnqn = nqn("nqn.2024-01.com.example:elsewhere");
    assert!(Host::connect(&Soft::default(), options).is_err());
    assert_problem(&target, &["leads to no subsystem", "elsewhere"]);
    assert_eq!(code(&target, &["status", "--check"]), Some(0));
}

#[test]
fn a_host_refused_on_another_path_is_shown_while_it_is_connected() {
    let mut paths = Vec::new();
    let target = Steered::start_after(|_, _| {
        paths.push(own_loopback_address());
        format!("[[listener]]\naddress = \"{}\"\n", paths[0])
    });
    let first = format!("{}:4420", target.address);
    let set = |listeners: &[&str]| {
        let params = json!({"nqn": NQN, "listeners": listeners});
        target.done("cairn_subsystem_set", params);
    };
    set(&[&first]);
    let connected = target.connect("two");
    let second = (paths[0], 4420).into();
    let options = HostOptions {
        remote: second,
        ..target.options("two")
    };
    assert!(Host::connect(&Soft::default(), options).is_err());
    let parts = ["leads to no subsystem", "connected on another path"];
    assert_problem(&target, &[&parts[..], &[&second.to_string()]].concat());
    let command = format!("subsystem set {NQN} --listener {first} --listener {second}");
    assert_problem(&target, &[&command]);
    drop(connected);
    let again = target.connect("two");
    assert_problem(&target, &parts);
    drop(again);
    set(&[&first, &second.to_string()]);
    assert!(problems(&target).is_empty());
}

#[test]
fn a_listener_names_the_address_that_it_turned_away() {
    let target = Steered::start();
    let text = target.text();
    let only = |addresses: &str| {
        let own = format!("address = \"{}\"", target.address);
        let restricted = format!("{own}\nallowed_addresses = [\"{addresses}\"]");
        fs::write(target.config(), text.replace(&own, &restricted)).unwrap();
        target.done("cairn_reload", json!({}));
    };
    only("198.51.100.0/24");
    refuse(&target, "a");
    let words = ["it refused", "the last from 127.", "allowed_addresses"];
    assert_problem(&target, &words);
    assert_eq!(code(&target, &["status", "--check"]), Some(0));
    only("127.0.0.0/8");
    assert!(problems(&target).is_empty());
    drop(target.connect("a"));
}

#[test]
fn a_mistyped_host_is_named_at_once_and_stays_a_problem() {
    let target = Steered::start();
    target.done("cairn_host_any", json!({"nqn": NQN, "allow": false}));
    refuse(&target, "database");
    let refused = host_nqn("database");
    let slip = refused.raw().replace("database", "databsae");
    let odd = [
        "iqn.2024-01.com.example:db",
        &slip,
        "nqn.2014-08.org.nvmexpres:uuid:1",
    ];
    for host in odd {
        let added = target.command(&["host", "add", NQN, host, "--quiet"]);
        let warned = String::from_utf8(added.stderr).unwrap();
        assert!(
            added.status.success() && warned.contains("mistyped"),
            "{warned}"
        );
        assert_problem(&target, &[&format!("host {host} in the list of {NQN}")]);
    }
    assert_problem(&target, &["it is almost the refused host", refused.raw()]);
    let near = problems(&target)
        .into_iter()
        .find(|one| one.to_string().contains("it is almost the refused host"));
    assert_eq!(near.unwrap()["kind"], "refused", "strangers choose names");
    let good = ["host", "add", NQN, "nqn.2024-01.com.example:web"];
    assert_eq!(target.command(&good).stderr, b"");
}

#[test]
fn a_drained_listener_is_a_problem_until_the_drain_is_undone() {
    let target = Steered::start();
    target.done("cairn_drain", json!({}));
    assert_problem(&target, &["it is drained", "--undo"]);
    let checked = target.command(&["check", target.config().to_str().unwrap()]);
    let warning = String::from_utf8(checked.stderr).unwrap();
    assert!(warning.contains("it is drained"), "{warning}");
    assert_eq!(checked.status.code(), Some(1));
    target.done("cairn_drain_undo", json!({}));
    assert!(problems(&target).is_empty());
}

#[test]
fn a_reload_names_disks_that_grew() {
    let mut disk = None;
    let target = Steered::start_after(|folder, _| {
        let path = folder.join("grows.img");
        let made = fs::File::create(&path).unwrap();
        made.set_len(1 << 20).unwrap();
        disk = Some(made);
        format!(
            "[[subsystem.namespace]]\nnsid = 8\nexport = \"{}\"\n",
            path.display()
        )
    });
    let disk = disk.unwrap();
    disk.set_len(2 << 20).unwrap();
    let shown = stdout(&target, &["reload"]);
    let words = ["namespace 8", "grew", "to 2097152 bytes"];
    assert!(words.iter().all(|word| shown.contains(word)), "{shown}");
    assert_eq!(stdout(&target, &["reload"]), "no changes\n");
}

#[test]
fn an_empty_list_has_no_line() {
    let target = Steered::start();
    for of in ["connection", "limit", "referral"] {
        assert_eq!(stdout(&target, &[of, "list", "-o", "name"]), "", "{of}");
        assert_eq!(stdout(&target, &[of, "list", "--no-headers"]), "", "{of}");
    }
}

#[test]
fn a_name_in_a_remedy_is_one_word_of_a_shell() {
    let target = Steered::start();
    target.done("cairn_host_any", json!({"nqn": NQN, "allow": false}));
    for (name, word) in [
        (
            "nqn.2024-01.com.example:a;reboot",
            " 'nqn.2024-01.com.example:a;reboot', or",
        ),
        (
            "nqn.2024-01.com.example:$(id)",
            " 'nqn.2024-01.com.example:$(id)', or",
        ),
    ] {
        refuse_as(&target, name);
        assert_problem(&target, &[&format!("cairn-target host add {NQN}{word}")]);
    }
    for name in [
        "nqn.2024-01.com.example:b\u{1b}[2J",
        "@databases",
        "--quiet",
    ] {
        refuse_as(&target, name);
        assert_problem(&target, &["correct the name at the host"]);
        let remedies = problems(&target);
        let adds = |one: &Value| one["remedy"].to_string().contains(&format!(" {name}"));
        assert!(!remedies.iter().any(adds), "{name}: {remedies:#?}");
    }
}

fn refuse_as(target: &Steered, name: &str) {
    let mut options = target.options("x");
    options.hostnqn = nqn(name);
    assert!(Host::connect(&Soft::default(), options).is_err());
}
