//! Helpers for simulations and tests of recorded traffic.
//!
//! * [`Random`]: random numbers determined by a seed;
//! * [`network`]: network with losses, duplication, delays, reordering and corruption;
//! * [`seeds`]: execution of a test with many seeds, or with the failed one;
//! * [`pcap`]: frames of a capture file.

pub mod network;
pub mod pcap;
mod random;
pub mod seeds;

pub use random::Random;
