use std::io;
use std::sync::Arc;

use cairn_base::Mapping;

use crate::pool::{Buffer, Pool, UNIT};
use crate::ring::Span;

const SPARES: usize = 32;

/// Memory of an I/O thread: `[head | data buffers | spare buffers]`, in one mapping registered once
/// with the ring and each RDMA device. The head is for the caller's data. Access beyond a buffer
/// panics.
#[derive(Debug)]
pub struct Arena {
    mapping: Arc<Mapping>,
    pool: Pool,
    data: usize,
    spare: Vec<Buffer>,
    data_offset: usize,
    slot: u16,
}

impl Arena {
    /// Allocates a head of `head` bytes and a pool of `data` bytes, both rounded up. `largest` is
    /// the maximum buffer size; the pool has room for two such buffers.
    ///
    /// # Panics
    /// If `largest` is not a power of two of at least [`UNIT`].
    pub fn new(head: usize, data: usize, largest: usize) -> io::Result<Self> {
        // A compare takes two buffers, possibly of the largest size.
        let data = data.max(2 * largest).next_multiple_of(largest);
        let head = head.next_multiple_of(UNIT);
        let mapping = Arc::new(Mapping::anonymous(head + data + SPARES * UNIT)?);
        let pool = Pool::new(data, largest);
        Ok(Self {
            mapping,
            pool,
            data,
            spare: (0..SPARES).map(|n| Buffer::at(data + n * UNIT)).collect(),
            data_offset: head,
            slot: 0,
        })
    }

    #[inline]
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    pub fn set_slot(&mut self, slot: u16) {
        self.slot = slot;
    }

    #[inline]
    pub fn data_bytes(&self) -> usize {
        self.data
    }

    #[inline]
    pub fn taken_bytes(&self) -> usize {
        self.pool.taken_bytes() + (SPARES - self.spare.len()) * UNIT
    }

    /// Takes a free spare page, for work that must not wait for the pool.
    #[inline]
    pub fn take_spare(&mut self) -> Option<Buffer> {
        self.spare.pop()
    }

    #[inline]
    pub fn give(&mut self, buffer: Buffer) {
        if buffer.offset() < self.data {
            self.pool.give(buffer);
        } else {
            self.spare.push(buffer);
        }
    }

    /// Returns the pool. Its offsets count from the end of the head.
    #[inline]
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    #[inline]
    pub fn span(&self, buffer: &Buffer, length: u32) -> Span {
        assert!(
            length as usize <= buffer.bytes(),
            "{length} bytes of {buffer:?}"
        );
        let offset = self.data_offset + buffer.offset();
        Span {
            buffer: self.slot,
            addr: self.mapping.addr() + offset as u64,
            length,
        }
    }

    /// Copies bytes to `offset` of the head, and returns their address.
    ///
    /// # Panics
    /// If the bytes exceed the head.
    #[inline(always)]
    pub fn write_head(&self, offset: usize, bytes: &[u8]) -> u64 {
        let end = offset + bytes.len();
        assert!(end <= self.data_offset, "{end} bytes of head");
        self.mapping.write(offset, bytes);
        self.mapping.addr() + offset as u64
    }

    pub fn write(&self, buffer: &Buffer, bytes: &[u8]) {
        assert!(
            bytes.len() <= buffer.bytes(),
            "{} bytes into {buffer:?}",
            bytes.len()
        );
        self.mapping
            .write(self.data_offset + buffer.offset(), bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_buffers_do_not_meet() {
        let mut arena = Arena::new(4800, 1 << 20, 64 << 10).unwrap();
        let last = arena.write_head(4799, &[7]);
        let buffer = arena.pool().take(4096).unwrap();
        let span = arena.span(&buffer, 4096);
        assert!(last < span.addr);
        assert!(span.addr.is_multiple_of(UNIT as u64));
        assert_eq!(arena.mapping().len(), 8192 + (1 << 20) + SPARES * UNIT);
        arena.give(buffer);
    }

    #[test]
    fn spare_buffers_lie_behind_the_others_and_come_back() {
        let mut arena = Arena::new(1, 1 << 20, 64 << 10).unwrap();
        let spares: Vec<Buffer> = std::iter::from_fn(|| arena.take_spare()).collect();
        assert_eq!(spares.len(), SPARES);
        assert_eq!(arena.taken_bytes(), SPARES * UNIT);
        let end = arena.mapping().addr() + arena.mapping().len() as u64;
        for buffer in spares {
            let span = arena.span(&buffer, UNIT as u32);
            assert!(buffer.offset() >= arena.data_bytes());
            assert!(span.addr + UNIT as u64 <= end);
            arena.give(buffer);
        }
        assert_eq!(arena.taken_bytes(), 0);
    }

    #[test]
    fn two_buffers_of_the_largest_size_always_fit() {
        let mut arena = Arena::new(1, 4096, 1 << 20).unwrap();
        let (one, two) = (arena.pool().take(1 << 20), arena.pool().take(1 << 20));
        assert!(one.is_some() && two.is_some());
    }
}
