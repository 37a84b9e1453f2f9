use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cairn_base::wake::Wake;

use super::{SimulatedDisk, Work};

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

#[derive(Debug)]
pub(crate) struct Attachment {
    disks: Vec<Option<SimulatedDisk>>,
    done: Arc<Completions>,
    out: Cell<u32>,
    kept: Vec<Kept>,
}

#[derive(Debug)]
struct Kept {
    until_ns: u64,
    place: u32,
    tag: u64,
    work: Work,
}

impl Attachment {
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

    pub(crate) fn add(&mut self, disk: SimulatedDisk) -> u32 {
        self.disks.push(Some(disk));
        self.disks.len() as u32 - 1
    }

    pub(crate) fn remove(&mut self, place: u32) {
        self.disks[place as usize] = None;
    }

    pub(crate) fn submit(&self, place: u32, tag: u64, work: Work) {
        self.out.update(|out| out + 1);
        let disk = self.disks[place as usize].as_ref();
        disk.expect("a place that was given")
            .submit(tag, work, &self.done);
    }

    pub(crate) fn keep(&mut self, until_ns: u64, place: u32, tag: u64, work: Work) {
        self.kept.push(Kept {
            until_ns,
            place,
            tag,
            work,
        });
    }

    pub(crate) fn keeps(&self) -> bool {
        !self.kept.is_empty()
    }

    pub(crate) fn release(&mut self, now_ns: u64, mut refuse: impl FnMut(u64)) {
        for kept in std::mem::take(&mut self.kept) {
            if kept.until_ns <= now_ns {
                refuse(kept.tag);
            } else {
                self.submit(kept.place, kept.tag, kept.work);
            }
        }
    }

    pub(crate) fn take_out(&mut self, tag: u64) -> usize {
        let of_tag = |kept: &mut Kept| kept.tag == tag;
        self.kept.extract_if(.., of_tag).count()
    }

    pub(crate) fn cancel(&self, tag: u64) {
        for disk in self.disks.iter().flatten() {
            disk.cancel(tag, &self.done);
        }
    }

    pub(crate) fn wake_fd(&self) -> RawFd {
        self.done.wake.fd()
    }

    pub(crate) fn pop(&self) -> Option<(u64, Result<u32, i32>)> {
        let ended = self.done.queue().pop_front();
        if ended.is_some() {
            self.out.update(|out| out - 1);
        }
        ended
    }

    pub(crate) fn out(&self) -> u32 {
        self.out.get() + self.kept.len() as u32
    }

    pub(crate) fn clear(&self) {
        self.done.wake.clear();
    }

    pub(crate) fn step(&self) -> Option<Duration> {
        let disks = self.disks.iter().flatten();
        disks.filter_map(SimulatedDisk::step).min()
    }
}
