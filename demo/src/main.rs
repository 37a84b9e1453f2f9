//! A first look at Cairn: a target and a host in this process, which speak RoCE
//! in user space over the loopback interface. No RDMA device, no root, no
//! package. `cargo demo` runs it.

mod bench;
mod progress;
mod random;
mod verify;

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cairn_config::{Config, Flags};
use cairn_initiator::{Host, HostOptions, discover};
use cairn_rdma::Provider;
use cairn_roce::Soft;
use cairn_target::Target;
use clap::Parser;
use nvme_proto::wire::Nqn;

const SUBSYSTEM: &str = "nqn.2026-01.org.example:demo";
const HOST: &str = "nqn.2026-01.org.example:demo-host";
/// The host's one I/O queue.
pub(crate) const IO_QUEUE: u16 = 1;

/// Exports a disk image by RoCE in user space, connects to it, verifies data and measures.
#[derive(Debug, Parser)]
#[command(name = "cargo demo", version)]
struct Args {
    /// Seconds that each of the five measurements takes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Size of the disk image in MiB
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..65_536))]
    mib: u64,
    /// Address of this machine to listen on; RoCE takes its UDP port 4791
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    address: IpAddr,
}

/// The namespace, as Identify describes it.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) nsid: u32,
    pub(crate) blocks: u64,
    pub(crate) block_bytes: u32,
}

impl Disk {
    pub(crate) fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.block_bytes)
    }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let image = image(args.mib << 20)?;
    let soft: Arc<dyn Provider> = Arc::new(Soft::default());
    let target = Target::start(config(args.address, &image)?, vec![Arc::clone(&soft)])?;
    println!(
        "target    {} MiB image in {}, exported at {} by RoCE in user space",
        args.mib,
        std::env::temp_dir().display(),
        target.addresses()[0]
    );
    let mut host = connect(&*soft, &target)?;
    let disk = inspect(&mut host)?;

    let checksums = verify::write(&mut host, &disk)?;
    let bytes = checksums.verify(&mut host, &disk)?;
    println!(
        "verified  {} MiB of random data written, read back and compared by CRC-32",
        bytes >> 20
    );
    measure(&mut host, &disk, Duration::from_secs(args.seconds))?;

    host.shutdown()?;
    target.stop().map_err(anyhow::Error::msg)?;
    println!("{NEXT}");
    Ok(())
}

/// A sparse file without a name: it is gone when this process is, however that
/// ends.
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

/// One reactor, and so little memory that the usual limit on locked memory (8
/// MiB) is enough.
fn config(address: IpAddr, image: &File) -> Result<Config> {
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
export = "/proc/self/fd/{}"
block_size = 4096
"#,
        image.as_raw_fd()
    );
    Config::parse("demo", &text, &Flags::default())
        .map_err(|error| anyhow::anyhow!("the target's configuration:\n{error}"))
}

/// Discovers the subsystem, and connects to it.
fn connect(provider: &dyn Provider, target: &Target) -> Result<Host> {
    let options = HostOptions::new(target.addresses()[0], nqn(SUBSYSTEM), nqn(HOST));
    let log = discover(provider, &options)?;
    let is_ours = |field: &[u8]| field.starts_with(SUBSYSTEM.as_bytes());
    ensure!(
        log.entries.iter().any(|entry| is_ours(&entry.subnqn)),
        "the target's discovery log does not list {SUBSYSTEM}"
    );
    println!("discover  {SUBSYSTEM}");
    Ok(Host::connect(provider, options)?)
}

fn nqn(name: &str) -> Nqn {
    Nqn::parse(name).expect("the demo's own names are right")
}

/// What the controller and its namespace say they are.
fn inspect(host: &mut Host) -> Result<Disk> {
    let model = String::from_utf8_lossy(&host.identity().mn)
        .trim()
        .to_owned();
    println!(
        "connect   controller {:#x}, model \"{model}\", {} I/O queue",
        host.cntlid(),
        host.io_queues()
    );
    let nsid = *host
        .active_namespaces()?
        .first()
        .context("the subsystem has no namespace")?;
    let namespace = host.namespace(nsid)?;
    let format = namespace
        .lba_format()
        .context("the namespace has no LBA format")?;
    let disk = Disk {
        nsid,
        blocks: namespace.nsze.get(),
        block_bytes: 1 << format.lbads,
    };
    println!(
        "identify  namespace {nsid}: {} blocks of {} bytes, {} MiB",
        disk.blocks,
        disk.block_bytes,
        disk.bytes() >> 20
    );
    Ok(disk)
}

fn measure(host: &mut Host, disk: &Disk, time: Duration) -> Result<()> {
    println!(
        "\nmeasured just now, target and host sharing this one machine and its loopback\n\
         interface; it says nothing about RDMA adapters or networks:\n"
    );
    println!("{}", bench::header());
    for job in bench::JOBS {
        println!("{}", job.run(host, disk, time)?);
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
