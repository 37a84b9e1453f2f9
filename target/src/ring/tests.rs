use std::fs::File;
use std::os::fd::AsRawFd;

use super::*;

const BLOCK: u32 = 4096;

/// A ring, a file of eight blocks, a block of sevens, and a clock that stands still.
struct Rig {
    ring: Ring,
    clock: Clock,
    file: File,
    slot: FileSlot,
    sevens: Span,
    _buffer: Arc<Mapping>,
}

impl Rig {
    fn new() -> Self {
        let clock = Clock::simulated();
        let mut ring = Ring::new(64).unwrap();
        ring.set_clock(clock.clone(), clock.now());
        let buffer = Arc::new(Mapping::anonymous(BLOCK as usize).unwrap());
        buffer.write(0, &[7; BLOCK as usize]);
        let sevens = Span {
            buffer: ring.add_buffer(&buffer).unwrap(),
            addr: buffer.addr(),
            length: BLOCK,
        };
        let file = tempfile::tempfile().unwrap();
        file.set_len(u64::from(8 * BLOCK)).unwrap();
        let slot = ring
            .add_file(file.as_raw_fd(), Handover::default())
            .unwrap();
        Self {
            ring,
            clock,
            file,
            slot,
            sevens,
            _buffer: buffer,
        }
    }

    /// Writes the block of this number, by a lease until then.
    fn write(&mut self, block: u64, until_ms: u64) {
        self.ring.set_lease(until_ms * 1_000_000);
        let offset = block * u64::from(BLOCK);
        let (slot, sevens) = (self.slot, self.sevens);
        self.ring.write(block, slot, offset, sevens, false, false);
    }

    fn pass(&mut self, time: Duration) {
        self.clock.advance_to(self.clock.now() + time);
    }

    /// What has ended in the end, by tag.
    fn ended(&mut self) -> Vec<(u64, Result<u32, i32>)> {
        self.ring.settle().unwrap();
        let ended = std::iter::from_fn(|| self.ring.pop());
        ended
            .map(|finished| match finished {
                Finished::Operation { tag, result } => (tag, result),
                Finished::Readable { token } => panic!("{token} was not asked for"),
            })
            .collect()
    }

    /// Which blocks were written.
    fn written(&self) -> Vec<u64> {
        use std::os::unix::fs::FileExt;
        let is_written = |block: &u64| {
            let mut byte = [0];
            let offset = block * u64::from(BLOCK);
            self.file.read_exact_at(&mut byte, offset).unwrap();
            byte == [7]
        };
        (0..8).filter(is_written).collect()
    }
}

/// The process is stopped when the round has prepared its work, and goes on too late.
#[test]
fn a_change_whose_lease_ends_before_the_ring_is_entered_is_not_made() {
    let mut rig = Rig::new();
    rig.write(0, 100);
    rig.write(1, 200);
    rig.write(2, u64::MAX / 1_000_000);
    rig.ring.set_lease(100_000_000);
    let (slot, sevens) = (rig.slot, rig.sevens);
    rig.ring.read(3, slot, 0, sevens.part(512, 512));
    rig.ring
        .fallocate(4, slot, 0, 512, libc::FALLOC_FL_KEEP_SIZE);
    rig.pass(Duration::from_millis(150));
    rig.ring.submit().unwrap();
    let (late, full) = (Err(libc::ECANCELED), Ok(BLOCK));
    let expected = [(0, late), (1, full), (2, full), (3, Ok(512)), (4, late)];
    assert_eq!(rig.ended(), expected);
    assert_eq!(rig.written(), [1, 2]);
    assert_eq!(rig.ring.in_flight(), 0);
}

#[test]
fn a_lease_that_holds_costs_a_change_nothing() {
    let mut rig = Rig::new();
    rig.pass(Duration::from_millis(99));
    // More than a batch.
    for block in 0..8 {
        rig.write(block, 100);
    }
    rig.pass(Duration::from_secs(10));
    let all: Vec<u64> = (0..8).collect();
    assert_eq!(rig.ended().len(), all.len());
    assert_eq!(rig.written(), all, "the kernel had them in time");
}

/// A thread sleeps in the ring only if nothing has ended.
#[test]
fn who_waits_gets_what_was_refused() {
    let mut rig = Rig::new();
    rig.write(0, 100);
    rig.pass(Duration::from_millis(100));
    rig.ring.wait(None).unwrap();
    assert!(rig.ring.has_ended());
    assert_eq!(rig.ended(), [(0, Err(libc::ECANCELED))]);
}

#[test]
fn a_change_that_is_cancelled_on_its_way_ends_once() {
    let mut rig = Rig::new();
    rig.write(0, 100);
    rig.write(1, 100);
    rig.ring.cancel(0);
    let ended = rig.ended();
    assert_eq!(ended, [(0, Err(libc::ECANCELED)), (1, Ok(BLOCK))]);
    assert_eq!(rig.written(), [1]);
}

/// The ring of a reactor that panicked, which has prepared work.
#[test]
fn what_was_not_submitted_reaches_no_file_that_was_removed() {
    const FOR_EVER: u64 = u64::MAX / 1_000_000;
    let mut rig = Rig::new();
    rig.write(0, FOR_EVER);
    rig.ring.submit().unwrap();
    rig.write(1, FOR_EVER);
    let (slot, sevens) = (rig.slot, rig.sevens);
    rig.ring.read(2, slot, 0, sevens.part(512, 512));
    rig.ring.remove_all_files().unwrap();
    let gone = Err(libc::EBADF);
    assert_eq!(rig.ended(), [(0, Ok(BLOCK)), (1, gone), (2, gone)]);
    assert_eq!(rig.written(), [0]);
    assert_eq!(rig.ring.in_flight(), 0);
}

#[test]
fn a_worker_begins_nothing_whose_lease_is_over() {
    let mut rig = Rig::new();
    let run = |rig: &mut Rig, until_ms: u64| {
        rig.ring.set_lease(until_ms * 1_000_000);
        rig.ring.run_apart(1, Box::new(|| Ok(7)));
        for _ in 0..30 {
            if let Some(ended) = rig.ring.pop() {
                return ended;
            }
            rig.ring.wait(Some(Duration::from_secs(1))).unwrap();
        }
        panic!("it has not ended");
    };
    let ended = |result| Finished::Operation { tag: 1, result };
    rig.pass(Duration::from_millis(10));
    assert_eq!(run(&mut rig, 10), ended(Err(libc::ECANCELED)));
    assert_eq!(run(&mut rig, 11), ended(Ok(7)));
}

/// The same of workers: what hangs in one is waited for.
#[test]
fn what_a_worker_has_counts_as_in_flight() {
    let mut rig = Rig::new();
    let (begins, has_begun) = std::sync::mpsc::channel();
    let (let_go, held) = std::sync::mpsc::channel();
    let hang = move || {
        let _ = begins.send(());
        held.recv().map_err(|_| libc::EIO)
    };
    rig.ring.run_apart(1, Box::new(hang));
    has_begun.recv().unwrap();
    assert_eq!(rig.ring.in_flight(), 1);
    rig.ring.remove_all_files().unwrap();
    assert_eq!(rig.ring.in_flight(), 1);
    let_go.send(7).unwrap();
    for _ in 0..30 {
        if let Some(ended) = rig.ring.pop() {
            let result = Ok(7);
            assert_eq!(ended, Finished::Operation { tag: 1, result });
            assert_eq!(rig.ring.in_flight(), 0);
            return;
        }
        rig.ring.wait(Some(Duration::from_secs(1))).unwrap();
    }
    panic!("it has not ended");
}
