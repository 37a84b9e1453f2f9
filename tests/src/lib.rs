//! Test suites, fixtures and programs.
//!
//! - [`attacker`] has attackers.
//! - [`fabric`] has a conformance suite for providers.
//! - [`bad_peer`] has a suite of misbehaving hosts.
//! - [`exposition`] parses Prometheus metrics.
//! - [`faulty_disk`] has a disk with fault injection.
//! - [`harness`] has a target in this process.
//! - [`logged`] keeps the log in memory.
//! - [`process`] runs targets in child processes.
//! - [`requests`] passes connection requests to a test.
//! - [`victim`] has a target over user-space RoCE.
//!
//! The cases of a suite run as tests over the in-process loopback, and as a program on machines
//! with RDMA devices.

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
pub mod requests;
pub mod saboteur;
pub mod stranger;
pub mod victim;
