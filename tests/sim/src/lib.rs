//! Helpers for simulations, and for tests of recorded traffic.

pub mod network;
pub mod pcap;
mod random;
pub mod seeds;

pub use random::Random;
