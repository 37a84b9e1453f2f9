//! RoCE protocol as state machines without I/O.
//!
//! * [`wire`]: every header as a value, and the ICRC.
//! * [`cm`]: the connection manager.
//! * [`qp`]: the queue pair of a reliable connection.
//!
//! No socket, clock, thread, file or random numbers: `no_std` with an allocator, as
//! `xtask/tests/no_io.rs` proves.

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
