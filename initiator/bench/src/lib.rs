//! A benchmark with fio's vocabulary: jobs of reads, writes and trims against a
//! namespace, measured and, if asked for, verified.
//!
//! [`Job`] says what to do, in fio's keys; [`job_file`] reads fio's job files.
//! [`run()`] has a thread for each copy of a job, which drives a [`Lane`]: a queue
//! pair of its own. What comes out is a [`BenchResult`], which [`report`] puts in
//! fio's words, as text or as JSON.

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
