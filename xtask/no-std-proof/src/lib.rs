//! Static library of the protocol crates, their dependencies, `core` and `alloc`. It proves that
//! these crates perform no I/O.
//!
//! The library has its own panic handler, so it does not compile if a crate uses `std`. Without
//! `std`, code can call an operating system only through undefined symbols of the archive, which
//! the test `tests/no_io.rs` checks. The only unsafe code is the allocator, which always fails.

#![no_std]

use core::alloc::{GlobalAlloc, Layout};
use core::panic::PanicInfo;

pub use cairn_roce_proto;
pub use nvme_auth;
pub use nvme_proto;

struct NoMemory;

// SAFETY: a null pointer reports failure, and no allocation exists that could be freed.
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
