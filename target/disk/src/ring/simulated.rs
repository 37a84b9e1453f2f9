//! Disks that a simulation has put in place of files.

use super::*;

impl Ring {
    /// Ends what is due on simulated disks, and says when to look again: at once, if
    /// something has ended.
    #[inline]
    pub fn step_simulated(&mut self) -> Option<Duration> {
        let next = self.simulated.as_ref()?.step();
        self.collect_simulated();
        if self.settled.is_empty() {
            next
        } else {
            Some(Duration::ZERO)
        }
    }

    #[cold]
    pub(super) fn add_simulated(&mut self, disk: SimulatedDisk) -> FileSlot {
        if self.simulated.is_none() {
            self.simulated = Some(Box::new(Attachment::new()));
            self.watch_simulated();
        }
        let attachment = self.simulated.as_mut().expect("it was just made");
        FileSlot {
            index: SIMULATED_SLOT | attachment.add(disk),
            handover: Handover::default(),
        }
    }

    /// Wakes up when a simulated disk has ended something.
    pub(super) fn watch_simulated(&mut self) {
        if let Some(attachment) = &self.simulated {
            let fd = types::Fd(attachment.wake_fd());
            attachment.clear();
            let entry = opcode::PollAdd::new(fd, libc::POLLIN as u32).build();
            self.push(&entry.user_data(POLL | SIMULATED));
        }
    }

    pub(super) fn collect_simulated(&mut self) {
        if let Some(attachment) = &self.simulated {
            while let Some((tag, result)) = attachment.pop() {
                self.settled.push_back(Finished::Operation { tag, result });
            }
        }
    }

    #[cold]
    pub(super) fn simulate(&mut self, tag: u64, place: u32, work: Work) {
        if matches!(work, Work::Write { .. } | Work::Zero { .. }) && self.outgoing.lease_is_over() {
            return self.settled.push_back(cancelled(tag));
        }
        let attachment = self.simulated.as_ref();
        attachment
            .expect("it has this disk")
            .submit(place, tag, work);
    }
}
