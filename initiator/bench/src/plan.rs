//! Plans: copies of jobs with regions of a known namespace.

use std::ops::Range;

use super::job::Job;
use super::lane::Format;
use super::pattern::HEADER_BYTES;
use super::random::{Random, mix};
use super::size::Size;

/// Maximum number of units of a verified job; memory use is 4 bytes for each.
const VERIFIED_UNITS_MAX: u64 = 1 << 26;

/// Plan of one copy of a job.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Description of the job.
    pub job: Job,
    /// Index of the copy, below `numjobs`.
    pub copy: u16,
    /// Number of the stage. The jobs of a stage run concurrently; a `stonewall` starts the next stage.
    pub stage: u32,
    /// Index of the job in the list of jobs.
    pub family: usize,
    /// Byte range of the namespace accessed by the copy.
    pub region: Range<u64>,
    /// Number of bytes to transfer, unless the time limit ends the job first.
    pub amount: u64,
    /// Seed of offsets, directions and data.
    pub seed: u64,
    /// Format of the namespace.
    pub format: Format,
}

pub(super) fn plans(jobs: &[Job], format: Format) -> Result<Vec<Plan>, String> {
    let mut plans = Vec::new();
    let mut stage = 0;
    let run_seed = Random::fresh_seed();
    for (family, job) in jobs.iter().enumerate() {
        if job.stonewall && family > 0 {
            stage += 1;
        }
        for copy in 0..job.numjobs {
            let seed = match job.randseed {
                Some(seed) => seed.wrapping_add(u64::from(copy)),
                None => mix(run_seed ^ (family as u64) << 32 ^ u64::from(copy)),
            };
            let plan = Plan::new(job, copy, format, seed)
                .map_err(|why| format!("job {}: {why}", job.name))?;
            plans.push(Plan {
                stage,
                family,
                ..plan
            });
        }
    }
    refuse_overlaps(&plans)?;
    Ok(plans)
}

impl Plan {
    fn new(job: &Job, copy: u16, format: Format, seed: u64) -> Result<Self, String> {
        let whole = format.bytes();
        // Percentages are rounded down to whole blocks, as in fio.
        let unit = job.bs_min.max(u64::from(format.block_bytes));
        let start = job.offset_increment.rounded(whole, unit);
        let start = start.checked_mul(u64::from(copy));
        let start = start.and_then(|more| more.checked_add(job.offset.rounded(whole, unit)));
        let start = start.unwrap_or(u64::MAX);
        if start >= whole {
            return Err(format!(
                "offset {start} is past the end of the namespace, which has {whole} bytes"
            ));
        }
        let size = match job.size {
            None => whole - start,
            Some(Size::Bytes(bytes)) => bytes,
            // A region given in percent is limited to the end of the namespace.
            Some(share) => share.of(whole).min(whole - start),
        };
        if size > whole - start {
            return Err(format!(
                "size={size} from offset {start} is more than the namespace, which has {whole} \
                 bytes"
            ));
        }
        check_blocks(job, format, start)?;
        // As in fio, a remainder smaller than a block is not accessed.
        let size = size - size % job.bs_min;
        if size < job.bs_max {
            return Err(format!(
                "size={size} is less than a block of {}",
                job.bs_max
            ));
        }
        check_verify(job, size)?;
        if job.time_based && job.runtime.is_none() {
            return Err("time_based requires a runtime".to_owned());
        }
        let amount = job.io_size.unwrap_or(size);
        Ok(Self {
            job: job.clone(),
            copy,
            stage: 0,
            family: 0,
            region: start..start + size,
            amount: amount.saturating_mul(u64::from(job.loops)),
            seed,
            format,
        })
    }

    /// Number of units (smallest blocks) in the region.
    #[must_use]
    pub fn units(&self) -> u64 {
        (self.region.end - self.region.start) / self.job.bs_min
    }
}

fn check_blocks(job: &Job, format: Format, start: u64) -> Result<(), String> {
    let block = u64::from(format.block_bytes);
    for (what, bytes) in [("bs", job.bs_min), ("bs", job.bs_max), ("offset", start)] {
        if !bytes.is_multiple_of(block) {
            return Err(format!(
                "{what}={bytes} is not a multiple of the namespace's block of {block} bytes"
            ));
        }
    }
    if !job.bs_max.is_multiple_of(job.bs_min) {
        return Err(format!(
            "bsrange: {} is not a multiple of {}",
            job.bs_max, job.bs_min
        ));
    }
    if job.bs_max > format.transfer_max && (job.rw.reads || job.rw.writes) {
        return Err(format!(
            "bs={} is more than the controller moves by one command (MDTS): {}",
            job.bs_max, format.transfer_max
        ));
    }
    if job.bs_max > u64::from(u32::MAX) {
        return Err(format!("bs={} is more than a command can name", job.bs_max));
    }
    Ok(())
}

fn check_verify(job: &Job, size: u64) -> Result<(), String> {
    if job.verify_only && !job.verify {
        return Err("verify_only requires verify=crc32c".to_owned());
    }
    if !job.verify {
        return Ok(());
    }
    if job.rw.trims {
        return Err("a job that trims has nothing to verify".to_owned());
    }
    if job.bs_min < HEADER_BYTES as u64 {
        return Err(format!(
            "verify requires blocks of at least {HEADER_BYTES} bytes"
        ));
    }
    let units = size / job.bs_min;
    if units > VERIFIED_UNITS_MAX {
        return Err(format!(
            "verify remembers {VERIFIED_UNITS_MAX} blocks, and size={size} has {units} of them: \
             give a smaller size or a larger bs"
        ));
    }
    Ok(())
}

fn refuse_overlaps(plans: &[Plan]) -> Result<(), String> {
    for (at, plan) in plans.iter().enumerate() {
        if !plan.job.verify {
            continue;
        }
        let spoils = |other: &&Plan| {
            other.stage == plan.stage
                && other.job.changes_data()
                && other.region.start < plan.region.end
                && plan.region.start < other.region.end
        };
        let others = plans.iter().enumerate().filter(|&(index, _)| index != at);
        if let Some(other) = others.map(|(_, other)| other).find(spoils) {
            return Err(format!(
                "job {} verifies bytes {} to {}, and job {} writes there at the same time: give \
                 them places of their own (offset, offset_increment), or let one wait \
                 (stonewall)",
                plan.job.name, plan.region.start, plan.region.end, other.job.name
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_whole_blocks_within_the_namespace() {
        let odd = Format {
            block_bytes: 4096,
            blocks: 1001,
            transfer_max: 1 << 20,
        };
        for (size, offset, start, units) in [
            ("10%", "30%", 300, 100),
            ("10%", "95%", 950, 51),
            ("100%", "50%", 500, 501),
        ] {
            let mut job = Job::new("share");
            for (key, value) in [
                ("rw", "read"),
                ("bs", "4k"),
                ("size", size),
                ("offset", offset),
            ] {
                job.set(key, Some(value)).unwrap();
            }
            let plan = Plan::new(&job, 0, odd, 1).unwrap();
            assert_eq!(
                (plan.region.start / 4096, plan.units()),
                (start, units),
                "{size} {offset}"
            );
        }
    }

    const FORMAT: Format = Format {
        block_bytes: 512,
        blocks: 2048,
        transfer_max: 131_072,
    };

    fn job(keys: &[(&str, &str)]) -> Job {
        let mut job = Job::new("j");
        for (key, value) in keys {
            job.set(key, Some(value)).unwrap();
        }
        job
    }

    fn refused(keys: &[(&str, &str)]) -> String {
        plans(&[job(keys)], FORMAT).unwrap_err()
    }

    #[test]
    fn copies_begin_where_the_increment_says() {
        let job = job(&[
            ("numjobs", "3"),
            ("offset", "64k"),
            ("size", "100k"),
            ("bs", "8k"),
            ("offset_increment", "25%"),
            ("loops", "2"),
        ]);
        let plans = plans(&[job], FORMAT).unwrap();
        let regions: Vec<_> = plans.iter().map(|plan| plan.region.clone()).collect();
        let start = 65_536;
        let (step, size) = (262_144, 98_304);
        assert_eq!(
            regions,
            [0, 1, 2].map(|n| start + n * step..start + n * step + size)
        );
        assert_eq!(plans[0].amount, 2 * size);
        assert_eq!(plans[0].units(), 12);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(refused(&[("offset", "1m")]).contains("past the end"));
        assert!(refused(&[("size", "2m")]).contains("more than the namespace"));
        assert!(refused(&[("bs", "1000")]).contains("multiple of the namespace's block"));
        assert!(refused(&[("bs", "256k")]).contains("MDTS"));
        assert!(refused(&[("bs", "64k"), ("size", "32k")]).contains("less than a block"));
        assert!(refused(&[("time_based", "1")]).contains("requires a runtime"));
        assert!(refused(&[("verify_only", "1")]).contains("requires verify"));
        assert!(refused(&[("rw", "trim"), ("verify", "crc32c")]).contains("nothing to verify"));
    }

    #[test]
    fn verified_jobs_keep_apart() {
        let keys = [
            ("rw", "write"),
            ("verify", "crc32c"),
            ("numjobs", "2"),
            ("size", "256k"),
        ];
        assert!(refused(&keys).contains("offset_increment"));
        let mut apart = keys.to_vec();
        apart.push(("offset_increment", "256k"));
        plans(&[job(&apart)], FORMAT).unwrap();
        let mut waits = job(&keys[..2]);
        waits.stonewall = true;
        plans(&[job(&keys[..2]), waits], FORMAT).unwrap();
    }
}
