//! Demonstration of a local disk: `cairn-initiator attach`, killed again and again under load.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use cairn_rdma::Provider;
use cairn_roce::Soft;
use cairn_target::Target;

use super::{Args, SUBSYSTEM, config};

/// Environment variable with which this executable is `cairn-initiator`.
pub(crate) const PROGRAM: &str = "CAIRN_DEMO_INITIATOR";
const KILLS: usize = 10;
const BETWEEN_KILLS: Duration = Duration::from_millis(700);
/// Time after which the load reports a hanging disk.
const PATIENCE: Duration = Duration::from_secs(120);
const WRITERS: u64 = 4;
const BLOCK: usize = 4096;
const O_DIRECT: i32 = 0o40000;

pub(crate) fn run(args: &Args) -> Result<()> {
    let soft: Arc<dyn Provider> = Arc::new(Soft::default());
    let export = format!("mem:{}MiB", args.mib);
    let target = Target::start(config(args.address, &export, "")?, vec![soft])?;
    println!(
        "target    {} MiB of memory at {}",
        args.mib,
        target.addresses()[0]
    );
    let folder = tempfile::tempdir()?;
    let driver = driver(folder.path());
    let mut attached = Attached::start(args, &driver, None)?;
    println!("attach    {}", attached.said);
    let disk = match &driver {
        Driver::Socket(path) => Disk::Socket(path.clone()),
        Driver::Kernel(_) => Disk::File(file_system(&attached.device()?, folder.path())?),
    };
    let area = (args.mib << 20) / 2 / WRITERS / BLOCK as u64;
    let is_over = AtomicBool::new(false);
    let written: Vec<u64> = thread::scope(|scope| -> Result<_> {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (disk, is_over) = (&disk, &is_over);
                scope.spawn(move || load(disk, writer, area, is_over))
            })
            .collect();
        let killed = kill_again(args, &driver, &mut attached);
        is_over.store(true, Ordering::Relaxed);
        killed?;
        let ended = writers
            .into_iter()
            .map(|one| one.join().expect("a writer does not panic"));
        ended.collect()
    })?;
    println!(
        "nothing was lost: {} blocks written while the process died {KILLS} times, all read back",
        written.iter().sum::<u64>()
    );
    if let Disk::File(_) = disk {
        succeed(Command::new("umount").arg(folder.path()))?;
    }
    attached.end()?;
    target.stop().map_err(anyhow::Error::msg)
}

enum Driver {
    Kernel(&'static str),
    Socket(PathBuf),
}

/// Selects a block device where the kernel and the user permit one.
fn driver(folder: &Path) -> Driver {
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let modules = [("ublk", "/dev/ublk-control"), ("nbd", "/sys/module/nbd")];
    let present = modules.iter().find(|(_, path)| Path::new(path).exists());
    match present.filter(|_| is_root) {
        Some((name, _)) => Driver::Kernel(name),
        None => {
            println!(
                "no block device: it needs root, and `modprobe ublk_drv` or `modprobe nbd`; a \
                 client of NBD at a socket shows the same"
            );
            Driver::Socket(folder.join("disk.sock"))
        }
    }
}

struct Attached {
    process: Child,
    said: String,
}

impl Attached {
    fn start(args: &Args, driver: &Driver, device: Option<u32>) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .env(PROGRAM, "1")
            .args(["attach", "--provider", "soft", "-n", SUBSYSTEM]);
        command.args([
            "-a",
            &args.address.to_string(),
            "-k",
            "1",
            "--reconnect-delay",
            "1",
        ]);
        match driver {
            Driver::Kernel(name) => command.args(["--as", name]),
            Driver::Socket(path) => command.arg("--socket").arg(path),
        };
        if let Some(device) = device {
            command.args(["--device", &device.to_string()]);
        }
        let mut process = command.stdout(Stdio::piped()).spawn()?;
        let mut said = String::new();
        BufReader::new(process.stdout.take().expect("stdout is a pipe")).read_line(&mut said)?;
        if said.is_empty() {
            bail!("cairn-initiator attach ended: {}", process.wait()?);
        }
        let said = said.trim_end().to_owned();
        Ok(Self { process, said })
    }

    fn device(&self) -> Result<String> {
        let (device, _) = self
            .said
            .split_once(':')
            .context("attach names the device")?;
        Ok(device.to_owned())
    }

    fn kill(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    fn end(mut self) -> Result<()> {
        succeed(Command::new("kill").arg(self.process.id().to_string()))?;
        let status = self.process.wait()?;
        ensure!(
            status.success(),
            "cairn-initiator attach ended with {status}"
        );
        Ok(())
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

fn kill_again(args: &Args, driver: &Driver, attached: &mut Attached) -> Result<()> {
    let number = match driver {
        Driver::Socket(_) => None,
        Driver::Kernel(_) => {
            let device = attached.device()?;
            let digits = device.trim_start_matches(|one: char| !one.is_ascii_digit());
            Some(digits.parse()?)
        }
    };
    for kill in 1..=KILLS {
        sleep(BETWEEN_KILLS);
        attached.kill()?;
        *attached = Attached::start(args, driver, number)?;
        println!("kill -9   {kill} of {KILLS}: attached again");
    }
    Ok(())
}

/// Makes a file system on the device, and a file in it.
fn file_system(device: &str, folder: &Path) -> Result<PathBuf> {
    succeed(Command::new("mkfs.ext4").args(["-q", "-F", device]))?;
    succeed(Command::new("mount").arg(device).arg(folder))?;
    println!("mount     ext4 on {device}");
    Ok(folder.join("blocks"))
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status();
    let status =
        status.with_context(|| format!("{} cannot be run", command.get_program().display()))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

enum Disk {
    File(PathBuf),
    Socket(PathBuf),
}

impl Disk {
    fn open(&self) -> Result<Box<dyn Blocks>> {
        Ok(match self {
            Self::File(path) => {
                let mut options = OpenOptions::new();
                options.read(true).write(true).create(true).truncate(false);
                Box::new(options.custom_flags(O_DIRECT).open(path)?)
            }
            Self::Socket(path) => Box::new(NbdClient {
                path: path.clone(),
                stream: None,
            }),
        })
    }
}

/// Writes blocks until `is_over`, then reads them back. Returns the number of writes.
fn load(disk: &Disk, writer: u64, area: u64, is_over: &AtomicBool) -> Result<u64> {
    let mut disk = disk.open()?;
    let mut block = Aligned::new();
    let mut generations = vec![0_u64; area as usize];
    let mut writes = 0;
    while !is_over.load(Ordering::Relaxed) {
        let at = (writes * 7919) % area;
        writes += 1;
        generations[at as usize] = writes;
        block.fill(writer, at, writes);
        disk.write(offset(writer, area, at), block.bytes())?;
    }
    let mut expected = Aligned::new();
    for (at, &generation) in generations.iter().enumerate().filter(|(_, one)| **one > 0) {
        let at = at as u64;
        expected.fill(writer, at, generation);
        disk.read(offset(writer, area, at), block.bytes_mut())?;
        ensure!(
            block.bytes() == expected.bytes(),
            "block {at} of writer {writer} is not that of write {generation}"
        );
    }
    Ok(writes)
}

fn offset(writer: u64, area: u64, at: u64) -> u64 {
    (writer * area + at) * BLOCK as u64
}

/// Block in memory that is aligned for `O_DIRECT`.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
}

impl Aligned {
    fn new() -> Self {
        let memory = vec![0; 2 * BLOCK];
        let start = memory.as_ptr().align_offset(BLOCK);
        Self { memory, start }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + BLOCK]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + BLOCK]
    }

    fn fill(&mut self, writer: u64, at: u64, generation: u64) {
        for words in self.bytes_mut().chunks_mut(24) {
            let pattern = [writer, at, generation].map(u64::to_le_bytes).concat();
            words.copy_from_slice(&pattern[..words.len()]);
        }
    }
}

trait Blocks {
    fn write(&mut self, offset: u64, block: &[u8]) -> Result<()>;
    fn read(&mut self, offset: u64, block: &mut [u8]) -> Result<()>;
}

impl Blocks for File {
    fn write(&mut self, offset: u64, block: &[u8]) -> Result<()> {
        Ok(self.write_all_at(block, offset)?)
    }

    fn read(&mut self, offset: u64, block: &mut [u8]) -> Result<()> {
        Ok(self.read_exact_at(block, offset)?)
    }
}

/// Client of NBD that repeats an unanswered request on the next connection, as Linux does.
struct NbdClient {
    path: PathBuf,
    stream: Option<UnixStream>,
}

const READ: u16 = 0;
const WRITE: u16 = 1;
/// Handshake option that selects the export with the empty name.
const EXPORT_NAME: &[u8] = b"IHAVEOPT\0\0\0\x01\0\0\0\0";

impl NbdClient {
    fn connect(path: &Path) -> io::Result<UnixStream> {
        let mut stream = UnixStream::connect(path)?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        stream.write_all(&3_u32.to_be_bytes())?;
        stream.write_all(EXPORT_NAME)?;
        let mut export = [0; 10];
        stream.read_exact(&mut export)?;
        Ok(stream)
    }

    fn attempt(&mut self, kind: u16, offset: u64, block: &mut [u8]) -> io::Result<()> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => none.insert(Self::connect(&self.path)?),
        };
        let mut request = Vec::from(0x2560_9513_u32.to_be_bytes());
        request.extend([0, 0]);
        request.extend(kind.to_be_bytes());
        request.extend([0; 8]);
        request.extend(offset.to_be_bytes());
        request.extend((block.len() as u32).to_be_bytes());
        if kind == WRITE {
            request.extend(&*block);
        }
        stream.write_all(&request)?;
        let mut reply = [0; 16];
        stream.read_exact(&mut reply)?;
        if reply[4..8] != [0; 4] {
            return Err(io::Error::other(format!(
                "the disk reports error {}",
                reply[7]
            )));
        }
        match kind {
            READ => stream.read_exact(block),
            _ => Ok(()),
        }
    }

    fn call(&mut self, kind: u16, offset: u64, block: &mut [u8]) -> Result<()> {
        let begun = Instant::now();
        while let Err(error) = self.attempt(kind, offset, block) {
            self.stream = None;
            if error.kind() == io::ErrorKind::Other || begun.elapsed() > PATIENCE {
                return Err(error).context("the disk at the socket");
            }
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Blocks for NbdClient {
    fn write(&mut self, offset: u64, block: &[u8]) -> Result<()> {
        self.call(WRITE, offset, &mut block.to_vec())
    }

    fn read(&mut self, offset: u64, block: &mut [u8]) -> Result<()> {
        self.call(READ, offset, block)
    }
}
