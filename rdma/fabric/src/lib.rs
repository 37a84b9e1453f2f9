//! What a machine's RoCE looks like, what is wrong with it, and what fixes it.
//!
//! * [`source`] is the machine: its files, and the kernel's answers to questions
//!   that no file answers. A recording can stand in for it.
//! * [`facts`] are what was read, typed. An unavailable fact has its reason, and
//!   stops nothing.
//! * [`doctor`] applies rules to the facts, one family of them in each module,
//!   and has findings: what, why it matters, the evidence, the command that fixes.
//! * [`cli`] is `fabric` and `doctor` on the command line of target and initiator.
//! * [`trouble`] explains errors of connections and of work, for logs.
//! * [`placement`] says which CPUs are near an adapter.
//! * [`mtu`], [`tos`] and [`priorities`] are the arithmetic of RoCE.
//!
//! Nothing here is on the way of an I/O, and nothing needs an RDMA device.
//! `unsafe` stands in `source::live::sys` alone.

mod caller;
#[cfg(feature = "cli")]
pub mod cli;
pub mod doctor;
pub mod facts;
pub mod mtu;
pub mod placement;
pub mod priorities;
pub mod source;
pub mod tos;
pub mod trouble;

pub use caller::{Caller, End};
