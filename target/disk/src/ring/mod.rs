//! A reactor's io_uring: its block I/O and the one place where it sleeps.
//!
//! Why `unsafe` here: the kernel reads and writes the buffers of a submitted
//! entry behind the compiler's back. The ring makes that sound by itself: it
//! accepts only spans of mappings that are its fixed buffers, to whose bytes no
//! reference exists ([`Mapping`]'s contract), and whose pages the kernel itself
//! holds until the last operation on them has ended, also if they are unmapped before.

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

use cairn_rdma::{Clock, Mapping};
use io_uring::{IoUring, cqueue, opcode, squeue, types};

use crate::memlock;
use crate::simulated_disk::{Attachment, Memory, SimulatedDisk, Work};
use crate::submission::Handover;

pub use apart::GAP;
pub(crate) use apart::Open;
pub(crate) use drives::{Tags, can_poll_drives, check_drives};
pub use setup::disks_max;

use apart::Apart;
#[cfg(test)]
use apart::Call;
use drives::{DRIVES, DriveRings};
use images::{IMAGES, Images};
use outgoing::Outgoing;
use setup::{build, make_room};

/// Fixed buffers a ring has room for: the zeroes, the arena, and one set of
/// receive slots for each device.
pub const BUFFERS_MAX: usize = 10;

/// Entries of the submission queue. A full one is handed to the kernel early,
/// so this bounds a batch and not what is in flight.
const SUBMISSIONS: u32 = 256;

/// Operations that are gathered before the kernel gets them. Fewer cost a system
/// call each; more keep a disk waiting while we gather, and us while it works, and
/// then everything is done at once again.
const BATCH: usize = 8;

/// Bytes of zeroes kept for disks that cannot zero a range by themselves.
pub(crate) const ZEROES: u32 = 64 * 1024;

/// The fixed buffer that holds the zeroes.
const ZEROES_SLOT: u16 = 0;

/// An index into the ring's fixed files, and what is handed over there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSlot {
    index: u32,
    handover: Handover,
}

/// Marks the slot of a simulated disk.
const SIMULATED_SLOT: u32 = 1 << 31;

impl FileSlot {
    /// The place of a simulated disk, if it is one.
    #[inline(always)]
    fn simulated(self) -> Option<u32> {
        (self.index & SIMULATED_SLOT != 0).then_some(self.index & !SIMULATED_SLOT)
    }

    /// The same file, of which that is handed over from now on.
    pub(crate) fn with(self, handover: Handover) -> Self {
        Self { handover, ..self }
    }

    /// Whether a write of it may block where it is submitted.
    #[inline(always)]
    pub fn writes_block(self) -> bool {
        self.handover.writes
    }

    /// How the kernel knows it.
    #[inline(always)]
    fn fixed(self) -> types::Fixed {
        types::Fixed(self.index)
    }
}

/// A stretch of one of the ring's fixed buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Which fixed buffer.
    pub buffer: u16,
    /// Virtual address of the first byte.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
}

impl Span {
    /// `length` bytes of it, from `offset` on.
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

/// Marks the entries that wait for a descriptor; the tags of operations leave it 0.
const POLL: u64 = 1 << 63;

/// Marks what no request waits for.
const IGNORED: u64 = 1 << 62;

/// With [`POLL`], marks the wait for simulated disks.
const SIMULATED: u64 = 1 << 61;

/// With [`POLL`], marks the wait for workers.
const WORKERS: u64 = 1 << 60;

/// Something the ring finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// An operation on a file.
    Operation {
        /// As given on submission.
        tag: u64,
        /// Bytes, or an errno.
        result: Result<u32, i32>,
    },
    /// A descriptor is readable.
    Readable {
        /// As given to [`Ring::poll_readable`].
        token: u32,
    },
}

/// One io_uring.
pub struct Ring {
    uring: IoUring,
    /// Entries that were put into its submission queue, modulo 2^32.
    pushed: u32,
    buffers: [Option<Arc<Mapping>>; BUFFERS_MAX],
    /// Those that the kernel has pinned. The limit on locked memory may keep it from that.
    pinned: [bool; BUFFERS_MAX],
    /// Those that it had not pinned, that are gone, and that operations may still use.
    retired: Vec<Arc<Mapping>>,
    /// Fixed files by index. A file is dropped when it is removed, and then nothing of it is in
    /// flight: the lock on a file may end no earlier.
    files: Vec<Option<Open>>,
    files_max: usize,
    /// The files before this one are taken.
    files_from: usize,
    /// Files that were removed while something was in flight.
    files_removed: Vec<Open>,
    /// Operations on buffers and files that the kernel has; polls do not count.
    in_flight: u32,
    /// Changes that the next system call takes along.
    outgoing: Outgoing,
    /// What [`Self::settle`] has waited for, and what was refused.
    settled: VecDeque<Finished>,
    /// Whether [`Self::pop`] returns only what was settled: in a simulation.
    settles: bool,
    /// Simulated disks, if it has any.
    simulated: Option<Box<Attachment>>,
    /// Changes that may block, and what the ring cannot do.
    apart: Apart,
    /// Operations on images of a Ceph cluster, if there ever was one.
    images: Option<Box<Images>>,
    /// Commands to NVMe drives, if there ever was one.
    drives: Option<Box<DriveRings>>,
    /// Whether drives are polled that can be.
    polls_drives: bool,
}

impl Ring {
    /// A ring for the calling thread, with room for `operations` in flight.
    pub fn new(operations: u32) -> io::Result<Self> {
        let uring = build(operations, false)?;
        let empty = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        // SAFETY: empty entries name no memory.
        unsafe { uring.submitter().register_buffers(&[empty; BUFFERS_MAX])? };
        let files = setup::files_max();
        make_room(&uring, files)?;
        // As many threads of the kernel as operations, if it comes to that: one that hangs
        // must not keep those of other disks from starting. It makes them as it needs them.
        // Linux before 5.15 has no such limit to set.
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

    /// Changes of disks have leases, which end by this clock; its times count from `started`.
    pub fn set_clock(&mut self, clock: Clock, started: Instant) {
        self.outgoing.set_clock(clock, started);
    }

    /// The changes that are asked for next may begin until then, in nanoseconds since the
    /// start. Later they end with `ECANCELED`, and nothing was done.
    #[inline(always)]
    pub fn set_lease(&mut self, until_ns: u64) {
        self.outgoing.set_lease(until_ns);
    }

    /// Completes once `fd` is readable: at once if it is already.
    ///
    /// One shot and not multishot, which reports only what becomes ready after
    /// it looked: a thread that goes to sleep must not miss what came before.
    pub fn poll_readable(&mut self, token: u32, fd: RawFd) {
        let entry = opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32).build();
        self.push(&entry.user_data(POLL | u64::from(token)));
    }

    /// Takes back a [`Self::poll_readable`], which then never completes.
    pub fn cancel_poll(&mut self, token: u32) {
        let entry = opcode::PollRemove::new(POLL | u64::from(token)).build();
        self.push(&entry.user_data(IGNORED));
    }

    /// Operations on files in flight, and those that are about to be submitted, here, by
    /// workers and on simulated disks.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        let simulated = self.simulated.as_ref().map_or(0, |disks| disks.out());
        self.in_flight + simulated + self.apart.len() + self.images_out() + self.drives_out()
    }

    /// Operations that the kernel has, or gets with the next system call.
    #[cfg(test)]
    pub(crate) fn of_kernel(&self) -> u32 {
        self.in_flight
    }

    #[cfg(test)]
    fn begun_apart(&self) -> u32 {
        self.apart.begun()
    }

    /// Hands what was pushed to the kernel and lets it finish what it can,
    /// without waiting. No system call if there is nothing of either.
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

    /// As [`Self::submit`], then sleeps until something completes or the
    /// timeout is over.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.release_changes();
        if self.outgoing.has_queued() {
            self.enter()?;
            // The kernel did not take all of them, and gets the rest by another look at the clock.
            if self.outgoing.has_queued() {
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

    /// Waits for all operations in flight, so that they end in the order of their
    /// tags and not in one that the kernel chooses: for simulations, where disks
    /// take no time. From then on nothing else ends: what the kernel or a worker has
    /// finished waits for the next call, however early it was finished. What comes back from
    /// workers, because the round began long ago, waits for the next round: until then it would
    /// come back again.
    pub fn settle(&mut self) -> io::Result<()> {
        self.settles = true;
        self.release_changes();
        if self.outgoing.has_queued() {
            self.enter()?;
        }
        loop {
            while let Some(finished) = self.take() {
                self.settled.push_back(finished);
            }
            if self.in_flight == self.outgoing.len() as u32 && self.apart.begun() == 0 {
                break;
            }
            retry(self.uring.submit_and_wait(1))?;
        }
        // How often the kernel was called above depends on the workers' speed, and with it
        // which descriptors it has reported as readable: all that are, now.
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

    /// Whether something has ended that was not taken yet, and that no wait would report.
    #[inline]
    pub fn has_ended(&self) -> bool {
        !self.settled.is_empty()
    }

    /// Whether changes were kept because there was a gap. They go in a round that begins after it,
    /// and no wait would report that.
    pub fn keeps_changes(&self) -> bool {
        let simulated = self.simulated.as_ref();
        self.outgoing.len() > 0
            || simulated.is_some_and(|disks| disks.keeps())
            || self.apart.keeps_changes()
            || self.drives_keep_changes()
    }

    /// The next completion, if there is one.
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

    /// The same for what changes a disk.
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

    /// Puts changes whose leases have not ended into the submission queue, directly before
    /// the kernel gets it, and ends the others. After a gap they stay.
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
        outgoing.release(
            |entry| push(uring, pushed, entry),
            |tag| {
                *in_flight -= 1;
                settled.push_back(cancelled(tag));
            },
        );
    }

    #[inline]
    fn push(&mut self, entry: &squeue::Entry) {
        push(&mut self.uring, &mut self.pushed, entry);
    }
}

/// Puts an entry into the submission queue; returns its place. There is room: whatever fills the
/// queue submits it at [`BATCH`], and calls the kernel otherwise.
#[inline]
fn push(uring: &mut IoUring, pushed: &mut u32, entry: &squeue::Entry) -> u32 {
    // SAFETY: the callers checked that the entry's buffer lies in a mapping
    // that is a fixed buffer, whose pages the kernel holds as long as it needs.
    while unsafe { uring.submission().push(entry) }.is_err() {
        retry(uring.submit()).expect("io_uring takes what it has room for");
    }
    let place = *pushed;
    *pushed = place.wrapping_add(1);
    place
}

/// The end of what was not begun.
fn cancelled(tag: u64) -> Finished {
    let result = Err(libc::ECANCELED);
    Finished::Operation { tag, result }
}

/// How an entry goes that is handed over, or is not.
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
            // The kernel, too, has what is in flight until it has ended, and so has the lock on its
            // file: that is not given up here, nor is the file closed before the process ends.
            let files = self.files.drain(..).flatten();
            return files
                .chain(self.files_removed.drain(..))
                .for_each(std::mem::forget);
        }
        // The kernel takes a closed ring apart some time later. The files are to
        // be closed now: a block device that is still open cannot be claimed again.
        // And the memory is to count as locked no longer.
        let submitter = self.uring.submitter();
        let _ = (submitter.unregister_files(), submitter.unregister_buffers());
    }
}

/// A signal, a timeout or a full completion queue is no failure: the caller
/// polls and comes again.
fn retry(result: io::Result<usize>) -> io::Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(error) => match error.raw_os_error() {
            Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN) => Ok(()),
            _ => Err(error),
        },
    }
}
