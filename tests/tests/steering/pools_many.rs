use std::fs::{self, File};
use std::time::{Duration, Instant};

use cairn_initiator::Host;

use crate::pools::{assert_event, host, start_alone};
use crate::target::PATIENCE;

fn files() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    limit.map_or(10_000, |limit| (limit as usize / 2 - 300).min(10_000))
}

fn wait_for_count(host: &mut Host, expected: usize) {
    let deadline = Instant::now() + 3 * PATIENCE;
    loop {
        let now = host.active_namespaces().unwrap().len() - 1;
        if now == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{expected} expected: {now}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn ten_thousand_files_come_and_go_together() {
    let files = files();
    let (target, pool) = start_alone();
    let mut host = host(&target);
    let name = |index: usize| pool.join(format!("disk{index}"));
    for index in 0..files {
        File::create(name(index)).unwrap().set_len(4096).unwrap();
        host.poll();
    }
    wait_for_count(&mut host, files);
    assert_event(&mut host);
    let opened = || {
        fs::read_dir(format!("/proc/{}/fd", target.pid()))
            .unwrap()
            .count()
    };
    let before = opened();
    assert!(before > files, "{before}");
    File::create(name(files)).unwrap().set_len(4096).unwrap();
    wait_for_count(&mut host, files + 1);
    assert_event(&mut host);
    for index in 0..files {
        fs::remove_file(name(index)).unwrap();
        host.poll();
    }
    wait_for_count(&mut host, 1);
    assert_event(&mut host);
    let deadline = Instant::now() + PATIENCE;
    while opened() > before - files / 2 {
        assert!(Instant::now() < deadline, "{} are open", opened());
        std::thread::sleep(Duration::from_millis(200));
    }
    host.disconnect().unwrap();
}
