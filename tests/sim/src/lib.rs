//! What simulations and tests of recorded traffic share, for each crate's tests.
//!
//! * [`Random`]: random numbers that a seed repeats;
//! * [`network`]: a network that loses, repeats, delays, reorders and damages packets;
//! * [`seeds`]: a test for many seeds, or for the one that failed;
//! * [`pcap`]: the frames of a capture.

pub mod network;
pub mod pcap;
mod random;
pub mod seeds;

pub use random::Random;
