//! Ceph images as namespaces, over user-space RoCE. Ignored by default; `cargo xtask test` runs the
//! tests.

mod guide;
mod trouble;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cairn_ceph::Cluster;
use cairn_initiator::multipath::{Multipath, MultipathOptions};
use cairn_initiator::{Data, Event, Host, HostError, Notice, command};
use cairn_roce::Soft;
use cairn_tests::harness::{NQN, TestTarget, subsystem};
use cairn_tests::load::Load;
use nvme_proto::wire::feature::AsyncEventConfig;
use nvme_proto::wire::log::{LogPage, SmartLog};
use nvme_proto::wire::{FromBytes, Status};

const PATIENCE: Duration = Duration::from_secs(60);

fn cluster() -> Option<(tempfile::TempDir, Cluster)> {
    if let Some(missing) = cairn_ceph::missing() {
        cairn_skips::skip(missing);
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(folder.path()).expect("a cluster");
    Some((folder, cluster))
}

fn export(cluster: &Cluster, image: &str) -> String {
    let conf = cluster.conf();
    let conf = conf.display();
    format!("rbd:{image} block_size = 4096\nceph = {{ conf = \"{conf}\" }}")
}

fn status<T>(result: Result<T, HostError>) -> Result<(), Status> {
    match result {
        Ok(_) => Ok(()),
        Err(HostError::Status { status, .. }) => Err(status.code()),
        Err(other) => panic!("{other}"),
    }
}

fn write(host: &mut Host, nsid: u32, block: u64) -> Result<(), Status> {
    let mut buffer = host.buffer(4096).unwrap();
    let data = Data::start_of(&mut buffer, 4096);
    status(host.run(command::write(nsid, block, 1), data))
}

fn read(host: &mut Host, nsid: u32, block: u64) -> Result<(), Status> {
    let mut buffer = host.buffer(4096).unwrap();
    let data = Data::start_of(&mut buffer, 4096);
    status(host.run(command::read(nsid, block, 1), data))
}

fn warning(host: &mut Host) -> u8 {
    let page = host
        .log_page(LogPage::SMART, 0, size_of::<SmartLog>(), false)
        .unwrap();
    SmartLog::read_from_bytes(&page)
        .ok()
        .unwrap()
        .critical_warning
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn kill_now_and_then(cluster: &mut Cluster, over: &AtomicBool) {
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(500));
        cluster.kill_osd().unwrap();
        std::thread::sleep(Duration::from_millis(200));
        cluster.start_osd().unwrap();
    }
    over.store(true, Ordering::Relaxed);
}

#[test]
#[ignore = "a real Ceph: `cargo xtask test` runs it"]
fn no_write_is_lost_while_the_osd_is_killed_under_load() {
    let Some((_folder, mut cluster)) = cluster() else {
        return;
    };
    cluster.image("disk", "64M").unwrap();
    let exports = subsystem(NQN, &[&export(&cluster, "rbd/disk")]);
    let target = TestTarget::start_on_soft(Soft::default(), &exports);
    let options = [target.options("load")];
    let disk = Multipath::connect(&*target.provider(), options, MultipathOptions::new(1)).unwrap();
    let mut load = Load::new(disk);
    load.run(500);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| kill_now_and_then(&mut cluster, &over));
        load.run_until("three kills", |_| over.load(Ordering::Relaxed));
    });
    load.run(500);
    load.finish().close().unwrap();
    target.stop();
}

#[test]
#[ignore = "a real Ceph: `cargo xtask test` runs it"]
#[expect(
    clippy::too_many_lines,
    reason = "one cluster sees it all: each start of one takes long"
)]
fn what_an_administrator_does_reaches_the_host() {
    let Some((_folder, cluster)) = cluster() else {
        return;
    };
    cluster.image("disk", "64M").unwrap();
    cluster.image("other", "64M").unwrap();
    cluster
        .ceph(&["osd", "pool", "create", "gone", "8", "8"])
        .unwrap();
    cluster.rbd(&["pool", "init", "gone"]).unwrap();
    cluster.image("gone/disk", "64M").unwrap();
    let images = ["rbd/disk", "rbd/other", "gone/disk"];
    let exports = images.map(|image| export(&cluster, image));
    // The host connects after these slow commands: without polls for a second, it would lose its
    // connection.
    let exports = subsystem(NQN, &exports.each_ref().map(String::as_str));
    let target = TestTarget::start(&exports);
    let mut options = target.options("a");
    options.events = AsyncEventConfig(0).with_namespace_attribute(true);
    let mut host = target.try_connect(options).unwrap();

    assert_eq!(host.open_namespace(1).unwrap().blocks, 16 << 10);
    cluster.rbd(&["resize", "--size", "96M", "disk"]).unwrap();
    let event = host.wait_until("the event", |host| host.take_event());
    assert!(matches!(
        event.unwrap(),
        Event::Notice(Notice::NamespacesChanged)
    ));
    assert_eq!(host.open_namespace(1).unwrap().blocks, 24 << 10);
    assert_eq!(write(&mut host, 1, (24 << 10) - 1), Ok(()));

    for (name, ratio) in [
        ("nearfull", "1e-7"),
        ("backfillfull", "2e-7"),
        ("full", "3e-7"),
    ] {
        cluster
            .ceph(&["osd", &format!("set-{name}-ratio"), ratio])
            .unwrap();
    }
    until("a full pool", || {
        let pools = cluster.ceph(&["osd", "pool", "ls", "detail"]).unwrap();
        pools.contains("hashpspool,full")
    });
    let mut objects = 2..20;
    until("no more space", || {
        std::thread::sleep(Duration::from_millis(200));
        let object = objects.next().expect("the OSD refuses writes by now");
        write(&mut host, 1, object << 10) == Err(Status::CAPACITY_EXCEEDED)
    });
    assert_eq!(read(&mut host, 1, 512), Ok(()));
    for (name, ratio) in [
        ("full", "0.95"),
        ("backfillfull", "0.90"),
        ("nearfull", "0.85"),
    ] {
        cluster
            .ceph(&["osd", &format!("set-{name}-ratio"), ratio])
            .unwrap();
    }
    until("room", || write(&mut host, 1, 22 << 10) == Ok(()));

    assert_eq!(write(&mut host, 3, 0), Ok(()));
    cluster
        .ceph(&[
            "osd",
            "pool",
            "delete",
            "gone",
            "gone",
            "--yes-i-really-really-mean-it",
        ])
        .unwrap();
    until("the loss", || {
        read(&mut host, 3, 0) == Err(Status::NAMESPACE_NOT_READY)
    });
    assert_eq!(write(&mut host, 3, 0), Err(Status::NAMESPACE_NOT_READY));

    let watchers = cluster.rbd(&["status", "disk"]).unwrap();
    let (_, address) = watchers.split_once("watcher=").expect("a watcher");
    let address = address.split_whitespace().next().unwrap();
    cluster.ceph(&["osd", "blocklist", "add", address]).unwrap();
    until("the end", || {
        write(&mut host, 1, 0) == Err(Status::INTERNAL_PATH_ERROR)
    });
    assert_eq!(read(&mut host, 1, 0), Err(Status::INTERNAL_PATH_ERROR));
    until("the warning", || warning(&mut host) == 1 << 2);

    target.reload(&exports);
    until("its return", || write(&mut host, 1, 0) == Ok(()));
    assert_eq!(read(&mut host, 1, 0), Ok(()));
    until("no warning for it", || warning(&mut host) == 0);

    assert_eq!(write(&mut host, 2, 0), Ok(()));
    assert_eq!(read(&mut host, 2, 0), Ok(()));
    host.shutdown().unwrap();
    target.stop();
}
