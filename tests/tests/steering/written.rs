use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use cairn_control::CallError;
use serde_json::{Value, json};

use crate::target::{NQN, PATIENCE, Steered};

const EIO: i64 = -5;
const ENOSPC: i64 = -28;
const CLIENTS: usize = 100;

struct Troubled {
    target: Steered,
    faults: PathBuf,
}

impl Troubled {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap().keep();
        let library = folder.join("failing_disk.so");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&library)
            .arg(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/tests/steering/failing_disk.c"
            ))
            .arg("-ldl")
            .status()
            .unwrap();
        assert!(compiled.success());
        let preload = format!("LD_PRELOAD={}", library.display());
        let faults = format!("FAULTS={}", folder.display());
        let target = Steered::start_by(&["env", &preload, &faults]);
        Self {
            target,
            faults: folder,
        }
    }

    fn begin(&self, fault: &str) {
        fs::write(self.faults.join(fault), "").unwrap();
    }

    fn end(&self, fault: &str) {
        fs::remove_file(self.faults.join(fault)).unwrap();
    }

    fn namespaces(&self) -> Value {
        self.target.done("cairn_status", json!({}))["namespaces"].clone()
    }

    fn refused(&self) -> (i64, String) {
        match self.target.call("cairn_namespace_add", add()) {
            Err(CallError::Refused(error)) => (error.code, error.message),
            other => panic!("{other:?}"),
        }
    }

    fn assert_changes(&self, before: &str) {
        assert_eq!(self.target.done("cairn_namespace_add", add())["nsid"], 2);
        let added = "\n[[subsystem.namespace]]\nnsid = 2\nexport = \"mem:64KiB\"\n";
        assert_eq!(self.target.text(), format!("{before}{added}"));
        self.target
            .done("cairn_namespace_remove", json!({"nqn": NQN, "nsid": 2}));
        assert_eq!(self.target.text(), before);
        assert_eq!(self.namespaces(), 1);
    }
}

impl Drop for Troubled {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.faults);
    }
}

fn add() -> Value {
    json!({"nqn": NQN, "export": "mem:64KiB"})
}

#[test]
fn a_change_whose_folder_cannot_be_synced_is_in_neither_the_target_nor_the_file() {
    let troubled = Troubled::start();
    let before = troubled.target.text();
    troubled.begin("sync");
    for _ in 0..2 {
        let (code, message) = troubled.refused();
        assert_eq!(code, EIO, "{message}");
        assert!(!message.contains("still has the change"), "{message}");
        assert_eq!(troubled.target.text(), before);
        assert_eq!(troubled.namespaces(), 1);
    }
    troubled.end("sync");
    troubled.assert_changes(&before);
}

#[test]
fn a_change_that_stays_in_the_file_is_known_and_goes_with_the_next() {
    let troubled = Troubled::start();
    let before = troubled.target.text();
    troubled.begin("sync");
    troubled.begin("back");
    let (code, message) = troubled.refused();
    assert_eq!(code, EIO, "{message}");
    assert!(message.contains("still has the change"), "{message}");
    assert_ne!(troubled.target.text(), before);
    assert_eq!(troubled.namespaces(), 1);
    assert_eq!(troubled.refused().0, EIO);
    assert_eq!(troubled.namespaces(), 1);
    troubled.end("sync");
    troubled.end("back");
    troubled.assert_changes(&before);
}

#[test]
fn a_change_that_stays_in_the_file_comes_with_a_reload() {
    let troubled = Troubled::start();
    troubled.begin("sync");
    troubled.begin("back");
    troubled.refused();
    let left = troubled.target.text();
    troubled.end("sync");
    troubled.end("back");
    troubled.target.done("cairn_reload", json!({}));
    assert_eq!(troubled.namespaces(), 2);
    assert_eq!(troubled.target.text(), left);
    assert_eq!(
        troubled.target.done("cairn_namespace_add", add())["nsid"],
        3
    );
    fs::write(troubled.target.config(), &left).unwrap();
    assert_eq!(troubled.refused().0, -116);
}

#[test]
fn changes_that_a_full_disk_refuses_are_refused_together() {
    let troubled = Troubled::start();
    let before = troubled.target.text();
    let deadline = Instant::now() + PATIENCE;
    loop {
        troubled.begin("full");
        let refused = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    assert_eq!(troubled.refused().0, ENOSPC);
                    refused.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        let writes = fs::metadata(troubled.faults.join("full")).unwrap().len();
        troubled.end("full");
        assert_eq!(troubled.namespaces(), 1);
        assert_eq!(troubled.target.text(), before);
        if writes < refused.into_inner() as u64 {
            break;
        }
        assert!(Instant::now() < deadline, "each was written for itself");
    }
    troubled.assert_changes(&before);
}
