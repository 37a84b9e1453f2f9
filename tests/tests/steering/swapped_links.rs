//! Links in folders of `[control] exports` that change while the target runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::pools::{make, make_whole};
use crate::target::{NQN, Steered, until};

const EACCES: i64 = -13;
const NSID: u32 = 7;

const PERMITTED: u64 = 1 << 20;
const SECRET: u64 = 2 << 20;

const TRIES: u32 = 48;

struct Rig {
    folder: TempDir,
    target: Steered,
}

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let images = folder.path().join("images");
        fs::create_dir(&images).unwrap();
        make(&images.join("disk"), PERMITTED);
        make(&folder.path().join("secret"), SECRET);
        symlink(images.join("disk"), images.join("link")).unwrap();
        let target = Steered::start_with(&format!("exports = [{images:?}]\n"));
        Self { folder, target }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn lead_to(&self, name: &str) {
        symlink(self.at(name), self.at("images/next")).unwrap();
        fs::rename(self.at("images/next"), self.at("images/link")).unwrap();
    }

    fn add(&self) -> Value {
        json!({"nqn": NQN, "nsid": NSID, "export": self.at("images/link")})
    }

    fn served(&self) -> Vec<u64> {
        let all = self.target.done("cairn_namespace_list", json!({}));
        let all = all.as_array().unwrap().iter();
        let all = all.filter(|one| one["nsid"] != 1 && one["state"] != "missing");
        all.filter_map(|one| one["bytes"].as_u64()).collect()
    }

    fn reasons(&self) -> String {
        self.target.done("cairn_status", json!({}))["missing"].to_string()
    }
}

#[test]
fn a_link_that_changes_during_requests_exports_nothing_else() {
    let rig = Rig::new();
    let (link, other) = (rig.at("images/link"), rig.at("images/other"));
    symlink(rig.at("secret"), &other).unwrap();
    let is_over = AtomicBool::new(false);
    let remove = json!({"nqn": NQN, "nsid": NSID});
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                renameat_with(CWD, &link, CWD, &other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        for _ in 0..TRIES {
            let added = rig.target.call("cairn_namespace_add", rig.add());
            let served = rig.served();
            if served.contains(&SECRET) {
                is_over.store(true, Ordering::Relaxed);
                panic!("the secret disk is exported");
            }
            if added.is_ok() {
                assert_eq!(served, [PERMITTED]);
                rig.target.done("cairn_namespace_remove", remove.clone());
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    rig.lead_to("images/disk");
    rig.target.done("cairn_namespace_add", rig.add());
    assert_eq!(rig.served(), [PERMITTED]);
}

#[test]
fn a_disk_that_is_opened_again_is_checked_again() {
    let mut rig = Rig::new();
    rig.target.done("cairn_namespace_add", rig.add());
    rig.lead_to("secret");
    let read_only = json!({"nqn": NQN, "nsid": NSID, "read_only": true});
    let refused = rig.target.refused("cairn_namespace_set", read_only.clone());
    assert_eq!(refused, EACCES);
    assert_eq!(rig.served(), [PERMITTED]);
    rig.target.crash();
    assert_eq!(rig.served(), [0_u64; 0]);
    let reasons = rig.reasons();
    assert!(reasons.contains("[control] exports"), "{reasons}");
    rig.target.done("cairn_reload", json!({}));
    assert_eq!(rig.served(), [0_u64; 0]);
    rig.lead_to("images/disk");
    until("the permitted disk", || rig.served() == [PERMITTED]);
    rig.target.done("cairn_namespace_set", read_only);
    assert_eq!(rig.served(), [PERMITTED]);
}

#[test]
fn a_directory_that_becomes_a_link_shows_no_other_files() {
    let rig = Rig::new();
    let (pool, secrets) = (rig.at("images/pool"), rig.at("secrets"));
    for (folder, name) in [(&pool, "a"), (&secrets, "b")] {
        fs::create_dir(folder).unwrap();
        make_whole(folder, name);
    }
    let export = format!("dir:{}", pool.display());
    let add = json!({"nqn": NQN, "nsid": 100, "export": export});
    rig.target.done("cairn_namespace_add", add);
    until("the file", || rig.served() == [PERMITTED]);
    fs::rename(&pool, rig.at("images/former")).unwrap();
    symlink(&secrets, &pool).unwrap();
    until("a reason", || rig.reasons().contains("[control] exports"));
    assert_eq!(rig.served(), [0_u64; 0]);
    let names = fs::read_dir(&secrets).unwrap();
    assert_eq!(names.count(), 1, "the target has written there");
}
