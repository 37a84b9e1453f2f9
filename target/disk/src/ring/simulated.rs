use super::*;

impl Ring {
    /// Returns the time until the next operation is due, or zero if a completion is ready.
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

    /// Replaces the worker threads by [`Self::step_workers`]. Must precede the first change.
    pub fn replace_workers(&mut self) {
        self.apart.replace_threads();
    }

    /// Runs each worker up to its next step: before its job, between job and report, or after the
    /// report. Returns true if a worker moved. If `loses`, cancellations of returned changes are
    /// lost, a bug that the simulation must find.
    pub fn step_workers(&mut self, loses: bool) -> bool {
        self.apart.step(loses)
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
        let attachment = self.simulated.as_mut().expect("it has this disk");
        if !matches!(work, Work::Write { .. } | Work::Zero { .. }) {
            return attachment.submit(place, tag, work);
        }
        let until_ns = self.outgoing.until_ns();
        attachment.keep(until_ns, place, tag, work);
        self.release_simulated();
    }

    pub(super) fn release_simulated(&mut self) {
        let Some(attachment) = self.simulated.as_mut().filter(|it| it.keeps()) else {
            return;
        };
        let now_ns = self.outgoing.now_ns();
        if self.outgoing.known_until_ns() <= now_ns {
            return;
        }
        let settled = &mut self.settled;
        attachment.release(now_ns, |tag| settled.push_back(cancelled(tag)));
    }

    pub(super) fn take_back_simulated(&mut self, tag: u64) {
        let Some(attachment) = &mut self.simulated else {
            return;
        };
        let count = attachment.take_out(tag);
        self.settled.extend((0..count).map(|_| cancelled(tag)));
    }
}
