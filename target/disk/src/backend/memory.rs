//! Disk in memory.
//!
//! A lock protects each copy of up to 4 KiB from or to a buffer. Accesses to blocks are therefore
//! atomic (AWUN), and a lost connection leaves no partial block.

use std::hint;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::thread;

use cairn_base::Mapping;

use super::{BlockIo, BlockOp, Errno, Geometry};
use crate::ring::Ring;

/// Unit of locking in bytes, which is the largest block size.
const UNIT: usize = 4096;

const LOCKS: usize = 256;

const SPINS: u32 = 100;

/// Sequence lock. The number is odd during a write, and readers then retry.
#[derive(Debug, Default)]
struct Lock(AtomicU32);

impl Lock {
    #[inline]
    fn sequence(&self) -> u32 {
        let mut spins = 0;
        loop {
            let sequence = self.0.load(Ordering::Acquire);
            if sequence & 1 == 0 {
                return sequence;
            }
            spins += 1;
            if spins < SPINS {
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }

    #[inline]
    fn read(&self, mut copy: impl FnMut()) {
        loop {
            let before = self.sequence();
            copy();
            fence(Ordering::Acquire);
            if self.0.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }

    #[inline]
    fn write(&self, mut copy: impl FnMut()) {
        let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
        let mut before = self.sequence();
        while let Err(_other) = self
            .0
            .compare_exchange(before, before + 1, acquire, relaxed)
        {
            before = self.sequence();
        }
        let _locked = Locked(self, before);
        fence(Ordering::Release);
        copy();
    }
}

struct Locked<'a>(&'a Lock, u32);

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        let Self(Lock(sequence), before) = self;
        sequence.store(before.wrapping_add(2), Ordering::Release);
    }
}

#[derive(Debug)]
pub(super) struct MemoryDisk {
    mapping: Mapping,
    locks: Box<[Lock]>,
    block_bytes: u32,
    bytes: u64,
}

impl MemoryDisk {
    pub(super) fn new(bytes: u64, block_bytes: u32) -> io::Result<Self> {
        let bytes = bytes / u64::from(block_bytes) * u64::from(block_bytes);
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        let locks = length.div_ceil(UNIT).clamp(1, LOCKS);
        Ok(Self {
            mapping: Mapping::anonymous(length)?,
            locks: (0..locks).map(|_| Lock::default()).collect(),
            block_bytes,
            bytes,
        })
    }

    pub(super) fn geometry(&self) -> Geometry {
        Geometry {
            block_bytes: self.block_bytes,
            blocks: self.bytes / u64::from(self.block_bytes),
            memory_alignment: 1,
            boundary: 0,
        }
    }

    pub(super) fn run(&self, io: &BlockIo, ring: &Ring) -> Result<(), Errno> {
        assert!(
            io.offset + io.length <= self.bytes,
            "{io:?} on {} bytes",
            self.bytes
        );
        match io.op {
            BlockOp::Read => {
                let span = io.whole();
                self.each_unit(io, |lock, at, done, length| {
                    let part = span.part(done as u32, length as u32);
                    lock.read(|| ring.copy_in(part, &self.mapping, at));
                });
            }
            BlockOp::Write { .. } => {
                let span = io.whole();
                self.each_unit(io, |lock, at, done, length| {
                    let part = span.part(done as u32, length as u32);
                    lock.write(|| ring.copy_out(part, &self.mapping, at));
                });
            }
            BlockOp::WriteZeroes { .. } => self.each_unit(io, |lock, at, _, length| {
                lock.write(|| self.mapping.fill(at, length, 0));
            }),
            BlockOp::Compare | BlockOp::WriteUncorrectable => {
                return Err(Errno(libc::EOPNOTSUPP));
            }
            BlockOp::Deallocate | BlockOp::Advise | BlockOp::Verify | BlockOp::Flush => {}
        }
        Ok(())
    }

    #[inline]
    fn each_unit(&self, io: &BlockIo, mut each: impl FnMut(&Lock, usize, usize, usize)) {
        let (first, length) = (io.offset as usize, io.length as usize);
        let mut done = 0;
        while done < length {
            let at = first + done;
            let bytes = (UNIT - at % UNIT).min(length - done);
            each(&self.locks[at / UNIT % self.locks.len()], at, done, bytes);
            done += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::ring::Span;

    fn rig(byte: u8) -> (Ring, Span, Arc<Mapping>) {
        let mut ring = Ring::new(8).unwrap();
        let buffer = Arc::new(Mapping::anonymous(UNIT).unwrap());
        buffer.fill(0, UNIT, byte);
        let span = Span {
            buffer: ring.add_buffer(&buffer).unwrap(),
            addr: buffer.addr(),
            length: UNIT as u32,
        };
        (ring, span, buffer)
    }

    #[test]
    fn a_block_is_written_and_read_as_one() {
        let disk = MemoryDisk::new(1 << 20, 4096).unwrap();
        let stop = AtomicBool::new(false);
        let run = |op, ring: &Ring, span| {
            let io = BlockIo::new(op, 4096, UNIT as u64, Some(span));
            disk.run(&io, ring).unwrap();
        };
        let mut seen = [0_u32; 3];
        thread::scope(|scope| {
            for byte in [1, 2] {
                let (run, stop) = (&run, &stop);
                scope.spawn(move || {
                    let (ring, span, _buffer) = rig(byte);
                    while !stop.load(Ordering::Relaxed) {
                        run(BlockOp::Write { durable: false }, &ring, span);
                    }
                });
            }
            let (ring, span, buffer) = rig(9);
            for look in 0_u32.. {
                run(BlockOp::Read, &ring, span);
                let mut bytes = [0; UNIT];
                buffer.read(0, &mut bytes);
                if bytes.iter().any(|byte| *byte != bytes[0]) {
                    stop.store(true, Ordering::Relaxed);
                    panic!("a part of one write and a part of another");
                }
                seen[usize::from(bytes[0])] += 1;
                if look > 100_000 && seen[1] > 100 && seen[2] > 100 || look > 5_000_000 {
                    break;
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(seen[1] > 0 && seen[2] > 0, "{seen:?}");
    }
}
