//! What a ring has of simulated disks: its places for them, and what they have ended.

use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cairn_rdma::wake::Wake;

use super::{SimulatedDisk, Work};

/// Operations that have ended, for one ring.
#[derive(Debug)]
pub(crate) struct Completions {
    queue: Mutex<VecDeque<(u64, Result<u32, i32>)>>,
    wake: Wake,
}

impl Completions {
    fn queue(&self) -> MutexGuard<'_, VecDeque<(u64, Result<u32, i32>)>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, tag: u64, result: Result<u32, i32>) {
        self.queue().push_back((tag, result));
        self.wake.wake();
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Attachment {
    disks: Vec<Option<SimulatedDisk>>,
    done: Arc<Completions>,
    /// Operations that the disks have, or whose end was not popped.
    out: Cell<u32>,
    /// Changes that no disk has yet.
    kept: Vec<Kept>,
}

/// A change that its disk may get until then, in nanoseconds since the target started.
#[derive(Debug)]
struct Kept {
    until_ns: u64,
    place: u32,
    tag: u64,
    work: Work,
}

impl Attachment {
    /// Of no disk.
    pub(crate) fn new() -> Self {
        let done = Completions {
            queue: Mutex::default(),
            wake: Wake::new().expect("a test has descriptors left"),
        };
        Self {
            disks: Vec::new(),
            done: Arc::new(done),
            out: Cell::new(0),
            kept: Vec::new(),
        }
    }

    /// Gives a disk a place.
    pub(crate) fn add(&mut self, disk: SimulatedDisk) -> u32 {
        self.disks.push(Some(disk));
        self.disks.len() as u32 - 1
    }

    /// Takes a place back.
    pub(crate) fn remove(&mut self, place: u32) {
        self.disks[place as usize] = None;
    }

    /// Begins an operation on the disk at a place.
    pub(crate) fn submit(&self, place: u32, tag: u64, work: Work) {
        self.out.update(|out| out + 1);
        let disk = self.disks[place as usize].as_ref();
        disk.expect("a place that was given")
            .submit(tag, work, &self.done);
    }

    /// Keeps a change for [`Self::release`].
    pub(crate) fn keep(&mut self, until_ns: u64, place: u32, tag: u64, work: Work) {
        self.kept.push(Kept {
            until_ns,
            place,
            tag,
            work,
        });
    }

    /// Whether it keeps any.
    pub(crate) fn keeps(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Hands what it keeps to the disks; what comes too late to `refuse`.
    pub(crate) fn release(&mut self, now_ns: u64, mut refuse: impl FnMut(u64)) {
        for kept in std::mem::take(&mut self.kept) {
            if kept.until_ns <= now_ns {
                refuse(kept.tag);
            } else {
                self.submit(kept.place, kept.tag, kept.work);
            }
        }
    }

    /// Takes changes of a tag out of those that it keeps; how many there were.
    pub(crate) fn take_out(&mut self, tag: u64) -> usize {
        let of_tag = |kept: &mut Kept| kept.tag == tag;
        self.kept.extract_if(.., of_tag).count()
    }

    /// Asks all disks to let go of the operations of this tag.
    pub(crate) fn cancel(&self, tag: u64) {
        for disk in self.disks.iter().flatten() {
            disk.cancel(tag, &self.done);
        }
    }

    /// Readable when an operation has ended.
    pub(crate) fn wake_fd(&self) -> RawFd {
        self.done.wake.fd()
    }

    /// The end of an operation.
    pub(crate) fn pop(&self) -> Option<(u64, Result<u32, i32>)> {
        let ended = self.done.queue().pop_front();
        if ended.is_some() {
            self.out.update(|out| out - 1);
        }
        ended
    }

    /// Operations that it keeps, that the disks have, or whose end was not popped.
    pub(crate) fn out(&self) -> u32 {
        self.out.get() + self.kept.len() as u32
    }

    /// Before the last look at what has ended.
    pub(crate) fn clear(&self) {
        self.done.wake.clear();
    }

    /// Under a simulated clock: ends what is due, and says in what time to look again.
    pub(crate) fn step(&self) -> Option<Duration> {
        let disks = self.disks.iter().flatten();
        disks.filter_map(SimulatedDisk::step).min()
    }
}
