//! RoCE protocol as state machines without I/O.
//!
//! * [`wire`]: packet headers as values, and the ICRC.
//! * [`cm`]: the connection manager.
//! * [`qp`]: the queue pair of a reliable connection.
//!
//! The crate uses no socket, clock, thread, file or random numbers: it is `no_std` with an allocator, as
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
