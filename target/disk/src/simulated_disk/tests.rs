use std::fs::File;
use std::os::fd::AsRawFd;

use tempfile::NamedTempFile;

use super::*;
use crate::ring::{FileSlot, Finished, Ring, Span};
use crate::submission::Handover;

const MS: Duration = Duration::from_millis(1);

struct Rig {
    clock: Clock,
    disk: SimulatedDisk,
    ring: Ring,
    slot: FileSlot,
    buffer: Arc<Mapping>,
    buffer_slot: u16,
    _file: NamedTempFile,
}

impl Rig {
    fn new() -> Self {
        let file = NamedTempFile::new().unwrap();
        file.as_file().set_len(64 << 10).unwrap();
        let clock = Clock::simulated();
        let disk = SimulatedDisk::register(file.path(), &clock, 3).unwrap();
        let mut ring = Ring::new(8).unwrap();
        let buffer = Arc::new(Mapping::anonymous(8192).unwrap());
        let buffer_slot = ring.add_buffer(&buffer).unwrap();
        let opened = File::open(file.path()).unwrap();
        let slot = ring
            .add_file(Arc::new(opened.try_clone().unwrap()), Handover::default())
            .unwrap();
        ring.settle().unwrap();
        Self {
            clock,
            disk,
            ring,
            slot,
            buffer,
            buffer_slot,
            _file: file,
        }
    }

    fn span(&self, length: u32) -> Span {
        Span {
            buffer: self.buffer_slot,
            addr: self.buffer.addr(),
            length,
        }
    }

    fn write(&mut self, tag: u64, offset: u64, length: u32, value: u8) {
        self.buffer.fill(0, length as usize, value);
        let span = self.span(length);
        self.ring.write(tag, self.slot, offset, span, false, false);
    }

    fn pass(&mut self, time: Duration) {
        self.clock.advance_to(self.clock.now() + time);
    }

    fn ended(&mut self) -> Vec<(u64, Result<u32, i32>)> {
        self.ring.settle().unwrap();
        let mut ended = Vec::new();
        while let Some(finished) = self.ring.pop() {
            match finished {
                Finished::Operation { tag, result } => ended.push((tag, result)),
                Finished::Readable { .. } => unreachable!("nothing is watched"),
            }
        }
        ended
    }
}

#[test]
fn what_is_held_waits_and_moves_its_bytes_when_it_ends() {
    let mut rig = Rig::new();
    rig.disk.hold(Operation::Write);
    rig.write(1, 0, 512, 1);
    rig.write(2, 0, 512, 2);
    rig.pass(1000 * MS);
    assert_eq!(rig.ended(), []);
    assert_eq!(rig.disk.waiting(Operation::Write), 2);
    assert!(rig.disk.release_oldest(Operation::Write));
    assert_eq!(rig.ended(), [(1, Ok(512))]);
    assert_eq!(rig.disk.contents(0, 512), [2; 512]);
    rig.disk.release(Operation::Write);
    assert_eq!(rig.ended(), [(2, Ok(512))]);
    assert!(!rig.disk.release_oldest(Operation::Write));
    rig.write(3, 0, 512, 3);
    assert_eq!(rig.ended(), [(3, Ok(512))]);
}

#[test]
fn delays_reorder() {
    let mut rig = Rig::new();
    rig.disk.set_habits(Habits {
        delay: MS..50 * MS,
        ..Habits::default()
    });
    for tag in 0..20 {
        rig.write(tag, tag * 512, 512, 7);
    }
    assert_eq!(rig.ended(), []);
    let mut ended = Vec::new();
    for _ in 0..50 {
        rig.pass(MS);
        ended.extend(rig.ended().into_iter().map(|(tag, _)| tag));
    }
    assert_eq!(ended.len(), 20);
    assert!(!ended.is_sorted(), "{ended:?}");
}

#[test]
fn errors_are_those_that_were_asked_for() {
    let mut rig = Rig::new();
    rig.disk.fail(Operation::Flush, libc::EIO, 1);
    rig.ring.sync(1, rig.slot);
    rig.ring.sync(2, rig.slot);
    assert_eq!(rig.ended(), [(1, Err(libc::EIO)), (2, Ok(0))]);
    let always = [
        (
            Habits {
                error: 1000,
                ..Habits::default()
            },
            libc::EIO,
        ),
        (
            Habits {
                no_space: 1000,
                ..Habits::default()
            },
            libc::ENOSPC,
        ),
        (
            Habits {
                again: 1000,
                ..Habits::default()
            },
            libc::EAGAIN,
        ),
    ];
    for (habits, errno) in always {
        rig.disk.set_habits(habits);
        rig.write(3, 0, 512, 3);
        assert_eq!(rig.ended(), [(3, Err(errno))]);
    }
    rig.disk.set_habits(Habits {
        short: 1000,
        ..Habits::default()
    });
    rig.disk.crash(CacheFate::Lost);
    rig.write(4, 0, 8192, 4);
    let ended = rig.ended();
    let [(4, Ok(moved))] = ended[..] else {
        panic!("{ended:?}")
    };
    assert!(moved < 8192 && moved.is_multiple_of(512), "{moved}");
}

#[test]
fn two_rings_share_a_disk_and_a_crash_ends_what_was_under_way() {
    let mut rig = Rig::new();
    rig.write(1, 0, 512, 1);
    assert_eq!(rig.ended(), [(1, Ok(512))]);
    let opened = File::open(rig._file.path()).unwrap();
    let mut other = Ring::new(8).unwrap();
    let slot = other
        .add_file(Arc::new(opened.try_clone().unwrap()), Handover::default())
        .unwrap();
    other.settle().unwrap();
    other.sync(1, slot);
    other.settle().unwrap();
    assert!(other.pop().is_some());
    assert_eq!(rig.disk.durable(0, 512), [1; 512]);

    rig.disk.hold(Operation::Write);
    rig.write(2, 512, 512, 2);
    drop(rig.ring);
    assert_eq!(
        rig.disk.in_flight(),
        1,
        "a dead process's write is still there"
    );
    rig.disk.crash(CacheFate::Lost);
    assert_eq!(rig.disk.in_flight(), 0);
    assert_eq!(rig.disk.contents(0, 1024), [[1; 512], [0; 512]].concat());
}

#[test]
fn each_lie_is_one() {
    let lies = [
        Lie::LostWrite,
        Lie::TornWrite,
        Lie::MisplacedWrite,
        Lie::EmptyFlush,
    ];
    for lie in lies {
        let mut rig = Rig::new();
        rig.disk.set_habits(Habits {
            lie: Some((lie, 1000)),
            ..Habits::default()
        });
        rig.write(1, 0, 1024, 1);
        rig.ended();
        rig.ring.sync(2, rig.slot);
        assert_eq!(rig.ended(), [(2, Ok(0))]);
        assert_ne!(rig.disk.durable(0, 1024), [1; 1024], "{lie:?}");
    }
    for lie in [Lie::OldRead, Lie::TornRead] {
        let mut rig = Rig::new();
        rig.write(1, 0, 1024, 1);
        rig.ended();
        rig.disk.set_habits(Habits {
            lie: Some((lie, 1000)),
            ..Habits::default()
        });
        rig.ring.read(2, rig.slot, 0, rig.span(1024));
        rig.ended();
        let mut read = [0; 1024];
        rig.buffer.read(0, &mut read);
        assert_ne!(read, [1; 1024], "{lie:?}");
    }
    let mut rig = Rig::new();
    rig.disk.set_habits(Habits {
        lie: Some((Lie::LateWrite, 1000)),
        ..Habits::default()
    });
    rig.write(1, 0, 512, 1);
    rig.ended();
    rig.disk.set_habits(Habits::default());
    rig.write(2, 0, 512, 2);
    rig.ended();
    assert_eq!(rig.disk.contents(0, 512), [2; 512]);
    rig.pass(2000 * MS);
    rig.ended();
    assert_eq!(rig.disk.contents(0, 512), [1; 512]);
}

#[test]
fn a_file_whose_disk_is_gone_is_a_file_again() {
    let rig = Rig::new();
    let Rig {
        disk, ring, _file, ..
    } = rig;
    assert!(SimulatedDisk::find(_file.as_file().as_raw_fd()).is_some());
    drop((disk, ring));
    assert!(SimulatedDisk::find(_file.as_file().as_raw_fd()).is_none());
}
