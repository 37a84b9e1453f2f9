//! Keys of jobs, for command line and job files.

use super::job::{Job, Note, Workload};
use super::size::{Size, parse_bytes, parse_range, parse_time};

/// Key of a job.
#[derive(Debug)]
pub struct Key {
    /// Name of the key in fio.
    pub name: &'static str,
    /// Alias of the key in fio, or empty.
    pub alias: &'static str,
    /// Placeholder of the value in the help text; `None` for a switch, whose value is 0 or 1.
    pub value: Option<&'static str>,
    /// Help text, a single line.
    pub help: &'static str,
    set: fn(&mut Job, &str) -> Result<(), String>,
}

const fn key(
    name: &'static str,
    alias: &'static str,
    value: Option<&'static str>,
    help: &'static str,
    set: fn(&mut Job, &str) -> Result<(), String>,
) -> Key {
    Key {
        name,
        alias,
        value,
        help,
        set,
    }
}

/// Supported keys of jobs.
pub const KEYS: &[Key] = &[
    key(
        "name",
        "",
        Some("NAME"),
        "Name of the job; starts another job",
        |job, v| {
            job.name = v.to_owned();
            Ok(())
        },
    ),
    key(
        "rw",
        "readwrite",
        Some("WORKLOAD"),
        "Workload: read, write, trim, rw, or in random order randread, randwrite, randtrim, randrw",
        |job, v| Workload::parse(v).map(|rw| job.rw = rw),
    ),
    key(
        "bs",
        "blocksize",
        Some("SIZE"),
        "Bytes of each command",
        |job, v| {
            let bs = positive(parse_bytes(v)?)?;
            (job.bs_min, job.bs_max) = (bs, bs);
            Ok(())
        },
    ),
    key(
        "bsrange",
        "blocksize_range",
        Some("SIZE-SIZE"),
        "Bytes of each command, at random from a range",
        |job, v| {
            (job.bs_min, job.bs_max) = parse_range(v)?;
            positive(job.bs_min).map(drop)
        },
    ),
    key(
        "iodepth",
        "",
        Some("N"),
        "Outstanding commands",
        |job, v| {
            job.iodepth = number(v, 1, 1024)?;
            Ok(())
        },
    ),
    key(
        "numjobs",
        "",
        Some("N"),
        "Copies of the job, each with a separate thread and queue",
        |job, v| {
            job.numjobs = number(v, 1, 64)?;
            Ok(())
        },
    ),
    key(
        "size",
        "",
        Some("SIZE|%"),
        "Size of the job's region in the namespace",
        |job, v| {
            job.size = Some(Size::parse(v)?);
            Ok(())
        },
    ),
    key(
        "io_size",
        "io_limit",
        Some("SIZE"),
        "Bytes to transfer, if different from size",
        |job, v| {
            job.io_size = Some(positive(parse_bytes(v)?)?);
            Ok(())
        },
    ),
    key(
        "offset",
        "",
        Some("SIZE|%"),
        "Start of the job's region in the namespace",
        |job, v| {
            job.offset = Size::parse(v)?;
            Ok(())
        },
    ),
    key(
        "offset_increment",
        "",
        Some("SIZE|%"),
        "Bytes between the starts of two copies of the job",
        |job, v| {
            job.offset_increment = Size::parse(v)?;
            Ok(())
        },
    ),
    key(
        "runtime",
        "timeout",
        Some("TIME"),
        "Time after which the job ends",
        |job, v| {
            job.runtime = Some(parse_time(v)?);
            Ok(())
        },
    ),
    key(
        "time_based",
        "",
        None,
        "Repeats the job until runtime ends",
        |job, v| {
            job.time_based = switch(v)?;
            Ok(())
        },
    ),
    key(
        "ramp_time",
        "",
        Some("TIME"),
        "Time to run before the measurement",
        |job, v| {
            job.ramp_time = parse_time(v)?;
            Ok(())
        },
    ),
    key(
        "startdelay",
        "",
        Some("TIME"),
        "Time to wait before the job starts",
        |job, v| {
            job.startdelay = parse_time(v)?;
            Ok(())
        },
    ),
    key(
        "rwmixread",
        "",
        Some("PERCENT"),
        "Share of reads in a mixed job",
        |job, v| {
            job.rwmixread = number(v, 0, 100)? as u8;
            Ok(())
        },
    ),
    key(
        "rwmixwrite",
        "",
        Some("PERCENT"),
        "Share of writes in a mixed job",
        |job, v| {
            job.rwmixread = 100 - number(v, 0, 100)? as u8;
            Ok(())
        },
    ),
    key(
        "rate_iops",
        "",
        Some("N[,N[,N]]"),
        "Maximum commands per second: reads, writes, trims",
        |job, v| {
            job.rate_iops = rates(v)?;
            Ok(())
        },
    ),
    key(
        "loops",
        "",
        Some("N"),
        "Number of passes over the job's region",
        |job, v| {
            job.loops = v
                .parse()
                .ok()
                .filter(|&loops| loops > 0)
                .ok_or_else(|| format!("{v:?} is not a number from 1"))?;
            Ok(())
        },
    ),
    key(
        "verify",
        "",
        Some("METHOD"),
        "crc32c: write checksums and verify blocks; 0: do not verify",
        |job, v| {
            job.verify = match v {
                "crc32c" | "crc32c-intel" => true,
                "0" | "null" => false,
                other => return Err(format!("verify={other} is not supported: use crc32c")),
            };
            Ok(())
        },
    ),
    key(
        "do_verify",
        "",
        Some("0|1"),
        "Whether the written blocks are read back and verified at the end [1]",
        |job, v| {
            job.do_verify = switch(v)?;
            Ok(())
        },
    ),
    key(
        "verify_only",
        "",
        None,
        "Writes nothing: verifies the blocks written by an earlier job",
        |job, v| {
            job.verify_only = switch(v)?;
            Ok(())
        },
    ),
    key(
        "verify_fatal",
        "",
        Some("0|1"),
        "Whether the first bad block ends the job [0]",
        |job, v| {
            job.verify_fatal = switch(v)?;
            Ok(())
        },
    ),
    key(
        "randseed",
        "",
        Some("N"),
        "Seed of offsets, directions and data",
        |job, v| {
            job.randseed = Some(parse_bytes(v).map_err(|_| format!("{v:?} is not a number"))?);
            Ok(())
        },
    ),
    key(
        "norandommap",
        "",
        None,
        "Random offsets may repeat before each has been used once",
        |job, v| {
            job.norandommap = switch(v)?;
            Ok(())
        },
    ),
    key(
        "fsync",
        "",
        Some("N"),
        "Sends a Flush after this many writes",
        |job, v| {
            job.fsync = v
                .parse()
                .map_err(|_| format!("{v:?} is not a number of writes"))?;
            Ok(())
        },
    ),
    key(
        "end_fsync",
        "",
        None,
        "Sends a Flush at the end",
        |job, v| {
            job.end_fsync = switch(v)?;
            Ok(())
        },
    ),
    key(
        "group_reporting",
        "",
        None,
        "Reports all copies of a job together",
        |job, v| {
            job.group_reporting = switch(v)?;
            Ok(())
        },
    ),
    key(
        "stonewall",
        "wait_for_previous",
        None,
        "Starts when all previous jobs have ended",
        |job, v| {
            job.stonewall = switch(v)?;
            Ok(())
        },
    ),
];

const TARGET: &str = "-a, -n and --namespace-id select target and namespace";
const ENGINE: &str = "all I/O is NVMe over RDMA from user space";
const PAST_CACHES: &str = "no page cache is involved";
const DATA: &str = "written data is random, and different in each block if verified";
const THREADS: &str = "each job is a thread";
const SEEDS: &str = "set randseed for the same sequence each time";

/// Keys of fio that are accepted for compatibility but have no effect, with the reason.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("description", "a comment"),
    ("filename", TARGET),
    ("directory", TARGET),
    ("ioengine", ENGINE),
    ("direct", PAST_CACHES),
    ("buffered", PAST_CACHES),
    ("invalidate", PAST_CACHES),
    ("fadvise_hint", PAST_CACHES),
    ("fallocate", "the size of the namespace is fixed"),
    ("thread", THREADS),
    ("randrepeat", SEEDS),
    ("allrandrepeat", SEEDS),
    ("refill_buffers", DATA),
    ("scramble_buffers", DATA),
    ("serialize_overlap", "verified jobs never overlap commands"),
    ("verify_state_save", "no state is kept between runs"),
    (
        "allow_mounted_write",
        "mounts on other hosts cannot be detected: --destroy-data permits writes",
    ),
];

/// Unsupported keys of fio 3.33 (`fio --cmdhelp=all`).
const FIO_ONLY: &str = "wait_for lockfile filename_format unique_filename opendir ba bssplit \
    bs_unaligned ignore_error rw_sequencer iodepth_batch iodepth_batch_complete_min \
    iodepth_batch_complete_max iodepth_low io_submit_mode fill_device filesize file_append \
    offset_align number_ios random_generator random_distribution percentage_random nrfiles \
    file_service_type openfiles fdatasync write_barrier sync_file_range atomic overwrite \
    clocksource mem verify_interval verify_offset verify_pattern verify_dump verify_async \
    verify_backlog verify_backlog_batch experimental_verify verify_state_load trim_percentage \
    trim_verify_zero trim_backlog trim_backlog_batch write_iolog read_iolog read_iolog_chunked \
    replay_no_stall replay_redirect replay_scale replay_align replay_time_scale replay_skip \
    merge_blktrace_file merge_blktrace_scalars merge_blktrace_iters exec_prerun exec_postrun \
    ioscheduler zonemode zonesize zonecapacity zonerange zoneskip read_beyond_wp max_open_zones \
    job_max_open_zones ignore_zone_limits zone_reset_threshold zone_reset_frequency lockmem nice \
    prio prioclass thinktime thinktime_spin thinktime_blocks thinktime_blocks_type \
    thinktime_iotime rate rate_min rate_process rate_cycle rate_ignore_thinktime rate_iops_min \
    max_latency latency_target latency_window latency_percentile latency_run sync write_hint \
    create_serialize create_fsync create_on_open create_only allow_file_create pre_read cpumask \
    cpus_allowed cpus_allowed_policy numa_cpu_nodes numa_mem_policy fsync_on_close unlink \
    unlink_each_loop exitall exit_what exitall_on_error new_group per_job_logs write_bw_log \
    bwavgtime write_lat_log write_iops_log iopsavgtime log_entries log_avg_msec log_hist_msec \
    log_hist_coarseness write_hist_log log_max_value log_offset log_prio log_compression \
    log_compression_cpus log_store_compressed log_unix_epoch log_alternate_epoch \
    log_alternate_epoch_clock_id block_error_percentiles stats zero_buffers buffer_pattern \
    buffer_compress_percentage buffer_compress_chunk dedupe_percentage dedupe_mode \
    dedupe_working_set_percentage dedupe_global clat_percentiles lat_percentiles \
    slat_percentiles percentile_list significant_figures disk_util gtod_reduce disable_lat \
    disable_clat disable_slat disable_bw_measurement gtod_cpu unified_rw_reporting \
    continue_on_error error_dump profile cgroup cgroup_nodelete cgroup_weight uid gid kb_base \
    unit_base hugepage-size flow_id flow flow_sleep steadystate steadystate_duration \
    steadystate_ramp_time";

pub(super) fn apply(
    job: &mut Job,
    name: &str,
    value: Option<&str>,
) -> Result<Option<Note>, String> {
    let known = |key: &&Key| key.name == name || (!key.alias.is_empty() && key.alias == name);
    if let Some(key) = KEYS.iter().find(known) {
        let value = match (value, key.value) {
            (Some(value), _) => value.trim(),
            (None, None) => "1",
            (None, Some(what)) => return Err(format!("{name} requires a value: {name}={what}")),
        };
        (key.set)(job, value).map_err(|why| format!("{name}: {why}"))?;
        return Ok(None);
    }
    if let Some(&(key, why)) = WITHOUT_EFFECT.iter().find(|(key, _)| *key == name) {
        return Ok(Some(Note { key, why }));
    }
    Err(refusal(name))
}

/// Error message for an unknown key.
#[must_use]
pub fn refusal(name: &str) -> String {
    if FIO_ONLY.split_ascii_whitespace().any(|key| key == name) {
        return format!(
            "{name} is a key of fio that this benchmark does not have: fio itself has it, with Cairn's engine \
             (docs/guide-initiator.md#fio-itself)"
        );
    }
    match closest(name) {
        Some(key) => format!("unknown key {name}; did you mean {key}?"),
        None => format!("unknown key {name}"),
    }
}

/// True if fio 3.33 has this key and this benchmark does not act on it.
#[must_use]
pub fn is_of_fio(name: &str) -> bool {
    FIO_ONLY.split_ascii_whitespace().any(|key| key == name)
        || WITHOUT_EFFECT.iter().any(|(key, _)| *key == name)
}

/// Names of accepted keys without effect.
pub fn without_effect() -> impl Iterator<Item = &'static str> {
    WITHOUT_EFFECT.iter().map(|(key, _)| *key)
}

fn closest(name: &str) -> Option<&'static str> {
    let names = KEYS
        .iter()
        .flat_map(|key| [key.name, key.alias])
        .filter(|key| !key.is_empty());
    names
        .map(|key| (strsim::jaro_winkler(name, key), key))
        .filter(|&(likeness, _)| likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, key)| key)
}

fn positive(bytes: u64) -> Result<u64, String> {
    if bytes == 0 {
        return Err("0 bytes are not enough".to_owned());
    }
    Ok(bytes)
}

fn number(text: &str, min: u16, max: u16) -> Result<u16, String> {
    text.parse()
        .ok()
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| format!("{text:?} is not a number from {min} to {max}"))
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        other => Err(format!("{other:?} is neither 0 nor 1")),
    }
}

/// Parses limits of reads, writes and trims, such as `1000` or `1000,500`. A missing number repeats the previous one;
/// an empty one means no limit.
fn rates(text: &str) -> Result<[Option<u64>; 3], String> {
    let mut parts = text.split(',').map(|part| match part.trim() {
        "" => Ok(None),
        part => match parse_bytes(part) {
            Ok(0) | Err(_) => Err(format!("{part:?} is not a number of commands a second")),
            Ok(rate) => Ok(Some(rate)),
        },
    });
    let mut rates = [None; 3];
    let mut last = None;
    for rate in &mut rates {
        last = parts.next().unwrap_or(Ok(last))?;
        *rate = last;
    }
    if parts.next().is_some() {
        return Err(format!("{text} has more than three rates"));
    }
    Ok(rates)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn refused(key: &str, value: &str) -> String {
        Job::new("j").set(key, Some(value)).unwrap_err()
    }

    #[test]
    fn keys_set_what_they_are_called() {
        let mut job = Job::new("j");
        for (key, value) in [
            ("rw", "randrw"),
            ("bs", "8k"),
            ("iodepth", "32"),
            ("size", "50%"),
            ("runtime", "10"),
            ("rwmixwrite", "30"),
            ("rate_iops", "1000,,5"),
            ("verify", "crc32c"),
        ] {
            assert_eq!(job.set(key, Some(value)).unwrap(), None);
        }
        job.set("time_based", None).unwrap();
        assert!(job.rw.reads && job.rw.writes && job.rw.random);
        assert_eq!((job.bs_min, job.bs_max, job.iodepth), (8192, 8192, 32));
        assert_eq!(job.size, Some(Size::Percent(50)));
        assert_eq!(job.runtime, Some(Duration::from_secs(10)));
        assert_eq!(job.rwmixread, 70);
        assert_eq!(job.rate_iops, [Some(1000), None, Some(5)]);
        assert!(job.verify && job.time_based);
        assert_eq!(job.options.len(), 9);
        assert_eq!(job.options[8], ("time_based".into(), "1".into()));
    }

    #[test]
    fn one_rate_is_for_all() {
        assert_eq!(rates("7"), Ok([Some(7); 3]));
        assert!(rates("1,2,3,4").is_err());
    }

    #[test]
    fn what_fio_has_and_we_do_not_is_said_so() {
        assert!(refused("bssplit", "4k/50").contains("a key of fio that this benchmark"));
        assert!(refused("verify", "md5").contains("use crc32c"));
        assert!(refused("rw", "trimwrite").contains("not one of read, write"));
    }

    #[test]
    fn a_slip_gets_a_suggestion() {
        assert!(refused("iodepht", "4").contains("did you mean iodepth?"));
        assert!(refused("block_size", "4k").contains("did you mean blocksize"));
        assert_eq!(refused("xyzzy", "1"), "unknown key xyzzy");
    }

    #[test]
    fn choices_that_do_not_arise_are_noted() {
        let note = Job::new("j").set("ioengine", Some("libaio")).unwrap();
        assert_eq!(note.unwrap().key, "ioengine");
    }

    #[test]
    fn no_key_is_in_two_lists() {
        for key in KEYS {
            assert!(!is_of_fio(key.name), "{}", key.name);
            assert!(
                key.alias.is_empty() || !is_of_fio(key.alias),
                "{}",
                key.alias
            );
        }
    }
}
