//! RoCE without I/O: bytes, events and the time go in, and what to do comes out.
//!
//! From the wire up:
//!
//! * [`wire`]: every header as a value, and the ICRC;
//! * [`cm`]: the connection manager, as a state machine;
//! * [`qp`]: a reliable connection's queue pair, as a state machine that takes
//!   packets and the time and returns packets and completions.
//!
//! The crate has no socket, clock, thread, file or source of random numbers: it is `no_std`
//! and needs an allocator only. `tests/no_std.rs` proves it.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod cm;
pub mod counters;
pub mod qp;
pub mod time;
pub mod wire;
