//! Data buffers: a buddy allocator over the arena's data area.
//!
//! A buffer is contiguous, for RDMA and block I/O, and a power of two from a page to the largest
//! transfer. Up to [`LOOSE_MAX`] freed pages stay unmerged until an allocation would fail, so that
//! small commands do not repeatedly split and merge blocks.

/// Smallest buffer in bytes: one page, which meets the direct I/O alignment of any disk.
pub const UNIT: usize = 4096;

const LOOSE_MAX: usize = 32;

const NONE: u32 = u32::MAX;

/// Allocated buffer, freed by [`Pool::give`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a buffer that is not given back is lost"]
pub struct Buffer {
    unit: u32,
    order: u8,
}

impl Buffer {
    pub(crate) fn at(offset: usize) -> Self {
        let unit = (offset / UNIT) as u32;
        Self { unit, order: 0 }
    }

    #[inline]
    pub fn offset(&self) -> usize {
        self.unit as usize * UNIT
    }

    #[inline]
    pub fn bytes(&self) -> usize {
        UNIT << self.order
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnitState {
    Free(u8),
    Taken(u8),
    Loose,
    Tail,
}

#[derive(Debug, Clone, Copy)]
struct Unit {
    state: UnitState,
    next: u32,
    prev: u32,
}

#[derive(Debug)]
pub struct Pool {
    units: Vec<Unit>,
    free: Vec<u32>,
    loose: Vec<u32>,
    free_units: usize,
}

impl Pool {
    /// Returns a pool of `length` bytes with buffers of up to `largest` bytes.
    ///
    /// # Panics
    /// If `largest` is not a power of two of at least [`UNIT`], or if `length` is not a
    /// positive multiple of `largest`.
    pub fn new(length: usize, largest: usize) -> Self {
        assert!(
            largest.is_power_of_two() && largest >= UNIT,
            "buffers of {largest} bytes"
        );
        assert!(
            length > 0 && length.is_multiple_of(largest),
            "{length} / {largest}"
        );
        let orders = order_of(largest) + 1;
        let tail = Unit {
            state: UnitState::Tail,
            next: NONE,
            prev: NONE,
        };
        let mut pool = Self {
            units: vec![tail; length / UNIT],
            free: vec![NONE; usize::from(orders)],
            loose: Vec::with_capacity(LOOSE_MAX),
            free_units: length / UNIT,
        };
        for first in (0..length).step_by(largest).rev() {
            pool.link((first / UNIT) as u32, orders - 1);
        }
        pool
    }

    #[inline]
    pub fn largest(&self) -> usize {
        UNIT << (self.free.len() - 1)
    }

    #[inline]
    pub fn taken_bytes(&self) -> usize {
        (self.units.len() - self.free_units) * UNIT
    }

    #[cfg(test)]
    pub(crate) fn free_bytes(&self) -> usize {
        self.free_units * UNIT
    }

    /// Allocates at least `length` bytes, if a buffer is free.
    ///
    /// # Panics
    /// If `length` exceeds [`Self::largest`].
    #[inline]
    pub fn take(&mut self, length: usize) -> Option<Buffer> {
        assert!(length <= self.largest(), "no buffer of {length} bytes");
        let order = order_of(length);
        if order == 0
            && let Some(unit) = self.loose.pop()
        {
            self.units[unit as usize].state = UnitState::Taken(0);
            self.free_units -= 1;
            return Some(Buffer { unit, order });
        }
        if let Some(buffer) = self.split_off(order) {
            return Some(buffer);
        }
        self.merge_loose();
        self.split_off(order)
    }

    fn split_off(&mut self, order: u8) -> Option<Buffer> {
        let found = (order..self.free.len() as u8).find(|&o| self.free[usize::from(o)] != NONE)?;
        let unit = self.free[usize::from(found)];
        self.unlink(unit, found);
        for half in (order..found).rev() {
            self.link(unit + (1 << half), half);
        }
        self.units[unit as usize].state = UnitState::Taken(order);
        self.free_units -= 1 << order;
        Some(Buffer { unit, order })
    }

    /// Frees a buffer.
    ///
    /// # Panics
    /// If the buffer is not allocated in this pool.
    #[allow(clippy::needless_pass_by_value)] // taken by value so that the caller cannot keep it
    #[inline]
    pub fn give(&mut self, buffer: Buffer) {
        let Buffer { unit, order } = buffer;
        assert_eq!(
            self.units[unit as usize].state,
            UnitState::Taken(order),
            "buffer of another pool"
        );
        self.free_units += 1 << order;
        if order == 0 && self.loose.len() < LOOSE_MAX {
            self.units[unit as usize].state = UnitState::Loose;
            self.loose.push(unit);
        } else {
            self.merge(unit, order);
        }
    }

    fn merge(&mut self, mut unit: u32, mut order: u8) {
        self.units[unit as usize].state = UnitState::Tail;
        while usize::from(order) + 1 < self.free.len() {
            let buddy = unit ^ (1 << order);
            if self.units[buddy as usize].state != UnitState::Free(order) {
                break;
            }
            self.unlink(buddy, order);
            unit &= !(1 << order);
            order += 1;
        }
        self.link(unit, order);
    }

    #[cold]
    fn merge_loose(&mut self) {
        while let Some(unit) = self.loose.pop() {
            self.merge(unit, 0);
        }
    }

    fn link(&mut self, unit: u32, order: u8) {
        let next = std::mem::replace(&mut self.free[usize::from(order)], unit);
        self.units[unit as usize] = Unit {
            state: UnitState::Free(order),
            next,
            prev: NONE,
        };
        if next != NONE {
            self.units[next as usize].prev = unit;
        }
    }

    fn unlink(&mut self, unit: u32, order: u8) {
        let Unit { next, prev, .. } = self.units[unit as usize];
        self.units[unit as usize].state = UnitState::Tail;
        if prev == NONE {
            self.free[usize::from(order)] = next;
        } else {
            self.units[prev as usize].next = next;
        }
        if next != NONE {
            self.units[next as usize].prev = prev;
        }
    }
}

#[inline]
pub fn rounded(length: usize) -> usize {
    UNIT << order_of(length)
}

fn order_of(length: usize) -> u8 {
    length
        .div_ceil(UNIT)
        .max(1)
        .next_power_of_two()
        .trailing_zeros() as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LARGEST: usize = 1 << 20;

    #[test]
    fn lowest_first_and_rounded_up() {
        let mut pool = Pool::new(2 * LARGEST, LARGEST);
        let one = pool.take(1).unwrap();
        let five_pages = pool.take(5 * UNIT).unwrap();
        assert_eq!((one.offset(), one.bytes()), (0, UNIT));
        assert_eq!(
            (five_pages.offset(), five_pages.bytes()),
            (8 * UNIT, 8 * UNIT)
        );
        pool.give(one);
        pool.give(five_pages);
        assert_eq!(pool.free_bytes(), 2 * LARGEST);
    }

    #[test]
    fn empty_is_a_state() {
        let mut pool = Pool::new(LARGEST, LARGEST);
        let all = pool.take(LARGEST).unwrap();
        assert_eq!(pool.take(1), None);
        pool.give(all);
        let page = pool.take(1).unwrap();
        assert_eq!(pool.take(LARGEST), None, "a page of it is taken");
        pool.give(page);
        assert!(pool.take(LARGEST).is_some(), "merged again");
    }

    #[test]
    fn a_page_that_came_back_is_the_next_that_goes() {
        let mut pool = Pool::new(LARGEST, LARGEST);
        let pages: Vec<Buffer> = (0..2 * LOOSE_MAX).map(|_| pool.take(1).unwrap()).collect();
        let last = pages[LOOSE_MAX - 1].offset();
        for page in pages {
            pool.give(page);
        }
        assert_eq!(pool.loose.len(), LOOSE_MAX);
        assert_eq!(pool.free_bytes(), LARGEST);
        let page = pool.take(UNIT).unwrap();
        assert_eq!(page.offset(), last, "without a split");
        pool.give(page);
        assert!(pool.take(LARGEST).is_some(), "merged again");
        assert_eq!(pool.take(1), None);
    }

    #[test]
    #[should_panic(expected = "no buffer of")]
    fn more_than_the_largest_is_a_bug() {
        let _ = Pool::new(LARGEST, LARGEST).take(LARGEST + 1);
    }

    proptest! {
        #[test]
        fn buffers_never_overlap_and_always_merge(
            steps in proptest::collection::vec((any::<bool>(), 1usize..=LARGEST), 1..300)
        ) {
            let mut pool = Pool::new(4 * LARGEST, LARGEST);
            let mut taken: Vec<Buffer> = Vec::new();
            for (take, size) in steps {
                if take {
                    if let Some(buffer) = pool.take(size) {
                        prop_assert!(buffer.bytes() >= size && buffer.bytes() < 2 * size.max(UNIT));
                        let (start, end) = (buffer.offset(), buffer.offset() + buffer.bytes());
                        prop_assert!(end <= 4 * LARGEST);
                        prop_assert!(start.is_multiple_of(buffer.bytes()));
                        for other in &taken {
                            prop_assert!(
                                end <= other.offset() || other.offset() + other.bytes() <= start
                            );
                        }
                        taken.push(buffer);
                    }
                } else if !taken.is_empty() {
                    let buffer = taken.swap_remove(size % taken.len());
                    pool.give(buffer);
                }
                let used: usize = taken.iter().map(Buffer::bytes).sum();
                prop_assert_eq!(pool.free_bytes() + used, 4 * LARGEST);
            }
            for buffer in taken.drain(..) {
                pool.give(buffer);
            }
            for _ in 0..4 {
                prop_assert!(pool.take(LARGEST).is_some());
            }
            prop_assert!(pool.take(1).is_none());
        }
    }
}
