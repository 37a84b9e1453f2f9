//! Proof that the crates of protocols have no I/O: a static library of them, their
//! dependencies, `core` and `alloc`, and of nothing else.
//!
//! It would not compile if any of them pulled in `std`, which brings its own
//! panic handler. And what the archive leaves undefined is all that it could
//! ever ask of an operating system: `tests/no_io.rs` builds it and looks.
//!
//! Its unsafe code is the allocator, which must be one, and always refuses.

#![no_std]

use core::alloc::{GlobalAlloc, Layout};
use core::panic::PanicInfo;

pub use cairn_roce_proto;
pub use nvme_auth;
pub use nvme_proto;

struct NoMemory;

// SAFETY: a null pointer is an allocator's way to refuse; nothing it has not given comes back.
unsafe impl GlobalAlloc for NoMemory {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static ALLOCATOR: NoMemory = NoMemory;

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {}
}
