//! Disk changes that may block at submission, executed by worker threads. io_uring is not used,
//! because its kernel thread could execute a blocked write at any later time.
//!
//! A worker reads the clock directly before the system call, which is made soon or not at all
//! ([`timely`]). If [`WITH_WORKERS_MAX`] changes of a file are with workers, further changes wait
//! here, and are cancelled when their lease ends. After a gap ([`ROUND_GAP`]), changes that have
//! not begun wait for the next round. On FUSE and NFS, a waiting worker may keep the file locked,
//! so workers submit by AIO ([`Aio`]).
//!
//! Why `unsafe` here: these system calls have no safe wrapper, and take raw memory to which devices
//! may write, so no reference to it may exist.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::aio::Aio;
use super::outgoing::Lease;
use crate::simulated_disk::Memory;
use crate::timely::{self, Look};
use crate::workers::{self, Ended, Outcome, Workers};

pub(super) const WITH_WORKERS_MAX: usize = 8;

/// Maximum empty queues kept, so that a write does not allocate.
const SPARE_MAX: usize = 16;

const FATES_MAX: usize = 256;

const WAITING_ROOM: usize = 64;

/// Maximum age of a round in which changes may begin. In an older round, hosts may have
/// disconnected unnoticed, so changes that have not begun wait for the next round.
pub const ROUND_GAP: Duration = Duration::from_millis(50);

pub(crate) type Open = Arc<dyn AsRawFd + Send + Sync>;

/// `BLKDISCARD` (`linux/fs.h`): `_IO(0x12, 119)`. Argument: two u64, offset and length in bytes.
const BLKDISCARD: usize = 0x12 << 8 | 119;

#[cfg(test)]
pub(crate) type Call = Box<dyn FnOnce() -> Ended + Send>;

pub(super) struct Write {
    pub(super) offset: u64,
    pub(super) memory: Memory,
    pub(super) durable: bool,
}

pub(super) enum Change {
    Write(Write),
    Allocate {
        offset: u64,
        length: u64,
        mode: i32,
    },
    /// Discards the range, whose data is then undefined.
    Discard {
        offset: u64,
        length: u32,
    },
    #[cfg(test)]
    Call(Call),
}

/// Cancellation flag, read by a worker before the system call.
#[derive(Clone, Default)]
struct Fate(Arc<AtomicBool>);

impl Fate {
    fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn lose(&self) {
        self.0.store(false, Ordering::Release);
    }

    fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn give_back(mut self, spare: &mut Vec<Self>) {
        if spare.len() < FATES_MAX
            && let Some(cancelled) = Arc::get_mut(&mut self.0)
        {
            *cancelled.get_mut() = false;
            spare.push(self);
        }
    }
}

pub(super) struct Job {
    file: Open,
    change: Change,
    lease: Lease,
    aio: Option<(Arc<Aio>, u64)>,
    /// Time in nanoseconds after which the change must not begin: [`ROUND_GAP`] after the round's
    /// start.
    known_until_ns: u64,
    fate: Fate,
}

impl workers::Job for Job {
    fn run(self) -> Outcome<Self> {
        loop {
            let look = Look::begin();
            let now_ns = self.lease.now_ns();
            if self.fate.is_cancelled() || self.lease.is_over(now_ns) {
                return Outcome::Ended(Err(libc::ECANCELED));
            }
            if self.known_until_ns <= now_ns {
                return Outcome::Undone(self);
            }
            let fd = self.file.as_raw_fd();
            let ended = match (&self.change, &self.aio) {
                (Change::Write(write), Some((aio, tag))) => {
                    match aio.write(look, *tag, fd, write) {
                        Some(Ok(())) => return Outcome::Begun,
                        refused => refused.map(|refused| refused.map(|()| 0)),
                    }
                }
                #[cfg(test)]
                (Change::Call(_), _) => return Outcome::Ended(self.change.call()),
                (change, _) => change.make(look, fd),
            };
            if let Some(ended) = ended {
                return Outcome::Ended(ended);
            }
        }
    }

    fn lose_cancellation(&self) {
        self.fate.lose();
    }
}

impl Change {
    /// Makes the system call, which blocks until completion. Returns `None` if the clock reading
    /// `look` is too old.
    fn make(&self, look: Look, fd: RawFd) -> Option<Ended> {
        let slice;
        let range;
        let (call, made) = match *self {
            Self::Write(Write {
                offset,
                ref memory,
                durable,
            }) => {
                slice = libc::iovec {
                    iov_base: (memory.mapping.addr() as usize + memory.at) as *mut libc::c_void,
                    iov_len: memory.length,
                };
                let at = &raw const slice as usize;
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                // The system call takes the offset as two halves. 64-bit machines ignore the upper
                // half.
                let (number, flags) = (libc::SYS_pwritev2, flags as usize);
                (
                    [
                        number as usize,
                        fd as usize,
                        at,
                        1,
                        offset as usize,
                        0,
                        flags,
                    ],
                    0,
                )
            }
            Self::Allocate {
                offset,
                length,
                mode,
            } => {
                let (number, mode) = (libc::SYS_fallocate as usize, mode as usize);
                let (offset, length) = (offset as usize, length as usize);
                ([number, fd as usize, mode, offset, length, 0, 0], 0)
            }
            Self::Discard { offset, length } => {
                range = [offset, u64::from(length)];
                let (number, at) = (libc::SYS_ioctl as usize, range.as_ptr() as usize);
                ([number, fd as usize, BLKDISCARD, at, 0, 0, 0], length)
            }
            #[cfg(test)]
            Self::Call(_) => unreachable!("a test makes it"),
        };
        // SAFETY: the ring has checked that the written bytes lie in the mapping, which `memory`
        // keeps until the call returns; the kernel only reads them. The slice and the range live as
        // long; the remaining arguments are numbers.
        let result = unsafe { timely::call(look, &call) }?;
        Some(match result {
            Ok(bytes) => Ok(made.max(bytes as u32)),
            Err(error) => Err(error.raw_os_error().unwrap_or(libc::EIO)),
        })
    }

    #[cfg(test)]
    fn call(self) -> Ended {
        match self {
            Self::Call(call) => call(),
            _ => unreachable!("a system call makes it"),
        }
    }
}

struct Begun {
    tag: u64,
    fate: Fate,
}

struct Queue {
    fd: RawFd,
    waiting: VecDeque<(u64, Job)>,
    begun: Vec<Begun>,
}

impl Queue {
    fn new() -> Self {
        Self {
            fd: -1,
            waiting: VecDeque::with_capacity(WAITING_ROOM),
            begun: Vec::with_capacity(WITH_WORKERS_MAX),
        }
    }
}

#[derive(Default)]
pub(super) struct Apart {
    workers: Option<Workers<Job>>,
    aio: OnceCell<Option<Arc<Aio>>>,
    under_way: Vec<u64>,
    early: Vec<(u64, Ended)>,
    queues: Vec<Queue>,
    spare: Vec<Queue>,
    fates: Vec<Fate>,
    dirty: bool,
    came_back: bool,
    closed: bool,
    stepped: bool,
}

impl Apart {
    pub(super) fn start(&mut self) -> Result<Option<RawFd>, ()> {
        if self.workers.is_some() {
            return Ok(None);
        }
        self.workers = Workers::new(self.stepped);
        let workers = self.workers.as_ref().ok_or(())?;
        Ok(Some(workers.wake_fd()))
    }

    pub(super) fn replace_threads(&mut self) {
        assert!(self.workers.is_none(), "no worker has started");
        self.stepped = true;
    }

    pub(super) fn step(&self, loses: bool) -> bool {
        self.workers.as_ref().is_some_and(|it| it.step(loses))
    }

    /// True if threads or the kernel execute changes, whose end wakes the ring.
    pub(super) fn will_wake(&self) -> bool {
        !self.stepped && self.begun() > 0
    }

    fn aio(&self) -> Option<Arc<Aio>> {
        let wake = self.workers.as_ref()?.wake_fd();
        self.aio
            .get_or_init(|| Aio::new(wake).ok().map(Arc::new))
            .clone()
    }

    pub(super) fn add(
        &mut self,
        tag: u64,
        (file, change): (Open, Change),
        lease: Lease,
        submits: bool,
    ) {
        self.dirty = true;
        let aio = if submits { self.aio() } else { None };
        let fd = file.as_raw_fd();
        let job = Job {
            file,
            change,
            lease,
            aio: aio.map(|aio| (aio, tag)),
            known_until_ns: 0,
            fate: self.fates.pop().unwrap_or_default(),
        };
        self.queue(fd).waiting.push_back((tag, job));
    }

    fn queue(&mut self, fd: RawFd) -> &mut Queue {
        let at = self.queues.iter().position(|queue| queue.fd == fd);
        let at = at.unwrap_or_else(|| {
            let mut queue = self.spare.pop().unwrap_or_else(Queue::new);
            queue.fd = fd;
            self.queues.push(queue);
            self.queues.len() - 1
        });
        &mut self.queues[at]
    }

    pub(super) fn keeps_changes(&self) -> bool {
        self.came_back
    }

    #[inline]
    pub(super) fn begin_round(&mut self) {
        self.dirty |= std::mem::take(&mut self.came_back);
    }

    /// Passes changes to workers. A change may begin until `known_until_ns`. Calls `refuse` with
    /// the tag of each change whose lease has ended.
    #[inline]
    pub(super) fn release(&mut self, known_until_ns: u64, refuse: impl FnMut(u64)) {
        if self.dirty {
            self.release_all(known_until_ns, refuse);
        }
    }

    fn release_all(&mut self, known_until_ns: u64, mut refuse: impl FnMut(u64)) {
        self.dirty = false;
        let Some(workers) = &self.workers else { return };
        for queue in &mut self.queues {
            while queue.begun.len() < WITH_WORKERS_MAX
                && let Some((tag, mut job)) = queue.waiting.pop_front()
            {
                if self.closed || job.lease.is_over(job.lease.now_ns()) {
                    refuse(tag);
                    continue;
                }
                job.known_until_ns = known_until_ns;
                let fate = job.fate.clone();
                queue.begun.push(Begun { tag, fate });
                workers.begin(tag, job);
            }
        }
        let is_empty = |queue: &mut Queue| queue.begun.is_empty() && queue.waiting.is_empty();
        for queue in self.queues.extract_if(.., is_empty) {
            if self.spare.len() < SPARE_MAX {
                self.spare.push(queue);
            }
        }
    }

    pub(super) fn collect(&mut self, mut each: impl FnMut(u64, Ended)) {
        let Some(workers) = &self.workers else { return };
        while let Some((tag, outcome)) = workers.pop() {
            let found = self.queues.iter_mut().find_map(|queue| {
                let at = queue.begun.iter().position(|begun| begun.tag == tag)?;
                Some((queue.begun.swap_remove(at).fate, queue))
            });
            let (fate, queue) = found.expect("a queue stays while workers have something of it");
            match outcome {
                Outcome::Undone(undone) if !fate.is_cancelled() && !self.closed => {
                    queue.waiting.push_front((tag, undone));
                    self.came_back = true;
                    continue;
                }
                Outcome::Undone(_) => each(tag, Err(libc::ECANCELED)),
                Outcome::Ended(ended) => each(tag, ended),
                Outcome::Begun => match self.early.iter().position(|(early, _)| *early == tag) {
                    Some(at) => each(tag, self.early.swap_remove(at).1),
                    None => self.under_way.push(tag),
                },
            }
            self.dirty = true;
            fate.give_back(&mut self.fates);
        }
        let Some(Some(aio)) = self.aio.get() else {
            return;
        };
        aio.ended(
            |tag, ended| match self.under_way.iter().position(|it| *it == tag) {
                Some(at) => {
                    self.under_way.swap_remove(at);
                    each(tag, ended);
                }
                None => self.early.push((tag, ended)),
            },
        );
    }

    /// Clears the eventfd, and returns it for polling. Completions must be collected afterwards.
    pub(super) fn rearm(&self) -> Option<RawFd> {
        let workers = self.workers.as_ref()?;
        workers.clear();
        Some(workers.wake_fd())
    }

    pub(super) fn cancel(&mut self, tag: u64, mut refuse: impl FnMut(u64)) {
        for queue in &mut self.queues {
            queue.waiting.retain(|(other, _)| {
                let goes = *other == tag;
                if goes {
                    refuse(tag);
                }
                !goes
            });
            let of_tag = queue.begun.iter().filter(|begun| begun.tag == tag);
            of_tag.for_each(|begun| begun.fate.cancel());
        }
    }

    pub(super) fn close(&mut self, refuse: impl FnMut(u64)) {
        self.closed = true;
        if let Some(workers) = &self.workers {
            workers.refuse_rest();
        }
        let waiting = self.queues.iter_mut().flat_map(|it| it.waiting.drain(..));
        waiting.map(|(tag, _)| tag).for_each(refuse);
    }

    pub(super) fn begun(&self) -> u32 {
        self.workers.as_ref().map_or(0, Workers::out) + self.under_way.len() as u32
    }

    pub(super) fn len(&self) -> u32 {
        let waiting: usize = self.queues.iter().map(|queue| queue.waiting.len()).sum();
        self.begun() + waiting as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::outgoing::Outgoing;
    use workers::Job as _;

    #[test]
    fn a_worker_does_not_begin_what_was_taken_back() {
        let mut apart = Apart::default();
        let file: Open = Arc::new(tempfile::tempfile().unwrap());
        let change = || Change::Call(Box::new(|| Ok(7)));
        let lease = || Outgoing::new(1).lease();
        for tag in [1, 2] {
            apart.add(tag, (Arc::clone(&file), change()), lease(), false);
        }
        let queue = &mut apart.queues[0];
        let mut jobs = Vec::new();
        while let Some((tag, mut job)) = queue.waiting.pop_front() {
            job.known_until_ns = u64::MAX;
            let fate = job.fate.clone();
            queue.begun.push(Begun { tag, fate });
            jobs.push(job);
        }
        apart.add(1, (file, change()), lease(), false);
        let mut refused = Vec::new();
        apart.cancel(1, |tag| refused.push(tag));
        assert_eq!(refused, [1], "what waits ends at once");
        let ended = jobs.into_iter().map(|job| match job.run() {
            Outcome::Ended(ended) => ended,
            Outcome::Begun | Outcome::Undone(_) => panic!("the change did not end"),
        });
        let ended: Vec<Ended> = ended.collect();
        assert_eq!(ended, [Err(libc::ECANCELED), Ok(7)]);
    }

    #[test]
    fn the_fate_of_a_change_is_used_again_as_new() {
        let (fate, mut spare) = (Fate::default(), Vec::new());
        fate.cancel();
        let with_worker = fate.clone();
        fate.give_back(&mut spare);
        assert!(spare.is_empty(), "a worker may still look at it");
        with_worker.give_back(&mut spare);
        assert!(spare.pop().is_some_and(|fate| !fate.is_cancelled()));
    }
}
