//! Directories that hang, are full or read-only, or contain hostile names and files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cairn_initiator::Host;
use cairn_tests::exposition::Exposition;
use cairn_tests::faulty_disk::HangingFolder;
use serde_json::json;

use crate::pools::{
    FIRST, SIZE, assert_event, first_byte, host, make, make_whole, put, start, start_alone,
    wait_for,
};
use crate::target::{Steered, until};

fn missing(target: &Steered) -> Vec<String> {
    let status = target.done("cairn_status", json!({}));
    let all = status["missing"].as_array().unwrap().iter();
    let directories = all.filter(|one| one["kind"] == "directory");
    directories
        .map(|one| one["reason"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_directory_that_hangs_keeps_nothing_else() {
    let (mut target, pool) = start(&["a"]);
    let mut host = host(&target);
    wait_for(&mut host, &[1, 100, 104]);
    put(&mut host, 100, 5);
    let Some(hanging) = HangingFolder::mount(&pool) else {
        return;
    };
    std::thread::scope(|scope| {
        let reload = scope.spawn(|| target.done("cairn_reload", json!({})));
        let mut answered = 0;
        while !reload.is_finished() {
            target.done("cairn_status", json!({}));
            assert_eq!(first_byte(&mut host, 100), 5);
            answered += 1;
        }
        assert!(answered > 10, "{answered}");
        reload.join().unwrap();
    });
    let shown = missing(&target);
    assert!(shown[0].contains("does not answer"), "{shown:?}");
    assert_eq!(shown.len(), 1);
    assert_eq!(host.active_namespaces().unwrap(), [1, 100, 104]);
    assert_eq!(first_byte(&mut host, 100), 5);
    drop(hanging);
    until("an answer", || missing(&target).is_empty());
    make_whole(&pool, "b");
    wait_for(&mut host, &[1, 100, 101, 104]);
    host.disconnect().unwrap();

    let hanging = HangingFolder::mount(&pool).unwrap();
    target.crash();
    let mut host = crate::pools::host(&target);
    assert_eq!(host.active_namespaces().unwrap(), [1, 104]);
    assert!(missing(&target)[0].contains("does not answer"));
    drop(hanging);
    wait_for(&mut host, &[1, 100, 101, 104]);
    assert_eq!(first_byte(&mut host, 100), 5);
    until("an answer", || missing(&target).is_empty());
    host.disconnect().unwrap();
}

#[test]
fn those_that_fit_are_served_and_the_others_come_when_there_is_room() {
    let mut pool = PathBuf::new();
    let target = Steered::start_after(|folder, address| {
        pool = folder.join("pool");
        fs::create_dir(&pool).unwrap();
        for name in ["a", "b", "c", "d", "e", "f"] {
            make_whole(&pool, name);
        }
        let next = "[[subsystem.namespace]]\nnsid = 104\nexport = \"mem:1MiB\"\n";
        format!(
            "{}{next}[metrics]\nlisten = \"{address}\"\n",
            pool_of(&pool)
        )
    });
    let mut host = host(&target);
    wait_for(&mut host, &[1, 100, 101, 102, 103, 104]);
    let [reason] = &missing(&target)[..] else {
        panic!("{:?}", missing(&target));
    };
    assert!(
        reason.ends_with("2 left out, as the NSIDs 100 to 103 are all in use: e, f"),
        "{reason}"
    );
    let page = Exposition::scrape((target.address, 9464).into());
    let directory = [("subsystem", crate::target::NQN), ("nsid", "100")];
    assert_eq!(
        page.get("cairn_directory_left_out_files", &directory),
        Some(2.0)
    );
    assert_eq!(
        page.get("cairn_missing", &[("kind", "directory")]),
        Some(1.0)
    );

    put(&mut host, 102, 3);
    fs::remove_file(pool.join("a")).unwrap();
    until("room", || missing(&target)[0].ends_with(": f"));
    wait_for(&mut host, &[1, 100, 101, 102, 103, 104]);
    assert_event(&mut host);
    assert_eq!(first_byte(&mut host, 102), 3);
    fs::remove_file(pool.join("b")).unwrap();
    until("room for all", || missing(&target).is_empty());
    wait_for(&mut host, &[1, 100, 101, 102, 103, 104]);

    fs::remove_dir_all(&pool).unwrap();
    wait_for(&mut host, &[1, 104]);
    assert!(missing(&target)[0].contains("does not exist"));
    fs::create_dir(&pool).unwrap();
    make_whole(&pool, "g");
    wait_for(&mut host, &[1, 100, 104]);
    assert_eq!(first_byte(&mut host, 100), 0);
    host.disconnect().unwrap();
}

#[test]
fn the_limit_on_open_files_leaves_room_for_all_else() {
    const FILES: usize = 90;
    let mut pool = PathBuf::new();
    let target = Steered::start_limited_after(400, |folder, _| {
        pool = folder.join("pool");
        fs::create_dir(&pool).unwrap();
        for index in 0..FILES {
            make_whole(&pool, &format!("{index:02}"));
        }
        pool_of(&pool)
    });
    let mut host = host(&target);
    until("a full process", || !missing(&target).is_empty());
    let reason = &missing(&target)[0];
    assert!(reason.contains("the limit on open files"), "{reason}");
    assert!(reason.contains("and 10 more"), "{reason}");
    let served = host.active_namespaces().unwrap();
    assert_eq!(served.len(), 1 + FILES - 18);
    fs::remove_file(pool.join("00")).unwrap();
    until("room for one", || {
        missing(&target)[0].contains("and 9 more")
    });
    assert_eq!(host.active_namespaces().unwrap().len(), served.len());
    host.disconnect().unwrap();
}

#[test]
fn a_file_is_served_once_its_writer_has_closed_it() {
    let (target, pool) = start_alone();
    let mut host = host(&target);
    let mut half = File::create(pool.join("half")).unwrap();
    half.set_len(SIZE).unwrap();
    half.write_all(&[9; 4096]).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    make_whole(&pool, "whole");
    wait_for(&mut host, &[1, 100]);
    assert_eq!(first_byte(&mut host, 100), 0);
    drop(half);
    wait_for(&mut host, &[1, 100, 101]);
    assert_eq!(first_byte(&mut host, 101), 9);
    host.disconnect().unwrap();
}

#[test]
fn names_end_no_line_of_the_log_and_change_no_terminal() {
    let mut pool = PathBuf::new();
    let target = Steered::start_logged_after(|folder, _| {
        pool = folder.join("pool");
        fs::create_dir(&pool).unwrap();
        pool_of(&pool)
    });
    let mut host = host(&target);
    make(&pool.join("a\nERROR forged"), SIZE);
    make(&pool.join("b\u{1b}[31mred"), SIZE);
    make(&pool.join("c\u{202e}turned"), SIZE);
    make(&pool.join("d e\u{301} ü"), SIZE);
    make(&pool.join(".hidden"), SIZE);
    wait_for(&mut host, &[1, 100]);
    let log = target.log();
    for escaped in ["a\\nERROR forged", "b\\u{1b}[31mred", "c\\u{202e}turned"] {
        assert!(log.contains(escaped), "{escaped}: {log}");
    }
    assert!(!log.contains("\nERROR forged"), "{log}");
    assert!(
        !log.contains("\u{1b}[31mred") && !log.contains('\u{202e}'),
        "{log}"
    );
    assert!(!log.contains("hidden"), "{log}");
    host.disconnect().unwrap();
}

fn pool_of(pool: &Path) -> String {
    let pool = pool.display();
    format!("[[subsystem.namespace]]\nnsid = {FIRST}\nexport = \"dir:{pool}\"\n")
}

struct View<'p>(&'p Path);

impl<'p> View<'p> {
    #[track_caller]
    fn mount(of: &Path, at: &'p Path) -> Option<Self> {
        cairn_skips::can(&mut mount("bind", of, at)).then(|| Self(at))
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).output();
    }
}

fn mount(options: &str, of: &Path, at: &Path) -> Command {
    let mut command = Command::new("mount");
    command.args(["-o", options]).args([of, at]);
    command
}

fn uuids(host: &mut Host) -> BTreeMap<u32, Option<[u8; 16]>> {
    let nsids = host.active_namespaces().unwrap();
    let one = |nsid| (nsid, host.open_namespace(nsid).unwrap().uuid);
    nsids.into_iter().map(one).collect()
}

#[test]
fn a_directory_that_cannot_be_written_has_the_same_numbers_at_each_start() {
    let scratch = tempfile::tempdir().unwrap();
    let [store, sealed, pool] = ["store", "sealed", "pool"].map(|name| scratch.path().join(name));
    for folder in [&store, &sealed, &pool] {
        fs::create_dir(folder).unwrap();
    }
    for name in ["a", "b", "c"] {
        make_whole(&store, name);
    }
    std::thread::sleep(Duration::from_millis(2500));
    let Some(_sealed) = View::mount(&store, &sealed) else {
        return;
    };
    cairn_skips::probe(&mut mount("remount,bind,ro", &store, &sealed)).unwrap();
    let view = View::mount(&sealed, &pool).unwrap();
    let mut target = Steered::start_after(|_, _| pool_of(&pool) + "read_only = true\n");
    let mut host = host(&target);
    until("three files", || {
        host.active_namespaces().unwrap().len() == 4
    });
    let three = uuids(&mut host);
    assert!(!store.join(".cairn-nsids").exists());
    assert!(missing(&target).is_empty());
    make_whole(&store, "0");
    until("a fourth file", || {
        host.active_namespaces().unwrap().len() == 5
    });
    let mut four = uuids(&mut host);
    host.disconnect().unwrap();
    target.crash();
    let mut host = crate::pools::host(&target);
    let again = uuids(&mut host);
    for all in [&mut four, &mut again.clone()] {
        all.remove(&1);
    }
    let kept: BTreeMap<_, _> = again.into_iter().filter(|(nsid, _)| *nsid != 1).collect();
    assert_eq!(kept, four);
    assert!(
        three
            .iter()
            .all(|(nsid, uuid)| *nsid == 1 || four[nsid] == *uuid)
    );

    drop(view);
    target.done("cairn_reload", json!({}));
    assert_eq!(host.active_namespaces().unwrap(), [1]);
    let _view = View::mount(&sealed, &pool).unwrap();
    target.done("cairn_reload", json!({}));
    let mut back = uuids(&mut host);
    back.remove(&1);
    assert_eq!(back, four);
    host.disconnect().unwrap();
}
