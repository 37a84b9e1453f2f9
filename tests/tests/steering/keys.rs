use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use cairn_initiator::{Host, HostError, HostOptions, Secret, Secrets};
use cairn_roce::Soft;
use cairn_tests::harness::{host_nqn, nqn};
use serde_json::{Value, json};

use crate::target::{NQN, Steered, until};

pub(crate) fn secret(seed: u8) -> Secret {
    Secret::generate(32, None, &mut |bytes| bytes.fill(seed))
}

pub(crate) fn file(target: &Steered, name: &str, seed: u8) -> PathBuf {
    let path = target.folder.path().join(name);
    fs::write(&path, secret(seed).to_text().as_bytes()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

pub(crate) fn host(target: &Steered) -> String {
    target.options("a").hostnqn.raw().to_owned()
}

pub(crate) fn connect(
    target: &Steered,
    host: Option<u8>,
    controller: Option<u8>,
) -> Result<Host, HostError> {
    let authentication = host.map(|seed| Secrets {
        host: secret(seed),
        controller: controller.map(secret),
    });
    let options = HostOptions {
        authentication,
        ..target.options("a")
    };
    Host::connect(&Soft::default(), options)
}

pub(crate) fn assert_refused(result: Result<Host, HostError>) {
    match result {
        Err(HostError::NotAuthenticated { .. }) => {}
        other => panic!("{other:?}"),
    }
}

pub(crate) fn assert_secret(target: &Steered, more: &str) {
    let text = target.text();
    for text in [&*text, more] {
        assert!(!text.contains("DHHC-"), "{text}");
    }
}

fn assert_keys(target: &Steered, expected: &[(&str, bool, u32)]) {
    let shown = target.done("keyring_get_keys", json!({}));
    let shown: Vec<Value> = shown
        .as_array()
        .unwrap()
        .iter()
        .map(|key| {
            assert_eq!(
                (&key["module"], &key["probed"]),
                (&json!("keyring_file"), &json!(false))
            );
            assert_eq!(key["path"].is_null(), key["removed"] == true);
            json!([key["name"], key["removed"], key["refcnt"]])
        })
        .collect();
    assert_eq!(json!(shown), json!(expected));
}

pub(crate) fn start() -> Steered {
    let target = Steered::start_logged(None);
    for (method, params) in [
        (
            "nvmf_subsystem_allow_any_host",
            json!({"nqn": NQN, "allow_any_host": false}),
        ),
        (
            "nvmf_subsystem_add_host",
            json!({"nqn": NQN, "host": host(&target)}),
        ),
    ] {
        assert_eq!(target.done(method, params), true, "{method}");
    }
    for (name, seed) in [("one", 1), ("two", 2)] {
        let params = json!({"name": name, "path": file(&target, name, seed)});
        assert_eq!(target.done("keyring_file_add_key", params), true);
    }
    target
}

#[test]
fn keys_of_the_keyring_count_for_connects_to_come() {
    let mut target = start();
    let set = |target: &Steered, keys: Value| {
        let mut params = json!({"nqn": NQN, "host": host(target)});
        params
            .as_object_mut()
            .unwrap()
            .extend(keys.as_object().unwrap().clone());
        target.done("nvmf_subsystem_set_keys", params)
    };
    assert_keys(&target, &[("one", false, 1), ("two", false, 1)]);
    let mut open = connect(&target, None, None).unwrap();
    set(
        &target,
        json!({"dhchap_key": "one", "dhchap_ctrlr_key": "two"}),
    );
    assert_keys(&target, &[("one", false, 2), ("two", false, 2)]);
    assert_eq!(open.active_namespaces().unwrap(), [1]);
    assert!(!open.controller().is_authenticated());
    assert_refused(connect(&target, None, None));
    let keyed = connect(&target, Some(1), Some(2)).unwrap();
    assert!(keyed.controller().is_authenticated());
    drop(keyed);
    assert_refused(connect(&target, Some(1), Some(1)));
    let shown = target.done("nvmf_get_subsystems", json!({"nqn": NQN}));
    let wanted = json!({"nqn": host(&target), "dhchap_key": "one", "dhchap_ctrlr_key": "two"});
    assert_eq!(shown[0]["hosts"], json!([wanted]));
    drop(open);
    target.crash();
    assert_refused(connect(&target, Some(2), None));
    drop(connect(&target, Some(1), Some(2)).unwrap());
    set(&target, json!({"dhchap_key": "two"}));
    assert_keys(&target, &[("one", false, 1), ("two", false, 2)]);
    assert_refused(connect(&target, Some(1), None));
    drop(connect(&target, Some(2), None).unwrap());
    set(&target, json!({}));
    assert_keys(&target, &[("one", false, 1), ("two", false, 1)]);
    drop(connect(&target, None, None).unwrap());
    assert!(target.text().contains("# the first"));
    assert_secret(&target, "");
}

#[test]
fn a_host_whose_key_was_removed_is_not_let_in() {
    let mut target = start();
    let host = host(&target);
    let removed = json!({"nqn": NQN, "host": host});
    assert_eq!(target.done("nvmf_subsystem_remove_host", removed), true);
    let params = json!({"nqn": NQN, "host": host, "dhchap_key": "one"});
    assert_eq!(target.done("nvmf_subsystem_add_host", params.clone()), true);
    assert_eq!(target.refused("nvmf_subsystem_add_host", params), -32603);
    let mut open = connect(&target, Some(1), None).unwrap();
    assert_eq!(
        target.done("keyring_file_remove_key", json!({"name": "one"})),
        true
    );
    assert_keys(&target, &[("one", true, 1), ("two", false, 1)]);
    assert_eq!(open.active_namespaces().unwrap(), [1]);
    drop(open);
    for _ in 0..2 {
        assert_refused(connect(&target, Some(1), None));
        let refused = connect(&target, None, None);
        assert_refused(refused);
        target.crash();
    }
    assert_eq!(
        target.refused("keyring_file_remove_key", json!({"name": "one"})),
        -126
    );
    let again = json!({"nqn": NQN, "host": host, "dhchap_key": "one"});
    assert_eq!(target.refused("nvmf_subsystem_set_keys", again), -32602);
    let saved = target.done("framework_get_config", json!({"name": "keyring"}));
    assert_eq!(saved.as_array().unwrap().len(), 1, "{saved}");
    let saved = target.done("framework_get_config", json!({"name": "nvmf"}));
    let adds = saved.as_array().unwrap().iter();
    let mut adds = adds.filter(|request| request["method"] == "nvmf_subsystem_add_host");
    assert_eq!(adds.next().unwrap()["params"]["dhchap_key"], "one");
    let other = json!({"nqn": NQN, "host": host, "dhchap_key": "two"});
    assert_eq!(target.done("nvmf_subsystem_set_keys", other), true);
    assert_keys(&target, &[("two", false, 2)]);
    drop(connect(&target, Some(2), None).unwrap());
}

#[test]
fn a_key_in_the_configuration_works_and_stays_hidden() {
    let lines = |key: &str| {
        let host = host_nqn("a");
        format!(
            "\n[[subsystem]]\nnqn = \"{NQN}.inline\"\nallowed_hosts = [\"{host}\"]\n\
             [[subsystem.host]]\nnqn = \"{host}\"\ndhchap_key = \"{key}\"\n\
             [[subsystem.namespace]]\nnsid = 1\nexport = \"mem:1MiB\"\n"
        )
    };
    let key = secret(1).to_text();
    let target = Steered::start_logged_after(|_, _| lines(&key));
    let connect = |seed: Option<u8>| {
        let authentication = seed.map(|seed| Secrets {
            host: secret(seed),
            controller: None,
        });
        let options = HostOptions {
            authentication,
            subnqn: nqn(&format!("{NQN}.inline")),
            ..target.options("a")
        };
        Host::connect(&Soft::default(), options)
    };
    drop(connect(Some(1)).unwrap());
    assert_refused(connect(Some(2)));
    assert_refused(connect(None));
    assert!(
        target
            .log()
            .contains(".inline, and each reader of the file learns them")
    );
    let shown = target.done("cairn_config_get", json!({}));
    let listed = target.done(
        "cairn_host_key_list",
        json!({"nqn": format!("{NQN}.inline")}),
    );
    assert_eq!(listed[0]["dhchap_key"], "in the configuration file");
    let text = target.text().replace(&*key, "DHHC-1:00:bm9uZQ==:");
    fs::write(target.config(), text).unwrap();
    let refused = target.call("cairn_reload", json!({})).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("a key in the configuration file"),
        "{refused}"
    );
    for text in [
        shown.to_string(),
        listed.to_string(),
        refused.to_string(),
        target.log(),
    ] {
        assert!(!text.contains("DHHC-1"), "{text}");
    }
    assert!(
        shown["text"]
            .as_str()
            .unwrap()
            .contains("dhchap_key = \"DHHC-***")
    );
}

fn assert_codes(target: &Steered, mistakes: &[(&str, Value, i64)]) {
    for (method, params, code) in mistakes {
        let refused = target.call(method, params.clone()).unwrap_err().to_string();
        assert!(!refused.contains("DHHC-"), "{refused}");
        assert_eq!(
            target.refused(method, params.clone()),
            *code,
            "{method} {params}"
        );
    }
}

#[test]
fn mistakes_with_the_keyring_have_their_codes() {
    let target = start();
    let folder = target.folder.path();
    let open = file(&target, "open", 3);
    fs::set_permissions(&open, fs::Permissions::from_mode(0o640)).unwrap();
    let add = |name: &str, path: Value, code: i64| {
        let params = json!({"name": name, "path": path});
        ("keyring_file_add_key", params, code)
    };
    let mistakes = [
        add("one", json!(folder.join("one")), -17),
        add("a:b", json!(folder.join("one")), -22),
        add("open", json!(open), -1),
        add("near", json!("one"), -1),
        add("key", json!(*secret(5).to_text()), -1),
        add("none", json!(folder.join("none")), -2),
        ("keyring_file_add_key", json!({"name": "one"}), -32602),
        ("keyring_file_remove_key", json!({"name": "none"}), -126),
    ];
    assert_codes(&target, &mistakes);
    assert_keys(&target, &[("one", false, 1), ("two", false, 1)]);
    assert_secret(&target, &target.log());
}

#[test]
fn mistakes_with_keys_have_their_codes() {
    let target = start();
    let (host, other) = (host(&target), "nqn.2016-06.io.spdk:host9");
    let none = "nqn.2016-06.io.spdk:none";
    let of = |nqn: &str, host: &str, keys: Value| {
        let mut params = json!({"nqn": nqn, "host": host});
        let all = params.as_object_mut().unwrap();
        all.extend(keys.as_object().unwrap().clone());
        params
    };
    let controllers = json!({"dhchap_ctrlr_key": "one"});
    let (one, key) = (json!({"dhchap_key": "one"}), secret(5).to_text());
    let mistakes = [
        (
            "nvmf_subsystem_add_host",
            of(NQN, other, json!({"dhchap_key": "none"})),
            -32602,
        ),
        (
            "nvmf_subsystem_add_host",
            of(NQN, other, controllers.clone()),
            -32603,
        ),
        ("nvmf_subsystem_set_keys", of(NQN, &host, controllers), -22),
        ("nvmf_subsystem_set_keys", of(NQN, other, one.clone()), -22),
        ("nvmf_subsystem_set_keys", of(none, &host, one), -32602),
        (
            "cairn_host_key_set",
            of(NQN, &host, json!({"dhchap_key": *key})),
            -32602,
        ),
        (
            "cairn_host_key_set",
            of(NQN, &host, json!({"dhchap_key": "key:none"})),
            -2,
        ),
        ("cairn_host_key_remove", of(NQN, &host, json!({})), -2),
    ];
    assert_codes(&target, &mistakes);
    assert_secret(&target, &target.log());
    drop(connect(&target, None, None).unwrap());
}

#[test]
fn a_new_key_keeps_the_controllers_and_a_host_without_a_key_is_named() {
    let target = start();
    let host = host(&target);
    let set = |keys: Value| {
        let mut params = json!({"nqn": NQN, "host": host});
        let all = params.as_object_mut().unwrap();
        all.extend(keys.as_object().unwrap().clone());
        target.done("cairn_host_key_set", params);
    };
    set(json!({"dhchap_key": "key:one", "dhchap_ctrl_key": "key:two"}));
    set(json!({"dhchap_key": "key:two"}));
    let keys = target.done("cairn_host_key_list", json!({}));
    assert_eq!(keys[0]["dhchap_key"], "key:two");
    assert_eq!(keys[0]["dhchap_ctrl_key"], "key:two");

    let other = target.options("other").hostnqn;
    let added = json!({"nqn": NQN, "host": other.raw()});
    let answer = target.done("cairn_host_add", added);
    let warning = answer["warnings"][0].as_str().unwrap();
    assert!(warning.contains("connects without a key"), "{warning}");
}

#[test]
fn a_host_with_a_wrong_key_is_shown_until_it_has_the_right_one() {
    let target = start();
    let host = host(&target);
    let key = json!({"nqn": NQN, "host": host, "dhchap_key": "key:one"});
    target.done("cairn_host_key_set", key);
    for _ in 0..2 {
        connect(&target, Some(2), None).unwrap_err();
    }
    let status = target.done("cairn_status", json!({}));
    let [refused] = &status["refused"].as_array().unwrap()[..] else {
        panic!("{status}")
    };
    assert_eq!(
        (&refused["host"], &refused["nqn"]),
        (&json!(host), &json!(NQN))
    );
    assert_eq!(refused["kind"], "authentication");
    assert!(refused["attempts"].as_u64() >= Some(2), "{refused}");
    assert_eq!(status["health"], "ok");
    let [problem] = &status["problems"].as_array().unwrap()[..] else {
        panic!("{status}")
    };
    let text = problem.to_string();
    let remedy = format!("cairn-target host key set {NQN} {host} --key FILE");
    for part in ["the host's key is not", "127.", &remedy] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!(refused["key"], "dhchap_key");
    drop(connect(&target, Some(1), None).unwrap());
    let status = target.done("cairn_status", json!({}));
    assert_eq!(status["refused"], json!([]));
    assert_eq!(status["problems"], json!([]));
}

fn refused(target: &Steered) -> Value {
    target.done("cairn_status", json!({}))["refused"].clone()
}

#[test]
fn a_host_without_a_key_is_told_from_one_with_a_wrong_key() {
    let target = start();
    let host = host(&target);
    let set = |required: bool| {
        let params = json!({"nqn": NQN, "require_key": required});
        target.done("cairn_subsystem_set", params);
    };
    set(true);
    let list = String::from_utf8(target.command(&["host", "list", NQN]).stdout).unwrap();
    assert!(list.contains("required, no key"), "{list}");
    assert_refused(connect(&target, Some(1), None));
    let status = target.done("cairn_status", json!({}));
    assert!(
        status["refused"][0]["reason"]
            .as_str()
            .unwrap()
            .starts_with("the target has no key for this host"),
        "{status}"
    );
    let remedy = status["problems"][0]["remedy"].to_string();
    let set_key = format!("cairn-target host key set {NQN} {host} --key FILE");
    assert!(
        remedy.contains(&set_key) && !remedy.contains("fingerprint"),
        "{remedy}"
    );
    assert!(target.log().contains("the target has no key for this host"));
    set(false);
    drop(connect(&target, None, None).unwrap());
    until("the disconnect", || {
        target.done("cairn_connection_list", json!({})) == json!([])
    });
    assert_eq!(refused(&target), json!([]), "the host has connected since");
}

#[test]
fn a_host_that_does_not_authenticate_is_shown_and_counted() {
    let target = start();
    let host = host(&target);
    let key = json!({"nqn": NQN, "host": host, "dhchap_key": "key:one"});
    target.done("cairn_host_key_set", key);
    assert_refused(connect(&target, None, None));
    until("the refused host", || refused(&target)[0]["host"] == *host);
    let entry = refused(&target)[0].clone();
    let reason = entry["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("the host did not authenticate"),
        "{entry}"
    );
    assert_eq!(
        (&entry["kind"], &entry["attempts"]),
        (&json!("authentication"), &json!(1))
    );
    assert!(target.log().contains("the host did not authenticate"));
    let page = target.done("cairn_metrics_get", json!({}));
    let mut lines = page.as_str().unwrap().lines();
    let counted = lines.any(|line| {
        line.starts_with("cairn_connects_refused_total") && line.contains("uthentication")
    });
    assert!(counted, "{page}");
    drop(connect(&target, Some(1), None).unwrap());
    assert_eq!(refused(&target), json!([]));
}

#[test]
fn a_wrong_or_missing_controllers_key_is_named_with_its_remedy() {
    let target = start();
    let host = host(&target);
    let remedy = format!("host key set {NQN} {host} --key FILE --ctrl-key FILE");
    for (own, why) in [
        (None, "the target has no dhchap_ctrl_key"),
        (Some("key:two"), "the host refused the target"),
    ] {
        let mut keys = json!({"nqn": NQN, "host": host, "dhchap_key": "key:one"});
        if let Some(own) = own {
            keys["dhchap_ctrl_key"] = json!(own);
        }
        target.done("cairn_host_key_set", keys);
        assert_refused(connect(&target, Some(1), Some(1)));
        until("the refused host", || {
            let status = target.done("cairn_status", json!({}));
            let refused = &status["refused"][0];
            let reason = refused["reason"].as_str().unwrap_or_default();
            let text = status["problems"][0]["remedy"].to_string();
            reason.contains(why) && refused["key"] == "dhchap_ctrl_key" && text.contains(&remedy)
        });
        assert!(target.log().contains(why), "{why}");
    }
    drop(connect(&target, Some(1), Some(2)).unwrap());
}

#[test]
fn a_listed_host_authenticates_while_any_host_may_connect() {
    let mut target = start();
    let run = |target: &Steered, args: &[&str]| {
        let output = target.command(&[&["host"], args].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {error}");
    };
    let (a, b) = (host(&target), target.options("b").hostnqn);
    let keys = json!({"nqn": NQN, "host": a, "dhchap_key": "one"});
    target.done("nvmf_subsystem_set_keys", keys);
    run(&target, &["any", NQN, "on"]);
    let keys = json!({"nqn": NQN, "host": b.raw(), "dhchap_key": "two"});
    target.done("nvmf_subsystem_add_host", keys);
    target.crash();
    let shown = target.done("cairn_subsystem_list", json!({}));
    assert_eq!(shown[0]["allow_any_host"], true);
    assert_eq!(shown[0]["hosts"], json!([a, b.raw()]));
    assert_refused(connect(&target, None, None));
    let mut listed = connect(&target, Some(1), None).unwrap();
    let stranger = target.connect("stranger");
    assert!(Host::connect(&Soft::default(), target.options("b")).is_err());
    run(&target, &["any", NQN, "off"]);
    until("the end of the stranger", || {
        let left = target.done("cairn_connection_list", json!({}));
        let left = left.as_array().unwrap();
        left.len() == 1 && left[0]["host"] == a
    });
    drop(stranger);
    assert_eq!(listed.active_namespaces().unwrap(), [1]);
    assert!(Host::connect(&Soft::default(), target.options("stranger")).is_err());
    run(&target, &["any", NQN, "on"]);
    let refused = target.command(&["host", "remove", NQN, &a]);
    assert!(!refused.status.success(), "{refused:?}");
    assert_eq!(listed.active_namespaces().unwrap(), [1]);
    drop(listed);
    assert_refused(connect(&target, None, None));
    run(&target, &["any", NQN, "off"]);
    run(&target, &["remove", NQN, &a]);
    assert!(connect(&target, Some(1), None).is_err());
    run(&target, &["add", NQN, &a]);
    drop(connect(&target, None, None).unwrap());
}

#[test]
fn the_command_sets_shows_and_removes_keys() {
    let target = start();
    let host = host(&target);
    let path = file(&target, "own", 7);
    let path = path.to_str().unwrap();
    let run = |args: &[&str]| {
        let output = target.command(&[&["host", "key"], args].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["set", NQN, &host, "--key", path, "--ctrl-key", "key:two"]);
    drop(connect(&target, Some(7), Some(2)).unwrap());
    let shown = run(&["show"]);
    assert!(shown.contains(path) && shown.contains("key:two"), "{shown}");
    assert!(!run(&["show", NQN, "nqn.2024-01.com.example:other"]).contains(path));
    file(&target, "own", 8);
    run(&["set", NQN, &host, "--key", path, "--ctrl-key", "key:two"]);
    drop(connect(&target, Some(8), Some(2)).unwrap());
    assert_refused(connect(&target, Some(7), None));
    let set = target.command(&["subsystem", "set", NQN, "--require-key", "on"]);
    assert!(set.status.success(), "{set:?}");
    run(&["remove", NQN, &host]);
    assert_refused(connect(&target, None, None));
    let refused = target.command(&[
        "host",
        "key",
        "set",
        NQN,
        &host,
        "--key",
        &secret(9).to_text(),
    ]);
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && error.contains("into a file of mode 0600"),
        "{error}"
    );
    assert_secret(&target, &(error + &target.log()));
}
