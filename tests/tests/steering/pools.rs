//! Directories whose files are namespaces, changed while a host is connected.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cairn_initiator::{Data, Event, Host, Notice, command};
use cairn_roce::Soft;
use nvme_proto::wire::feature::AsyncEventConfig;
use serde_json::json;

use crate::target::{NQN, PATIENCE, Steered};

pub(crate) const SIZE: u64 = 1 << 20;
pub(crate) const FIRST: u32 = 100;

pub(crate) fn start(names: &[&str]) -> (Steered, PathBuf) {
    let mut pool = PathBuf::new();
    let target = Steered::start_after(|folder, _| {
        pool = folder.join("pool");
        fs::create_dir(&pool).unwrap();
        for name in names {
            make_whole(&pool, name);
        }
        format!(
            "[[subsystem.namespace]]\nnsid = {FIRST}\nexport = \"dir:{}\"\n\
             [[subsystem.namespace]]\nnsid = 104\nexport = \"mem:1MiB\"\n",
            pool.display()
        )
    });
    (target, pool)
}

#[test]
fn a_directory_that_cannot_be_listed_is_not_added() {
    let target = Steered::start();
    let (none, file) = (target.folder.path().join("none"), target.config());
    for (path, why) in [(&none, "does not exist"), (&file, "is not a directory")] {
        let export = format!("dir:{}", path.display());
        let add = json!({"nqn": NQN, "nsid": 9, "export": export});
        let error = target.call("cairn_namespace_add", add).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        assert!(!target.text().contains(&export));
    }
}

pub(crate) fn start_alone() -> (Steered, PathBuf) {
    let mut pool = PathBuf::new();
    let target = Steered::start_after(|folder, _| {
        pool = folder.join("pool");
        fs::create_dir(&pool).unwrap();
        let pool = pool.display();
        format!("[[subsystem.namespace]]\nnsid = {FIRST}\nexport = \"dir:{pool}\"\n")
    });
    (target, pool)
}

pub(crate) fn make(path: &Path, bytes: u64) {
    File::create(path).unwrap().set_len(bytes).unwrap();
}

pub(crate) fn make_whole(pool: &Path, name: &str) {
    let hidden = pool.join(format!(".{name}"));
    make(&hidden, SIZE);
    fs::rename(hidden, pool.join(name)).unwrap();
}

pub(crate) fn host(target: &Steered) -> Host {
    let mut options = target.options("pooled");
    options.events = AsyncEventConfig(0).with_namespace_attribute(true);
    Host::connect(&Soft::default(), options).unwrap()
}

pub(crate) fn wait_for(host: &mut Host, expected: &[u32]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = host.active_namespaces().unwrap();
        if now == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{expected:?} expected: {now:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn assert_event(host: &mut Host) {
    let event = host.wait_until("the event", |host| host.take_event());
    assert!(matches!(
        event.unwrap(),
        Event::Notice(Notice::NamespacesChanged)
    ));
    host.changed_namespaces().unwrap();
}

pub(crate) fn put(host: &mut Host, nsid: u32, value: u8) {
    let mut buffer = host.buffer(512).unwrap();
    buffer.write(0, &[value; 512]);
    let data = Data::part_of(&mut buffer, 0, 512);
    host.run(command::write(nsid, 0, 1), data).unwrap();
}

pub(crate) fn first_byte(host: &mut Host, nsid: u32) -> u8 {
    let mut buffer = host.buffer(512).unwrap();
    let data = Data::part_of(&mut buffer, 0, 512);
    host.run(command::read(nsid, 0, 1), data).unwrap();
    buffer.bytes(0, 1)[0]
}

#[test]
fn files_come_are_renamed_grow_and_go() {
    let (target, pool) = start(&[]);
    let mut host = host(&target);
    wait_for(&mut host, &[1, 104]);
    make_whole(&pool, "a");
    wait_for(&mut host, &[1, 100, 104]);
    assert_event(&mut host);
    put(&mut host, 100, 7);

    fs::rename(pool.join("a"), pool.join("b")).unwrap();
    fs::hard_link(pool.join("b"), pool.join("c")).unwrap();
    make_whole(&pool, "d");
    wait_for(&mut host, &[1, 100, 101, 104]);
    assert_event(&mut host);
    assert_eq!(first_byte(&mut host, 100), 7);
    fs::remove_file(pool.join("b")).unwrap();

    let outside = target.folder.path().join("outside");
    make(&outside, SIZE);
    symlink(&outside, pool.join("link")).unwrap();
    fs::create_dir(pool.join("directory")).unwrap();
    make(&pool.join("odd"), SIZE + 1);
    make(&pool.join("empty"), 0);
    make(&pool.join("copied.part"), SIZE);
    make_whole(&pool, "e");
    wait_for(&mut host, &[1, 100, 101, 102, 104]);
    assert_event(&mut host);
    assert_eq!(first_byte(&mut host, 100), 7);

    let grown = File::options().write(true).open(pool.join("d")).unwrap();
    grown.set_len(2 * SIZE).unwrap();
    drop(grown);
    assert_event(&mut host);
    assert_eq!(host.open_namespace(101).unwrap().blocks, 2 * SIZE / 512);

    make_whole(&pool, "d");
    fs::remove_file(pool.join("e")).unwrap();
    wait_for(&mut host, &[1, 100, 103, 104]);
    let mut buffer = host.buffer(512).unwrap();
    let data = Data::part_of(&mut buffer, 0, 512);
    assert!(host.run(command::read(101, 0, 1), data).is_err());

    make_whole(&pool, "f");
    wait_for(&mut host, &[1, 100, 101, 103, 104]);
    host.disconnect().unwrap();
}

#[test]
fn a_directory_goes_and_comes_back_with_its_numbers() {
    let (target, pool) = start(&["a", "b"]);
    let mut host = host(&target);
    wait_for(&mut host, &[1, 100, 101, 104]);
    put(&mut host, 101, 9);
    let away = target.folder.path().join("away");
    fs::rename(&pool, &away).unwrap();
    wait_for(&mut host, &[1, 104]);
    let status = target.done("cairn_status", json!({}));
    let missing = status["missing"].to_string();
    assert!(missing.contains("does not exist"), "{missing}");
    fs::rename(away.join("a"), away.join("z")).unwrap();
    fs::rename(&away, &pool).unwrap();
    wait_for(&mut host, &[1, 100, 101, 104]);
    assert_eq!(first_byte(&mut host, 101), 9);
    let status = target.done("cairn_status", json!({}));
    assert_eq!(status["missing"], json!([]));

    let add = json!({"nqn": NQN, "export": "mem:1MiB", "nsid": 2});
    target.done("cairn_namespace_add", add);
    wait_for(&mut host, &[1, 2, 100, 101, 104]);
    assert!(target.text().contains("dir:"));
    assert!(!target.text().contains("pooled"));
    let remove = |nsid: u32, force: bool| {
        let params = json!({"nqn": NQN, "nsid": nsid, "force": force});
        target.call("cairn_namespace_remove", params)
    };
    for (nsid, force) in [(FIRST, false), (FIRST + 1, false), (FIRST + 1, true)] {
        let refused = remove(nsid, force).unwrap_err().to_string();
        assert!(
            refused.contains("move its file") || refused.contains("move the file"),
            "{refused}"
        );
    }
    wait_for(&mut host, &[1, 2, 100, 101, 104]);
    remove(FIRST, true).unwrap();
    wait_for(&mut host, &[1, 2, 104]);
    host.disconnect().unwrap();
}

#[test]
fn a_directory_gets_another_block_size_in_one_reload() {
    let (target, _) = start(&["a", "b"]);
    let mut host = host(&target);
    let mut shown = || -> Vec<_> {
        let all = host.open_namespaces().unwrap().into_iter();
        let pooled = all.filter(|one| (FIRST..104).contains(&one.nsid));
        pooled.map(|one| (one.nsid, one.uuid, one.blocks)).collect()
    };
    crate::target::until("both", || shown().len() == 2);
    let before = shown();
    let line = format!("nsid = {FIRST}\n");
    let text = target.text();
    let text = text.replace(&line, &format!("{line}block_size = 4096\n"));
    fs::write(target.config(), text).unwrap();
    target.done("cairn_reload", json!({}));
    let expected = before
        .into_iter()
        .map(|(nsid, uuid, _)| (nsid, uuid, SIZE / 4096));
    assert_eq!(shown(), expected.collect::<Vec<_>>());
}
