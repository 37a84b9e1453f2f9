//! Suites that judge the rest of the house, and the programs that carry them
//! into the virtual machine.
//!
//! * [`attacker`]: strangers, liars and gluttons that attack a target turn by turn.
//! * [`fabric`]: what any provider of the fabric model must do, as a list of
//!   named cases written against the traits of `cairn-rdma` alone.
//! * [`bad_peer`]: what any target must do when a host misbehaves, as a list of
//!   named cases that speak to it in raw capsules.
//! * [`exposition`]: metrics as Prometheus reads them.
//! * [`faulty_disk`]: a disk whose operations are held, failed, delayed, cut short.
//! * [`harness`]: a target in this process, for the tests in `tests/`.
//! * [`logged`]: what this process logs, to be read back.
//! * [`process`]: targets in processes of their own.
//! * [`victim`]: a target by user-space RoCE that tests attack.
//!
//! A suite is a list of cases in the library, so that the same case runs as a
//! test over the in-process loopback and as a program on a machine with
//! RDMA devices.

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
