//! Memory accessed by devices.
//!
//! Why `unsafe` here: adapters and the kernel's block layer write the bytes of a [`Mapping`], so no
//! Rust reference to the bytes may exist meanwhile. A mapping offers addresses and copies. The
//! caller of `slice` or `slice_mut` excludes conflicting access. Copies act like relaxed atomic
//! operations on each byte (`bytewise`): a race yields a mixture of old and new bytes, never
//! undefined behaviour.

mod bytewise;

use std::fmt;
use std::io;

use memmap2::{MmapOptions, MmapRaw};

/// Mappings of at least this size, in bytes, do not fit in the CPU caches.
const LARGE: usize = 32 << 20;
/// Writes of at least this length, in bytes, are faster if they bypass the caches.
const LONG: usize = 1 << 10;

/// Memory at a fixed address: owned and page-aligned, or borrowed. Access outside the memory
/// panics.
pub struct Mapping {
    base: *mut u8,
    length: usize,
    _owned: Option<MmapRaw>,
}

// SAFETY: the memory keeps its address for the life of the mapping, on every thread. Access goes
// through copies and addresses, by the rules in the module documentation.
unsafe impl Send for Mapping {}
// SAFETY: see `Send` above.
unsafe impl Sync for Mapping {}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapping({:#x}, {} bytes)", self.addr(), self.len())
    }
}

impl Mapping {
    /// Maps `length` zeroed bytes, in transparent huge pages if possible.
    ///
    /// # Panics
    /// `length` is 0.
    pub fn anonymous(length: usize) -> io::Result<Self> {
        assert!(length > 0, "an empty mapping is a caller's mistake");
        let raw = MmapRaw::from(MmapOptions::new().len(length).map_anon()?);
        if !cfg!(miri) {
            let _ = raw.advise(memmap2::Advice::HugePage);
        }
        Ok(Self {
            base: raw.as_mut_ptr(),
            length: raw.len(),
            _owned: Some(raw),
        })
    }

    /// Creates a mapping of memory owned by the caller.
    ///
    /// # Safety
    /// The memory stays allocated for the life of the mapping. No reference to the memory exists
    /// while adapters may access it.
    ///
    /// # Panics
    /// `length` is 0.
    #[must_use]
    pub unsafe fn borrowed(base: *mut u8, length: usize) -> Self {
        assert!(length > 0, "an empty mapping is a caller's mistake");
        Self {
            base,
            length,
            _owned: None,
        }
    }

    /// Returns the virtual address of the first byte.
    #[must_use]
    #[inline]
    pub fn addr(&self) -> u64 {
        self.base as u64
    }

    /// Returns the length in bytes.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns false: no constructor accepts length 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if `length` bytes at virtual address `addr` lie within the mapping.
    #[must_use]
    pub fn contains(&self, addr: u64, length: u64) -> bool {
        addr.checked_sub(self.addr())
            .and_then(|offset| offset.checked_add(length))
            .is_some_and(|end| end <= self.len() as u64)
    }

    /// Copies `bytes` into the mapping at `offset`.
    #[inline]
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        // SAFETY: the range was checked. `bytes` does not overlap it, because the rules of `slice`
        // exclude writes to referenced bytes.
        unsafe { bytewise::store(bytes, self.base.add(offset)) };
    }

    /// Copies `bytes` like [`Self::write`]. Long writes to large mappings bypass the caches.
    ///
    /// Call [`Self::fence`] before notifying another thread of the bytes.
    pub fn write_around(&self, offset: usize, bytes: &[u8]) {
        if self.length < LARGE || bytes.len() < LONG {
            return self.write(offset, bytes);
        }
        self.check(offset, bytes.len());
        // SAFETY: as in `write`.
        unsafe { bytewise::stream(bytes, self.base.add(offset)) };
    }

    /// Orders earlier [`Self::write_around`] calls of this thread before its later writes.
    pub fn fence() {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: the instruction takes no arguments and exists on every x86-64.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }

    /// Copies bytes from the mapping at `offset` to `out`.
    #[inline]
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.check(offset, out.len());
        // SAFETY: the range was checked. `out` does not overlap it, because the rules of
        // `slice_mut` exclude other access to referenced bytes.
        unsafe { bytewise::load(self.base.cast_const().add(offset), out) };
    }

    /// Prefetches up to `length` bytes at `offset` into the caches.
    pub fn prefetch(&self, offset: usize, length: usize) {
        let length = length.min(self.length.saturating_sub(offset));
        #[cfg(target_arch = "x86_64")]
        for line in (0..length).step_by(64) {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            // SAFETY: a prefetch has no effect on memory, and the address is in the mapping.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(self.base.add(offset + line).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = length;
    }

    /// Copies `length` bytes to `to_offset` of `to`, which may be the same mapping.
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

    /// Sets `length` bytes at `offset` to `value`.
    pub fn fill(&self, offset: usize, length: usize, value: u8) {
        self.check(offset, length);
        // SAFETY: the range was checked, and the rules of `slice` exclude writes to referenced
        // bytes.
        unsafe { bytewise::fill(self.base.add(offset), value, length) };
    }

    /// Returns a slice of the mapping.
    ///
    /// # Safety
    /// No adapter, kernel or thread writes these bytes during the life of the slice.
    #[must_use]
    pub unsafe fn slice(&self, offset: usize, length: usize) -> &[u8] {
        self.check(offset, length);
        // SAFETY: the range was checked, and the caller guarantees that nothing writes to it.
        unsafe { std::slice::from_raw_parts(self.base.cast_const().add(offset), length) }
    }

    /// Returns a mutable slice of the mapping.
    ///
    /// # Safety
    /// No adapter, kernel, thread or other slice accesses these bytes during the life of the slice.
    #[must_use]
    #[allow(clippy::mut_from_ref)] // The caller guarantees exclusive access.
    pub unsafe fn slice_mut(&self, offset: usize, length: usize) -> &mut [u8] {
        self.check(offset, length);
        // SAFETY: the range was checked, and the caller guarantees exclusive access.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_bytes() {
        const LENGTH: usize = 100;
        let mut bytes = vec![0_u8; LENGTH];
        // SAFETY: the vector outlives the mapping, and nothing else accesses it.
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
        // SAFETY: the vector outlives the mapping, and nothing else accesses it.
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
