//! Data transfers: reads by the ring; writes by the ring if they cannot block, or else by a worker.

use std::sync::atomic::Ordering;

use super::{BlockFile, BlockIo, BlockOp};
use crate::ring::{FileSlot, Open, Ring, Span};

impl BlockFile {
    pub(super) fn move_data(&self, io: &mut BlockIo, ring: &mut Ring, file: FileSlot, tag: u64) {
        let mut done = io.done;
        while done < io.length && io.pieces.may_add() {
            let size = (io.length - done).min(self.piece_bytes) as u32;
            let offset = io.offset + done;
            let span = io.memory().part(done as u32, size);
            io.pieces.add(size);
            done += u64::from(size);
            match io.op {
                BlockOp::Write { durable } if self.asks_at_once(io, file) => {
                    let durable = durable && self.direct;
                    ring.write(tag, file, offset, span, durable, true);
                }
                BlockOp::Write { durable } => {
                    let durable = durable && self.direct;
                    self.write_in_time(ring, tag, file, (offset, span), durable);
                    // Only one piece is written at a time: a write on a worker cannot be cancelled.
                    return;
                }
                _ => ring.read(tag, file, offset, span),
            }
        }
    }

    pub(super) fn write_in_time(
        &self,
        ring: &mut Ring,
        tag: u64,
        file: FileSlot,
        (offset, span): (u64, Span),
        durable: bool,
    ) {
        let file = self.with(file);
        #[cfg(test)]
        if self.takes_panic() {
            return ring.run_apart(tag, file.1, Box::new(|| panic!("on purpose")));
        }
        ring.write_apart(tag, file, offset, span, durable, self.submits);
    }

    #[cfg(test)]
    pub(crate) fn panic_writes(&self, count: u32) {
        self.writes_at_once.store(false, Ordering::Relaxed);
        self.panicking_writes.store(count, Ordering::Relaxed);
    }

    #[cfg(test)]
    fn takes_panic(&self) -> bool {
        let take = |left: u32| left.checked_sub(1);
        let order = Ordering::Relaxed;
        let taken = self.panicking_writes.fetch_update(order, order, take);
        taken.is_ok()
    }

    pub(super) fn with(&self, file: FileSlot) -> (FileSlot, Open) {
        (file, self.file.keep())
    }

    pub(super) fn punch(
        &self,
        ring: &mut Ring,
        tag: u64,
        file: FileSlot,
        offset: u64,
        length: u64,
    ) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        ring.fallocate(tag, self.with(file), offset, length, mode);
    }

    /// True if the ring writes with `RWF_NOWAIT`, which cannot extend the file. Other writes go to
    /// a worker.
    #[inline]
    pub(super) fn asks_at_once(&self, io: &BlockIo, file: FileSlot) -> bool {
        let may_ask = !file.writes_block() && !io.may_wait;
        may_ask && self.writes_at_once.load(Ordering::Relaxed)
    }

    pub(super) fn asked_at_once(&self, io: &BlockIo) -> bool {
        !io.may_wait && matches!(io.op, BlockOp::Write { .. })
    }
}
