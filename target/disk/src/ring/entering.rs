//! System call that submits a ring's entries to the kernel.
//!
//! Why `unsafe` here: the kernel acts on the entries. Their memory is checked when they are pushed.

use std::io;
use std::os::fd::AsRawFd;

use super::outgoing::Queued;
use super::queue_entries::QueueEntries;
use super::{IGNORED, Ring, cancelled, retry};
use crate::timely::{self, Look};

/// `IORING_ENTER_GETEVENTS` (io_uring_enter(2)).
pub(super) const ENTER_GETEVENTS: u32 = 1;

impl Ring {
    /// Submits the queued entries. Changes are submitted only shortly after the clock was read,
    /// and never after the end of their lease.
    pub(super) fn enter(&mut self) -> io::Result<()> {
        let mut look = self.outgoing.take_look();
        while self.outgoing.has_queued() {
            let Some(fresh) = look.take() else {
                look = Some(self.look_again()?);
                continue;
            };
            let fd = self.uring.as_raw_fd() as usize;
            let pushed = self.uring.submission().len();
            let number = libc::SYS_io_uring_enter as usize;
            let call = [number, fd, pushed, 0, ENTER_GETEVENTS as usize, 0, 0];
            // SAFETY: the entries satisfy the requirements of `push`; no argument is a pointer.
            if let Some(entered) = unsafe { timely::call(fresh, &call) } {
                let left = self.uring.submission().len() as u32;
                self.outgoing.taken(self.pushed, left);
                return retry(entered);
            }
        }
        self.enter_at_leisure()
    }

    /// Reads the clock again, because the process may have been stopped. Cancels the queued
    /// operations that must no longer be submitted (`Queued::until_ns`).
    #[cold]
    fn look_again(&mut self) -> io::Result<Look> {
        let (look, now_ns) = self.outgoing.look_again();
        if self.outgoing.first_end() <= now_ns {
            self.blank(|queued| queued.until_ns <= now_ns)?;
        }
        Ok(look)
    }

    #[cold]
    pub(super) fn blank(&mut self, goes: impl Fn(&Queued) -> bool) -> io::Result<()> {
        let entries = QueueEntries::map(&self.uring)?;
        let (settled, in_flight) = (&mut self.settled, &mut self.in_flight);
        self.outgoing.take_back(goes, |queued| {
            entries.blank(queued.place, IGNORED);
            *in_flight -= 1;
            settled.push_back(cancelled(queued.tag));
        });
        Ok(())
    }

    fn enter_at_leisure(&mut self) -> io::Result<()> {
        let pushed = self.uring.submission().len() as u32;
        // GETEVENTS makes this call run deferred work (DEFER_TASKRUN) and deliver its completions,
        // without a wait. SAFETY: the entries satisfy the requirements of `push`; no argument is a
        // pointer.
        let entered = unsafe {
            let submitter = self.uring.submitter();
            submitter.enter::<libc::sigset_t>(pushed, 0, ENTER_GETEVENTS, None)
        };
        retry(entered)
    }
}
