//! Inspection and diagnosis of a machine's RoCE set-up.
//!
//! * [`source`] reads the machine: its files, and the kernel's answers to queries without a file. A
//!   recording can take the place of the machine.
//! * [`facts`] are the typed results. An unavailable fact carries its reason and does not stop the
//!   others.
//! * [`rules`] apply to the facts and produces findings: problem, consequence, evidence,
//!   and the command that fixes it.
//! * [`cli`] is the command line of `fabric` and `doctor`, for target and initiator.
//! * [`placement`] finds the CPUs near an adapter.
//! * [`mtu`], [`tos`] and [`priorities`] are the arithmetic of RoCE.
//!
//! Nothing here is on the data path or needs an RDMA device. Only `source::live::sys` contains
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
