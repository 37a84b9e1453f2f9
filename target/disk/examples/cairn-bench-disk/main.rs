//! What block I/O costs without a network: random reads or writes on a file or block device,
//! which `cargo xtask bench` compares with fio's io_uring engine. Prints JSON as fio does.
//!
//! ```text
//! truncate -s 1G /tmp/disk.img
//! cargo run --release -p cairn-disk --example cairn-bench-disk -- \
//!     --filename /tmp/disk.img --rw randread --iodepth 32 --runtime-ms 5000
//! ```

mod bare_disk;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bare_disk::BareDisk;
use clap::{Parser, ValueEnum};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Longer ones count as this.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// Measures random I/O on a file or block device.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// The file or device
    #[arg(long)]
    filename: PathBuf,
    /// What to do; writing destroys what is there
    #[arg(long)]
    rw: Workload,
    /// Bytes of each operation
    #[arg(long, default_value_t = 4096)]
    bs: u32,
    /// Operations at a time
    #[arg(long, default_value_t = 1)]
    iodepth: u32,
    /// Milliseconds
    #[arg(long)]
    runtime_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
enum Workload {
    RandRead,
    RandWrite,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(report) => {
            println!("{report:#}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<Value, String> {
    if args.iodepth == 0 || args.bs == 0 {
        return Err("--iodepth and --bs begin at 1".to_owned());
    }
    let write = args.rw == Workload::RandWrite;
    let mut disk = BareDisk::open(&args.filename, !write, args.iodepth, args.bs)?;
    let places = disk.places();
    if places == 0 {
        return Err(format!("{} is too small", args.filename.display()));
    }
    let mut latencies =
        Histogram::<u64>::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("these bounds are fine");
    let began = Instant::now();
    let end = began + Duration::from_millis(args.runtime_ms);
    let mut random = fastrand::Rng::with_seed(0);
    let next = || (Instant::now() < end).then(|| random.u64(..places));
    let done = |latency: Duration| latencies.saturating_record(latency.as_nanos() as u64);
    disk.run(write, next, done)
        .map_err(|error| format!("{}: {error}", args.filename.display()))?;
    let seconds = began.elapsed().as_secs_f64();
    let ios = latencies.len();
    let iops = ios as f64 / seconds;
    let percentile = |percent| latencies.value_at_percentile(percent);
    let moved = json!({
        "total_ios": ios,
        "iops": iops,
        "bw_bytes": iops * f64::from(args.bs),
        "clat_ns": { "percentile": {
            "50.000000": percentile(50.0),
            "99.000000": percentile(99.0),
            "99.900000": percentile(99.9),
        } },
    });
    let nothing = json!({ "total_ios": 0, "iops": 0.0, "bw_bytes": 0, "clat_ns": {} });
    let (read, written) = if write {
        (nothing, moved)
    } else {
        (moved, nothing)
    };
    Ok(json!({ "jobs": [{
        "error": 0,
        "job_runtime": seconds * 1e3,
        "read": read,
        "write": written,
    }] }))
}
