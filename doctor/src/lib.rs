//! Inspection and diagnosis of a machine's RoCE set-up.
//!
//! * [`source`] reads files, and queries the kernel.
//! * [`facts`] contains the typed results. If a fact is unavailable, its reason is stored, and the
//!   other facts are still read.
//! * [`rules`] examine the facts, and produce findings: problem, consequence, evidence and fix.
//! * [`cli`] is the command line of `fabric` and `doctor`, for target and host.
//!
//! The crate is not on the data path and needs no RDMA device. Only `source::live::sys` contains
//! `unsafe`.

#[cfg(feature = "cli")]
pub mod cli;
pub mod facts;
pub mod mtu;
pub mod placement;
pub mod priorities;
pub mod rules;
pub mod source;
pub mod tos;
