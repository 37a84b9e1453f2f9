use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::super::lane::Direction;
use super::super::run::BenchResult;
use super::super::stats::{DirectionStats, PERCENTILES, Series};
use super::{Entry, entries};
use crate::object::Object;

const NAME: &str = "bench";

/// Formats a result like `--output-format=json` of fio 3.33.
#[must_use]
pub fn json(result: &BenchResult) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default();
    let report = Object::new()
        .with(
            "fio version",
            concat!("cairn-initiator-", env!("CARGO_PKG_VERSION")),
        )
        .with("timestamp", now.as_secs())
        .with("timestamp_ms", now.as_millis() as u64)
        .with("time", ctime(now.as_secs()))
        .with_list("jobs", entries(result).iter().map(job));
    let mut text = report.pretty();
    text.push('\n');
    text
}

fn job(entry: &Entry<'_>) -> Object {
    let stats = &entry.stats;
    let options = entry.job.options.iter();
    let options = options.fold(Object::new().with("name", NAME), |object, (key, value)| {
        object.with(key, value)
    });
    let depths = ["1", "2", "4", "8", "16", "32", ">=64"];
    let batches = ["0", "4", "8", "16", "32", "64", ">=64"];
    let classes = stats.latency_classes();
    let report = Object::new()
        .with("jobname", NAME)
        .with("groupid", 0)
        .with("error", entry.errno())
        .with("eta", 0)
        .with("elapsed", entry.longest_s.ceil() as u64)
        .with_object("job options", options)
        .with_object("read", moved(stats.of(Direction::Read)))
        .with_object("write", moved(stats.of(Direction::Write)))
        .with_object("trim", moved(&DirectionStats::default()))
        .with_object("sync", no_syncs())
        .with("job_runtime", (entry.elapsed_s * 1e3) as u64)
        .with("usr_cpu", round(entry.percent_of_time(entry.cpu.user_s)))
        .with("sys_cpu", round(entry.percent_of_time(entry.cpu.system_s)))
        .with("ctx", entry.cpu.switches)
        .with("majf", entry.cpu.major_faults)
        .with("minf", entry.cpu.minor_faults)
        .with_object("iodepth_level", shares(depths, stats.depth.percent()))
        .with_object("iodepth_submit", shares(batches, stats.submit.percent()))
        .with_object(
            "iodepth_complete",
            shares(batches, stats.complete.percent()),
        )
        .with_object("latency_ns", shares_of(&classes.ns))
        .with_object("latency_us", shares_of(&classes.us))
        .with_object("latency_ms", shares_of(&classes.ms))
        .with("latency_depth", entry.job.iodepth)
        .with("latency_target", 0)
        .with("latency_percentile", 100.0)
        .with("latency_window", 0);
    match entry.incomplete {
        Some(why) => report.with("incomplete", why),
        None => report,
    }
}

fn moved(stats: &DirectionStats) -> Object {
    let mut clat = series(&stats.clat_ns);
    if stats.ios > 0 {
        let percentiles = PERCENTILES.iter().fold(Object::new(), |object, percent| {
            object.with(&format!("{percent:.6}"), stats.clat_percentile_ns(*percent))
        });
        clat = clat.with_object("percentile", percentiles);
    }
    let (bw, iops) = (&stats.bw_samples, &stats.iops_samples);
    let of_all = if stats.ios > 0 {
        (bw.mean * 100.0 * 1024.0 / stats.bandwidth().max(1.0)).min(100.0)
    } else {
        0.0
    };
    Object::new()
        .with("io_bytes", stats.bytes)
        .with("io_kbytes", stats.bytes / 1024)
        .with("bw_bytes", stats.bandwidth() as u64)
        .with("bw", (stats.bandwidth() / 1024.0) as u64)
        .with("iops", round(stats.iops()))
        .with("runtime", stats.runtime.as_millis() as u64)
        .with("total_ios", stats.ios)
        .with("short_ios", 0)
        .with("drop_ios", 0)
        .with_object("slat_ns", series(&stats.slat_ns))
        .with_object("clat_ns", clat)
        .with_object("lat_ns", series(&stats.lat_ns))
        .with("bw_min", bw.min as u64)
        .with("bw_max", bw.max as u64)
        .with("bw_agg", round(of_all))
        .with("bw_mean", round(bw.mean))
        .with("bw_dev", round(bw.deviation()))
        .with("bw_samples", bw.count)
        .with("iops_min", iops.min as u64)
        .with("iops_max", iops.max as u64)
        .with("iops_mean", round(iops.mean))
        .with("iops_stddev", round(iops.deviation()))
        .with("iops_samples", iops.count)
}

fn no_syncs() -> Object {
    Object::new()
        .with("total_ios", 0)
        .with_object("lat_ns", series(&Series::default()))
}

fn series(series: &Series) -> Object {
    Object::new()
        .with("min", series.min as u64)
        .with("max", series.max as u64)
        .with("mean", round(series.mean))
        .with("stddev", round(series.deviation()))
        .with("N", series.count)
}

fn shares(names: [&str; 7], shares: [f64; 7]) -> Object {
    let pairs = names.into_iter().zip(shares);
    pairs.fold(Object::new(), |object, (name, share)| {
        object.with(name, round(share))
    })
}

fn shares_of(table: &[(String, f64)]) -> Object {
    table.iter().fold(Object::new(), |object, (name, share)| {
        object.with(name, round(*share))
    })
}

fn round(value: f64) -> impl Serialize {
    (value * 1e6).round() / 1e6
}

fn ctime(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut year, mut left) = (1970, day);
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while left >= lengths[month] {
        left -= lengths[month];
        month += 1;
    }
    format!(
        "{} {} {:>2} {:02}:{:02}:{:02} {year}",
        DAYS[(day % 7) as usize],
        MONTHS[month],
        left + 1,
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::ctime;

    #[test]
    fn times_are_as_ctime_has_them() {
        assert_eq!(ctime(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(ctime(1_795_269_228), "Sat Nov 21 13:53:48 2026");
        assert_eq!(ctime(951_782_400), "Tue Feb 29 00:00:00 2000");
    }
}
