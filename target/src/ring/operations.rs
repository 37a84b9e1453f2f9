//! The operations on a disk that a ring takes.

use super::*;

impl Ring {
    /// Reads from `offset` of the file into `span`.
    pub(crate) fn read(&mut self, tag: u64, file: FileSlot, offset: u64, span: Span) {
        self.locate(span);
        if let Some(place) = file.simulated() {
            let memory = self.memory(span);
            return self.simulate(tag, place, Work::Read { offset, memory });
        }
        let entry =
            opcode::ReadFixed::new(file.fixed(), span.addr as *mut u8, span.length, span.buffer)
                .offset(offset)
                .build();
        self.push_operation(tag, entry.flags(way_of(file.handover.reads)));
    }

    /// Writes `span` to `offset` of the file; `durable` waits for stable storage. `at_once`
    /// ends with EAGAIN where it had to wait, such as for space at the end of a file.
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
        let entry = opcode::WriteFixed::new(
            file.fixed(),
            span.addr as *const u8,
            span.length,
            span.buffer,
        )
        .offset(offset)
        .rw_flags(durable | at_once)
        .build();
        self.push_change(tag, entry.flags(way_of(file.handover.writes)));
    }

    /// Makes all finished writes of the file durable.
    pub(crate) fn sync(&mut self, tag: u64, file: FileSlot) {
        if let Some(place) = file.simulated() {
            return self.simulate(tag, place, Work::Flush);
        }
        let entry = opcode::Fsync::new(file.fixed())
            .flags(types::FsyncFlags::DATASYNC)
            .build();
        self.push_operation(tag, entry);
    }

    /// `fallocate(2)`.
    pub(crate) fn fallocate(
        &mut self,
        tag: u64,
        file: FileSlot,
        offset: u64,
        length: u64,
        mode: i32,
    ) {
        if let Some(place) = file.simulated() {
            return self.simulate(tag, place, Work::Zero { offset, length });
        }
        let entry = opcode::Fallocate::new(file.fixed(), length)
            .offset(offset)
            .mode(mode)
            .build();
        self.push_change(tag, entry);
    }

    /// Gives a range of a block device back, which may read as anything then. Ends with
    /// EOPNOTSUPP before Linux 6.12.
    pub(crate) fn discard(&mut self, tag: u64, file: FileSlot, offset: u64, length: u64) {
        let mut command = [0; 16];
        command[..8].copy_from_slice(&length.to_ne_bytes());
        let entry = opcode::UringCmd16::new(file.fixed(), BLOCK_URING_CMD_DISCARD)
            .addr(Some(offset))
            .cmd(command)
            .build();
        self.push_change(tag, entry);
    }

    /// Has a worker change a disk in a way that the ring cannot. It completes as an operation
    /// of this tag.
    #[cold]
    pub(crate) fn run_apart(&mut self, tag: u64, job: Job) {
        if self.workers.is_none() {
            self.workers = Workers::new();
            self.watch_workers();
        }
        match &self.workers {
            Some(workers) => {
                let lease = self.outgoing.lease();
                let in_time = move || {
                    if lease.is_over() {
                        Err(libc::ECANCELED)
                    } else {
                        job()
                    }
                };
                workers.begin(tag, Box::new(in_time));
            }
            // No descriptor is left: it is tried again later.
            None => self.settled.push_back(Finished::Operation {
                tag,
                result: Err(libc::EAGAIN),
            }),
        }
    }

    /// Wakes up when a worker has ended something.
    pub(super) fn watch_workers(&mut self) {
        if let Some(workers) = &self.workers {
            let fd = types::Fd(workers.wake_fd());
            workers.clear();
            let entry = opcode::PollAdd::new(fd, libc::POLLIN as u32).build();
            self.push(&entry.user_data(POLL | WORKERS));
        }
    }

    pub(super) fn collect_workers(&mut self) {
        if let Some(workers) = &self.workers {
            while let Some((tag, result)) = workers.pop() {
                self.settled.push_back(Finished::Operation { tag, result });
            }
        }
    }

    /// Asks for an end of the operations of this tag. They complete as ever, with `ECANCELED`
    /// where that worked.
    pub(crate) fn cancel(&mut self, tag: u64) {
        if let Some(attachment) = &self.simulated {
            attachment.cancel(tag);
        }
        for _ in 0..self.outgoing.take_out(tag) {
            self.in_flight -= 1;
            let result = Err(libc::ECANCELED);
            self.settled.push_back(Finished::Operation { tag, result });
        }
        let all = types::CancelBuilder::user_data(tag).all();
        let entry = opcode::AsyncCancel2::new(all).build();
        self.push(&entry.user_data(IGNORED));
    }
}
