use super::apart::{Change, Write};
use super::*;

impl Ring {
    pub(crate) fn read(&mut self, tag: u64, file: FileSlot, offset: u64, span: Span) {
        self.locate(span);
        if let Some(place) = file.simulated() {
            let memory = self.memory(span);
            return self.simulate(tag, place, Work::Read { offset, memory });
        }
        let at = span.addr as *mut u8;
        let entry = if self.is_pinned(span) {
            opcode::ReadFixed::new(file.fixed(), at, span.length, span.buffer)
                .offset(offset)
                .build()
        } else {
            opcode::Read::new(file.fixed(), at, span.length)
                .offset(offset)
                .build()
        };
        self.push_operation(tag, entry.flags(async_flag(file.handover.reads)));
    }

    /// Writes `span`. A `durable` write ends when the data is on stable storage. An `at_once` write
    /// fails with EAGAIN if it would block.
    pub(crate) fn write(
        &mut self,
        tag: u64,
        file: FileSlot,
        offset: u64,
        span: Span,
        durable: bool,
        at_once: bool,
    ) {
        self.locate(span);
        if let Some(place) = file.simulated() {
            let work = Work::Write {
                offset,
                memory: self.memory(span),
                durable,
            };
            return self.simulate(tag, place, work);
        }
        let durable = if durable { libc::RWF_DSYNC } else { 0 };
        let at_once = if at_once { libc::RWF_NOWAIT } else { 0 };
        let at = span.addr as *const u8;
        let entry = if self.is_pinned(span) {
            opcode::WriteFixed::new(file.fixed(), at, span.length, span.buffer)
                .offset(offset)
                .rw_flags(durable | at_once)
                .build()
        } else {
            opcode::Write::new(file.fixed(), at, span.length)
                .offset(offset)
                .rw_flags(durable | at_once)
                .build()
        };
        self.push_change(tag, entry.flags(async_flag(file.handover.writes)));
    }

    pub(crate) fn write_apart(
        &mut self,
        tag: u64,
        (file, open): (FileSlot, Open),
        offset: u64,
        span: Span,
        durable: bool,
        submits: bool,
    ) {
        if file.simulated().is_some() {
            return self.write(tag, file, offset, span, durable, false);
        }
        let write = Write {
            offset,
            memory: self.memory(span),
            durable,
        };
        self.change_apart(tag, open, Change::Write(write), submits);
    }

    pub(crate) fn sync(&mut self, tag: u64, file: FileSlot) {
        if let Some(place) = file.simulated() {
            return self.simulate(tag, place, Work::Flush);
        }
        let entry = opcode::Fsync::new(file.fixed())
            .flags(types::FsyncFlags::DATASYNC)
            .build();
        self.push_operation(tag, entry);
    }

    pub(crate) fn fallocate(
        &mut self,
        tag: u64,
        (file, open): (FileSlot, Open),
        offset: u64,
        length: u64,
        mode: i32,
    ) {
        if let Some(place) = file.simulated() {
            return self.simulate(tag, place, Work::Zero { offset, length });
        }
        let change = Change::Allocate {
            offset,
            length,
            mode,
        };
        self.change_apart(tag, open, change, false);
    }

    /// Discards a range on a worker, which does not begin after the lease of the association has
    /// ended. io_uring would pass many discards to kernel threads, which check no lease.
    pub(crate) fn discard(&mut self, tag: u64, device: Open, offset: u64, length: u32) {
        let change = Change::Discard { offset, length };
        self.change_apart(tag, device, change, false);
    }

    #[cfg(test)]
    pub(crate) fn run_apart(&mut self, tag: u64, file: Open, call: Call) {
        self.change_apart(tag, file, Change::Call(call), false);
    }

    fn change_apart(&mut self, tag: u64, file: Open, change: Change, submits: bool) {
        match self.apart.start() {
            Ok(Some(_)) => self.watch_workers(),
            Ok(None) => {}
            Err(()) => {
                let result = Err(libc::EAGAIN);
                let refused = Finished::Operation { tag, result };
                return self.settled.push_back(refused);
            }
        }
        let lease = self.outgoing.lease();
        self.apart.add(tag, (file, change), lease, submits);
    }

    /// Begins a round. The reactor has processed all connections that closed before `now_ns`
    /// (nanoseconds since the start). Changes may begin until [`ROUND_GAP`] after that time.
    #[inline]
    pub fn begin_round(&mut self, now_ns: u64) {
        self.outgoing.begin_round(now_ns);
        self.apart.begin_round();
    }

    pub(super) fn watch_workers(&mut self) {
        if let Some(fd) = self.apart.rearm() {
            let entry = opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32).build();
            self.push(&entry.user_data(POLL | WORKERS));
        }
    }

    pub(super) fn collect_workers(&mut self) {
        let settled = &mut self.settled;
        self.apart.collect(|tag, result| {
            settled.push_back(Finished::Operation { tag, result });
        });
    }

    /// Cancels the operations of this tag that have not begun. Each still completes, with
    /// `ECANCELED`; operations at workers complete later.
    pub fn take_back(&mut self, tag: u64) {
        self.take_back_from_drives(tag);
        self.take_back_simulated(tag);
        let settled = &mut self.settled;
        self.apart
            .cancel(tag, |tag| settled.push_back(cancelled(tag)));
        for _ in 0..self.outgoing.take_out(tag) {
            self.in_flight -= 1;
            self.settled.push_back(cancelled(tag));
        }
        if self.outgoing.has_queued() {
            self.blank(|queued| queued.tag == tag)
                .expect("the entries of a ring can be mapped");
        }
    }

    /// Requests the cancellation of this tag's operations. Each operation still completes, with
    /// `ECANCELED` if it was cancelled.
    pub fn cancel(&mut self, tag: u64) {
        if let Some(attachment) = &self.simulated {
            attachment.cancel(tag);
        }
        self.take_back(tag);
        let all = types::CancelBuilder::user_data(tag).all();
        let entry = opcode::AsyncCancel2::new(all).build();
        self.push(&entry.user_data(IGNORED));
    }
}
