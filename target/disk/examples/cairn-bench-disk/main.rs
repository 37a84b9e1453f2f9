//! Cost of block I/O without a network: random reads or writes, with JSON output like fio's. `cargo
//! xtask bench` and `cargo xtask bench ceph` compare the result with fio's.
//!
//! ```text
//! truncate -s 1G /tmp/disk.img
//! cargo run --release -p cairn-disk --example cairn-bench-disk -- \
//!     --filename /tmp/disk.img --rw randread --iodepth 32 --runtime-ms 5000
//! ```

mod bare_disk;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bare_disk::BareDisk;
use cairn_base::ImageSpec;
use cairn_config::POLL_IDLE_DEFAULT_US;
use cairn_disk::{Backend, Claim, Formers, FoundPath, OpenError, wait_for_images};
use clap::{Parser, ValueEnum};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

const LATENCY_MAX_NS: u64 = 60_000_000_000;

const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Measures random I/O on a disk.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// File or device
    #[arg(long, required_unless_present = "image")]
    filename: Option<PathBuf>,
    /// Image of a Ceph cluster, as POOL/IMAGE
    #[arg(long, value_name = "POOL/IMAGE", conflicts_with = "filename", value_parser = image)]
    image: Option<ImageSpec>,
    /// Configuration of the cluster [default: CEPH_CONF or /etc/ceph/ceph.conf]
    #[arg(long, requires = "image")]
    conf: Option<PathBuf>,
    /// Workload; writing destroys the data
    #[arg(long)]
    rw: Workload,
    /// Bytes of each operation
    #[arg(long, default_value_t = 4096)]
    bs: u32,
    /// Outstanding operations
    #[arg(long, default_value_t = 1)]
    iodepth: u32,
    /// Duration in milliseconds
    #[arg(long)]
    runtime_ms: u64,
    /// Longest polling without work before sleeping, in microseconds, as poll_idle_us of a target
    #[arg(long, default_value_t = POLL_IDLE_DEFAULT_US)]
    poll_idle_us: u16,
    /// Poll for completions of an NVMe drive, if its driver has queues for that
    #[arg(long)]
    poll_drives: bool,
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
    let (name, backend) = open(args, !write)?;
    let poll_idle = Duration::from_micros(args.poll_idle_us.into());
    let mut disk = BareDisk::new(backend, args.iodepth, args.bs, poll_idle, args.poll_drives)?;
    let places = disk.places();
    if places == 0 {
        return Err(format!("{name} is too small"));
    }
    let mut latencies =
        Histogram::<u64>::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("these bounds are fine");
    let began = Instant::now();
    let end = began + Duration::from_millis(args.runtime_ms);
    let mut random = fastrand::Rng::with_seed(0);
    let next = || (Instant::now() < end).then(|| random.u64(..places));
    let done = |latency: Duration| latencies.saturating_record(latency.as_nanos() as u64);
    disk.run(write, next, done)
        .map_err(|error| format!("{name}: {error}"))?;
    let seconds = began.elapsed().as_secs_f64();
    drop(disk);
    if !wait_for_images(CLOSE_TIMEOUT) {
        return Err(format!("{name} does not close"));
    }
    let ios = latencies.len();
    let iops = ios as f64 / seconds;
    let percentile = |percent| latencies.value_at_percentile(percent);
    let moved = json!({
        "total_ios": ios,
        "iops": iops,
        "bw_bytes": iops * f64::from(args.bs),
        "clat_ns": { "max": latencies.max(), "percentile": {
            "50.000000": percentile(50.0),
            "99.000000": percentile(99.0),
            "99.900000": percentile(99.9),
        } },
    });
    let nothing = json!({ "total_ios": 0, "iops": 0.0, "bw_bytes": 0, "clat_ns": { "max": 0 } });
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

fn open(args: &Args, read_only: bool) -> Result<(String, Backend), String> {
    let opened = match (&args.image, &args.filename) {
        (Some(image), _) => {
            let spec = ImageSpec {
                conf: args.conf.clone(),
                ..image.clone()
            };
            let backend = Backend::open_image(&spec, None, Claim::default(), Arc::new(|| {}));
            backend.map(|backend| (spec.to_string(), backend))
        }
        (None, Some(path)) => {
            let claim = Claim {
                read_only,
                ..Claim::default()
            };
            let backend = open_file(path, claim);
            backend.map(|backend| (path.display().to_string(), backend))
        }
        (None, None) => return Err("--filename or --image is needed".to_owned()),
    };
    opened.map_err(|error| error.to_string())
}

fn open_file(path: &Path, claim: Claim) -> Result<Backend, OpenError> {
    let found = FoundPath::find(path).map_err(|error| OpenError::lookup(path, &error))?;
    let found = found.admit(|_| Ok(true))?;
    Backend::open(&found, None, claim, &Formers::default())
}

fn image(text: &str) -> Result<ImageSpec, String> {
    let (pool, image) = text.split_once('/').ok_or("give POOL/IMAGE")?;
    Ok(ImageSpec {
        pool: pool.to_owned(),
        namespace: None,
        image: image.to_owned(),
        snapshot: None,
        conf: None,
        user: None,
        keyring: None,
        options: Vec::new(),
    })
}
