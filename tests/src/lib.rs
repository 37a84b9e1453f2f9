//! Test suites, fixtures and programs.
//!
//! Each case of a suite is a test over the loopback provider. Programs run the same cases on
//! machines with RDMA devices.

// Public items are for tests; names and types document them.
#![allow(missing_docs)]

pub mod attacker;
pub mod bad_peer;
pub mod case;
pub mod exposition;
pub mod fabric;
pub mod faulty_disk;
pub mod harness;
pub mod load;
pub mod logged;
mod node;
pub mod process;
pub mod provider;
pub mod saboteur;
pub mod stranger;
pub mod victim;
