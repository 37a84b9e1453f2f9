//! Helpers for simulations and tests of recorded traffic.
//!
//! * [`Random`]: random numbers with a seed;
//! * [`network`]: network with faults;
//! * [`seeds`]: execution of a test with many seeds or one;
//! * [`pcap`]: frames of a capture file.

pub mod network;
pub mod pcap;
mod random;
pub mod seeds;

pub use random::Random;
