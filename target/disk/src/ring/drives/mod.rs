//! NVMe drives past the block layer: a ring beside the reactor's own, because its entries are
//! twice as large (IORING_OP_URING_CMD). What ends wakes the reactor's ring by an eventfd, which
//! is polled only while the reactor sleeps.
//!
//! The kernel tries a command without waiting. Without a free tag of the drive it hands the
//! command to a thread of its own, which may carry it out long after the process was stopped. So
//! the rings of a drive share its tags, and what has no tag waits here, where its lease is
//! looked at directly before the kernel gets it, by the same means as other changes: soon after
//! the look, or not at all ([`crate::timely`]).
//!
//! The fixed buffers of the reactor's ring are those of this one, too: else the kernel pins the
//! pages of each command.

mod entering;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU32, Ordering};

use cairn_rdma::wake::Wake;
use io_uring::Probe;

use super::*;
use crate::nvme::{Blocks, Command, RANGE_BYTES, STATUS, URING_CMD_IO, range};
use crate::timely::Look;
use entering::Queued;

/// With [`POLL`], marks the wait for drives.
pub(super) const DRIVES: u64 = 1 << 58;

/// Marks the slot of a drive.
const DRIVE_SLOT: u32 = 1 << 30;

/// Drives that a ring has room for: their number is in the upper 8 bits of an entry's data.
const DRIVES_MAX: usize = 255;

/// Where an entry's data has the drive's number; below it is the tag.
const PLACE_SHIFT: u32 = 56;

/// The data of an entry that was taken back: of no place.
const TAKEN_BACK: u64 = (DRIVES_MAX as u64) << PLACE_SHIFT;

/// The buffer of what is no fixed one.
const UNPINNED: u16 = u16::MAX;

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
    /// When its lease ends, in nanoseconds since the target started. None if it changes nothing.
    until_ns: Option<u64>,
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
    /// The fixed buffers of the reactor's ring that the kernel has pinned for this one, too.
    pinned: [bool; BUFFERS_MAX],
    /// Whether it can: Linux 6.1.
    can_pin: bool,
    /// Entries that were put into the submission queue, modulo 2^32.
    pushed: u32,
    /// The changes in it, and the look at the clock by which they may be carried out.
    queued: Vec<Queued>,
    look: Option<Look>,
    /// All commands whose end was not popped, and those of them that wait.
    out: u32,
    waiting: u32,
    /// Memory for ranges, and the tags of the commands that have it.
    ranges: Arc<Mapping>,
    ranges_taken: Vec<Option<u64>>,
    ranges_out: u32,
}

/// Whether commands take fixed buffers (`IORING_URING_CMD_FIXED`): Linux 6.1, which is the first
/// with this other operation.
fn has_fixed_commands(uring: &IoUring<squeue::Entry128, cqueue::Entry32>) -> bool {
    let mut probe = Probe::new();
    let asked = uring.submitter().register_probe(&mut probe);
    asked.is_ok() && probe.is_supported(opcode::SendMsgZc::CODE)
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
        let can_pin = has_fixed_commands(&uring);
        if can_pin {
            let empty = libc::iovec {
                iov_base: std::ptr::null_mut(),
                iov_len: 0,
            };
            // SAFETY: empty entries name no memory.
            unsafe { uring.submitter().register_buffers(&[empty; BUFFERS_MAX])? };
        }
        Ok(Self {
            pinned: [false; BUFFERS_MAX],
            can_pin,
            pushed: 0,
            queued: Vec::with_capacity(SUBMISSIONS as usize),
            look: None,
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

    /// Makes a buffer of the reactor's ring a fixed one of this. Without it, commands name the
    /// memory.
    fn pin(&mut self, slot: usize, mapping: &Mapping) {
        if self.can_pin {
            let iovec = libc::iovec {
                iov_base: mapping.addr() as *mut libc::c_void,
                iov_len: mapping.len(),
            };
            // SAFETY: the reactor's ring keeps the mapping until it is taken back here, too.
            self.pinned[slot] = unsafe { self.register(slot, iovec) }.is_ok();
        }
    }

    /// Takes one back. Commands in flight keep its pages.
    fn unpin(&mut self, slot: usize) -> io::Result<()> {
        if !std::mem::take(&mut self.pinned[slot]) {
            return Ok(());
        }
        let empty = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        // SAFETY: an empty entry names no memory.
        unsafe { self.register(slot, empty) }
    }

    /// # Safety
    /// The memory stays as long as it is registered.
    unsafe fn register(&self, slot: usize, iovec: libc::iovec) -> io::Result<()> {
        let submitter = self.uring.submitter();
        // SAFETY: the caller's promise.
        let registered = unsafe { submitter.register_buffers_update(slot as u32, &[iovec], None) };
        registered.map(drop)
    }

    fn pop(&mut self) -> Option<Finished> {
        let entry = self
            .uring
            .completion()
            .find(|entry| entry.user_data() != TAKEN_BACK)?;
        let tag = self.end(entry.user_data());
        // Above 0 is the drive's status, below an errno.
        let result = match entry.result() {
            0 => Ok(0),
            status @ 1.. => Err(STATUS + status),
            errno => Err(-errno),
        };
        Some(Finished::Operation { tag, result })
    }

    /// A command is over; its tag.
    fn end(&mut self, data: u64) -> u64 {
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
        tag
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
        // As in the reactor's ring: the files are to be closed now, and the memory counts no longer.
        let submitter = self.uring.submitter();
        let _ = (submitter.unregister_files(), submitter.unregister_buffers());
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
            let mut drives = Box::new(Drives::new()?);
            for (slot, mapping) in self.buffers.iter().enumerate() {
                if let Some(mapping) = mapping {
                    drives.pin(slot, mapping);
                }
            }
            self.drives = Some(drives);
        }
        let drives = self.drives.as_mut().expect("it was made");
        Ok(FileSlot {
            index: drives.add(fd, tags)? | DRIVE_SLOT,
            handover: Handover::default(),
        })
    }

    /// A buffer of the reactor's ring is there, for drives too.
    pub(super) fn add_buffer_to_drives(&mut self, slot: usize, mapping: &Mapping) {
        if let Some(drives) = &mut self.drives {
            drives.pin(slot, mapping);
        }
    }

    /// A buffer of the reactor's ring is taken back.
    pub(super) fn remove_buffer_from_drives(&mut self, slot: usize) -> io::Result<()> {
        match &mut self.drives {
            Some(drives) => drives.unpin(slot),
            None => Ok(()),
        }
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
        self.push_command(tag, file, command, span, changes);
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
            Some(addr) => {
                let span = Span {
                    buffer: UNPINNED,
                    addr,
                    length: RANGE_BYTES as u32,
                };
                self.push_command(tag, file, command, Some(span), true);
            }
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
        span: Option<Span>,
        changes: bool,
    ) {
        assert!(tag >> PLACE_SHIFT == 0, "{tag:#x} is no operation's tag");
        let index = file.drive().expect("a drive's slot");
        let drives = self.drives.as_mut().expect("the drive was added");
        let mut bytes = [0; 80];
        let (addr, length) = span.map_or((0, 0), |span| (span.addr, span.length));
        let encoded = command.encode(addr, length);
        bytes[..encoded.len()].copy_from_slice(&encoded);
        let pinned = span.map(|span| span.buffer);
        let pinned = pinned.filter(|&buffer| drives.pinned.get(usize::from(buffer)) == Some(&true));
        let entry = opcode::UringCmd80::new(types::Fixed(index), URING_CMD_IO)
            .cmd(bytes)
            .buf_index(pinned)
            .build()
            .user_data(u64::from(index) << PLACE_SHIFT | tag);
        let until_ns = changes.then(|| self.outgoing.until_ns());
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
        let mut refuse = |tag| settled.push_back(cancelled(tag));
        if drives.waiting > 0 {
            let known_until_ns = outgoing.known_until_ns();
            drives.release(known_until_ns, || outgoing.now_ns(), &mut refuse);
        }
        drives.enter(|| outgoing.now_ns(), refuse)
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
        }
        // What was deferred to this thread ends by this call.
        self.submit_drives()
            .expect("io_uring takes what it has room for");
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

    /// Whether commands wait, though none is under way whose end would give them a tag.
    pub(super) fn drives_keep_changes(&self) -> bool {
        let keeps = |drives: &Drives| drives.waiting > 0 && drives.out == drives.waiting;
        self.drives.as_ref().is_some_and(|drives| keeps(drives))
    }

    /// Operations that drives have, or are about to get.
    pub(super) fn drives_out(&self) -> u32 {
        self.drives.as_ref().map_or(0, |drives| drives.out)
    }
}
