//! The sequence on aarch64, with the virtual counter.

use std::arch::{asm, global_asm};

// A system call changes only x0.
global_asm!(
    head!(),
    // x0: address of `rseq_cs`; x1: the call; x2: ticks at the reading; x3: maximum ticks since
    // then.
    "cairn_timely_call:",
    "mov x9, x0",
    "mov x10, x1",
    "mov x11, x2",
    "mov x12, x3",
    "ldp x8, x0, [x10]",
    "ldp x1, x2, [x10, 16]",
    "ldp x3, x4, [x10, 32]",
    "ldr x5, [x10, 48]",
    "adrp x13, 771b",
    "add x13, x13, :lo12:771b",
    "str x13, [x9]",
    "772:",
    "mrs x14, cntvct_el0",
    "sub x14, x14, x11",
    "cmp x14, x12",
    "b.hi 775f",
    "svc 0",
    "773:",
    "str xzr, [x9]",
    "ret",
    ".inst 0xd428bc00",
    "774:",
    "775:",
    "str xzr, [x9]",
    "mov x0, 0x8000000000000000",
    "ret",
    ".size cairn_timely_call, . - cairn_timely_call",
    ".popsection",
);

#[inline(always)]
pub(super) fn ticks() -> u64 {
    let ticks: u64;
    // SAFETY: reads a counter.
    unsafe { asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nostack, nomem)) };
    ticks
}

/// Maximum ticks between a reading of the clock and the call: 2 ms.
#[inline(always)]
pub(super) fn ticks_max() -> u64 {
    let hertz: u64;
    // SAFETY: reads the counter's frequency.
    unsafe { asm!("mrs {}, cntfrq_el0", out(reg) hertz, options(nostack, nomem, pure)) };
    hertz / 500
}

#[inline(always)]
pub(super) fn thread_pointer() -> usize {
    let thread: usize;
    // SAFETY: reads the register of thread-local storage.
    unsafe { asm!("mrs {}, tpidr_el0", out(reg) thread, options(nostack, nomem)) };
    thread
}
