//! Configuration paths that block: a hung file system, and a FIFO.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use cairn_control::CallError;
use cairn_initiator::{Data, Host, command};
use cairn_roce::Soft;
use cairn_tests::faulty_disk::{Fault, FaultyDisk, HangingFolder, Op, Rule};
use cairn_tests::process::program;
use serde_json::{Value, json};

use crate::target::{NQN, Steered, until};

const PAUSE: Duration = Duration::from_millis(20);

fn start() -> Option<(tempfile::TempDir, PathBuf, Steered, HangingFolder)> {
    let folder = tempfile::tempdir().unwrap();
    let hung = folder.path().join("hung");
    fs::create_dir(&hung).unwrap();
    let target = Steered::start_with(&format!("exports = [{hung:?}]\n"));
    let hanging = HangingFolder::mount(&hung)?;
    Some((folder, hung, target, hanging))
}

fn ends(target: &Steered, method: &str, params: Value, others: impl Fn(u32)) {
    scope(|scope| {
        let late = scope.spawn(|| target.call(method, params));
        let mut answered = 0;
        while !late.is_finished() {
            target.done("cairn_status", json!({}));
            others(answered);
            answered += 1;
            sleep(PAUSE);
        }
        assert!(answered > 10, "{method}: {answered} other requests");
        let error = late.join().unwrap().unwrap_err().to_string();
        assert!(error.contains("has not responded"), "{method}: {error}");
    });
}

#[test]
fn a_client_that_names_a_file_on_a_hung_file_system_stops_no_other() {
    let Some((_folder, hung, target, hanging)) = start() else {
        return;
    };
    let change = |number: u32| {
        if number.is_multiple_of(50) {
            let name = format!("memory{number}");
            let size = json!({"name": name, "num_blocks": 8, "block_size": 512});
            target.done("bdev_malloc_create", size);
            target.done("bdev_malloc_delete", json!({"name": name}));
        }
    };
    let disk = json!({"name": "disk", "filename": hung.join("disk"), "block_size": 512});
    let key = json!({"name": "key", "path": hung.join("key")});
    scope(|scope| {
        scope.spawn(|| ends(&target, "bdev_aio_create", disk, change));
        scope.spawn(|| ends(&target, "keyring_file_add_key", key, |_| ()));
    });
    let namespace = json!({"nqn": NQN, "export": hung.join("namespace")});
    ends(&target, "cairn_namespace_add", namespace, |_| ());
    let size = json!({"name": "after", "num_blocks": 8, "block_size": 512});
    target.done("bdev_malloc_create", size);
    drop(hanging);
}

#[test]
fn own_files_on_a_hung_file_system_keep_no_disk_closed() {
    let folder = tempfile::tempdir().unwrap();
    let [hung, disk] = ["hung", "disk"].map(|name| folder.path().join(name));
    fs::create_dir(&hung).unwrap();
    fs::File::create(&disk).unwrap().set_len(1 << 20).unwrap();
    let audit = format!("[audit]\nfile = {:?}\n", hung.join("audit.json"));
    let target = Steered::start_with(&audit);
    let Some(hanging) = HangingFolder::mount(&hung) else {
        return;
    };
    let add = |export: PathBuf| {
        let params = json!({"nqn": NQN, "export": export});
        target.call("cairn_namespace_add", params)
    };
    let refused = add(target.config()).unwrap_err().to_string();
    assert!(refused.contains("its configuration file"), "{refused}");
    add(disk).unwrap();
    drop(hanging);
}

#[test]
fn a_reload_that_needs_a_hung_file_system_ends() {
    let Some((_folder, hung, target, hanging)) = start() else {
        return;
    };
    let (config, text) = (target.config(), target.text());
    let key = format!(
        "\n[[subsystem]]\nnqn = \"nqn.2024-01.com.example:locked\"\nallow_any_host = true\ndhchap_key = {:?}\n",
        hung.join("key")
    );
    fs::write(&config, format!("{text}{key}")).unwrap();
    ends(&target, "cairn_reload", json!({}), |_| ());
    fs::remove_file(&config).unwrap();
    symlink(hung.join("target.toml"), &config).unwrap();
    ends(&target, "cairn_reload", json!({}), |_| ());
    fs::remove_file(&config).unwrap();
    fs::write(&config, text).unwrap();
    drop(hanging);
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(error) = target.call("cairn_reload", json!({})) {
        assert!(Instant::now() < deadline, "reloads fail for good: {error}");
        sleep(PAUSE);
    }
}

#[test]
fn a_refused_change_whose_file_cannot_be_removed_stops_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let [hung, apart] = ["hung", "apart"].map(|name| folder.path().join(name));
    for place in [&hung, &apart] {
        fs::create_dir(place).unwrap();
    }
    let target = Steered::start();
    let (config, real) = (target.config(), apart.join("target.toml"));
    fs::copy(&config, &real).unwrap();
    fs::remove_file(&config).unwrap();
    symlink(&real, &config).unwrap();
    let Some(hanging) = HangingFolder::mount(&hung) else {
        return;
    };
    let add = json!({"nqn": NQN, "export": hung.join("namespace")});
    let mut also = None;
    scope(|scope| {
        let late = scope.spawn(|| target.call("cairn_namespace_add", add));
        while !late.is_finished() {
            target.done("cairn_status", json!({}));
            if also.is_none() && apart.join("target.toml.new").exists() {
                also = Some(HangingFolder::mount(&apart).unwrap());
            }
            sleep(PAUSE);
        }
        late.join().unwrap().unwrap_err();
    });
    assert!(also.is_some(), "no temporary file was written");
    target.done("cairn_status", json!({}));
    drop((also, hanging));
    let deadline = Instant::now() + Duration::from_secs(60);
    let size = json!({"name": "after", "num_blocks": 8, "block_size": 512});
    while let Err(error) = target.call("bdev_malloc_create", size.clone()) {
        assert!(Instant::now() < deadline, "changes fail for good: {error}");
        sleep(PAUSE);
    }
}

#[test]
fn a_missing_disk_in_a_hung_folder_does_not_stop_the_watch_for_other_parts() {
    let (mut hung, mut busy) = (PathBuf::new(), None);
    let target = Steered::start_after(|folder, address| {
        hung = folder.join("hung");
        fs::create_dir(&hung).unwrap();
        let listener = TcpListener::bind((address, 0)).unwrap();
        let at = listener.local_addr().unwrap();
        busy = Some(listener);
        let disk = hung.join("disk");
        format!(
            "[[subsystem.namespace]]\nnsid = 2\nexport = {disk:?}\n[metrics]\nlisten = \"{at}\"\n"
        )
    });
    let missing = || target.done("cairn_status", json!({}))["missing"].to_string();
    assert!(missing().contains("metrics") && missing().contains("disk"));
    let Some(hanging) = HangingFolder::mount(&hung) else {
        return;
    };
    drop(busy);
    let deadline = Instant::now() + Duration::from_secs(60);
    while missing().contains("metrics") {
        assert!(Instant::now() < deadline, "{}", missing());
        sleep(PAUSE);
    }
    assert!(missing().contains("disk"));
    drop(hanging);
}

#[test]
fn a_check_of_files_on_a_hung_file_system_ends() {
    let folder = tempfile::tempdir().unwrap();
    let hung = folder.path().join("hung");
    fs::create_dir(&hung).unwrap();
    let Some(hanging) = HangingFolder::mount(&hung) else {
        return;
    };
    let at = |name: &str| hung.join(name);
    let check = |config: PathBuf, control: PathBuf, more: &str| {
        let text = format!(
            "[control]\nsocket = {control:?}\n[[listener]]\naddress = \"127.0.0.1\"\n\
             [[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n{more}"
        );
        if config != at("target.toml") {
            fs::write(&config, text).unwrap();
        }
        let checked = Command::new("timeout")
            .arg("120")
            .arg(program("cairn-target-process"))
            .arg("check")
            .arg(&config)
            .output()
            .unwrap();
        let said = String::from_utf8(checked.stderr).unwrap();
        assert_ne!(checked.status.code(), Some(124), "{config:?} hangs: {said}");
        assert!(said.contains("has not responded"), "{config:?}: {said}");
    };
    let disk = |nsid| {
        let export = at(&format!("disk{nsid}"));
        format!("[[subsystem.namespace]]\nnsid = {nsid}\nexport = {export:?}\n")
    };
    let disks: String = (1..=9).map(disk).collect();
    let audit = format!("[audit]\nfile = {:?}\n", at("audit"));
    let here = |name: &str| folder.path().join(name);
    let off = || PathBuf::from("off");
    scope(|scope| {
        scope.spawn(|| check(here("disks"), off(), &disks));
        scope.spawn(|| check(here("audit"), off(), &audit));
        scope.spawn(|| check(here("socket"), at("target.sock"), ""));
        scope.spawn(|| check(at("target.toml"), off(), ""));
    });
    drop(hanging);
}

#[test]
fn a_reload_that_leaves_commands_at_a_hung_disk_is_in_force() {
    let Some(disk) = FaultyDisk::mount("unsettled", 1 << 20) else {
        return;
    };
    let export = disk.path().display().to_string();
    let target = Steered::start_logged_after(|_, _| {
        format!("[[subsystem.namespace]]\nnsid = 2\nexport = \"{export}\"\nblock_size = 4096\n")
    });
    let mut host = Host::connect(&Soft::default(), target.options("host")).unwrap();
    disk.begin(Rule::new(Op::Write, Fault::Hold));
    let buffer = host.buffer(4096).unwrap();
    let ticket = host.submit(command::write(2, 0, 1), Data::whole(buffer));
    until("the write at the disk", || {
        host.poll();
        disk.waiting(Op::Write) > 0
    });
    let removed = target.text().replace("nsid = 2", "nsid = 3");
    fs::write(target.config(), removed).unwrap();
    let changes = target.done("cairn_reload", json!({}))["changes"].to_string();
    assert!(changes.contains("still have earlier commands"), "{changes}");
    let log = target.log();
    assert!(!log.contains("stays in use"), "{log}");
    disk.heal();
    host.forget(ticket.unwrap());
}

#[test]
fn a_fifo_in_place_of_the_configuration_file_stops_no_later_reload() {
    let target = Steered::start();
    let (config, text) = (target.config(), target.text());
    fs::remove_file(&config).unwrap();
    let made = Command::new("mkfifo").arg(&config).status().unwrap();
    assert!(made.success());
    match target.call("cairn_reload", json!({})) {
        Err(CallError::Refused(error)) => {
            assert!(error.to_string().contains("not a regular file"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    fs::remove_file(&config).unwrap();
    fs::write(&config, text).unwrap();
    target.done("cairn_reload", json!({}));
}
