//! Benchmark with fio's job keys: measures a namespace and optionally verifies its data.
//!
//! [`job_file`] parses fio's job files into [`Job`]s. [`run()`] starts a thread with a [`Lane`] for each copy of a job,
//! and returns a [`BenchResult`]. [`report`] formats the result like fio.

pub mod cpu;
pub mod job;
pub mod job_file;
pub mod keys;
mod lane;
mod ledger;
mod meter;
mod multipath;
mod nvme;
pub mod object;
pub mod pattern;
mod plan;
mod random;
pub mod report;
mod run;
pub mod size;
mod source;
pub mod stats;
#[cfg(test)]
mod tests;
mod worker;

pub use job::{Direction, Job, Workload};
pub use lane::{Command, Done, Format, Lane, LaneError, Operation};
pub use meter::{Count, Meter, Phase};
pub use multipath::MultipathLanes;
pub use nvme::NvmeLanes;
pub use plan::Plan;
pub use random::Random;
pub use run::{Audience, BenchResult, Glimpse, JobResult, Lanes, run};
pub use worker::JobError;
