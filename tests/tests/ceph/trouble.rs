use std::thread;
use std::time::Duration;

use cairn_tests::exposition::Exposition;
use cairn_tests::harness::{NQN, TestTarget, subsystem};

use super::{cluster, export, read, until, write};

const HEAD: &str =
    "[target]\nreactors = 1\nio_timeout_s = 2\n[metrics]\nlisten = \"127.0.0.1:0\"\n";

fn oldest(page: &Exposition, nsid: &str) -> f64 {
    let labels = [("nsid", nsid)];
    page.get("cairn_namespace_oldest_seconds", &labels)
        .expect("each namespace has it")
}

#[test]
#[ignore = "a real Ceph: `cargo xtask test` runs it"]
fn while_an_osd_is_dead_only_its_images_wait() {
    let Some((_folder, mut cluster)) = cluster() else {
        return;
    };
    cluster.image("disk", "64M").unwrap();
    let exports = [
        export(&cluster, "rbd/disk"),
        "mem:1MiB block_size = 4096".to_owned(),
    ];
    let exports = exports.each_ref().map(String::as_str);
    let target = TestTarget::start(&format!("{HEAD}{}", subsystem(NQN, &exports)));
    let mut host = target.connect("one");
    assert_eq!(write(&mut host, 1, 0), Ok(()));

    cluster.kill_osd().unwrap();
    let ended = thread::scope(|scope| {
        let write = scope.spawn(|| {
            let mut waiting = target.connect("other");
            let ended = write(&mut waiting, 1, 1);
            waiting.shutdown().unwrap();
            ended
        });
        until("the age of the write", || {
            assert_eq!(self::write(&mut host, 2, 0), Ok(()));
            assert_eq!(read(&mut host, 2, 0), Ok(()));
            oldest(&target.scrape(), "1") > 4.0
        });
        assert!(oldest(&target.scrape(), "2") < 1.0);
        assert!(
            !write.is_finished(),
            "nothing says that the cluster has dropped it"
        );
        cluster.start_osd().unwrap();
        write.join().unwrap()
    });
    assert_eq!(ended, Ok(()));
    until("its return", || write(&mut host, 1, 1) == Ok(()));
    assert_eq!(read(&mut host, 1, 1), Ok(()));
    until("no old command", || oldest(&target.scrape(), "1") < 1.0);
    host.shutdown().unwrap();
    target.stop();
}

#[test]
#[ignore = "a real Ceph: `cargo xtask test` runs it"]
fn without_a_quorum_io_goes_on_and_what_is_opened_says_why_not() {
    let Some((_folder, mut cluster)) = cluster() else {
        return;
    };
    cluster.image("disk", "64M").unwrap();
    cluster.image("later", "64M").unwrap();
    let [disk, later] = ["rbd/disk", "rbd/later"].map(|image| export(&cluster, image));
    let target = TestTarget::start(&subsystem(NQN, &[&disk]));
    let mut host = target.connect("one");
    assert_eq!(write(&mut host, 1, 0), Ok(()));

    cluster.kill_monitor().unwrap();
    let both = subsystem(NQN, &[&disk, &later]);
    thread::scope(|scope| {
        let reload = scope.spawn(|| target.try_reload_as(&both, ""));
        let mut blocks = (1..1 << 14).cycle();
        while !reload.is_finished() {
            assert_eq!(write(&mut host, 1, blocks.next().unwrap()), Ok(()));
            thread::sleep(Duration::from_millis(10));
        }
        let error = reload.join().unwrap().unwrap_err().to_string();
        assert!(error.contains("ceph.conf"), "{error}");
    });
    assert_eq!(read(&mut host, 1, 0), Ok(()));

    cluster.start_monitor().unwrap();
    until("the quorum", || target.try_reload_as(&both, "").is_ok());
    until("the other image", || write(&mut host, 2, 0) == Ok(()));
    host.shutdown().unwrap();
    target.stop();
}
