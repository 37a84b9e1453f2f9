//! Suites that judge the rest of the house, and the programs that carry them
//! into the virtual machine.
//!
//! * [`fabric`]: what any provider of the fabric model must do, as a list of
//!   named cases written against the traits of `cairn-rdma` alone.
//!
//! A suite is a list of cases in the library, so that the same case runs as a
//! test over the in-process loopback and as a program on a machine with
//! RDMA devices.

pub mod case;
pub mod fabric;
pub mod provider;
pub mod random;
