use std::fs::{self, File};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::Command;

use cairn_initiator::{Data, Event, Host, Notice, command};
use cairn_roce::Soft;
use cairn_tests::exposition::{Exposition, get};
use cairn_tests::harness::own_loopback_address;
use nvme_proto::wire::feature::AsyncEventConfig;
use serde_json::{Value, json};

use crate::target::{NQN, Steered, until};

const SIZE: u64 = 1 << 20;

fn namespace(nsid: u32, path: &Path) -> String {
    let path = path.display();
    format!("[[subsystem.namespace]]\nnsid = {nsid}\nexport = \"{path}\"\n")
}

fn make_disk(path: &Path) {
    File::create(path).unwrap().set_len(SIZE).unwrap();
}

fn missing(target: &Steered) -> Vec<(String, String)> {
    let status = target.done("cairn_status", json!({}));
    let all = status["missing"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    all.iter()
        .map(|one| (text(&one["kind"]), text(&one["reason"])))
        .collect()
}

fn host(target: &Steered) -> Host {
    let mut options = target.options("a");
    options.events = AsyncEventConfig(0).with_namespace_attribute(true);
    Host::connect(&Soft::default(), options).unwrap()
}

fn wait_for_change(host: &mut Host, nsid: u32) {
    let event = host.wait_until("the event", |host| host.take_event());
    let event = event.unwrap();
    assert!(matches!(event, Event::Notice(Notice::NamespacesChanged)));
    let changed = host.changed_namespaces().unwrap();
    assert_eq!(changed, Some(vec![nsid]));
}

#[test]
fn a_disk_that_comes_later_is_announced_and_served() {
    let mut disk = None;
    let target = Steered::start_after(|folder, _| {
        let path = folder.join("not/yet/disk");
        let more = namespace(2, &path);
        disk = Some(path);
        more
    });
    let disk = disk.unwrap();
    let [(kind, reason)] = &missing(&target)[..] else {
        panic!("one disk is missing");
    };
    assert_eq!(kind, "namespace");
    assert!(reason.contains("does not exist"), "{reason}");
    let shown = target.command(&["status"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.starts_with("degraded: 1 problem") && shown.contains("not/yet/disk"),
        "{shown}"
    );
    let mut host = host(&target);
    host.run(command::flush(1), Data::None).unwrap();
    assert_eq!(host.active_namespaces().unwrap(), [1]);
    assert!(host.run(command::flush(2), Data::None).is_err());
    fs::create_dir_all(&disk).unwrap();
    until("another reason", || {
        missing(&target)[0].1.contains("is a directory")
    });
    fs::remove_dir(&disk).unwrap();
    target.done("cairn_reload", json!({}));
    assert_eq!(missing(&target).len(), 1);
    let whole = disk.with_extension("new");
    make_disk(&whole);
    fs::rename(&whole, &disk).unwrap();
    wait_for_change(&mut host, 2);
    assert_eq!(host.active_namespaces().unwrap(), [1, 2]);
    host.run(command::flush(2), Data::None).unwrap();
    assert!(missing(&target).is_empty());
    host.shutdown().unwrap();
}

#[test]
fn a_disk_with_the_identity_of_another_is_not_shown() {
    let mut disks = None;
    let mut target = Steered::start_after(|folder, _| {
        let (first, second) = (folder.join("first"), folder.join("second"));
        make_disk(&first);
        let read_only = "read_only = true\n";
        let more = namespace(2, &first) + read_only + &namespace(3, &second) + read_only;
        disks = Some((first, second));
        more
    });
    let (first, second) = disks.unwrap();
    fs::hard_link(first, second).unwrap();
    until("the reason", || {
        missing(&target)[0].1.contains("it is the same disk")
    });
    let mut host = host(&target);
    assert_eq!(host.active_namespaces().unwrap(), [1, 2]);
    host.shutdown().unwrap();
    target.crash();
    assert!(missing(&target)[0].1.contains("it is the same disk"));
}

#[test]
fn a_busy_metrics_port_does_not_stop_the_storage() {
    let mut busy = None;
    let target = Steered::start_after(|_, address| {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let at = listener.local_addr().unwrap();
        busy = Some((listener, at));
        format!("[metrics]\nlisten = \"{at}\"\n")
    });
    let (listener, at) = busy.unwrap();
    assert_eq!(missing(&target)[0].0, "metrics");
    let mut host = host(&target);
    host.run(command::flush(1), Data::None).unwrap();
    drop(listener);
    until("the port to be served", || missing(&target).is_empty());
    let page = Exposition::scrape(at);
    let kinds = ["namespace", "listener", "metrics"];
    for kind in kinds {
        let count = page.get("cairn_missing", &[("kind", kind)]);
        assert_eq!(count, Some(0.0), "{kind}");
    }
    let (head, _) = get(at, "/healthz");
    assert!(head.contains(" 200 "), "{head}");
    let (head, body) = get(at, "/readyz");
    assert!(
        head.contains(" 200 ") && body.contains("serving 1 namespace"),
        "{head}\n{body}"
    );
    host.shutdown().unwrap();
}

#[test]
fn an_address_that_comes_later_is_listened_on() {
    if !cairn_skips::can(Command::new("unshare").args(["--net", "true"])) {
        return;
    }
    let target = Steered::start_apart(|_, _| "[[listener]]\naddress = \"192.0.2.7\"\n".to_owned());
    let kinds: Vec<String> = missing(&target).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["listener"]);
    let done = Command::new("nsenter")
        .arg(format!("--net=/proc/{}/ns/net", target.pid()))
        .args(["ip", "address", "add", "192.0.2.7/32", "dev", "lo"])
        .status();
    assert!(done.unwrap().success());
    until("the address", || missing(&target).is_empty());
    let listeners = target.done("cairn_listener_list", json!({}));
    let listeners = listeners.as_array().unwrap();
    assert_eq!(listeners.len(), 2);
    assert_eq!(listeners[1]["address"], "192.0.2.7");
    let discovery = target.done("cairn_subsystem_list", json!({}));
    assert_eq!(discovery[0]["nqn"], NQN);
}

#[test]
fn a_listener_whose_port_is_taken_names_the_way_to_free_it() {
    let mut taken = None;
    let target = Steered::start_after(|_, _| {
        let address = own_loopback_address();
        taken = Some(UdpSocket::bind((address, 4791)).unwrap());
        format!("[[listener]]\naddress = \"{address}\"\n")
    });
    let status = target.done("cairn_status", json!({}));
    let remedy = status["problems"][0]["remedy"].as_str().unwrap();
    assert!(remedy.contains("ss -lunp"), "{status}");
    assert!(!remedy.contains("address"), "{status}");
    drop(taken);
    until("the listener", || missing(&target).is_empty());
}

struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_block_device_that_grows_is_announced_without_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    make_disk(&file);
    let mut attach = Command::new("losetup");
    let device = match cairn_skips::probe(attach.args(["--find", "--show"]).arg(&file)) {
        Ok(output) => Loop(output.trim().to_owned()),
        Err(reason) => return cairn_skips::skip(format_args!("loop devices: {reason}")),
    };
    let target = Steered::start();
    let add = json!({"nqn": NQN, "export": device.0, "nsid": 2});
    target.done("cairn_namespace_add", add);
    let mut host = host(&target);
    File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_len(2 * SIZE)
        .unwrap();
    let mut grow = Command::new("losetup");
    assert!(
        grow.args(["--set-capacity", &device.0])
            .status()
            .unwrap()
            .success()
    );
    wait_for_change(&mut host, 2);
    let all = target.done("cairn_namespace_list", json!({}));
    assert_eq!(all[1]["bytes"], 2 * SIZE, "{all}");
    drop(target);
}
