//! Named files on a hanging file system, and a FIFO.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use cairn_control::CallError;
use cairn_tests::faulty_disk::HangingFolder;
use serde_json::{Value, json};

use crate::target::{NQN, Steered};

/// Pause between requests that need no file.
const PAUSE: Duration = Duration::from_millis(20);

/// Target that may export a hanging file system, with its path and mount; `None` without FUSE.
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
        assert!(error.contains("has not answered"), "{method}: {error}");
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
    // Changes are serialized, so the next change waits for the deadline of the first.
    let namespace = json!({"nqn": NQN, "export": hung.join("namespace")});
    ends(&target, "cairn_namespace_add", namespace, |_| ());
    let size = json!({"name": "after", "num_blocks": 8, "block_size": 512});
    target.done("bdev_malloc_create", size);
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
    // The late call returns now, and its thread notices that soon.
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(error) = target.call("cairn_reload", json!({})) {
        assert!(Instant::now() < deadline, "reloads fail for good: {error}");
        sleep(PAUSE);
    }
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
            assert!(error.to_string().contains("no regular file"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    fs::remove_file(&config).unwrap();
    fs::write(&config, text).unwrap();
    target.done("cairn_reload", json!({}));
}
