use super::job::Job;
use super::lane::Format;
use super::pattern::HEADER_BYTES;
use super::random::{fresh_seed, mix};

/// Maximum units of a verified job, each with 4 bytes of memory.
const VERIFIED_UNITS_MAX: u64 = 1 << 26;

#[derive(Debug, Clone)]
pub struct Plan {
    pub job: Job,
    pub(super) region: u64,
    pub(super) seed: u64,
}

impl Plan {
    pub(super) fn units(&self) -> u64 {
        self.region / self.job.bs_min
    }

    pub(super) fn amount(&self) -> u64 {
        self.region.saturating_mul(self.job.loops)
    }
}

pub(super) fn plans(job: &Job, format: Format) -> Result<Vec<Plan>, String> {
    let region = region(job, format)?;
    check_verify(job, region / job.bs_min)?;
    if job.time_based && job.runtime.is_none() {
        return Err("time_based requires a runtime".to_owned());
    }
    let run_seed = fresh_seed();
    let seed = |copy| match job.randseed {
        Some(seed) => seed.wrapping_add(copy),
        None => mix(run_seed ^ copy),
    };
    let plan = |copy: u16| Plan {
        job: job.clone(),
        region,
        seed: seed(copy.into()),
    };
    Ok((0..job.numjobs).map(plan).collect())
}

fn region(job: &Job, format: Format) -> Result<u64, String> {
    let whole = format.bytes();
    let block = u64::from(format.block_bytes);
    for bs in [job.bs_min, job.bs_max] {
        if !bs.is_multiple_of(block) {
            return Err(format!(
                "bs={bs} is not a multiple of the namespace's block of {block} bytes"
            ));
        }
    }
    if !job.bs_max.is_multiple_of(job.bs_min) {
        return Err(format!(
            "bsrange: {} is not a multiple of {}",
            job.bs_max, job.bs_min
        ));
    }
    if job.bs_max > format.transfer_max.min(u32::MAX.into()) {
        return Err(format!(
            "bs={} is more than the controller moves by one command (MDTS): {}",
            job.bs_max, format.transfer_max
        ));
    }
    let size = job.size.map_or(whole, |size| size.of(whole));
    if size > whole {
        return Err(format!(
            "size={size} is more than the namespace, which has {whole} bytes"
        ));
    }
    if size < job.bs_max {
        return Err(format!(
            "size={size} is less than a block of {}",
            job.bs_max
        ));
    }
    Ok(size - size % job.bs_min)
}

fn check_verify(job: &Job, units: u64) -> Result<(), String> {
    if !job.verify {
        return Ok(());
    }
    if job.bs_min < HEADER_BYTES as u64 {
        return Err(format!(
            "verify requires blocks of at least {HEADER_BYTES} bytes"
        ));
    }
    if units > VERIFIED_UNITS_MAX {
        return Err(format!(
            "verify remembers {VERIFIED_UNITS_MAX} blocks, and the job has {units}: give a smaller \
             size or a larger bs"
        ));
    }
    if job.rw.writes && job.numjobs > 1 {
        return Err(format!(
            "verify with numjobs={}: the copies would overwrite each other's blocks; give numjobs=1",
            job.numjobs
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: Format = Format {
        block_bytes: 512,
        blocks: 2048,
        transfer_max: 131_072,
    };

    fn planned(keys: &[(&str, &str)]) -> Result<Vec<Plan>, String> {
        plans(&Job::with(keys).unwrap(), FORMAT)
    }

    #[test]
    fn percentages_and_remainders_are_whole_blocks() {
        for (size, units) in [("10%", 25), ("100%", 256), ("100k", 25), ("99%", 253)] {
            let plan = &planned(&[("size", size), ("loops", "2")]).unwrap()[0];
            assert_eq!((plan.units(), plan.amount()), (units, 2 * 4096 * units));
        }
    }

    #[test]
    fn copies_have_seeds_of_their_own() {
        let seeds = |keys: &[_]| {
            let plans = planned(keys).unwrap();
            plans.iter().map(|plan| plan.seed).collect::<Vec<_>>()
        };
        assert_eq!(seeds(&[("numjobs", "3"), ("randseed", "7")]), [7, 8, 9]);
        let fresh = [("numjobs", "2")];
        assert_ne!(seeds(&fresh)[0], seeds(&fresh)[1]);
        assert_ne!(seeds(&fresh), seeds(&fresh));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |keys: &[_]| planned(keys).unwrap_err();
        assert!(refused(&[("size", "2m")]).contains("more than the namespace"));
        assert!(refused(&[("bs", "1000")]).contains("multiple of the namespace's block"));
        assert!(refused(&[("bsrange", "1k-1536")]).contains("not a multiple of 1024"));
        assert!(refused(&[("bs", "256k")]).contains("MDTS"));
        assert!(refused(&[("bs", "64k"), ("size", "32k")]).contains("less than a block"));
        assert!(refused(&[("time_based", "1")]).contains("requires a runtime"));
        let copies = [("rw", "write"), ("verify", "crc32c"), ("numjobs", "2")];
        assert!(refused(&copies).contains("overwrite each other's blocks"));
        planned(&copies[1..]).unwrap();
    }
}
