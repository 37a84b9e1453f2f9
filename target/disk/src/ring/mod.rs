//! io_uring of a reactor, for block I/O and for all sleeping.
//!
//! Why `unsafe` here: the kernel accesses buffers of submitted entries asynchronously. The ring
//! accepts only spans of its fixed buffers, no reference to their bytes exists ([`Mapping`]'s
//! contract), and the kernel holds their pages until the last operation has ended.

mod aio;
mod apart;
mod buffers;
mod drives;
mod entering;
mod files;
mod images;
mod operations;
mod outgoing;
mod queue_entries;
mod setup;
mod simulated;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_base::{Clock, Mapping};
use io_uring::{IoUring, cqueue, opcode, squeue, types};

use crate::memlock;
use crate::simulated_disk::{Attachment, Memory, SimulatedDisk, Work};
use crate::submission::Handover;

pub(crate) use apart::Open;
pub use apart::ROUND_GAP;
pub(crate) use drives::{Tags, can_poll_drives, check_drives};
pub use setup::disks_max;

use apart::Apart;
#[cfg(test)]
use apart::Call;
use drives::{DRIVES, DriveRings};
use images::{IMAGES, Images};
use outgoing::Outgoing;
use setup::{build, make_room};

/// Maximum fixed buffers: the zeroes, the arena, and receive slots for each device.
pub const BUFFERS_MAX: usize = 10;

/// Submission queue entries; a full queue is submitted early.
const SUBMISSIONS: u32 = 256;

/// Number of operations submitted together. Smaller batches cost more system calls; larger batches
/// leave the disk idle.
const BATCH: usize = 8;

/// Size in bytes of the zeroes written to disks that cannot zero a range.
pub(crate) const ZEROES: u32 = 64 * 1024;

const ZEROES_SLOT: u16 = 0;

/// Index of a fixed file, and the kinds of its operations that go to other threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSlot {
    index: u32,
    handover: Handover,
}

const SIMULATED_SLOT: u32 = 1 << 31;

impl FileSlot {
    #[inline(always)]
    fn simulated(self) -> Option<u32> {
        (self.index & SIMULATED_SLOT != 0).then_some(self.index & !SIMULATED_SLOT)
    }

    pub(crate) fn with(self, handover: Handover) -> Self {
        Self { handover, ..self }
    }

    /// True if writes may block at submission.
    #[inline(always)]
    pub fn writes_block(self) -> bool {
        self.handover.writes
    }

    #[inline(always)]
    fn fixed(self) -> types::Fixed {
        types::Fixed(self.index)
    }
}

/// Range of a fixed buffer of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub buffer: u16,
    /// Virtual address of the first byte.
    pub addr: u64,
    pub length: u32,
}

impl Span {
    #[inline]
    pub fn part(self, offset: u32, length: u32) -> Self {
        assert!(
            offset
                .checked_add(length)
                .is_some_and(|end| end <= self.length),
            "{length} bytes at {offset} of {self:?}"
        );
        Self {
            addr: self.addr + u64::from(offset),
            length,
            ..self
        }
    }
}

/// Tag bit of polls; zero in tags of operations.
const POLL: u64 = 1 << 63;

const IGNORED: u64 = 1 << 62;

/// Tag bit of polls of the simulated disks' descriptor, in addition to [`POLL`].
const SIMULATED: u64 = 1 << 61;

/// Tag bit of polls of the workers' eventfd, in addition to [`POLL`].
const WORKERS: u64 = 1 << 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    Operation {
        tag: u64,
        /// Number of bytes, or errno.
        result: Result<u32, i32>,
    },
    Readable {
        token: u32,
    },
}

pub struct Ring {
    uring: IoUring,
    pushed: u32,
    buffers: [Option<Arc<Mapping>>; BUFFERS_MAX],
    pinned: [bool; BUFFERS_MAX],
    /// Removed buffers that pending operations may still access, because they are not pinned.
    retired: Vec<Arc<Mapping>>,
    /// Fixed files, kept while operations are pending, because dropping a file would release its
    /// lock.
    files: Vec<Option<Open>>,
    files_max: usize,
    files_from: usize,
    files_removed: Vec<Open>,
    /// Number of operations in the kernel, the submission queue or `outgoing`; polls do not count.
    in_flight: u32,
    outgoing: Outgoing,
    /// Completions of [`Self::settle`] and of cancelled operations, which [`Self::pop`] returns
    /// first.
    settled: VecDeque<Finished>,
    /// Whether [`Self::pop`] returns only settled completions.
    settles: bool,
    simulated: Option<Box<Attachment>>,
    apart: Apart,
    images: Option<Box<Images>>,
    drives: Option<Box<DriveRings>>,
    polls_drives: bool,
}

impl Ring {
    /// Creates a ring for the calling thread and `operations` pending operations.
    pub fn new(operations: u32) -> io::Result<Self> {
        let uring = build(operations, false)?;
        let empty = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        // SAFETY: empty entries refer to no memory.
        unsafe { uring.submitter().register_buffers(&[empty; BUFFERS_MAX])? };
        let files = setup::files_max();
        make_room(&uring, files)?;
        // One kernel thread per operation, because a blocked operation must not delay other disks.
        // Linux before 5.15 lacks this setting.
        let _ = uring
            .submitter()
            .register_iowq_max_workers(&mut [operations, 0]);
        let mut ring = Self {
            uring,
            pushed: 0,
            buffers: Default::default(),
            pinned: [false; BUFFERS_MAX],
            retired: Vec::new(),
            files: Vec::new(),
            files_max: files,
            files_from: 0,
            files_removed: Vec::new(),
            in_flight: 0,
            outgoing: Outgoing::new(BATCH),
            settled: VecDeque::new(),
            settles: false,
            simulated: None,
            apart: Apart::default(),
            images: None,
            drives: None,
            polls_drives: false,
        };
        let zeroes = Arc::new(Mapping::anonymous(ZEROES as usize)?);
        let slot = ring.add_buffer(&zeroes)?;
        assert_eq!(slot, ZEROES_SLOT, "the zeroes come first");
        Ok(ring)
    }

    /// Sets the clock for leases, whose times count from `started`.
    pub fn set_clock(&mut self, clock: Clock, started: Instant) {
        self.outgoing.set_clock(clock, started);
    }

    /// Sets the lease of subsequent changes. A change that has not begun at `until_ns`
    /// (nanoseconds since the start) fails with `ECANCELED`.
    #[inline(always)]
    pub fn set_lease(&mut self, until_ns: u64) {
        self.outgoing.set_lease(until_ns);
    }

    /// Polls `fd` once, until the descriptor is readable.
    ///
    /// A multishot poll would report only new events, and a thread about to sleep would miss
    /// unread data.
    pub fn poll_readable(&mut self, token: u32, fd: RawFd) {
        let entry = opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32).build();
        self.push(&entry.user_data(POLL | u64::from(token)));
    }

    /// Cancels a [`Self::poll_readable`], which then never completes.
    pub fn cancel_poll(&mut self, token: u32) {
        let entry = opcode::PollRemove::new(POLL | u64::from(token)).build();
        self.push(&entry.user_data(IGNORED));
    }

    /// Returns the number of pending operations of all kinds, including queued operations.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        let simulated = self.simulated.as_ref().map_or(0, |disks| disks.out());
        self.in_flight + simulated + self.apart.len() + self.images_out() + self.drives_out()
    }

    #[cfg(test)]
    pub(crate) fn of_kernel(&self) -> u32 {
        self.in_flight
    }

    #[cfg(test)]
    fn begun_apart(&self) -> u32 {
        self.apart.begun()
    }

    /// Submits queued entries and processes available completions without waiting. Makes no system
    /// call without work.
    #[inline]
    pub fn submit(&mut self) -> io::Result<()> {
        self.release_changes();
        self.submit_drives()?;
        let queue = self.uring.submission();
        if queue.is_empty() && !queue.taskrun() && !queue.cq_overflow() {
            return Ok(());
        }
        drop(queue);
        self.enter()
    }

    /// Submits like [`Self::submit`], and sleeps until a completion or the timeout.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.release_changes();
        if self.outgoing.must_enter() {
            self.enter()?;
            if self.outgoing.must_enter() {
                return Ok(());
            }
        }
        if !self.settled.is_empty() || !self.watch_images() || !self.watch_drives()? {
            return self.submit();
        }
        let Some(timeout) = timeout else {
            return retry(self.uring.submit_and_wait(1));
        };
        let timespec = types::Timespec::from(timeout);
        let args = types::SubmitArgs::new().timespec(&timespec);
        retry(self.uring.submitter().submit_with_args(1, &args))
    }

    /// Waits until all pending operations have ended. [`Self::pop`] then returns their completions
    /// in the order of the tags, so that a simulation does not depend on the kernel's order. Later
    /// completions are kept for the next call. Changes that no worker began before a gap
    /// ([`ROUND_GAP`]) wait for the next round.
    pub fn settle(&mut self) -> io::Result<()> {
        self.settles = true;
        self.release_changes();
        while self.outgoing.lacks_room() {
            self.enter()?;
            self.release_changes();
        }
        if self.outgoing.has_queued() {
            self.enter()?;
        }
        loop {
            while let Some(finished) = self.take() {
                self.settled.push_back(finished);
            }
            if self.in_flight == self.outgoing.len() as u32 && !self.apart.will_wake() {
                break;
            }
            retry(self.uring.submit_and_wait(1))?;
        }
        self.enter()?;
        while let Some(finished) = self.take() {
            self.settled.push_back(finished);
        }
        self.settled
            .make_contiguous()
            .sort_by_key(|finished| match *finished {
                Finished::Operation { tag, .. } => tag,
                Finished::Readable { token } => token.into(),
            });
        self.step_simulated();
        Ok(())
    }

    /// True if [`Self::pop`] has a completion for which no descriptor becomes readable. The caller
    /// must then not sleep.
    #[inline]
    pub fn has_ended(&self) -> bool {
        !self.settled.is_empty()
    }

    /// True if changes wait for the next round because of a gap ([`ROUND_GAP`]). Such changes do
    /// not end [`Self::wait`].
    pub fn keeps_changes(&self) -> bool {
        let simulated = self.simulated.as_ref();
        self.outgoing.len() > 0
            || simulated.is_some_and(|disks| disks.keeps())
            || self.apart.keeps_changes()
            || self.drives_keep_changes()
    }

    #[inline]
    pub fn pop(&mut self) -> Option<Finished> {
        let settled = self.settled.pop_front();
        if self.settles {
            return settled;
        }
        settled
            .or_else(|| self.take())
            .or_else(|| self.pop_image())
            .or_else(|| self.pop_drive())
    }

    fn take(&mut self) -> Option<Finished> {
        loop {
            let entry: cqueue::Entry = self.uring.completion().next()?;
            let (tag, result) = (entry.user_data(), entry.result());
            if tag & IGNORED != 0 || (tag & POLL != 0 && result == -libc::ECANCELED) {
                continue;
            }
            if tag & POLL != 0 {
                if tag & WORKERS != 0 {
                    self.watch_workers();
                    self.collect_workers();
                } else if tag & IMAGES != 0 {
                    self.images_woke();
                } else if tag & DRIVES != 0 {
                    self.drives_woke();
                } else if tag & SIMULATED != 0 {
                    self.watch_simulated();
                    self.collect_simulated();
                } else {
                    return Some(Finished::Readable { token: tag as u32 });
                }
                match self.settled.pop_front() {
                    None => continue,
                    finished => return finished,
                }
            }
            self.in_flight -= 1;
            let result = u32::try_from(result).map_err(|_| -result);
            return Some(Finished::Operation { tag, result });
        }
    }

    fn push_operation(&mut self, tag: u64, entry: squeue::Entry) {
        self.begin(tag);
        self.push(&entry.user_data(tag));
        self.submit_batch();
    }

    fn push_change(&mut self, tag: u64, entry: squeue::Entry) {
        self.begin(tag);
        self.outgoing.add(tag, entry.user_data(tag));
        self.submit_batch();
    }

    #[inline]
    fn begin(&mut self, tag: u64) {
        assert!(
            tag & (POLL | IGNORED) == 0,
            "{tag:#x} is no operation's tag"
        );
        self.in_flight += 1;
    }

    #[inline]
    fn submit_batch(&mut self) {
        if self.uring.submission().len() + self.outgoing.len() >= BATCH {
            self.submit().expect("io_uring takes what it has room for");
        }
    }

    /// Passes changes with a valid lease to workers or the submission queue, and cancels changes
    /// whose lease has ended. Must be called directly before the system call. Changes continue to
    /// wait if [`ROUND_GAP`] has passed since the round began, or if the submission queue is full.
    #[inline]
    fn release_changes(&mut self) {
        let (known_until_ns, settled) = (self.outgoing.known_until_ns(), &mut self.settled);
        self.apart
            .release(known_until_ns, |tag| settled.push_back(cancelled(tag)));
        if self.simulated.is_some() {
            self.release_simulated();
        }
        if self.outgoing.len() == 0 {
            return;
        }
        let Self {
            uring,
            pushed,
            outgoing,
            settled,
            in_flight,
            ..
        } = self;
        let queue = uring.submission();
        let room = queue.capacity() - queue.len();
        drop(queue);
        outgoing.release(
            room,
            |entry| push(uring, pushed, entry).expect("room was counted"),
            |tag| {
                *in_flight -= 1;
                settled.push_back(cancelled(tag));
            },
        );
    }

    /// Pushes an entry without a lease. If the queue is full, first checks the leases in the queue
    /// and submits the queue.
    #[inline]
    fn push(&mut self, entry: &squeue::Entry) {
        while push(&mut self.uring, &mut self.pushed, entry).is_err() {
            self.enter().expect("io_uring takes what it has room for");
        }
    }
}

#[inline]
fn push(
    uring: &mut IoUring,
    pushed: &mut u32,
    entry: &squeue::Entry,
) -> Result<u32, squeue::PushError> {
    // SAFETY: the callers checked that the entry's buffer lies in a fixed buffer's mapping, whose
    // pages the kernel holds as long as it needs.
    unsafe { uring.submission().push(entry) }?;
    let place = *pushed;
    *pushed = place.wrapping_add(1);
    Ok(place)
}

fn cancelled(tag: u64) -> Finished {
    let result = Err(libc::ECANCELED);
    Finished::Operation { tag, result }
}

#[inline(always)]
fn async_flag(handed_over: bool) -> squeue::Flags {
    if handed_over {
        squeue::Flags::ASYNC
    } else {
        squeue::Flags::empty()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.in_flight() > 0 {
            // The files leak, because closing them would release locks that pending operations
            // need.
            let files = self.files.drain(..).flatten();
            return files
                .chain(self.files_removed.drain(..))
                .for_each(std::mem::forget);
        }
        // Without this call, block devices would stay claimed and memory would count as locked
        // until the kernel tears down the ring.
        let submitter = self.uring.submitter();
        let _ = (submitter.unregister_files(), submitter.unregister_buffers());
    }
}

/// Ignores a signal, a timeout and a full completion queue: the caller polls again.
fn retry(result: io::Result<usize>) -> io::Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(error) => match error.raw_os_error() {
            Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN) => Ok(()),
            _ => Err(error),
        },
    }
}
