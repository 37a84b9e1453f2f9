//! Test suites, fixtures, and programs that run the suites in the virtual machine.
//!
//! * [`attacker`]: attackers on a target that work in turns.
//! * [`fabric`]: conformance suite for providers, based only on the traits of `cairn-rdma`.
//! * [`bad_peer`]: suite for targets with misbehaving hosts that send raw capsules.
//! * [`exposition`]: parser of Prometheus metrics.
//! * [`faulty_disk`]: disk with fault injection.
//! * [`harness`]: target in this process, for the tests in `tests/`.
//! * [`logged`]: log of this process in memory.
//! * [`process`]: targets in child processes.
//! * [`victim`]: target over user-space RoCE for attack tests.
//!
//! A suite is a list of cases in the library. The cases run as tests over the in-process loopback,
//! and as a program on a machine with RDMA devices.

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
