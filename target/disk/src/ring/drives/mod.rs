//! NVMe drives by passthrough, in separate rings with larger entries (`IORING_OP_URING_CMD`).
//!
//! Completions wake the reactor's ring by an eventfd, polled only during sleep. Polled drives have
//! a second ring (`IORING_SETUP_IOPOLL`), which wakes no thread, so the reactor must not sleep
//! while that ring has commands.
//!
//! If a drive has no free tag, a kernel thread may execute a submitted command arbitrarily late.
//! The rings of a drive therefore divide its tags, and further commands wait here. Leases are
//! checked directly before submission ([`crate::timely`]).
//!
//! A drive's claim is its block device, opened with `O_EXCL`, as a fixed file: the claim lasts
//! until the last command has ended, even if the process is killed.

mod commands;
mod entering;
#[cfg(test)]
mod tests;

use std::fs::File;

use super::*;
use crate::nvme::{Blocks, Command, RANGE_BYTES, range};

pub(crate) use commands::{Tags, can_poll_drives, check_drives};

use commands::{DriveSlot, Drives};

pub(super) const DRIVES: u64 = 1 << 58;

/// Flag of a drive in a slot's index.
const DRIVE_SLOT: u32 = 1 << 30;

/// Flag of a polled drive in a slot's index, in addition to [`DRIVE_SLOT`].
const POLLED_SLOT: u32 = 1 << 29;

const UNPINNED: u16 = u16::MAX;

pub(super) type DriveRings = [Option<Drives>; 2];

const BY_INTERRUPTS: usize = 0;

const POLLED: usize = 1;

#[derive(Clone, Copy)]
pub(super) struct DrivePlace {
    ring: usize,
    index: u32,
}

impl FileSlot {
    pub(super) fn drive(self) -> Option<DrivePlace> {
        (self.index & (DRIVE_SLOT | SIMULATED_SLOT) == DRIVE_SLOT).then_some(DrivePlace {
            ring: match self.index & POLLED_SLOT {
                0 => BY_INTERRUPTS,
                _ => POLLED,
            },
            index: self.index & !(DRIVE_SLOT | POLLED_SLOT),
        })
    }
}

impl Ring {
    /// Makes the ring poll drives added later that have poll queues.
    pub fn poll_drives(&mut self) {
        self.polls_drives = true;
    }

    pub(crate) fn add_drive(
        &mut self,
        open: Open,
        claim: &File,
        tags: &Arc<Tags>,
    ) -> io::Result<FileSlot> {
        let polled = self.polls_drives && tags.can_poll();
        let (ring, kind) = match polled {
            false => (BY_INTERRUPTS, 0),
            true => (POLLED, POLLED_SLOT),
        };
        let slot = &mut self.drives.get_or_insert_default()[ring];
        if slot.is_none() {
            let mut drives = Drives::new(polled)?;
            for (slot, mapping) in self.buffers.iter().enumerate() {
                if let Some(mapping) = mapping {
                    drives.pin(slot, mapping);
                }
            }
            *slot = Some(drives);
        }
        let drives = slot.as_mut().expect("it was made");
        Ok(FileSlot {
            index: drives.add(open, claim, tags)? | DRIVE_SLOT | kind,
            handover: Handover::default(),
        })
    }

    pub(super) fn add_buffer_to_drives(&mut self, slot: usize, mapping: &Mapping) {
        for drives in self.drive_rings() {
            drives.pin(slot, mapping);
        }
    }

    pub(super) fn remove_buffer_from_drives(&mut self, slot: usize) -> io::Result<()> {
        self.drive_rings().try_for_each(|drives| drives.unpin(slot))
    }

    fn drive_rings(&mut self) -> impl Iterator<Item = &mut Drives> {
        self.drives
            .iter_mut()
            .flat_map(|it| it.iter_mut().flatten())
    }

    pub(super) fn remove_drive(&mut self, place: DrivePlace) -> io::Result<()> {
        let (Some(rings), settled) = (&mut self.drives, &mut self.settled) else {
            return Ok(());
        };
        let Some(drives) = &mut rings[place.ring] else {
            return Ok(());
        };
        drives.remove(place.index, |tag| settled.push_back(cancelled(tag)))
    }

    pub(super) fn remove_all_drives(&mut self) -> io::Result<()> {
        let mut open = Vec::new();
        for (ring, drives) in self.drives.iter().flat_map(|it| it.iter().enumerate()) {
            let places = drives
                .iter()
                .flat_map(|drives| drives.places.iter().enumerate());
            let is_open = |place: &Option<DriveSlot>| place.as_ref().is_some_and(|it| !it.closed);
            let places = places.filter(|(_, place)| is_open(place));
            open.extend(places.map(|(index, _)| DrivePlace {
                ring,
                index: index as u32,
            }));
        }
        open.into_iter()
            .try_for_each(|place| self.remove_drive(place))
    }

    /// Submits a command. If `changes`, the command modifies the drive and requires a lease.
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

    pub(crate) fn deallocate(
        &mut self,
        tag: u64,
        file: FileSlot,
        command: &Command,
        blocks: Blocks,
    ) {
        let place = file.drive().expect("a drive's slot");
        match self.drives_at(place).take_range(tag, &range(blocks)) {
            Some(addr) => {
                let span = Span {
                    buffer: UNPINNED,
                    addr,
                    length: RANGE_BYTES as u32,
                };
                self.push_command(tag, file, command, Some(span), true);
            }
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
        let place = file.drive().expect("a drive's slot");
        let until_ns = changes.then(|| self.outgoing.until_ns());
        let drives = self.drives_at(place);
        drives.push(tag, place.index, command, span, until_ns);
        if drives.waiting as usize >= BATCH {
            self.submit_drives()
                .expect("io_uring takes what it has room for");
        }
    }

    fn drives_at(&mut self, place: DrivePlace) -> &mut Drives {
        let rings = self.drives.as_mut().expect("the drive was added");
        rings[place.ring].as_mut().expect("the drive was added")
    }

    #[inline]
    pub(super) fn submit_drives(&mut self) -> io::Result<()> {
        if self.drives.is_some() {
            self.release_to_drives()?;
        }
        Ok(())
    }

    fn release_to_drives(&mut self) -> io::Result<()> {
        let Self {
            drives,
            outgoing,
            settled,
            ..
        } = self;
        let drives = drives.iter_mut().flat_map(|it| it.iter_mut().flatten());
        for drives in drives.filter(|drives| drives.out > 0) {
            let mut refuse = |tag| settled.push_back(cancelled(tag));
            if drives.waiting > 0 {
                let known_until_ns = outgoing.known_until_ns();
                drives.release(known_until_ns, || outgoing.now_ns(), &mut refuse);
            }
            drives.enter(|| outgoing.now_ns(), refuse)?;
        }
        Ok(())
    }

    /// True if a polled drive has submitted commands.
    #[inline]
    pub fn must_poll(&self) -> bool {
        let rings = self.drives.as_ref();
        let polled = rings.and_then(|rings| rings[POLLED].as_ref());
        polled.is_some_and(|drives| drives.out > drives.waiting)
    }

    /// Prepares the drives for a sleep of the reactor. Returns `false` if a completion is ready, or
    /// a drive must be polled.
    #[inline]
    pub(super) fn watch_drives(&mut self) -> io::Result<bool> {
        if self.drives_out() == 0 {
            return Ok(true);
        }
        if let Some(drives) = self.drives_by_interrupts().filter(|it| !it.watched) {
            drives.wake.clear();
        }
        self.submit_drives()?;
        let ended = |drives: &mut Drives| !drives.uring.completion().is_empty();
        if self.must_poll() || self.drive_rings().any(ended) || !self.settled.is_empty() {
            return Ok(false);
        }
        let drives = self.drives_by_interrupts().filter(|it| it.out > 0);
        if let Some(drives) = drives
            && !std::mem::replace(&mut drives.watched, true)
        {
            let fd = types::Fd(drives.wake.fd());
            let entry = opcode::PollAdd::new(fd, libc::POLLIN as u32).build();
            self.push(&entry.user_data(POLL | DRIVES));
        }
        Ok(true)
    }

    pub(super) fn drives_woke(&mut self) {
        if let Some(drives) = self.drives_by_interrupts() {
            drives.watched = false;
            drives.wake.clear();
        }
        self.submit_drives()
            .expect("io_uring takes what it has room for");
    }

    fn drives_by_interrupts(&mut self) -> Option<&mut Drives> {
        self.drives.as_mut()?[BY_INTERRUPTS].as_mut()
    }

    #[inline]
    pub(super) fn pop_drive(&mut self) -> Option<Finished> {
        let rings = self.drives.as_mut()?;
        let mut under_way = rings.iter_mut().flatten().filter(|it| it.out > it.waiting);
        under_way.find_map(Drives::pop)
    }

    pub(super) fn take_back_from_drives(&mut self, tag: u64) {
        let (Some(rings), settled) = (&mut self.drives, &mut self.settled) else {
            return;
        };
        for drives in rings.iter_mut().flatten().filter(|it| it.out > 0) {
            let count = drives.take_out(tag);
            settled.extend((0..count).map(|_| cancelled(tag)));
            drives
                .take_back_queued(tag, |tag| settled.push_back(cancelled(tag)))
                .expect("the entries of a ring can be mapped");
        }
    }

    pub(super) fn drives_keep_changes(&self) -> bool {
        let mut rings = self.drives.iter().flat_map(|it| it.iter().flatten());
        rings.any(|drives| drives.waiting > 0 && drives.out == drives.waiting)
    }

    pub(super) fn drives_out(&self) -> u32 {
        let rings = self.drives.iter().flat_map(|it| it.iter().flatten());
        rings.map(|drives| drives.out).sum()
    }
}
