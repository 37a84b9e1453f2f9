//! NVMe drives past the block layer: a ring beside the reactor's own, because its entries are
//! twice as large (IORING_OP_URING_CMD). What ends wakes the reactor's ring by an eventfd, which
//! is polled only while the reactor sleeps.
//!
//! The kernel tries a command without waiting. Without a free tag of the drive it hands the
//! command to a thread of its own, which may carry it out long after the process was stopped. So
//! the rings of a drive share its tags, and what has no tag waits here, where its lease is
//! looked at directly before the kernel gets it.

use std::sync::atomic::{AtomicU32, Ordering};

use cairn_rdma::wake::Wake;

use super::entering::ENTER_GETEVENTS;
use super::*;
use crate::nvme::{Blocks, Command, RANGE_BYTES, STATUS, URING_CMD_IO, range};

/// With [`POLL`], marks the wait for drives.
pub(super) const DRIVES: u64 = 1 << 58;

/// Marks the slot of a drive.
const DRIVE_SLOT: u32 = 1 << 30;

/// Drives that a ring has room for: their number is in the upper 8 bits of an entry's data.
const DRIVES_MAX: usize = 255;

/// Where an entry's data has the drive's number; below it is the tag.
const PLACE_SHIFT: u32 = 56;

/// Ranges to deallocate that are under way at a time.
const RANGES: usize = 256;

/// Commands that may wait before a queue grows.
const WAITING_ROOM: usize = 64;

/// The tags of a drive, which all rings share that have it.
#[derive(Debug)]
pub(crate) struct Tags {
    count: u32,
    rings: AtomicU32,
}

impl Tags {
    /// So many of each queue of the drive.
    pub(crate) fn new(count: u32) -> Self {
        Self {
            count,
            rings: AtomicU32::new(0),
        }
    }

    /// Those of one ring: at least one, else its commands would wait for those of another.
    fn of_a_ring(&self) -> u32 {
        (self.count / self.rings.load(Ordering::Relaxed).max(1)).max(1)
    }
}

/// A command that the kernel does not have yet.
struct Waiting {
    tag: u64,
    entry: squeue::Entry128,
    /// When its lease ends, in nanoseconds since the target started.
    until_ns: u64,
}

/// A drive in the ring.
struct Place {
    tags: Arc<Tags>,
    waiting: VecDeque<Waiting>,
    /// Commands that the kernel has.
    under_way: u32,
    /// Whether the drive was taken back. Its number is free when nothing is under way.
    closed: bool,
}

/// The commands of a ring to drives.
pub(super) struct Drives {
    uring: IoUring<squeue::Entry128, cqueue::Entry32>,
    wake: Wake,
    /// Whether the reactor's ring waits for the eventfd.
    watched: bool,
    places: Vec<Option<Place>>,
    /// All commands whose end was not popped, and those of them that wait.
    out: u32,
    waiting: u32,
    /// Memory for ranges, and the tags of the commands that have it.
    ranges: Arc<Mapping>,
    ranges_taken: Vec<Option<u64>>,
    ranges_out: u32,
}

/// Whether the kernel has such rings.
pub(crate) fn check_drives() -> io::Result<()> {
    build_for_drives(1).map(drop)
}

fn build_for_drives(operations: u32) -> io::Result<IoUring<squeue::Entry128, cqueue::Entry32>> {
    build(operations).map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => io::Error::other(
            "this kernel's io_uring has no commands of 128 bytes: Linux 5.19 or newer is needed",
        ),
        _ => error,
    })
}

impl Drives {
    fn new() -> io::Result<Self> {
        let uring = build_for_drives(SUBMISSIONS)?;
        let wake = Wake::new().map_err(io::Error::other)?;
        uring.submitter().register_eventfd(wake.fd())?;
        make_room(&uring, DRIVES_MAX)?;
        Ok(Self {
            uring,
            wake,
            watched: false,
            places: Vec::new(),
            out: 0,
            waiting: 0,
            ranges: Arc::new(Mapping::anonymous(RANGES * RANGE_BYTES)?),
            ranges_taken: vec![None; RANGES],
            ranges_out: 0,
        })
    }

    fn add(&mut self, fd: RawFd, tags: &Arc<Tags>) -> io::Result<u32> {
        let free = self.places.iter().position(Option::is_none);
        let index = free.unwrap_or(self.places.len());
        if index == DRIVES_MAX {
            return Err(io::Error::other(format!(
                "a target has room for {DRIVES_MAX} NVMe drives past the block layer: export \
                 others as block devices"
            )));
        }
        self.uring
            .submitter()
            .register_files_update(index as u32, &[fd])?;
        tags.rings.fetch_add(1, Ordering::Relaxed);
        if index == self.places.len() {
            self.places.push(None);
        }
        self.places[index] = Some(Place {
            tags: Arc::clone(tags),
            waiting: VecDeque::with_capacity(WAITING_ROOM),
            under_way: 0,
            closed: false,
        });
        Ok(index as u32)
    }

    /// Takes a drive back, and hands the tags of what waits to `refuse`.
    fn remove(&mut self, index: u32, refuse: impl FnMut(u64)) -> io::Result<()> {
        let slot = &mut self.places[index as usize];
        let place = slot.as_mut().expect("the drive was added");
        place.tags.rings.fetch_sub(1, Ordering::Relaxed);
        place.closed = true;
        let waiting = place.waiting.len() as u32;
        (self.waiting, self.out) = (self.waiting - waiting, self.out - waiting);
        let tags: Vec<u64> = place.waiting.drain(..).map(|it| it.tag).collect();
        if place.under_way == 0 {
            *slot = None;
        }
        for &tag in &tags {
            self.free_range(tag);
        }
        tags.into_iter().for_each(refuse);
        let none = self.uring.submitter();
        none.register_files_update(index, &[-1]).map(drop)
    }

    /// Hands over what has a tag, and ends what is too late.
    fn release(&mut self, now_ns: impl Fn() -> u64, mut refuse: impl FnMut(u64)) {
        let Self { uring, places, .. } = self;
        let (mut now, mut late) = (None, 0);
        for place in places.iter_mut().flatten() {
            let most = place.tags.of_a_ring();
            while place.under_way < most
                && let Some(next) = place.waiting.pop_front()
            {
                self.waiting -= 1;
                if next.until_ns < u64::MAX && next.until_ns <= *now.get_or_insert_with(&now_ns) {
                    late += 1;
                    refuse(next.tag);
                    continue;
                }
                place.under_way += 1;
                push_large(uring, &next.entry);
            }
        }
        self.out -= late;
    }

    /// Has the kernel take what was pushed, and finish what it can.
    fn enter(&mut self) -> io::Result<()> {
        let queue = self.uring.submission();
        let pushed = queue.len() as u32;
        let idle = pushed == 0 && !queue.taskrun() && !queue.cq_overflow();
        drop(queue);
        if idle {
            return Ok(());
        }
        // SAFETY: the entries' memory is kept until they end; no argument points anywhere.
        let entered = unsafe {
            let submitter = self.uring.submitter();
            submitter.enter::<libc::sigset_t>(pushed, 0, ENTER_GETEVENTS, None)
        };
        retry(entered)
    }

    fn pop(&mut self) -> Option<Finished> {
        let entry = self.uring.completion().next()?;
        let (data, result) = (entry.user_data(), entry.result());
        let tag = data & ((1 << PLACE_SHIFT) - 1);
        let slot = &mut self.places[(data >> PLACE_SHIFT) as usize];
        let place = slot
            .as_mut()
            .expect("a drive stays while it has something under way");
        place.under_way -= 1;
        if place.closed && place.under_way == 0 {
            *slot = None;
        }
        self.out -= 1;
        self.free_range(tag);
        // Above 0 is the drive's status, below an errno.
        let result = match result {
            0 => Ok(0),
            status @ 1.. => Err(STATUS + status),
            errno => Err(-errno),
        };
        Some(Finished::Operation { tag, result })
    }

    /// Memory with that range, until the command of the tag ends; `None` if there is none.
    fn take_range(&mut self, tag: u64, bytes: &[u8]) -> Option<u64> {
        let index = self.ranges_taken.iter().position(Option::is_none)?;
        self.ranges_taken[index] = Some(tag);
        self.ranges_out += 1;
        let at = index * RANGE_BYTES;
        self.ranges.write(at, bytes);
        Some(self.ranges.addr() + at as u64)
    }

    fn free_range(&mut self, tag: u64) {
        if self.ranges_out == 0 {
            return;
        }
        let mut taken = self.ranges_taken.iter_mut();
        if let Some(slot) = taken.find(|slot| **slot == Some(tag)) {
            *slot = None;
            self.ranges_out -= 1;
        }
    }
}

impl Drop for Drives {
    fn drop(&mut self) {
        // As in the reactor's ring: the files are to be closed now.
        let _ = self.uring.submitter().unregister_files();
    }
}

impl FileSlot {
    /// The number of a drive, if it is one.
    pub(super) fn drive(self) -> Option<u32> {
        (self.index & (DRIVE_SLOT | SIMULATED_SLOT) == DRIVE_SLOT)
            .then_some(self.index & !DRIVE_SLOT)
    }
}

impl Ring {
    /// Adds a drive, which is open as `fd`.
    pub(crate) fn add_drive(&mut self, fd: RawFd, tags: &Arc<Tags>) -> io::Result<FileSlot> {
        if self.drives.is_none() {
            self.drives = Some(Box::new(Drives::new()?));
        }
        let drives = self.drives.as_mut().expect("it was made");
        Ok(FileSlot {
            index: drives.add(fd, tags)? | DRIVE_SLOT,
            handover: Handover::default(),
        })
    }

    pub(super) fn remove_drive(&mut self, index: u32) -> io::Result<()> {
        let (Some(drives), settled) = (&mut self.drives, &mut self.settled) else {
            return Ok(());
        };
        drives.remove(index, |tag| settled.push_back(cancelled(tag)))
    }

    pub(super) fn remove_all_drives(&mut self) -> io::Result<()> {
        let places = self.drives.iter().flat_map(|drives| drives.places.iter());
        let is_open = |place: &Option<Place>| place.as_ref().is_some_and(|place| !place.closed);
        let open: Vec<bool> = places.map(is_open).collect();
        for (index, _) in open.iter().enumerate().filter(|(_, open)| **open) {
            self.remove_drive(index as u32)?;
        }
        Ok(())
    }

    /// Has a drive carry out a command, whose data is in `span`. It completes as an operation of
    /// this tag. `changes`: it changes the drive, and so must begin in time.
    pub(crate) fn command(
        &mut self,
        tag: u64,
        file: FileSlot,
        command: &Command,
        span: Option<Span>,
        changes: bool,
    ) {
        if let Some(span) = span {
            self.locate(span);
        }
        let (addr, length) = span.map_or((0, 0), |span| (span.addr, span.length));
        self.push_command(tag, file, command, (addr, length), changes);
    }

    /// Has a drive deallocate blocks.
    pub(crate) fn deallocate(
        &mut self,
        tag: u64,
        file: FileSlot,
        command: &Command,
        blocks: Blocks,
    ) {
        let drives = self.drives.as_mut().expect("the drive was added");
        match drives.take_range(tag, &range(blocks)) {
            Some(addr) => self.push_command(tag, file, command, (addr, RANGE_BYTES as u32), true),
            // All are under way: it is tried again later.
            None => self.settled.push_back(Finished::Operation {
                tag,
                result: Err(libc::EAGAIN),
            }),
        }
    }

    fn push_command(
        &mut self,
        tag: u64,
        file: FileSlot,
        command: &Command,
        (addr, length): (u64, u32),
        changes: bool,
    ) {
        assert!(tag >> PLACE_SHIFT == 0, "{tag:#x} is no operation's tag");
        let index = file.drive().expect("a drive's slot");
        let drives = self.drives.as_mut().expect("the drive was added");
        let mut bytes = [0; 80];
        let encoded = command.encode(addr, length);
        bytes[..encoded.len()].copy_from_slice(&encoded);
        let entry = opcode::UringCmd80::new(types::Fixed(index), URING_CMD_IO)
            .cmd(bytes)
            .build()
            .user_data(u64::from(index) << PLACE_SHIFT | tag);
        let until_ns = if changes {
            self.outgoing.until_ns()
        } else {
            u64::MAX
        };
        let place = drives.places[index as usize].as_mut();
        let place = place.expect("the drive was added");
        place.waiting.push_back(Waiting {
            tag,
            entry,
            until_ns,
        });
        drives.out += 1;
        drives.waiting += 1;
        if drives.waiting as usize >= BATCH {
            self.submit_drives()
                .expect("io_uring takes what it has room for");
        }
    }

    /// As [`Self::submit`], for drives.
    #[inline]
    pub(super) fn submit_drives(&mut self) -> io::Result<()> {
        match &self.drives {
            Some(drives) if drives.out > 0 => self.release_to_drives(),
            _ => Ok(()),
        }
    }

    fn release_to_drives(&mut self) -> io::Result<()> {
        let Self {
            drives,
            outgoing,
            settled,
            ..
        } = self;
        let drives = drives.as_mut().expect("it was looked at");
        if drives.waiting > 0 {
            let refuse = |tag| settled.push_back(cancelled(tag));
            drives.release(|| outgoing.now_ns(), refuse);
        }
        drives.enter()
    }

    /// Has drives wake the ring, which is about to sleep; `false` if one has ended something.
    #[inline]
    pub(super) fn watch_drives(&mut self) -> io::Result<bool> {
        let Some(drives) = self.drives.as_mut().filter(|drives| drives.out > 0) else {
            return Ok(true);
        };
        if !drives.watched {
            // Before the last look: what ends after it makes the eventfd readable again.
            drives.wake.clear();
        }
        self.submit_drives()?;
        let drives = self.drives.as_mut().expect("it was looked at");
        if !drives.uring.completion().is_empty() || !self.settled.is_empty() {
            return Ok(false);
        }
        if !std::mem::replace(&mut drives.watched, true) {
            let fd = types::Fd(drives.wake.fd());
            let entry = opcode::PollAdd::new(fd, libc::POLLIN as u32).build();
            self.push(&entry.user_data(POLL | DRIVES));
        }
        Ok(true)
    }

    /// The wait for drives is over.
    pub(super) fn drives_woke(&mut self) {
        if let Some(drives) = &mut self.drives {
            drives.watched = false;
            drives.wake.clear();
            // What was deferred to this thread ends by this call.
            drives.enter().expect("io_uring takes what it has room for");
        }
    }

    /// What a drive has ended.
    #[inline]
    pub(super) fn pop_drive(&mut self) -> Option<Finished> {
        let drives = self.drives.as_mut()?;
        if drives.out == drives.waiting {
            return None;
        }
        drives.pop()
    }

    /// Takes out what waits of a tag, for a drive.
    pub(super) fn take_back_from_drives(&mut self, tag: u64) {
        let (Some(drives), settled) = (&mut self.drives, &mut self.settled) else {
            return;
        };
        if drives.waiting == 0 {
            return;
        }
        let mut count = 0;
        for place in drives.places.iter_mut().flatten() {
            let before = place.waiting.len();
            place.waiting.retain(|waiting| waiting.tag != tag);
            count += (before - place.waiting.len()) as u32;
        }
        if count > 0 {
            drives.free_range(tag);
        }
        (drives.waiting, drives.out) = (drives.waiting - count, drives.out - count);
        settled.extend((0..count).map(|_| cancelled(tag)));
    }

    /// Operations that drives have, or are about to get.
    pub(super) fn drives_out(&self) -> u32 {
        self.drives.as_ref().map_or(0, |drives| drives.out)
    }
}

/// Puts an entry into the submission queue, which the kernel empties where it is full.
fn push_large(uring: &mut IoUring<squeue::Entry128, cqueue::Entry32>, entry: &squeue::Entry128) {
    // SAFETY: the entry's memory is a mapping's that the ring keeps until nothing is in flight.
    while unsafe { uring.submission().push(entry) }.is_err() {
        retry(uring.submit()).expect("io_uring takes what it has room for");
    }
}
