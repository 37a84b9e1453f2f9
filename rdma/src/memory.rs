//! Memory that devices reach.
//!
//! Why `unsafe` here: the bytes of a [`Mapping`] are written by adapters and by
//! the kernel's block layer behind the compiler's back, so no reference to
//! them may exist while that can happen. A mapping therefore hands out
//! addresses and copies; a caller that takes a slice promises that nothing else
//! touches those bytes meanwhile.
//!
//! Copies may run into each other, on several threads or with an adapter: nothing
//! here keeps them apart. Each accesses every byte by itself, as relaxed atomics do,
//! so what is seen then is a mixture of bytes and never undefined (`bytewise`).

mod bytewise;

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};

/// Bytes of a mapping that no cache of a core holds.
const LARGE: usize = 32 << 20;
/// Bytes of a write that is worth going around the caches.
const LONG: usize = 1 << 10;

/// A stretch of memory that stays where it is: page-aligned and ours, or borrowed.
pub struct Mapping {
    base: *mut u8,
    length: usize,
    /// Of a borrowed one there is none.
    _owned: Option<MmapRaw>,
}

// SAFETY: the pointer is to memory that stays where it is for as long as the
// mapping lives, on whichever thread; access goes through copies and addresses, by
// the rules at the top.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapping({:#x}, {} bytes)", self.addr(), self.len())
    }
}

impl Mapping {
    /// Maps `length` zeroed bytes, rounded up to whole pages. Transparent huge
    /// pages are asked for, never required.
    ///
    /// # Errors
    /// The system has no such memory.
    ///
    /// # Panics
    /// If `length` is 0.
    pub fn anonymous(length: usize) -> io::Result<Self> {
        assert!(length > 0, "an empty mapping is a caller's mistake");
        let raw = MmapRaw::from(MmapOptions::new().len(length).map_anon()?);
        // Fewer TLB misses where the system has huge pages to give; fine without. Miri does
        // not know the call.
        if !cfg!(miri) {
            let _ = raw.advise(memmap2::Advice::HugePage);
        }
        Ok(Self {
            base: raw.as_mut_ptr(),
            length: raw.len(),
            _owned: Some(raw),
        })
    }

    /// Memory that the caller has allocated.
    ///
    /// # Safety
    /// It is allocated, and stays so for as long as the mapping lives. No reference
    /// to it exists while adapters may reach it.
    ///
    /// # Panics
    /// If `length` is 0.
    #[must_use]
    pub unsafe fn borrowed(base: *mut u8, length: usize) -> Self {
        assert!(length > 0, "an empty mapping is a caller's mistake");
        Self {
            base,
            length,
            _owned: None,
        }
    }

    /// Virtual address of the first byte.
    #[must_use]
    #[inline]
    pub fn addr(&self) -> u64 {
        self.base as u64
    }

    /// Bytes.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Never: see [`Mapping::anonymous`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `length` bytes at virtual address `addr` lie in here.
    #[must_use]
    pub fn contains(&self, addr: u64, length: u64) -> bool {
        addr.checked_sub(self.addr())
            .and_then(|offset| offset.checked_add(length))
            .is_some_and(|end| end <= self.len() as u64)
    }

    /// Copies bytes in at `offset`.
    ///
    /// # Panics
    /// If they do not fit.
    #[inline]
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        // SAFETY: the range was checked; `bytes` is a live reference and so
        // cannot overlap memory to which no reference exists.
        unsafe { bytewise::store(bytes, self.base.add(offset)) };
    }

    /// As [`Self::write`]. In a mapping that no cache holds anyway, long writes go
    /// around the caches: then no line is fetched only to be overwritten, and none
    /// that is needed is pushed out. Until [`Self::fence`], no other thread may be
    /// informed that the bytes are there.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write_around(&self, offset: usize, bytes: &[u8]) {
        if self.length < LARGE || bytes.len() < LONG {
            return self.write(offset, bytes);
        }
        self.check(offset, bytes.len());
        // SAFETY: the range was checked; `bytes` is a live reference and so
        // cannot overlap memory to which no reference exists.
        unsafe { bytewise::stream(bytes, self.base.add(offset)) };
    }

    /// Puts what this thread has written by [`Self::write_around`] before all that
    /// it writes from now on, as other threads see it.
    pub fn fence() {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: it takes no arguments, and every x86-64 has it.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }

    /// Copies bytes out from `offset`.
    ///
    /// # Panics
    /// If there are not as many.
    #[inline]
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.check(offset, out.len());
        // SAFETY: as in `write`.
        unsafe { bytewise::load(self.base.cast_const().add(offset), out) };
    }

    /// Has the cache fetch `length` bytes from `offset` on, or what there is of them:
    /// they will be read soon. A core that does so by itself stops at the end of a
    /// page.
    pub fn prefetch(&self, offset: usize, length: usize) {
        let length = length.min(self.length.saturating_sub(offset));
        #[cfg(target_arch = "x86_64")]
        for line in (0..length).step_by(64) {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            // SAFETY: a hint, whose reads no program can observe; the
            // address lies in the mapping.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(self.base.add(offset + line).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = length;
    }

    /// Copies `length` bytes from `offset` here to `to_offset` in `to`, which may
    /// be the same mapping.
    ///
    /// # Panics
    /// If either range is not inside its mapping.
    pub fn copy_to(&self, offset: usize, to: &Self, to_offset: usize, length: usize) {
        self.check(offset, length);
        to.check(to_offset, length);
        let (from, to) = (
            self.base.wrapping_add(offset),
            to.base.wrapping_add(to_offset),
        );
        // SAFETY: both ranges were checked; they may overlap.
        unsafe { bytewise::shift(from.cast_const(), to, length) };
    }

    /// Sets `length` bytes from `offset` on to `value`.
    ///
    /// # Panics
    /// If there are not as many.
    pub fn fill(&self, offset: usize, length: usize, value: u8) {
        self.check(offset, length);
        // SAFETY: the range was checked, and no reference to it exists.
        unsafe { bytewise::fill(self.base.add(offset), value, length) };
    }

    /// Borrows bytes.
    ///
    /// # Safety
    /// No adapter, kernel or thread writes those bytes while the slice lives.
    ///
    /// # Panics
    /// If the range is not inside the mapping.
    #[must_use]
    pub unsafe fn slice(&self, offset: usize, length: usize) -> &[u8] {
        self.check(offset, length);
        // SAFETY: in range; the caller promises that nothing writes.
        unsafe { std::slice::from_raw_parts(self.base.cast_const().add(offset), length) }
    }

    /// Borrows bytes to change them.
    ///
    /// # Safety
    /// No adapter, kernel, thread or other slice touches those bytes while the
    /// slice lives.
    ///
    /// # Panics
    /// If the range is not inside the mapping.
    #[must_use]
    #[allow(clippy::mut_from_ref)] // exclusive by the caller's promise
    pub unsafe fn slice_mut(&self, offset: usize, length: usize) -> &mut [u8] {
        self.check(offset, length);
        // SAFETY: in range; the caller promises to be alone.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(offset), length) }
    }

    #[inline(always)]
    fn check(&self, offset: usize, length: usize) {
        let end = offset.checked_add(length);
        if end.is_none_or(|end| end > self.len()) {
            self.refuse(offset, length);
        }
    }

    #[cold]
    fn refuse(&self, offset: usize, length: usize) -> ! {
        panic!("{length} bytes at {offset} lie outside {self:?}");
    }
}

/// A mapping that one device can reach. Dropping it takes its keys out of use;
/// the mapping itself lives at least as long.
pub struct Region {
    lkey: u32,
    rkey: Option<u32>,
    // Declared before the mapping, so that it is deregistered while the memory
    // is still there.
    _registration: Box<dyn Any + Send + Sync>,
    mapping: Arc<Mapping>,
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region(lkey {:#x}, ", self.lkey)?;
        match self.rkey {
            Some(rkey) => write!(f, "rkey {rkey:#x}, {:?})", self.mapping),
            None => write!(f, "no rkey, {:?})", self.mapping),
        }
    }
}

impl Region {
    /// For providers: `registration` undoes itself when dropped. There is a remote key
    /// only where peers were given a right.
    #[must_use]
    pub fn new(
        mapping: Arc<Mapping>,
        lkey: u32,
        rkey: Option<u32>,
        registration: Box<dyn Any + Send + Sync>,
    ) -> Self {
        Self {
            lkey,
            rkey,
            _registration: registration,
            mapping,
        }
    }

    /// The key for [`Sge`](crate::Sge)s.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// The key to give to peers, if the region was registered for them to reach.
    #[must_use]
    pub fn rkey(&self) -> Option<u32> {
        self.rkey
    }

    /// The memory.
    #[must_use]
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is seen of bytes that others write at the same time is one of theirs, each
    /// byte by itself. That safe code does nothing undefined here, `cargo xtask miri` finds
    /// out.
    #[test]
    fn threads_share_bytes() {
        const LENGTH: usize = 100;
        let mut bytes = vec![0_u8; LENGTH];
        // SAFETY: the vector outlives the mapping, and nothing else looks at it.
        let mapping = unsafe { Mapping::borrowed(bytes.as_mut_ptr(), LENGTH) };
        std::thread::scope(|scope| {
            for value in 1..=2 {
                let mapping = &mapping;
                scope.spawn(move || {
                    let mut seen = [0; LENGTH];
                    for offset in [0, 1, 7, 8, 50] {
                        mapping.write(offset, &[value; 50]);
                        mapping.write_around(0, &[value; 10]);
                        mapping.copy_to(offset, mapping, 3, 20);
                        mapping.copy_to(3, mapping, offset, 20);
                        mapping.fill(90, 10, value);
                        mapping.read(0, &mut seen);
                        assert!(seen.iter().all(|byte| *byte <= 2), "{seen:?}");
                    }
                });
            }
        });
    }

    #[test]
    fn copies_of_any_length() {
        let mapping = Mapping::anonymous(4096).unwrap();
        let bytes: Vec<u8> = (1..=200).collect();
        // Miri is slow, and needs no length twice.
        let step = if cfg!(miri) { 23 } else { 1 };
        for length in (0..=bytes.len()).step_by(step) {
            mapping.fill(0, 600, 0xff);
            mapping.write(length, &bytes[..length]);
            let mut out = vec![0; 600];
            mapping.read(0, &mut out);
            assert!(out[length..][..length] == bytes[..length]);
            let mut around = out[..length].iter().chain(&out[2 * length..]);
            assert!(around.all(|&byte| byte == 0xff), "{length}");
            let mut back = vec![0; length];
            mapping.read(length, &mut back);
            assert!(back == bytes[..length]);
        }
    }

    #[test]
    fn stretches_that_overlap_are_moved() {
        let mut bytes: Vec<u8> = (0..100).collect();
        // SAFETY: as above.
        let mapping = unsafe { Mapping::borrowed(bytes.as_mut_ptr(), 100) };
        for (from, to) in [(10, 15), (15, 10), (20, 20)] {
            let (mut before, mut after) = ([0; 40], [0; 40]);
            mapping.read(from, &mut before);
            mapping.copy_to(from, &mapping, to, 40);
            mapping.read(to, &mut after);
            assert_eq!(before, after);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri takes minutes for 32 MiB")]
    fn long_writes_land_wherever_they_begin_and_end() {
        let mapping = Mapping::anonymous(LARGE).unwrap();
        let bytes: Vec<u8> = (0..4096 + 63_u32).map(|at| (at * 7 % 251) as u8).collect();
        for offset in [0, 1, 16, 63, 64, 4095] {
            for length in [LONG - 1, LONG, LONG + 1, 4096, bytes.len()] {
                mapping.fill(0, 3 * 4096, 0xff);
                mapping.write_around(offset, &bytes[..length]);
                Mapping::fence();
                let mut out = vec![0; 3 * 4096];
                mapping.read(0, &mut out);
                assert_eq!(out[offset..][..length], bytes[..length]);
                let mut around = out[..offset].iter().chain(&out[offset + length..]);
                assert!(around.all(|&byte| byte == 0xff), "{length} at {offset}");
            }
        }
    }

    #[test]
    fn foresight_ends_with_the_mapping() {
        let mapping = Mapping::anonymous(4096).unwrap();
        mapping.prefetch(4000, 4096);
        mapping.prefetch(8192, 4096);
    }
}
