use std::time::Duration;

use super::size::{Size, parse_bytes, parse_range, parse_time};

/// Advice for users of an unsupported option.
pub const FIO_ITSELF: &str = "fio itself has all other options, workloads and job files, with Cairn's engine \
     (docs/guide-initiator.md#fio-itself)";

/// Value of fio's key `rw`: directions, and sequential or random order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workload {
    pub name: &'static str,
    pub reads: bool,
    pub writes: bool,
    pub random: bool,
}

const fn workload(name: &'static str, reads: bool, writes: bool, random: bool) -> Workload {
    Workload {
        name,
        reads,
        writes,
        random,
    }
}

impl Workload {
    pub const ALL: [Self; 6] = [
        workload("read", true, false, false),
        workload("write", false, true, false),
        workload("rw", true, true, false),
        workload("randread", true, false, true),
        workload("randwrite", false, true, true),
        workload("randrw", true, true, true),
    ];

    fn parse(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|w| w.name == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(|w| w.name).join(", ");
            format!("{name:?} is not one of {names}: {FIO_ITSELF}")
        })
    }
}

/// Benchmark job with the fields described in [`KEYS`].
#[derive(Debug, Clone)]
pub struct Job {
    pub rw: Workload,
    pub bs_min: u64,
    pub(super) bs_max: u64,
    pub(super) iodepth: u16,
    pub(super) numjobs: u16,
    pub(super) size: Option<Size>,
    pub(super) runtime: Option<Duration>,
    pub(super) time_based: bool,
    pub(super) ramp_time: Duration,
    pub(super) rwmixread: u8,
    pub(super) rate_iops: Option<u64>,
    pub(super) loops: u64,
    pub(super) verify: bool,
    pub(super) do_verify: bool,
    pub(super) randseed: Option<u64>,
    pub(super) norandommap: bool,
    pub(super) group_reporting: bool,
    pub(super) options: Vec<(&'static str, String)>,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            rw: Workload::ALL[0],
            bs_min: 4096,
            bs_max: 4096,
            iodepth: 1,
            numjobs: 1,
            size: None,
            runtime: None,
            time_based: false,
            ramp_time: Duration::ZERO,
            rwmixread: 50,
            rate_iops: None,
            loops: 1,
            verify: false,
            do_verify: true,
            randseed: None,
            norandommap: false,
            group_reporting: false,
            options: Vec::new(),
        }
    }
}

impl Job {
    pub fn with<'a>(
        keys: impl IntoIterator<Item = &'a (&'a str, &'a str)>,
    ) -> Result<Self, String> {
        let mut job = Self::default();
        for (key, value) in keys {
            job.set(key, value)?;
        }
        Ok(job)
    }

    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let key = KEYS.iter().find(|key| key.name == name);
        let key = key.ok_or_else(|| format!("unknown key {name}: {FIO_ITSELF}"))?;
        (key.set)(self, value.trim()).map_err(|why| format!("{name}: {why}"))?;
        self.options.retain(|(known, _)| *known != key.name);
        self.options.push((key.name, value.to_owned()));
        Ok(())
    }
}

#[derive(Debug)]
pub struct Key {
    pub name: &'static str,
    /// Placeholder of the value in the help text. A switch has `0|1`, and may omit its value.
    pub value: &'static str,
    pub help: &'static str,
    set: fn(&mut Job, &str) -> Result<(), String>,
}

macro_rules! keys {
    ($($name:ident $value:literal $help:literal $set:expr;)+) => {
        pub const KEYS: &[Key] =
            &[$(Key { name: stringify!($name), value: $value, help: $help, set: $set }),+];
    };
}

keys! {
    rw "WORKLOAD" "Workload: read, write, rw, or in random order randread, randwrite, randrw"
        |job, v| put(&mut job.rw, Workload::parse(v));
    bs "SIZE" "Bytes of each command"
        |job, v| blocks(job, parse_bytes(v).map(|bs| (bs, bs)));
    bsrange "SIZE-SIZE" "Bytes of each command, at random from a range"
        |job, v| blocks(job, parse_range(v));
    iodepth "N" "Outstanding commands"
        |job, v| put(&mut job.iodepth, number(v, 1, 1024).map(|n| n as u16));
    numjobs "N" "Copies of the job, each with a separate thread and queue"
        |job, v| put(&mut job.numjobs, number(v, 1, 64).map(|n| n as u16));
    size "SIZE|%" "Size of the job's region at the start of the namespace"
        |job, v| put(&mut job.size, Size::parse(v).map(Some));
    runtime "TIME" "Time after which the job ends"
        |job, v| put(&mut job.runtime, parse_time(v).map(Some));
    time_based "0|1" "Repeats the job until runtime ends"
        |job, v| put(&mut job.time_based, switch(v));
    ramp_time "TIME" "Time to run before the measurement"
        |job, v| put(&mut job.ramp_time, parse_time(v));
    rwmixread "PERCENT" "Share of reads in a mixed job"
        |job, v| put(&mut job.rwmixread, number(v, 0, 100).map(|n| n as u8));
    rate_iops "N" "Maximum commands per second, of reads and of writes"
        |job, v| put(&mut job.rate_iops, number(v, 1, 1_000_000_000).map(Some));
    loops "N" "Number of passes over the job's region"
        |job, v| put(&mut job.loops, number(v, 1, u64::MAX));
    verify "METHOD" "crc32c: write checksums and verify blocks; 0: do not verify"
        |job, v| put(&mut job.verify, match v {
            "crc32c" => Ok(true),
            "0" => Ok(false),
            other => Err(format!("{other:?} is not supported: use crc32c, or {FIO_ITSELF}")),
        });
    do_verify "0|1" "Whether the written blocks are read back and verified at the end [1]"
        |job, v| put(&mut job.do_verify, switch(v));
    randseed "N" "Seed of offsets, directions and data"
        |job, v| put(&mut job.randseed, number(v, 0, u64::MAX).map(Some));
    norandommap "0|1" "Random offsets may repeat before each has been used once"
        |job, v| put(&mut job.norandommap, switch(v));
    group_reporting "0|1" "Reports all copies of the job together"
        |job, v| put(&mut job.group_reporting, switch(v));
}

fn put<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

fn blocks(job: &mut Job, range: Result<(u64, u64), String>) -> Result<(), String> {
    (job.bs_min, job.bs_max) = range?;
    if job.bs_min == 0 {
        return Err("0 bytes are not enough".to_owned());
    }
    Ok(())
}

fn number(text: &str, min: u64, max: u64) -> Result<u64, String> {
    parse_bytes(text)
        .ok()
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| format!("{text:?} is not a number from {min} to {max}"))
}

fn switch(text: &str) -> Result<bool, String> {
    number(text, 0, 1).map(|number| number == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_set_what_they_are_called() {
        let job = Job::with(&[
            ("rw", "randrw"),
            ("bs", "8k"),
            ("iodepth", "32"),
            ("size", "50%"),
            ("runtime", "10"),
            ("rwmixread", "70"),
            ("rate_iops", "1k"),
            ("verify", "crc32c"),
            ("time_based", "1"),
            ("bs", "16k"),
        ])
        .unwrap();
        assert!(job.rw.reads && job.rw.writes && job.rw.random);
        assert_eq!((job.bs_min, job.bs_max, job.iodepth), (16384, 16384, 32));
        assert_eq!(job.size, Some(Size::Percent(50)));
        assert_eq!(job.runtime, Some(Duration::from_secs(10)));
        assert_eq!((job.rwmixread, job.rate_iops), (70, Some(1024)));
        assert!(job.verify && job.time_based);
        assert_eq!(job.options.len(), 9);
        assert_eq!(job.options[8], ("bs", "16k".to_owned()));
    }

    #[test]
    fn keys_and_values_of_fio_alone_name_its_engine() {
        for (key, value) in [
            ("bssplit", "4k/50"),
            ("ioengine", "libaio"),
            ("verify", "md5"),
            ("rw", "randtrim"),
        ] {
            let why = Job::default().set(key, value).unwrap_err();
            assert!(why.ends_with(FIO_ITSELF), "{why}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for (key, value) in [
            ("iodepth", "0"),
            ("iodepth", "1025"),
            ("numjobs", "65"),
            ("rwmixread", "101"),
            ("loops", "0"),
            ("bs", "0"),
            ("time_based", "2"),
        ] {
            assert!(Job::default().set(key, value).is_err(), "{key}={value}");
        }
    }
}
