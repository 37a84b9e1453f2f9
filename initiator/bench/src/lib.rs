//! Benchmark with fio's job keys: measures a namespace and optionally verifies its data.
//!
//! [`run()`] starts a thread with a [`Lane`] for each copy of a [`Job`], and returns a
//! [`BenchResult`]. [`report`] formats the result like fio. fio's engine ([`FIO_ITSELF`]) runs all
//! other jobs.

// Public items are for `cairn-initiator`; names and types document them.
#![allow(missing_docs)]

mod cpu;
mod job;
mod lane;
mod ledger;
mod meter;
mod multipath;
mod nvme;
pub mod object;
mod pattern;
mod plan;
pub mod random;
pub mod report;
mod run;
mod size;
mod source;
mod stats;
#[cfg(test)]
mod tests;
mod worker;

pub use job::{FIO_ITSELF, Job, KEYS, Key, Workload};
pub use lane::{Direction, Done, Format, Lane, Lanes, Operation};
pub use meter::{Count, Phase};
pub use multipath::MultipathLanes;
pub use nvme::NvmeLanes;
pub use plan::Plan;
pub use run::{Audience, BenchResult, Glimpse, JobResult, run};
pub use stats::{DirectionStats, JobStats};
pub use worker::JobError;
