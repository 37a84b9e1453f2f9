use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::thread;
use std::time::{Duration, Instant};

use cairn_tests::faulty_disk::{Fault, FaultyDisk, Op, Rule};

const BLOCK: usize = 4096;

#[repr(align(4096))]
struct Block([u8; BLOCK]);

fn open(disk: &FaultyDisk) -> File {
    let mut options = File::options();
    options.read(true).write(true).custom_flags(libc::O_DIRECT);
    options.open(disk.path()).unwrap()
}

#[test]
fn without_rules_it_is_a_disk() {
    let Some(disk) = FaultyDisk::mount("plain", 1 << 20) else {
        return;
    };
    let file = open(&disk);
    assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    file.write_all_at(&Block([7; BLOCK]).0, 8192).unwrap();
    file.sync_all().unwrap();
    let mut seen = Block([0; BLOCK]);
    file.read_exact_at(&mut seen.0, 8192).unwrap();
    assert_eq!(seen.0, [7; BLOCK]);
    assert_eq!(disk.bytes(8192, BLOCK), [7; BLOCK]);
    assert_eq!((disk.done(Op::Write), disk.done(Op::Sync)), (1, 1));
}

#[test]
fn what_it_holds_lands_when_it_is_released() {
    let Some(disk) = FaultyDisk::mount("holding", 1 << 20) else {
        return;
    };
    let file = open(&disk);
    disk.begin(Rule::new(Op::Write, Fault::Hold).times(1));
    thread::scope(|scope| {
        scope.spawn(|| file.write_all_at(&Block([1; BLOCK]).0, 0).unwrap());
        disk.wait_until_waiting(Op::Write, 1);
        file.write_all_at(&Block([2; BLOCK]).0, 0).unwrap();
        assert_eq!(disk.bytes(0, 1), [2]);
        disk.release();
    });
    assert_eq!(disk.bytes(0, BLOCK), [1; BLOCK]);
}

#[test]
fn it_fails_cuts_short_and_delays() {
    let Some(disk) = FaultyDisk::mount("failing", 1 << 20) else {
        return;
    };
    let file = open(&disk);
    disk.begin(Rule::new(Op::Write, Fault::Fail(libc::ENOSPC)).times(1));
    disk.begin(Rule::new(Op::Write, Fault::Short(512)).times(1));
    disk.begin(Rule::new(Op::Sync, Fault::Fail(libc::EIO)));
    disk.begin(Rule::new(Op::Read, Fault::Delay(Duration::from_millis(50))));
    let mut block = Block([1; BLOCK]);
    let errno = |result: io::Result<()>| result.unwrap_err().raw_os_error();
    assert_eq!(errno(file.write_all_at(&block.0, 0)), Some(libc::ENOSPC));
    assert_eq!(file.write_at(&block.0, 0).unwrap(), 512);
    assert_eq!(errno(file.sync_all()), Some(libc::EIO));
    let before = Instant::now();
    file.read_exact_at(&mut block.0, 0).unwrap();
    assert!(before.elapsed() >= Duration::from_millis(50));
    disk.heal();
    file.sync_all().unwrap();
}

#[test]
fn an_open_that_hangs_ends_with_the_disk() {
    let Some(disk) = FaultyDisk::mount("opening", 1 << 20) else {
        return;
    };
    disk.begin(Rule::new(Op::Open, Fault::Hold));
    let path = disk.path().to_owned();
    let opener = thread::spawn(move || File::open(path).map(drop));
    disk.wait_until_waiting(Op::Open, 1);
    drop(disk);
    assert!(opener.join().unwrap().is_err());
}
