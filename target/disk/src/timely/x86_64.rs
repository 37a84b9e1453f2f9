//! The sequence on x86-64, with the time stamp counter.

use std::arch::{asm, global_asm};

global_asm!(
    head!(),
    // rdi: address of `rseq_cs`; rsi: the call; rdx: ticks at the reading; rcx: maximum ticks
    // since then.
    "cairn_timely_call:",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "mov rbx, rdi",
    "mov r11, rsi",
    "mov r12, rdx",
    "mov r13, rcx",
    "mov rdi, [r11 + 8]",
    "mov rsi, [r11 + 16]",
    "mov r14, [r11 + 24]",
    "mov r10, [r11 + 32]",
    "mov r8, [r11 + 40]",
    "mov r9, [r11 + 48]",
    "mov r11, [r11]",
    "lea rax, [rip + 771b]",
    "mov [rbx], rax",
    "772:",
    "rdtsc",
    "shl rdx, 32",
    "or rax, rdx",
    "sub rax, r12",
    "cmp rax, r13",
    "ja 775f",
    "mov rdx, r14",
    "mov rax, r11",
    "syscall",
    "773:",
    "mov qword ptr [rbx], 0",
    "776:",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "ret",
    ".byte 0x0f, 0xb9, 0x3d",
    ".long 0x53053053",
    "774:",
    "775:",
    "mov qword ptr [rbx], 0",
    "movabs rax, 0x8000000000000000",
    "jmp 776b",
    ".size cairn_timely_call, . - cairn_timely_call",
    ".popsection",
);

#[inline(always)]
pub(super) fn ticks() -> u64 {
    // SAFETY: reads a counter.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Maximum ticks between a reading of the clock and the call: 1 to 4 ms.
#[inline(always)]
pub(super) fn ticks_max() -> u64 {
    1 << 22
}

#[inline(always)]
pub(super) fn thread_pointer() -> usize {
    let thread: usize;
    // SAFETY: the first word at fs holds its own address (x86-64 TLS).
    unsafe { asm!("mov {}, fs:0", out(reg) thread, options(nostack, readonly)) };
    thread
}
