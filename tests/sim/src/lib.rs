//! Helpers for simulations, and for tests of recorded traffic.

// Public items are for tests; names and types document them.
#![allow(missing_docs)]

pub mod network;
pub mod pcap;
mod random;
pub mod seeds;

pub use random::Random;
