//! Reports of a run in fio's format, as text or JSON.

mod json;
mod live;
mod text;
mod units;

pub use json::json;
pub use live::Live;
pub use text::text;
pub use units::{binary_bytes, decimal};

use super::cpu::CpuUse;
use super::job::Job;
use super::run::{BenchResult, JobResult};
use super::stats::JobStats;
use super::worker::JobError;

#[derive(Debug)]
struct Entry<'a> {
    job: &'a Job,
    copies: usize,
    stats: JobStats,
    error: Option<&'a JobError>,
    incomplete: Option<&'a str>,
    mismatches: Vec<&'a str>,
    elapsed_s: f64,
    longest_s: f64,
    cpu: CpuUse,
}

fn entries(result: &BenchResult) -> Vec<Entry<'_>> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for job in &result.jobs {
        match entries.last_mut() {
            Some(last) if last.job.group_reporting => last.add(job),
            _ => entries.push(Entry::new(job)),
        }
    }
    if result.interrupted {
        for entry in &mut entries {
            entry.incomplete.get_or_insert("interrupted");
        }
    }
    entries
}

impl<'a> Entry<'a> {
    fn new(result: &'a JobResult) -> Self {
        let mut entry = Self {
            job: &result.plan.job,
            copies: 0,
            stats: JobStats::default(),
            error: None,
            incomplete: None,
            mismatches: Vec::new(),
            elapsed_s: 0.0,
            longest_s: 0.0,
            cpu: CpuUse::default(),
        };
        entry.add(result);
        entry
    }

    fn add(&mut self, result: &'a JobResult) {
        self.copies += 1;
        self.stats.merge(&result.stats);
        self.error = self.error.or(result.error.as_ref());
        if let Some(JobError::Io(why)) = &result.error {
            self.incomplete.get_or_insert(why);
        }
        self.mismatches
            .extend(result.mismatches.iter().map(String::as_str));
        self.elapsed_s += result.elapsed.as_secs_f64();
        self.longest_s = self.longest_s.max(result.elapsed.as_secs_f64());
        self.cpu.merge(&result.cpu);
    }

    fn errno(&self) -> i32 {
        self.error.map_or(0, JobError::errno)
    }

    fn percent_of_time(&self, seconds: f64) -> f64 {
        if self.elapsed_s > 0.0 {
            seconds * 100.0 / self.elapsed_s
        } else {
            0.0
        }
    }
}
