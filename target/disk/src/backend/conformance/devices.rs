//! Block devices, tested with loop devices.
//!
//! Why `unsafe` here: the loop control device has no safe wrapper.

use std::os::unix::fs::OpenOptionsExt as _;

use super::*;

struct Loop(String);

impl Loop {
    fn new(file: &Path) -> Option<Self> {
        attach(file, &[]).map(Self)
    }

    /// Returns a loop device that supports discards, or `None` if the file system cannot punch
    /// holes.
    fn that_discards(file: &Path) -> Option<Self> {
        if !full::has_holes(file.parent().unwrap()) {
            return None;
        }
        for _ in 0..16 {
            let device = Self::new(file)?;
            if device.discards() {
                return Some(device);
            }
            device.remove();
        }
        panic!("discard_max_bytes is 0 for 16 loop devices")
    }

    fn discards(&self) -> bool {
        let most = std::fs::read_to_string(self.queue("queue/discard_max_bytes"));
        most.unwrap().trim() != "0"
    }

    fn stop_discards(&self) {
        std::fs::write(self.queue("queue/discard_max_bytes"), "0").unwrap();
    }

    fn remove(self) {
        const LOOP_CTL_REMOVE: libc::c_ulong = 0x4c81;
        let number = self.0.trim_start_matches("/dev/loop").parse::<i64>();
        drop(self);
        let control = std::fs::File::open("/dev/loop-control").unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&control);
        // SAFETY: the argument is a number. Fails if another process uses the device.
        unsafe { libc::ioctl(fd, LOOP_CTL_REMOVE, number.unwrap()) };
    }

    fn queue(&self, name: &str) -> String {
        let device = self.0.trim_start_matches("/dev/");
        format!("/sys/block/{device}/{name}")
    }

    fn work(&self) -> (u64, u64) {
        let stat = std::fs::read_to_string(self.queue("stat")).unwrap();
        let numbers: Vec<u64> = stat
            .split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect();
        (numbers[6] * 512, numbers[13] * 512)
    }

    fn open(&self) -> Backend {
        Backend::open_file(Path::new(&self.0), Some(4096), Claim::default()).unwrap()
    }
}

#[track_caller]
pub(in crate::backend) fn attach(file: &Path, options: &[&str]) -> Option<String> {
    let attach = || {
        let mut losetup = std::process::Command::new("losetup");
        let losetup = losetup.args(["--find", "--show"]).args(options).arg(file);
        cairn_skips::probe(losetup)
    };
    let mut attached = attach();
    for _ in 1..8 {
        attached = attached.or_else(|_| attach());
    }
    match attached {
        Ok(device) => Some(device.trim().to_owned()),
        Err(reason) => {
            cairn_skips::skip(reason);
            None
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let mut losetup = std::process::Command::new("losetup");
        let _ = losetup.args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_file_and_a_loop_device_over_it_are_one_disk() {
    let folder = tempfile::tempdir().unwrap();
    let file = image(folder.path());
    let link = folder.path().join("link");
    std::fs::hard_link(&file, &link).unwrap();
    let Some(device) = attach(&file, &["--partscan"]).map(Loop) else {
        return;
    };
    let part = format!("{}p1", device.0);
    let made = std::process::Command::new("addpart")
        .args([&*device.0, "1", "8", "256"])
        .output();
    let has_part = made.is_ok_and(|made| made.status.success()) && Path::new(&part).exists();
    let mut names = vec![file.as_path(), link.as_path(), Path::new(&device.0)];
    names.extend(has_part.then_some(Path::new(&part)));
    for first in &names {
        let opened = Backend::open_file(first, None, Claim::default()).unwrap();
        for second in &names {
            let at_once = Claim {
                trial_until: Some(std::time::Instant::now()),
                ..Claim::default()
            };
            let error = Backend::open_file(second, None, at_once).unwrap_err();
            let said = error.to_string();
            let is_refused = said.contains("already exported") || said.contains("is in use");
            assert!(
                is_refused,
                "{} after {}: {said}",
                second.display(),
                first.display()
            );
        }
        drop(opened);
    }
    let other = attach(&file, &["--offset", "65536"]).unwrap();
    let whole = Backend::open_file(Path::new(&device.0), None, Claim::default()).unwrap();
    let other = Loop(other);
    let _part = Backend::open_file(Path::new(&other.0), None, Claim::default()).unwrap();
    drop(whole);
}

#[test]
fn a_block_device() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    if let Some(device) = Loop::new(&image(folder.path())) {
        suite(|| device.open());
    }
}

#[test]
fn a_block_device_discards_what_is_deallocated_and_writes_nothing() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    if let Some(device) = Loop::that_discards(&image(folder.path())) {
        discards(&device, device.open());
    }
}

#[test]
fn a_discard_whose_lease_is_over_is_not_made() {
    use cairn_base::Clock;
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let Some(device) = Loop::that_discards(&image(folder.path())) else {
        return;
    };
    let mut rig = Rig::new(device.open());
    let clock = Clock::simulated();
    rig.ring.set_clock(clock.clone(), clock.now());
    rig.ring.set_lease(1_000_000);
    let (_, before) = device.work();
    let length = DISK_BYTES / 2;
    let file = rig.file;
    let mut io = BlockIo::new(BlockOp::Deallocate, 0, length, None);
    let progress = rig.backend.begin(&mut io, &mut rig.ring, file, 0);
    assert_eq!(progress, Progress::Pending);
    clock.advance_to(clock.now() + Duration::from_millis(2));
    rig.ring.settle().unwrap();
    let ended = rig.ring.pop();
    let late = Finished::Operation {
        tag: 0,
        result: Err(libc::ECANCELED),
    };
    assert_eq!(ended, Some(late));
    assert_eq!(device.work().1, before);
    assert_eq!(rig.ring.in_flight(), 0);
    rig.ring.set_lease(u64::MAX);
    let progress = rig.backend.begin(&mut io, &mut rig.ring, file, 0);
    assert_eq!(progress, Progress::Pending);
    assert_eq!(rig.ring.of_kernel(), 0);
    rig.ring.settle().unwrap();
    assert_eq!(device.work().1, before + length);
}

fn discards(device: &Loop, backend: Backend) {
    assert!(!backend.deallocates_to_zeroes(), "it may read as anything");
    assert_eq!(backend.preferred().unwrap().write, 1);
    let mut rig = Rig::new(backend);
    rig.write(WRITE, 0, &pattern(1, BUFFER_BYTES as usize));
    let (written, discarded) = device.work();
    let (offset, length) = (64 << 10, 512 << 10);
    assert_eq!(rig.run(BlockOp::Deallocate, offset, length, None), Ok(()));
    let Kind::File(disk) = &rig.backend.0 else {
        unreachable!("opened as a file")
    };
    assert!(disk.can_deallocate());
    assert_eq!(device.work(), (written, discarded + length));
    let zeroes = BlockOp::WriteZeroes {
        deallocate: true,
        durable: false,
    };
    assert_eq!(rig.run(zeroes, 0, 64 << 10, None), Ok(()));
    assert!(rig.read(0, 64 << 10).iter().all(|&byte| byte == 0));
    let last = (offset + length) as usize;
    let rest = BUFFER_BYTES - last as u32;
    assert_eq!(
        rig.read(last as u64, rest),
        pattern(1, BUFFER_BYTES as usize)[last..]
    );
}

#[test]
fn a_block_device_that_cannot_discard_does_nothing() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let Some(device) = Loop::new(&image(folder.path())) else {
        return;
    };
    device.stop_discards();
    let mut rig = Rig::new(device.open());
    assert_eq!(rig.backend.preferred().unwrap().deallocate, 1);
    rig.write(WRITE, 0, &pattern(1, 65536));
    let before = device.work();
    assert_eq!(rig.run(BlockOp::Deallocate, 0, 65536, None), Ok(()));
    assert_eq!(device.work(), before);
    assert_eq!(rig.read(0, 65536), pattern(1, 65536));
    drop(rig);
    device.remove();
}

#[test]
fn a_block_device_that_discards_no_more_loses_nothing() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let Some(device) = Loop::that_discards(&image(folder.path())) else {
        return;
    };
    let mut rig = Rig::new(device.open());
    rig.write(WRITE, 0, &pattern(1, 65536));
    device.stop_discards();
    for _ in 0..2 {
        assert_eq!(rig.run(BlockOp::Deallocate, 0, 65536, None), Ok(()));
    }
    let Kind::File(disk) = &rig.backend.0 else {
        unreachable!("opened as a file")
    };
    assert!(!disk.can_deallocate());
    assert_eq!(rig.read(0, 65536), pattern(1, 65536));
    drop(rig);
    device.remove();
}

#[test]
fn a_device_takes_its_own_place_and_nothing_else_gets_it() {
    let folder = tempfile::tempdir().unwrap();
    let Some(device) = Loop::new(&image(folder.path())) else {
        return;
    };
    let path = Path::new(&device.0);
    let open = |formers: &Formers| Backend::open_after(path, None, Claim::default(), formers);
    let first = open(&Formers::default()).unwrap();
    let mut formers = Formers::default();
    formers.add(&first);
    let second = open(&formers).unwrap();
    let place = first.place().unwrap();
    drop(first);
    super::super::open::wait_for_close(path, place).unwrap();
    let other = open(&Formers::default()).unwrap_err().to_string();
    assert!(other.contains("is in use"), "{other}");
    drop(second);
    super::super::open::wait_for_close(path, place).unwrap();
    open(&Formers::default()).unwrap();
}

#[test]
fn a_file_whose_loop_device_is_held_is_only_read() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let file = image(folder.path());
    let link = folder.path().join("link");
    std::fs::hard_link(&file, &link).unwrap();
    let Some(device) = Loop::new(&file) else {
        return;
    };
    let mut options = std::fs::File::options();
    let options = options.read(true).custom_flags(libc::O_EXCL);
    let held = options.open(&device.0).unwrap();
    let open = |path: &Path, read_only, shared| {
        let claim = Claim {
            read_only,
            shared,
            trial_until: Some(std::time::Instant::now()),
            ..Claim::default()
        };
        Backend::open_file(path, Some(4096), claim).map(drop)
    };
    for path in [&file, &link] {
        for shared in [false, true] {
            let error = open(path, false, shared).unwrap_err().to_string();
            assert!(error.contains(&device.0), "{error}");
            assert!(error.contains("is mounted"), "{error}");
        }
        open(path, true, false).unwrap();
    }
    drop(held);
    open(&file, false, false).unwrap();
}

#[test]
fn a_device_that_is_held_is_not_shared() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let Some(device) = Loop::new(&image(folder.path())) else {
        return;
    };
    let path = Path::new(&device.0);
    let shared = Claim {
        shared: true,
        ..Claim::default()
    };
    let open = |claim| Backend::open_file(path, Some(4096), claim);
    let mut options = std::fs::File::options();
    let options = options.read(true).custom_flags(libc::O_EXCL);
    let held = options.open(path).unwrap();
    let error = open(shared).unwrap_err().to_string();
    assert!(error.contains("in use"), "{error}");
    drop(held);
    let first = open(shared).unwrap();
    let second = open(shared).unwrap();
    drop((first, second));
}
