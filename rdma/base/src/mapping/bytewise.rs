//! Copies from and to memory that other threads or adapters may write concurrently.
//!
//! Why `unsafe` here: in Rust, a copy that races with a write is undefined behaviour unless each
//! byte is accessed atomically, which compiles to slow code. The C library's copies access each
//! byte at least like a relaxed atomic. They are called from assembly, because the compiler assumes
//! nothing about memory accessed by assembly. Other architectures than x86-64, and Miri, use
//! byte-wise atomics.

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(super) use fast::{fill, load, shift, store, stream};
#[cfg(any(not(target_arch = "x86_64"), miri))]
pub(super) use plain::{fill, load, shift, store, stream};

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod fast {
    use std::arch::asm;

    macro_rules! call {
        ($function:path, $to:expr, $second:expr, $length:expr) => {
            asm!(
                "call {function}",
                function = sym $function,
                inout("rdi") $to => _,
                inout("rsi") $second => _,
                inout("rdx") $length => _,
                clobber_abi("C"),
            )
        };
    }

    /// Copies a queue entry of 16 or 64 bytes inline, because a call would take longer.
    macro_rules! moves {
        ($from:expr, $to:expr, 16) => {
            asm!(
                "movdqu {a}, [{from}]",
                "movdqu [{to}], {a}",
                from = in(reg) $from,
                to = in(reg) $to,
                a = out(xmm_reg) _,
                options(nostack, preserves_flags),
            )
        };
        ($from:expr, $to:expr, 64) => {
            asm!(
                "movdqu {a}, [{from}]",
                "movdqu {b}, [{from} + 16]",
                "movdqu {c}, [{from} + 32]",
                "movdqu {d}, [{from} + 48]",
                "movdqu [{to}], {a}",
                "movdqu [{to} + 16], {b}",
                "movdqu [{to} + 32], {c}",
                "movdqu [{to} + 48], {d}",
                from = in(reg) $from,
                to = in(reg) $to,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack, preserves_flags),
            )
        };
    }

    /// Copies `length` bytes; the constant lengths 16 and 64 need no call.
    ///
    /// # Safety
    /// Both ranges are valid and do not overlap.
    #[inline]
    unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
        // SAFETY: the caller guarantees the ranges; memcpy follows C's calling convention.
        unsafe {
            match length {
                16 => moves!(from, to, 16),
                64 => moves!(from, to, 64),
                _ => call!(libc::memcpy, to, from, length),
            }
        }
    }

    /// # Safety
    /// `to` is valid for `from.len()` bytes and does not overlap `from`.
    #[inline]
    pub(in crate::mapping) unsafe fn store(from: &[u8], to: *mut u8) {
        // SAFETY: the caller guarantees the ranges.
        unsafe { copy(from.as_ptr(), to, from.len()) };
    }

    /// # Safety
    /// `from` is valid for `to.len()` bytes and does not overlap `to`.
    #[inline]
    pub(in crate::mapping) unsafe fn load(from: *const u8, to: &mut [u8]) {
        // SAFETY: the caller guarantees the ranges.
        unsafe { copy(from, to.as_mut_ptr(), to.len()) };
    }

    /// Copies `length` bytes between ranges that may overlap.
    ///
    /// # Safety
    /// Both ranges are valid.
    pub(in crate::mapping) unsafe fn shift(from: *const u8, to: *mut u8, length: usize) {
        // SAFETY: the caller guarantees the ranges; memmove follows C's calling convention.
        unsafe { call!(libc::memmove, to, from, length) };
    }

    /// # Safety
    /// `to` is valid for `length` bytes.
    pub(in crate::mapping) unsafe fn fill(to: *mut u8, value: u8, length: usize) {
        // SAFETY: the caller guarantees the range; memset follows C's calling convention.
        unsafe { call!(libc::memset, to, u64::from(value), length) };
    }

    /// Copies `from` to `to`. Whole aligned cache lines bypass the caches.
    ///
    /// # Safety
    /// As for [`store`].
    pub(in crate::mapping) unsafe fn stream(from: &[u8], to: *mut u8) {
        const LINE: usize = 64;
        let head = to.align_offset(LINE).min(from.len());
        let (head, rest) = from.split_at(head);
        let (lines, tail) = rest.as_chunks::<LINE>();
        // SAFETY: the three parts are consecutive and inside the destination range. The destination
        // of `lines` is aligned to 64 bytes.
        unsafe {
            store(head, to);
            let mut at = to.add(head.len());
            for line in lines {
                asm!(
                    "movdqu {a}, [{from}]",
                    "movdqu {b}, [{from} + 16]",
                    "movdqu {c}, [{from} + 32]",
                    "movdqu {d}, [{from} + 48]",
                    "movntdq [{to}], {a}",
                    "movntdq [{to} + 16], {b}",
                    "movntdq [{to} + 32], {c}",
                    "movntdq [{to} + 48], {d}",
                    from = in(reg) line.as_ptr(),
                    to = in(reg) at,
                    a = out(xmm_reg) _,
                    b = out(xmm_reg) _,
                    c = out(xmm_reg) _,
                    d = out(xmm_reg) _,
                    options(nostack, preserves_flags),
                );
                at = at.add(LINE);
            }
            store(tail, at);
        }
    }
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
mod plain {
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

    /// Returns byte `at` of `base` as an atomic.
    ///
    /// # Safety
    /// The byte is valid while the result is used.
    unsafe fn byte<'a>(base: *const u8, at: usize) -> &'a AtomicU8 {
        // SAFETY: the caller guarantees the byte. All Rust accesses to it are atomic.
        unsafe { AtomicU8::from_ptr(base.add(at).cast_mut()) }
    }

    pub(in crate::mapping) unsafe fn store(from: &[u8], to: *mut u8) {
        for (at, value) in from.iter().enumerate() {
            // SAFETY: the caller guarantees the range.
            unsafe { byte(to, at) }.store(*value, Relaxed);
        }
    }

    pub(in crate::mapping) unsafe fn stream(from: &[u8], to: *mut u8) {
        // SAFETY: the caller guarantees the range.
        unsafe { store(from, to) };
    }

    pub(in crate::mapping) unsafe fn load(from: *const u8, to: &mut [u8]) {
        for (at, value) in to.iter_mut().enumerate() {
            // SAFETY: the caller guarantees the range.
            *value = unsafe { byte(from, at) }.load(Relaxed);
        }
    }

    pub(in crate::mapping) unsafe fn shift(from: *const u8, to: *mut u8, length: usize) {
        // SAFETY: the caller guarantees the ranges.
        let copy = |at| unsafe { byte(to, at).store(byte(from, at).load(Relaxed), Relaxed) };
        if from.cast_mut() < to {
            (0..length).rev().for_each(copy);
        } else {
            (0..length).for_each(copy);
        }
    }

    pub(in crate::mapping) unsafe fn fill(to: *mut u8, value: u8, length: usize) {
        for at in 0..length {
            // SAFETY: the caller guarantees the range.
            unsafe { byte(to, at) }.store(value, Relaxed);
        }
    }
}
