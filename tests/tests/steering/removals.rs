use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cairn_initiator::{Host, HostError, HostOptions, Identity, Secret, Secrets};
use cairn_roce::Soft;
use cairn_tests::harness::{host_nqn, nqn};
use serde_json::json;

use crate::target::Steered;

const KEYED: &str = "nqn.2024-01.com.example:keyed";
const OPEN: &str = "nqn.2024-01.com.example:open";
const UUID: &str = "0d9f2f4e-6d1c-4b7e-9a57-5a4f3b2c1d0e";
const EPERM: i64 = -1;

fn secret() -> Secret {
    Secret::generate(32, None, &mut |bytes| bytes.fill(5))
}

fn host() -> String {
    host_nqn("a").raw().to_owned()
}

fn start() -> Steered {
    Steered::start_logged_after(|folder: &Path, _: Ipv4Addr| {
        let key = folder.join("a.key");
        fs::write(&key, secret().to_text().as_bytes()).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let (host, key) = (host(), key.display());
        format!(
            "[[host_group]]\nname = \"db\"\nhosts = [\"{host}\", \"nqn.2024-01.com.example:b\"]\n\
             [[subsystem]]\nnqn = \"{KEYED}\"\nallowed_hosts = [\"{host}\", \"@db\"]\n\
             [[subsystem.host]]\nnqn = \"{host}\"\ndhchap_key = \"{key}\"\n\
             [[subsystem.namespace]]\nnsid = 1\nexport = \"mem:1MiB\"\n\
             [[subsystem]]\nnqn = \"{OPEN}\"\nallow_any_host = true\nallowed_hosts = [\"{host}\"]\n\
             [[subsystem.host]]\nnqn = \"{host}\"\ndhchap_key = \"{key}\"\n\
             [[subsystem.namespace]]\nnsid = 1\nexport = \"mem:1MiB\"\n"
        )
    })
}

fn options(target: &Steered, to: &str, with_key: bool) -> HostOptions {
    let address = std::net::SocketAddr::from((target.address, 4420));
    let authentication = with_key.then(|| Secrets {
        host: secret(),
        controller: None,
    });
    HostOptions {
        authentication,
        kato_ms: 0,
        ..HostOptions::new(address, nqn(to), Identity::named(host_nqn("a")))
    }
}

fn connect(target: &Steered, to: &str, with_key: bool) -> Result<Host, HostError> {
    Host::connect(&Soft::default(), options(target, to, with_key))
}

struct Connected {
    stop: Arc<AtomicBool>,
    polling: Option<JoinHandle<()>>,
}

impl Connected {
    fn to(target: &Steered, to: &str) -> Self {
        let options = options(target, to, true);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (connected, is_connected) = mpsc::channel();
        let polling = thread::spawn(move || {
            let mut host = Host::connect(&Soft::default(), options).unwrap();
            connected.send(()).unwrap();
            while !stopped.load(Relaxed) {
                host.poll();
                thread::sleep(Duration::from_millis(1));
            }
        });
        is_connected.recv().unwrap();
        let polling = Some(polling);
        Self { stop, polling }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.polling.take().map(JoinHandle::join);
    }
}

fn assert_needs_key(target: &Steered, to: &str) {
    match connect(target, to, false) {
        Err(HostError::NotAuthenticated { .. }) => {}
        other => panic!("{to}: {other:?}"),
    }
}

#[test]
fn no_removal_lets_a_host_in_without_its_key() {
    let target = start();
    for to in [KEYED, OPEN] {
        assert_needs_key(&target, to);
        let before = target.text();
        let params = json!({"nqn": to, "host": host()});
        assert_eq!(target.refused("cairn_host_key_remove", params), EPERM);
        assert_eq!(target.text(), before);
        assert_needs_key(&target, to);
    }
    for method in ["cairn_host_remove", "nvmf_subsystem_remove_host"] {
        let params = json!({"nqn": OPEN, "host": host()});
        assert_eq!(target.refused(method, params), EPERM, "{method}");
        assert_needs_key(&target, OPEN);
    }
    target.done("cairn_host_remove", json!({"nqn": KEYED, "host": host()}));
    assert_needs_key(&target, KEYED);
    drop(connect(&target, KEYED, true).unwrap());
    let hosts = json!({"name": "db", "hosts": [host()]});
    target.done("cairn_host_group_remove", hosts);
    assert!(connect(&target, KEYED, true).is_err());
    assert!(connect(&target, KEYED, false).is_err());
    let keys = target.done("cairn_host_key_list", json!({"nqn": KEYED}));
    assert_eq!(keys, json!([]));
    assert_needs_key(&target, OPEN);
}

#[test]
fn a_removal_by_spdk_logs_the_key_that_is_lost() {
    let target = start();
    let of_group = json!({"name": "db", "hosts": [host()]});
    target.done("cairn_host_group_remove", of_group);
    let params = json!({"nqn": KEYED, "host": host()});
    assert_eq!(target.done("nvmf_subsystem_remove_host", params), true);
    let log = target.log();
    assert!(log.contains("loses its key"), "{log}");
}

#[test]
fn a_host_without_a_key_is_refused_where_one_is_required() {
    let target = start();
    for to in [KEYED, OPEN] {
        let params = json!({"nqn": to, "require_key": true});
        target.done("cairn_subsystem_set", params);
        let connected = Connected::to(&target, to);
        let params = json!({"nqn": to, "host": host()});
        let removed = target.done("cairn_host_key_remove", params);
        let [warning] = &removed["warnings"].as_array().unwrap()[..] else {
            panic!("{removed}");
        };
        let warning = warning.as_str().unwrap();
        assert!(warning.starts_with(&host()), "{warning}");
        assert!(warning.contains("because it has no key: "), "{warning}");
        drop(connected);
        assert_needs_key(&target, to);
        assert!(connect(&target, to, true).is_err());
        let hosts = target.done("cairn_host_list", json!({"nqn": to}));
        assert_eq!(hosts["hosts"][0]["authenticates"], true);
    }
    let shown = target.command(&["subsystem", "set", OPEN, "--require-key", "off"]);
    assert!(shown.status.success(), "{shown:?}");
    drop(connect(&target, OPEN, false).unwrap());
}

fn stderr_of(target: &Steered, args: &[&str]) -> String {
    let output = target.command(args);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{args:?}: {error}");
    error
}

#[test]
fn a_removal_names_the_keys_and_restrictions_that_it_removes() {
    let target = start();
    let said = |args: &[&str]| stderr_of(&target, args);
    let host = host();
    let key = target.folder.path().join("a.key").display().to_string();
    let add = format!("cairn-target host add {KEYED} {host} --key {key}");
    let removed = said(&["host", "remove", KEYED, &host]);
    let other =
        format!("by the host group \"db\": to end that: cairn-target host group remove db {host}");
    assert!(
        removed.contains("can still connect") && removed.contains(&other),
        "{removed}"
    );
    let removed = said(&["host", "group", "remove", "db", &host]);
    assert!(removed.contains(&add), "{removed}");
    let words: Vec<&str> = add.split(' ').skip(1).collect();
    said(&words);
    assert_needs_key(&target, KEYED);
    let removed = said(&["host", "remove", KEYED, &host]);
    assert!(removed.contains(&add), "{removed}");
    let add = ["namespace", "add", KEYED, "mem:1MiB", "--nsid", "5"];
    said(&[&add[..], &["--read-only", "--host", &host]].concat());
    let removed = said(&["namespace", "remove", KEYED, "5"]);
    for word in ["loses its restrictions", "read_only = true", &host] {
        assert!(removed.contains(word), "{word}: {removed}");
    }
    said(&["namespace", "add", KEYED, "mem:1MiB", "--nsid", "5"]);
    let lost = format!("warning: namespace 5 of {KEYED} was memory: its contents are lost\n");
    assert_eq!(said(&["namespace", "remove", KEYED, "5"]), lost);
    let removed = said(&["subsystem", "remove", OPEN]);
    assert!(removed.contains("loses its key"), "{removed}");
}

#[test]
fn a_removal_names_the_hosts_that_it_disconnects_or_leaves() {
    let target = start();
    let said = |args: &[&str]| stderr_of(&target, args);
    let host = host();
    let _connected = Connected::to(&target, KEYED);
    said(&["host", "remove", KEYED, &host]);
    let removed = said(&["host", "group", "remove", "db", &host]);
    assert!(
        removed.contains("was connected, and cannot connect again"),
        "{removed}"
    );
    let added = said(&["host", "group", "add", "new", &host]);
    let unused = "cairn-target host add NQN @new";
    assert!(
        added.contains(unused) && added.contains("no list names"),
        "{added}"
    );
    assert!(!said(&["host", "group", "add", "empty"]).contains("unchanged"));
    assert!(said(&["host", "group", "add", "empty"]).contains("unchanged"));
    let refused = target.command(&["host", "group", "remove", "db"]);
    let refused = String::from_utf8(refused.stderr).unwrap();
    let remedy = format!("cairn-target host remove {KEYED} @db");
    assert!(refused.contains(&remedy), "{refused}");
    let removed = said(&["host", "remove", KEYED, "@db"]);
    assert!(!removed.contains("still"), "{removed}");
    let refused = target.command(&["host", "remove", OPEN, "nqn.2024-01.com.example:b"]);
    let refused = String::from_utf8(refused.stderr).unwrap();
    let remedy = format!("cairn-target host any {OPEN} off");
    assert!(refused.contains(&remedy), "{refused}");
    let _connected = Connected::to(&target, OPEN);
    let set = said(&["namespace", "set", OPEN, "1", "--uuid", UUID]);
    assert!(
        set.contains("finds another disk behind namespace 1"),
        "{set}"
    );
    let set = said(&["namespace", "set", OPEN, "1", "--no-host"]);
    assert!(
        set.contains(&host) && set.contains("no longer sees namespace 1"),
        "{set}"
    );
    assert_eq!(said(&["namespace", "set", OPEN, "1", "--name", "a"]), "");
    let open = ["namespace", "set", OPEN, "1", "--every-host"];
    said(&open);
    let removed = said(&["namespace", "remove", OPEN, "1"]);
    let sentence = format!("{host} is connected, and loses namespace 1 of {OPEN}");
    assert!(removed.contains(&sentence), "{removed}");
    assert!(removed.contains("its contents are lost"), "{removed}");
    let refused = target.command(&["subsystem", "remove", OPEN]);
    let refused = String::from_utf8(refused.stderr).unwrap();
    let remedy = format!("cairn-target subsystem remove {OPEN} --force");
    assert!(refused.contains(&remedy), "{refused}");
    let removed = said(&["subsystem", "remove", OPEN, "--force"]);
    assert!(
        removed.contains("was connected to") && removed.contains(&host),
        "{removed}"
    );
    said(&["host", "add", KEYED, &host]);
    let _connected = Connected::to(&target, KEYED);
    let removed = said(&["listener", "remove", &target.address.to_string()]);
    let sentence = format!("{host} was connected through {}", target.address);
    assert!(removed.contains(&sentence), "{removed}");
}

#[test]
fn the_last_listener_of_a_subsystem_is_not_removed_silently() {
    let target = start();
    let address = target.address.to_string();
    let second = format!("{address}:4421");
    let run = |args: &[&str]| {
        let output = target.command(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        output
    };
    run(&["listener", "add", &second]);
    run(&["subsystem", "set", OPEN, "--listener", &second]);
    let removed = run(&["listener", "remove", &second]).stderr;
    let removed = String::from_utf8(removed).unwrap();
    assert!(removed.contains("--every-listener"), "{removed}");
    let list = String::from_utf8(run(&["subsystem", "list"]).stdout).unwrap();
    let shown = |nqn: &str, word: &str| {
        let mut lines = list.lines();
        lines.any(|line| line.contains(nqn) && line.split_whitespace().any(|one| one == word))
    };
    assert!(shown(OPEN, "none") && shown(KEYED, "all"), "{list}");
}

#[test]
fn a_mistyped_subsystem_is_answered_with_the_nearest() {
    let target = start();
    let typed = OPEN.replace("open", "opne");
    for args in [
        &["namespace", "add", &typed, "mem:1MiB"][..],
        &["host", "list", &typed],
        &["limit", "set", &typed, "--iops", "5"],
        &["subsystem", "remove", &typed],
    ] {
        let output = target.command(args);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && error.contains(&format!("did you mean {OPEN}?")),
            "{args:?}: {error}"
        );
    }
}

#[test]
fn a_new_configuration_names_the_hosts_that_it_affects() {
    let target = start();
    let host = host();
    let said = |args: &[&str]| {
        let output = target.command(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        let [out, err] = [output.stdout, output.stderr].map(|one| String::from_utf8(one).unwrap());
        out + &err
    };
    let _keyed = Connected::to(&target, KEYED);
    let _open = Connected::to(&target, OPEN);
    let text = target.text();
    let start = text
        .find(&format!("[[subsystem]]\nnqn = \"{KEYED}\""))
        .unwrap();
    let end = text
        .find(&format!("[[subsystem]]\nnqn = \"{OPEN}\""))
        .unwrap();
    fs::write(target.config(), text[..start].to_owned() + &text[end..]).unwrap();
    let reloaded = said(&["reload"]);
    let sentence = format!("{host} was connected to {KEYED}, and is disconnected");
    assert!(reloaded.contains(&sentence), "{reloaded}");
    let other = format!("{}:4421", target.address);
    said(&["listener", "add", &other]);
    let set = said(&["subsystem", "set", OPEN, "--listener", &other]);
    let sentence = format!(
        "{host} was connected to {OPEN} through {}:4420, and is disconnected there",
        target.address
    );
    assert!(set.contains(&sentence), "{set}");
    let text = target.text();
    let start = text.find("[[subsystem.host]]").unwrap();
    let end = start + text[start..].find("[[subsystem.namespace]]").unwrap();
    fs::write(target.config(), text[..start].to_owned() + &text[end..]).unwrap();
    let reloaded = said(&["reload"]);
    let sentence = format!("{host} can connect to {OPEN} without a key now");
    assert!(reloaded.contains(&sentence), "{reloaded}");
}
