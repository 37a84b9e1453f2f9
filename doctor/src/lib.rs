//! Inspection and diagnosis of a machine's RoCE set-up.
//!
//! * [`source`] reads files, and queries the kernel.
//! * [`facts`] contains typed results. For an unavailable fact, the reason is stored.
//! * [`rules`] examine facts, and produce findings: problem, consequence, evidence and fix.
//! * [`cli`] is the command line of `fabric` and `doctor`, for target and host.
//!
//! The crate is not on the data path and needs no RDMA device. Only `source::live::sys` contains
//! `unsafe`.

// Public items are for Cairn's programs; names and types document them.
#![allow(missing_docs)]

#[cfg(feature = "cli")]
pub mod cli;
pub mod facts;
pub mod mtu;
pub mod placement;
pub mod priorities;
pub mod rules;
pub mod source;
pub mod tos;
