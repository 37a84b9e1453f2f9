//! System calls made shortly after the clock was read, or not at all. A thread stopped between the
//! reading and the call would act on a stale decision.
//!
//! The processor's counter is read before the clock, and again before the call. The call is skipped
//! if more than `ticks_max` ticks have passed. From the second reading on, the thread is in a
//! restartable sequence (rseq(2), Linux 4.18, glibc 2.35). If the thread is interrupted before the
//! instruction of the call, it skips the call. A pause by the hypervisor after the second reading is
//! not detected, nor, without rseq, a stop in a window of about ten nanoseconds.
//!
//! Why `unsafe` here: the sequence is assembly, and the caller chooses the system call.

use std::io;

pub(crate) type Call = [usize; 7];

#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    #[cfg_attr(
        not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))),
        expect(dead_code)
    )]
    ticks: u64,
}

impl Look {
    /// Reads the counter. Must be called before the clock is read.
    #[inline(always)]
    pub(crate) fn begin() -> Self {
        Self {
            ticks: imp::ticks(),
        }
    }

    #[cfg(test)]
    pub(crate) fn long_ago() -> Self {
        Self {
            ticks: imp::ticks().wrapping_sub(1 << 40),
        }
    }
}

/// Makes the call. If too much time has passed, returns `None` instead, and the caller must read
/// the clock again.
///
/// # Safety
/// The requirements of the system call must be met.
#[inline]
pub(crate) unsafe fn call(look: Look, call: &Call) -> Option<io::Result<usize>> {
    // SAFETY: the caller meets the requirements of the system call.
    let result = unsafe { imp::call(look, call) }?;
    Some(if (-4095..0).contains(&result) {
        Err(io::Error::from_raw_os_error(-result as i32))
    } else {
        Ok(result as usize)
    })
}

/// Start of the assembly: the descriptor, a `struct rseq_cs`, and the function's symbol. The sequence
/// extends from label 772 to label 773. An interrupted thread continues at label 774, after the
/// signature registered by glibc.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
macro_rules! head {
    () => {
        concat!(
            ".pushsection .data.rel.ro.cairn_timely, \"aw\", @progbits\n",
            ".balign 32\n",
            "771:\n",
            ".long 0, 0\n",
            ".quad 772f, 773f - 772f, 774f\n",
            ".popsection\n",
            ".pushsection .text.cairn_timely, \"ax\", @progbits\n",
            ".balign 16\n",
            ".globl cairn_timely_call\n",
            ".hidden cairn_timely_call\n",
            ".type cairn_timely_call, @function\n",
        )
    };
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
#[path = "timely/aarch64.rs"]
mod processor;

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[path = "timely/x86_64.rs"]
mod processor;

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
mod imp {
    use std::ffi::CStr;
    use std::sync::LazyLock;

    pub(super) use super::processor::ticks;
    use super::processor::{thread_pointer, ticks_max};
    use super::{Call, Look};

    /// Result for a skipped call; no system call returns this value.
    const NOT_MADE: isize = isize::MIN;

    /// Offset of `rseq_cs` in `struct rseq` (`linux/rseq.h`).
    const SEQUENCE_AT: usize = 8;

    unsafe extern "C" {
        fn cairn_timely_call(
            sequence: *mut u64,
            call: *const Call,
            ticks: u64,
            ticks_max: u64,
        ) -> isize;
    }

    #[inline]
    pub(super) unsafe fn call(look: Look, call: &Call) -> Option<isize> {
        // SAFETY: the caller meets the system call's requirements.
        unsafe { call_within(look, call, ticks_max()) }
    }

    #[inline]
    pub(super) unsafe fn call_within(look: Look, call: &Call, ticks_max: u64) -> Option<isize> {
        let mut no_area = 0;
        let sequence = sequence_of_thread().unwrap_or(&raw mut no_area);
        // SAFETY: `sequence` is this thread's, and the caller meets the system call's requirements.
        let result = unsafe { cairn_timely_call(sequence, call, look.ticks, ticks_max) };
        (result != NOT_MADE).then_some(result)
    }

    #[inline]
    fn sequence_of_thread() -> Option<*mut u64> {
        static AREA: LazyLock<Option<isize>> = LazyLock::new(area);
        let offset = (*AREA)?;
        let area = thread_pointer().wrapping_add_signed(offset);
        Some(area.wrapping_add(SEQUENCE_AT) as *mut u64)
    }

    /// Returns the offset of glibc's `struct rseq` from the thread pointer, if registered.
    fn area() -> Option<isize> {
        // SAFETY: both are glibc's, have these types, and are constant while the program runs.
        unsafe {
            let size: u32 = *variable(c"__rseq_size")?;
            let offset: isize = *variable(c"__rseq_offset")?;
            (size > 0).then_some(offset)
        }
    }

    fn variable<T>(name: &CStr) -> Option<*const T> {
        // SAFETY: only looks up a name.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        (!found.is_null()).then_some(found.cast_const().cast())
    }

    #[cfg(test)]
    pub(super) fn is_guarded() -> bool {
        sequence_of_thread().is_some()
    }
}

#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
mod imp {
    use super::{Call, Look};

    pub(super) fn ticks() -> u64 {
        0
    }

    pub(super) unsafe fn call(_: Look, call: &Call) -> Option<isize> {
        let [number, a, b, c, d, e, f] = *call;
        // SAFETY: the caller meets the requirements of the system call.
        let result = unsafe { libc::syscall(number as libc::c_long, a, b, c, d, e, f) };
        Some(match result {
            -1 => {
                -(std::io::Error::last_os_error()
                    .raw_os_error()
                    .unwrap_or(libc::EIO) as isize)
            }
            result => result as isize,
        })
    }
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
mod tests {
    use std::os::fd::AsRawFd;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    static ONE: u64 = 1;

    fn write_one(fd: i32) -> Call {
        let one = &raw const ONE as usize;
        [libc::SYS_write as usize, fd as usize, one, 8, 0, 0, 0]
    }

    fn add(fd: i32, look: Look) -> bool {
        // SAFETY: the call reads the eight bytes of `ONE`.
        let made = unsafe { call(look, &write_one(fd)) };
        made.map(Result::unwrap).is_some()
    }

    /// Makes the call unless the sequence was interrupted, however late.
    fn add_uninterrupted(fd: i32) -> bool {
        // SAFETY: the call reads the eight bytes of `ONE`.
        let made = unsafe { imp::call_within(Look::begin(), &write_one(fd), u64::MAX) };
        made.inspect(|&bytes| assert_eq!(bytes, 8)).is_some()
    }

    fn sum(fd: &impl std::os::fd::AsFd) -> u64 {
        let mut bytes = [0; 8];
        rustix::io::read(fd, &mut bytes).map_or(0, |_| u64::from_ne_bytes(bytes))
    }

    #[test]
    fn a_call_is_made_soon_after_a_look_alone() {
        let fd = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        assert!(!add(fd.as_raw_fd(), Look::long_ago()));
        assert_eq!(sum(&fd), 0);
        while !add(fd.as_raw_fd(), Look::begin()) {}
        assert_eq!(sum(&fd), 1);
    }

    #[test]
    fn errors_are_those_of_the_call() {
        let close = [libc::SYS_close as usize, usize::MAX, 0, 0, 0, 0, 0];
        let error = loop {
            // SAFETY: no such descriptor.
            if let Some(result) = unsafe { call(Look::begin(), &close) } {
                break result.unwrap_err();
            }
        };
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    }

    static CAUGHT: AtomicU32 = AtomicU32::new(0);

    extern "C" fn catch(_: i32) {
        CAUGHT.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn what_was_interrupted_was_made_or_was_not() {
        let required = std::env::var_os("CAIRN_RSEQ").is_some();
        assert!(imp::is_guarded() || !required, "no restartable sequences");
        let fd = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        // SAFETY: the handler counts and does nothing else; the thread outlives its signals.
        let caller = unsafe {
            libc::signal(libc::SIGUSR2, catch as *const () as libc::sighandler_t);
            libc::pthread_self()
        };
        let done = AtomicBool::new(false);
        let (mut made, mut not_made) = (0_u64, 0_u64);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut pause = 1_u32;
                while !done.load(Ordering::Relaxed) {
                    let caught = CAUGHT.load(Ordering::Relaxed);
                    // SAFETY: the caller's thread outlives its signals.
                    unsafe { libc::pthread_kill(caller, libc::SIGUSR2) };
                    while CAUGHT.load(Ordering::Relaxed) == caught && !done.load(Ordering::Relaxed)
                    {
                        std::hint::spin_loop();
                    }
                    pause = pause.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (0..pause >> 22).for_each(|_| std::hint::spin_loop());
                }
            });
            let calls_min = if imp::is_guarded() { 0 } else { 300_000 };
            let not_made_min = if imp::is_guarded() { 1 } else { 0 };
            let deadline = Instant::now() + Duration::from_secs(300);
            while made < calls_min || not_made < not_made_min {
                match add_uninterrupted(fd.as_raw_fd()) {
                    true => made += 1,
                    false => not_made += 1,
                }
                if made % 4096 == 0 && Instant::now() >= deadline {
                    break;
                }
            }
            done.store(true, Ordering::Relaxed);
            assert!(
                made >= calls_min && not_made >= not_made_min,
                "{made} made, {not_made} not"
            );
        });
        assert_eq!(sum(&fd), made);
    }
}
