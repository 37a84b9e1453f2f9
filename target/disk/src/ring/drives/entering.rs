//! Submission of drive commands to the kernel.
//!
//! Why `unsafe` here: the kernel acts on the entries, whose memory the ring keeps.

use std::io;
use std::os::fd::AsRawFd;

use super::commands::{Drives, PLACE_SHIFT, TAG_MASK, TAKEN_BACK};
use crate::ring::entering::ENTER_GETEVENTS;
use crate::ring::queue_entries::QueueEntries;
use crate::ring::retry;
use crate::timely::{self, Look};

pub(super) struct Queued {
    data: u64,
    until_ns: u64,
    /// Number of entries pushed before this entry, modulo 2^32.
    place: u32,
}

impl Drives {
    /// Moves commands into the submission queue while the drive has free tags, and cancels commands
    /// whose leases have ended. If the reactor paused for longer than [`crate::ROUND_GAP`], the
    /// next command that changes data waits, and so do all commands behind it.
    pub(super) fn release(
        &mut self,
        known_until_ns: u64,
        now_ns: impl Fn() -> u64,
        mut refuse: impl FnMut(u64),
    ) {
        let Self { uring, places, .. } = self;
        let mut queue = uring.submission();
        let (mut now, mut late) = (None, 0);
        for (index, place) in places.iter_mut().enumerate() {
            let Some(place) = place else { continue };
            let most = place.tags.of_a_ring();
            while place.under_way < most
                && !queue.is_full()
                && let Some(next) = place.waiting.pop_front()
            {
                let mut until_ns = u64::MAX;
                if let Some(lease_end_ns) = next.until_ns {
                    let now = *now.get_or_insert_with(|| {
                        let (look, now) = (Look::begin(), now_ns());
                        // If the lease of a queued command has ended, `enter` must read the clock
                        // again and remove the command.
                        let all_hold = self.queued.iter().all(|queued| queued.until_ns > now);
                        self.look = all_hold.then_some(look);
                        now
                    });
                    if known_until_ns <= now {
                        place.waiting.push_front(next);
                        break;
                    }
                    if lease_end_ns <= now {
                        late += 1;
                        refuse(next.tag);
                        continue;
                    }
                    until_ns = lease_end_ns.min(known_until_ns);
                }
                place.under_way += 1;
                self.waiting -= 1;
                // SAFETY: the entry's memory is part of a mapping that the ring keeps while
                // operations are in flight.
                unsafe { queue.push(&next.entry) }.expect("there is room");
                if until_ns < u64::MAX {
                    self.queued.push(Queued {
                        data: (index as u64) << PLACE_SHIFT | next.tag,
                        until_ns,
                        place: self.pushed,
                    });
                }
                self.pushed = self.pushed.wrapping_add(1);
            }
        }
        drop(queue);
        self.waiting -= late;
        self.out -= late;
    }

    pub(super) fn enter(
        &mut self,
        now_ns: impl Fn() -> u64,
        mut refuse: impl FnMut(u64),
    ) -> io::Result<()> {
        let queue = self.uring.submission();
        let count = queue.len();
        let idle = count == 0 && !queue.taskrun() && !queue.cq_overflow();
        drop(queue);
        let polls = self.polled && self.out > self.waiting;
        if idle && !polls {
            return Ok(());
        }
        let mut look = self.look.take();
        while !self.queued.is_empty() {
            let Some(fresh) = look.take() else {
                look = Some(self.look_again(&now_ns, &mut refuse)?);
                continue;
            };
            let fd = self.uring.as_raw_fd() as usize;
            let number = libc::SYS_io_uring_enter as usize;
            let call = [number, fd, count, 0, ENTER_GETEVENTS as usize, 0, 0];
            // SAFETY: the entries' memory is kept until they end; no argument is a pointer.
            if let Some(entered) = unsafe { timely::call(fresh, &call) } {
                self.keep_what_is_left();
                return retry(entered);
            }
        }
        // SAFETY: the entries' memory is kept until they end; no argument is a pointer.
        let entered = unsafe {
            let submitter = self.uring.submitter();
            submitter.enter::<libc::sigset_t>(count as u32, 0, ENTER_GETEVENTS, None)
        };
        retry(entered)
    }

    /// See `Ring::look_again`.
    #[cold]
    fn look_again(
        &mut self,
        now_ns: impl Fn() -> u64,
        mut refuse: impl FnMut(u64),
    ) -> io::Result<Look> {
        let look = Look::begin();
        let now = now_ns();
        if self.queued.iter().any(|queued| queued.until_ns <= now) {
            self.blank(|queued| queued.until_ns <= now, &mut refuse)?;
        }
        Ok(look)
    }

    pub(super) fn take_back_queued(&mut self, tag: u64, refuse: impl FnMut(u64)) -> io::Result<()> {
        let of_tag = |queued: &Queued| queued.data & TAG_MASK == tag;
        if self.queued.iter().any(of_tag) {
            self.blank(of_tag, refuse)?;
        }
        Ok(())
    }

    fn blank(
        &mut self,
        goes: impl Fn(&Queued) -> bool,
        mut refuse: impl FnMut(u64),
    ) -> io::Result<()> {
        let entries = QueueEntries::map(&self.uring)?;
        let gone = self.queued.extract_if(.., |queued| goes(queued));
        let gone: Vec<Queued> = gone.collect();
        for queued in gone {
            entries.blank(queued.place, TAKEN_BACK);
            refuse(self.end(queued.data));
        }
        Ok(())
    }

    fn keep_what_is_left(&mut self) {
        let left = self.uring.submission().len() as u32;
        let first = self.pushed.wrapping_sub(left);
        self.queued
            .retain(|queued| queued.place.wrapping_sub(first) < left);
    }
}
