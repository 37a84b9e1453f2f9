//! Test suites, fixtures and programs.
//!
//! * [`attacker`]: attackers.
//! * [`fabric`]: conformance suite for providers.
//! * [`bad_peer`]: suite of misbehaving hosts.
//! * [`exposition`]: parser of Prometheus metrics.
//! * [`faulty_disk`]: disk with fault injection.
//! * [`harness`]: target in this process.
//! * [`logged`]: log in memory.
//! * [`process`]: targets in child processes.
//! * [`victim`]: target over user-space RoCE.
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
pub mod saboteur;
pub mod stranger;
pub mod victim;
