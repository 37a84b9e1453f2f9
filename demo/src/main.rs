//! Demonstration of Cairn (`cargo demo`): target and host in one process, over user-space RoCE on
//! loopback, without RDMA device, root or packages.

mod bench;
mod ceph;
mod disk;
mod progress;

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use cairn_bench::{Format, NvmeLanes};
use cairn_config::{Config, Flags};
use cairn_initiator::{Host, HostOptions, Identity, discover};
use cairn_rdma::Provider;
use cairn_roce::Soft;
use cairn_target::Target;
use clap::Parser;
use nvme_proto::wire::Nqn;

const SUBSYSTEM: &str = "nqn.2026-01.org.example:demo";
const HOST: &str = "nqn.2026-01.org.example:demo-host";

/// Exports a disk image over RoCE in user space, connects to it, verifies data and measures.
#[derive(Debug, Parser)]
#[command(name = "cargo demo", version)]
struct Args {
    #[command(subcommand)]
    on: Option<On>,
    /// Seconds of each of the five measurements
    #[arg(long, global = true, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Size of the disk image in MiB
    #[arg(long, global = true, default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..65_536))]
    mib: u64,
    /// Address of this machine to listen at; RoCE uses its UDP port 4791
    #[arg(long, global = true, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    address: IpAddr,
}

/// Alternative disks.
#[derive(Debug, clap::Subcommand)]
enum On {
    /// Use an image of a Ceph cluster, which is started here and loses its OSD during the
    /// demonstration
    Ceph {
        /// Install Ceph with apt if it is missing
        #[arg(long)]
        install: bool,
    },
    /// Attach the export as a local disk, and kill the attaching process ten times under load
    Disk,
}

fn main() -> ExitCode {
    if std::env::var_os(disk::PROGRAM).is_some() {
        return cairn_initiator_cli::main();
    }
    let args = Args::parse();
    let ended = match args.on {
        None => run(&args),
        Some(On::Ceph { install }) => ceph::run(&args, install),
        Some(On::Disk) => disk::run(&args),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let image = image(args.mib << 20)?;
    let export = format!("/proc/self/fd/{}", image.as_raw_fd());
    let soft: Arc<dyn Provider> = Arc::new(Soft::default());
    let target = Target::start(config(args.address, &export, "")?, vec![Arc::clone(&soft)])?;
    println!(
        "target    {} MiB image in {}, exported at {} by RoCE in user space",
        args.mib,
        std::env::temp_dir().display(),
        target.addresses()[0]
    );
    let lanes = connect(&*soft, &target)?;

    let keys = [
        ("rw", "write"),
        ("bs", "128k"),
        ("iodepth", "8"),
        ("verify", "crc32c"),
    ];
    let verified = bench::run_job("writing and reading back".to_owned(), &lanes, &keys)?;
    println!(
        "verified  {} MiB of random data written, read back and compared by CRC-32C",
        (verified.stats.verified * verified.plan.job.bs_min) >> 20
    );
    measure(&lanes, args.seconds)?;

    target.stop().map_err(anyhow::Error::msg)?;
    println!("{NEXT}");
    Ok(())
}

/// Creates an unnamed sparse file, which disappears with this process.
fn image(bytes: u64) -> Result<File> {
    let make = || {
        let file = tempfile::tempfile()?;
        file.set_len(bytes)?;
        Ok::<_, std::io::Error>(file)
    };
    make().with_context(|| {
        format!(
            "no disk image in {}: set TMPDIR to a folder with {} MiB to spare, or give a smaller \
             --mib",
            std::env::temp_dir().display(),
            bytes >> 20
        )
    })
}

/// Returns a configuration with one reactor, within the usual limit of locked memory (8 MiB).
fn config(address: IpAddr, export: &str, more: &str) -> Result<Config> {
    let text = format!(
        r#"
[target]
reactors = 1
mdts = "128KiB"
data_buffers = "2MiB"
receives = 128

[[listener]]
address = "{address}"
provider = "soft"

[[subsystem]]
nqn = "{SUBSYSTEM}"
allow_any_host = true

[[subsystem.namespace]]
nsid = 1
export = "{export}"
block_size = 4096
{more}
"#
    );
    Config::parse("demo", &text, &Flags::default())
        .map_err(|error| anyhow::anyhow!("the target's configuration:\n{error}"))
}

fn connect(provider: &dyn Provider, target: &Target) -> Result<NvmeLanes> {
    let options = HostOptions::new(
        target.addresses()[0],
        nqn(SUBSYSTEM),
        Identity::named(nqn(HOST)),
    );
    let log = discover(provider, &options)?;
    let is_ours = |field: &[u8]| field.starts_with(SUBSYSTEM.as_bytes());
    ensure!(
        log.entries.iter().any(|entry| is_ours(&entry.subnqn)),
        "the target's discovery log does not list {SUBSYSTEM}"
    );
    println!("discover  {SUBSYSTEM}");
    let mut host = Host::connect(provider, options.clone())?;
    let lanes = inspect(&mut host, options)?;
    host.shutdown()?;
    Ok(lanes)
}

fn nqn(name: &str) -> Nqn {
    Nqn::parse(name).expect("the demo's own names are right")
}

fn inspect(host: &mut Host, options: HostOptions) -> Result<NvmeLanes> {
    let model = String::from_utf8_lossy(&host.identity().mn)
        .trim()
        .to_owned();
    println!(
        "connect   controller {:#x}, model \"{model}\", {} I/O queue",
        host.cntlid(),
        host.io_queues().len()
    );
    let nsid = *host
        .active_namespaces()?
        .first()
        .context("the subsystem has no namespace")?;
    let namespace = host.open_namespace(nsid)?;
    let format = Format::of(&namespace, host);
    println!(
        "identify  namespace {nsid}: {} blocks of {} bytes, {} MiB",
        format.blocks,
        format.block_bytes,
        format.bytes() >> 20
    );
    Ok(NvmeLanes {
        device: Arc::clone(host.device()),
        options,
        namespace,
        format,
        reset_interval: None,
        on_event: |_| {},
    })
}

fn measure(lanes: &NvmeLanes, seconds: u64) -> Result<()> {
    println!(
        "\nmeasured just now, target and host sharing this one machine and its loopback\n\
         interface; it says nothing about RDMA adapters or networks:\n"
    );
    println!("{}", bench::header());
    for line in bench::LINES {
        println!("{}", line.measure(lanes, seconds)?);
    }
    Ok(())
}

const NEXT: &str = "
Your own disk, on the machine that has it:

  cargo build --release -p cairn-target
  ./build/release/cairn-target serve --listen ADDRESS --export /dev/nvme0n1

From another Linux machine, as root (with an RDMA adapter, or rdma_rxe over any other):

  modprobe nvme-rdma
  nvme discover -t rdma -a ADDRESS -s 4420
  nvme connect -t rdma -a ADDRESS -s 4420 -n NQN";
