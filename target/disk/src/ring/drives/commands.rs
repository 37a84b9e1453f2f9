//! Ring for commands to drives. Commands wait here for a free tag.
//!
//! Why `unsafe` here: the kernel accesses registered memory, which the reactor's ring owns.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cairn_base::Mapping;
use cairn_base::wake::Wake;
use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};

use super::entering::Queued;
use crate::nvme::{Command, RANGE_BYTES, STATUS, URING_CMD_IO};
use crate::ring::setup::{build, make_room};
use crate::ring::{BUFFERS_MAX, Finished, Open, SUBMISSIONS, Span};
use crate::timely::Look;

/// Maximum drives: the upper 8 bits of user data are the drive's number.
const DRIVES_MAX: usize = 255;

/// Index of the first claim (block device) among the fixed files, after the drives' files.
const CLAIMS_AT: u32 = DRIVES_MAX as u32;

pub(super) const PLACE_SHIFT: u32 = 56;

pub(super) const TAG_MASK: u64 = (1 << PLACE_SHIFT) - 1;

/// User data of a cancelled entry, with a number that no drive has.
pub(super) const TAKEN_BACK: u64 = (DRIVES_MAX as u64) << PLACE_SHIFT;

const RANGES: usize = 256;

const WAITING_ROOM: usize = 64;

#[derive(Debug)]
pub(crate) struct Tags {
    count: u32,
    rings: AtomicU32,
    can_poll: bool,
}

impl Tags {
    pub(crate) fn new(count: u32, can_poll: bool) -> Self {
        Self {
            count,
            rings: AtomicU32::new(0),
            can_poll,
        }
    }

    pub(crate) fn can_poll(&self) -> bool {
        self.can_poll
    }

    pub(super) fn of_a_ring(&self) -> u32 {
        (self.count / self.rings.load(Ordering::Relaxed).max(1)).max(1)
    }
}

pub(super) struct QueuedCommand {
    pub(super) tag: u64,
    pub(super) entry: squeue::Entry128,
    /// End of the lease, in nanoseconds since the target's start; `None` if the command modifies
    /// nothing.
    pub(super) until_ns: Option<u64>,
}

pub(super) struct DriveSlot {
    open: Open,
    pub(super) tags: Arc<Tags>,
    pub(super) waiting: VecDeque<QueuedCommand>,
    pub(super) under_way: u32,
    /// Whether the drive was removed. Its number is free once the last command has ended.
    pub(super) closed: bool,
}

pub(in crate::ring) struct Drives {
    pub(super) uring: IoUring<squeue::Entry128, cqueue::Entry32>,
    pub(super) polled: bool,
    pub(super) wake: Wake,
    pub(super) watched: bool,
    pub(super) places: Vec<Option<DriveSlot>>,
    pub(super) pinned: [bool; BUFFERS_MAX],
    pub(super) can_pin: bool,
    pub(super) pushed: u32,
    pub(super) queued: Vec<Queued>,
    pub(super) look: Option<Look>,
    /// Number of commands without a completion, including waiting commands.
    pub(super) out: u32,
    pub(super) waiting: u32,
    ranges: Arc<Mapping>,
    ranges_taken: Vec<Option<u64>>,
    ranges_out: u32,
}

/// True if the kernel accepts fixed buffers for drive commands (`IORING_URING_CMD_FIXED`). This
/// feature cannot be probed, so `SENDMSG_ZC` is probed, which Linux 6.1 added, too.
fn has_fixed_commands(uring: &IoUring<squeue::Entry128, cqueue::Entry32>) -> bool {
    let mut probe = Probe::new();
    let asked = uring.submitter().register_probe(&mut probe);
    asked.is_ok() && probe.is_supported(opcode::SendMsgZc::CODE)
}

pub(crate) fn check_drives() -> io::Result<()> {
    build_for_drives(1, false).map(drop)
}

/// Returns true from Linux 6.1 on, which added polling and fixed buffers.
pub(crate) fn can_poll_drives() -> bool {
    build_for_drives(1, true).is_ok_and(|uring| has_fixed_commands(&uring))
}

fn build_for_drives(
    operations: u32,
    polled: bool,
) -> io::Result<IoUring<squeue::Entry128, cqueue::Entry32>> {
    build(operations, polled).map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => io::Error::other(
            "this kernel's io_uring has no commands of 128 bytes: Linux 5.19 or newer is needed",
        ),
        _ => error,
    })
}

impl Drives {
    pub(super) fn new(polled: bool) -> io::Result<Self> {
        let uring = build_for_drives(SUBMISSIONS, polled)?;
        let wake = Wake::new()
            .map_err(|error| io::Error::new(error.kind(), format!("eventfd: {error}")))?;
        uring.submitter().register_eventfd(wake.fd())?;
        make_room(&uring, 2 * DRIVES_MAX)?;
        let can_pin = has_fixed_commands(&uring);
        if can_pin {
            let empty = libc::iovec {
                iov_base: std::ptr::null_mut(),
                iov_len: 0,
            };
            // SAFETY: empty entries refer to no memory.
            unsafe { uring.submitter().register_buffers(&[empty; BUFFERS_MAX])? };
        }
        Ok(Self {
            pinned: [false; BUFFERS_MAX],
            can_pin,
            pushed: 0,
            queued: Vec::with_capacity(SUBMISSIONS as usize),
            look: None,
            uring,
            polled,
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

    pub(super) fn add(&mut self, open: Open, claim: &File, tags: &Arc<Tags>) -> io::Result<u32> {
        let free = self.places.iter().position(Option::is_none);
        let index = free.unwrap_or(self.places.len());
        if index == DRIVES_MAX {
            return Err(io::Error::other(format!(
                "a target has room for {DRIVES_MAX} NVMe drives past the block layer: export \
                 others as block devices"
            )));
        }
        let submitter = self.uring.submitter();
        let (drive, claim) = (open.as_raw_fd(), claim.as_raw_fd());
        submitter.register_files_update(CLAIMS_AT + index as u32, &[claim])?;
        submitter.register_files_update(index as u32, &[drive])?;
        tags.rings.fetch_add(1, Ordering::Relaxed);
        if index == self.places.len() {
            self.places.push(None);
        }
        self.places[index] = Some(DriveSlot {
            open,
            tags: Arc::clone(tags),
            waiting: VecDeque::with_capacity(WAITING_ROOM),
            under_way: 0,
            closed: false,
        });
        Ok(index as u32)
    }

    pub(super) fn remove(&mut self, index: u32, refuse: impl FnMut(u64)) -> io::Result<()> {
        let slot = &mut self.places[index as usize];
        let place = slot.as_mut().expect("the drive was added");
        place.tags.rings.fetch_sub(1, Ordering::Relaxed);
        place.closed = true;
        let waiting = place.waiting.len() as u32;
        (self.waiting, self.out) = (self.waiting - waiting, self.out - waiting);
        let tags: Vec<u64> = place.waiting.drain(..).map(|it| it.tag).collect();
        let is_idle = place.under_way == 0;
        for &tag in &tags {
            self.free_range(tag);
        }
        tags.into_iter().for_each(refuse);
        let none = self.uring.submitter();
        none.register_files_update(index, &[-1])?;
        if is_idle {
            self.forget(index)?;
        }
        Ok(())
    }

    fn forget(&mut self, index: u32) -> io::Result<()> {
        let none = self.uring.submitter();
        none.register_files_update(CLAIMS_AT + index, &[-1])?;
        self.places[index as usize] = None;
        Ok(())
    }

    /// Registers a fixed buffer. If this fails, commands pass memory addresses instead.
    pub(super) fn pin(&mut self, slot: usize, mapping: &Mapping) {
        if self.can_pin {
            let iovec = libc::iovec {
                iov_base: mapping.addr() as *mut libc::c_void,
                iov_len: mapping.len(),
            };
            // SAFETY: the reactor's ring keeps the mapping until `unpin`.
            self.pinned[slot] = unsafe { self.register(slot, iovec) }.is_ok();
        }
    }

    pub(super) fn unpin(&mut self, slot: usize) -> io::Result<()> {
        if !std::mem::take(&mut self.pinned[slot]) {
            return Ok(());
        }
        let empty = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        // SAFETY: an empty entry refers to no memory.
        unsafe { self.register(slot, empty) }
    }

    /// # Safety
    /// The memory must stay valid while it is registered.
    unsafe fn register(&self, slot: usize, iovec: libc::iovec) -> io::Result<()> {
        let submitter = self.uring.submitter();
        // SAFETY: the caller keeps the memory valid while it is registered.
        let registered = unsafe { submitter.register_buffers_update(slot as u32, &[iovec], None) };
        registered.map(drop)
    }

    pub(super) fn push(
        &mut self,
        tag: u64,
        index: u32,
        command: &Command,
        span: Option<Span>,
        until_ns: Option<u64>,
    ) {
        assert!(tag >> PLACE_SHIFT == 0, "{tag:#x} is no operation's tag");
        let mut bytes = [0; 80];
        let (addr, length) = span.map_or((0, 0), |span| (span.addr, span.length));
        let encoded = command.encode(addr, length);
        bytes[..encoded.len()].copy_from_slice(&encoded);
        let pinned = span.map(|span| span.buffer);
        let pinned = pinned.filter(|&buffer| self.pinned.get(usize::from(buffer)) == Some(&true));
        let entry = opcode::UringCmd80::new(types::Fixed(index), URING_CMD_IO)
            .cmd(bytes)
            .buf_index(pinned)
            .build()
            .user_data(u64::from(index) << PLACE_SHIFT | tag);
        let place = self.places[index as usize].as_mut();
        place
            .expect("the drive was added")
            .waiting
            .push_back(QueuedCommand {
                tag,
                entry,
                until_ns,
            });
        self.out += 1;
        self.waiting += 1;
    }

    pub(super) fn pop(&mut self) -> Option<Finished> {
        let entry = self
            .uring
            .completion()
            .find(|entry| entry.user_data() != TAKEN_BACK)?;
        let tag = self.end(entry.user_data());
        // Positive results are drive statuses; negative results are errnos.
        let result = match entry.result() {
            0 => Ok(0),
            status @ 1.. => Err(STATUS + status),
            errno => Err(-errno),
        };
        Some(Finished::Operation { tag, result })
    }

    pub(super) fn end(&mut self, data: u64) -> u64 {
        let tag = data & TAG_MASK;
        let index = (data >> PLACE_SHIFT) as u32;
        let place = self.places[index as usize].as_mut();
        let place = place.expect("a drive stays while it has something under way");
        place.under_way -= 1;
        if place.closed && place.under_way == 0 {
            self.forget(index).expect("io_uring lets go of a file");
        }
        self.out -= 1;
        self.free_range(tag);
        tag
    }

    pub(super) fn take_out(&mut self, tag: u64) -> u32 {
        let mut count = 0;
        for place in self.places.iter_mut().flatten() {
            let before = place.waiting.len();
            place.waiting.retain(|waiting| waiting.tag != tag);
            count += (before - place.waiting.len()) as u32;
        }
        if count > 0 {
            self.free_range(tag);
        }
        (self.waiting, self.out) = (self.waiting - count, self.out - count);
        count
    }

    pub(super) fn take_range(&mut self, tag: u64, bytes: &[u8]) -> Option<u64> {
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
        if self.out > self.waiting {
            // The files leak, because commands are pending.
            let places = self.places.drain(..).flatten();
            return places.for_each(|place| std::mem::forget(place.open));
        }
        let submitter = self.uring.submitter();
        let _ = (submitter.unregister_files(), submitter.unregister_buffers());
    }
}
