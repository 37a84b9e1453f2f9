//! RoCE protocol as state machines without I/O.
//!
//! * [`wire`]: packet headers as values, and the ICRC.
//! * [`cm`]: the connection manager.
//! * [`qp`]: the queue pair of a reliable connection.
//!
//! The crate is `no_std` with an allocator, and uses no socket, clock, thread, file or random
//! numbers (`xtask/tests/no_io.rs`).

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
