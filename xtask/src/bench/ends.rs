//! Target and host processes, pinned to cores and restarted per sample.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{self, available_parallelism};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::cell::{Backend, Cell, Provider};
use super::counters::Counters;
use super::cpu_time::CpuTime;
use super::item::Item;
use super::neighbour::{self, Neighbour};
use super::programs;
use super::sample::Sample;
use crate::fio_report::Report;
use crate::vm::tree::create_dir;

const START_TIMEOUT: Duration = Duration::from_secs(10);

const DISK: &str = "256MiB";

pub(super) struct Stage {
    pub(super) programs: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) addresses: (IpAddr, IpAddr),
    pub(super) neighbour: IpAddr,
    pub(super) cores: (usize, usize),
    pub(super) seconds: f64,
    pub(super) own_disk: Option<PathBuf>,
    /// Counters after filling a memory disk, which are subtracted from each sample's counters.
    pub(super) filling: Counters,
}

impl Stage {
    /// `device` is the address of an RDMA device. For `None`, target and host use loopback
    /// addresses that contain this process's ID, so that their UDP ports are free.
    pub(super) fn new(
        programs: PathBuf,
        folder: &Path,
        device: Option<IpAddr>,
        seconds: f64,
    ) -> Result<Self> {
        create_dir(folder)?;
        let folder = folder.canonicalize()?;
        let [.., high, low] = std::process::id().to_be_bytes();
        let own = |last| IpAddr::V4(Ipv4Addr::new(127, high, low, last));
        let several = available_parallelism().is_ok_and(|count| count.get() > 1);
        Ok(Self {
            programs,
            folder,
            addresses: device.map_or((own(1), own(2)), |device| (device, device)),
            neighbour: device.unwrap_or(own(3)),
            cores: (0, usize::from(several)),
            seconds,
            own_disk: None,
            filling: Counters::default(),
        })
    }

    pub(super) fn name(&self) -> String {
        let name = self.folder.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    pub(super) fn prepare(&mut self, items: &[Item]) -> Result<()> {
        let needs_file = |item: &Item| match item {
            Item::Cell(cell) => cell.backend == Backend::File,
            Item::Disk(_) => self.own_disk.is_none(),
            Item::Link => false,
        };
        if items.iter().any(needs_file) {
            programs::write_image(&self.disk_image())?;
        }
        let cells = items.iter().filter_map(Item::cell);
        let mut filled = cells
            .filter(|cell| cell.backend == Backend::Mem && cell.provider != Provider::Loopback);
        if let Some(cell) = filled.next() {
            let target = Target::start(self, cell)?;
            self.fill(cell)?;
            self.filling = Counters::of_log(&target.stop()?);
        }
        Ok(())
    }

    pub(super) fn clear(&self) {
        for file in ["disk.img", "target.toml", "target.log"] {
            let _ = fs::remove_file(self.folder.join(file));
        }
    }

    pub(super) fn measure(&self, cell: &Cell) -> Result<Sample> {
        if cell.provider == Provider::Loopback {
            return self.measure_in_one_process(cell);
        }
        self.watched(cell, |_| Ok(()))
    }

    pub(super) fn watched(
        &self,
        cell: &Cell,
        watch: impl FnOnce(u32) -> Result<()> + Send,
    ) -> Result<Sample> {
        let target = Target::start(self, cell)?;
        if cell.backend == Backend::Mem {
            self.fill(cell)?;
        }
        let pid = target.child.id();
        let before = CpuTime::of_process(pid);
        let (report, watched) = thread::scope(|scope| {
            let watcher = scope.spawn(move || watch(pid));
            let report = self.run_host(cell, self.job(cell, self.seconds));
            (report, watcher.join().expect("it does not panic"))
        });
        let report = report?;
        watched?;
        let busy = CpuTime::of_process(pid) - before;
        let log = target.stop()?;
        let mut counters = Counters::of_log(&log);
        if cell.backend == Backend::Mem {
            counters = counters.without(&self.filling);
        }
        Ok(Sample {
            report,
            target: Some(busy),
            counters,
        })
    }

    pub(super) fn with_neighbour(&self, cell: &Cell, neighbour: &Cell) -> Result<Report> {
        let target = Target::start(self, cell)?;
        self.fill(cell)?;
        let seconds = neighbour::covering(self.seconds);
        let mut command = self.host(neighbour, self.neighbour);
        command.args(self.job(neighbour, seconds));
        let beside = Neighbour::start(&mut command)?;
        let report = self.run_host(cell, self.job(cell, self.seconds))?;
        Report::read(&beside.outlasted()?).context("the neighbour's report")?;
        target.stop()?;
        Ok(report)
    }

    /// Runs target and host in one process, pinned to the host's core. The target's reactor is
    /// pinned to the target's core.
    fn measure_in_one_process(&self, cell: &Cell) -> Result<Sample> {
        let program = self.programs.join("cairn-bench-loopback");
        let mut command = programs::pinned(self.cores.1, program);
        command
            .arg(format!("--export={}", self.export(cell)))
            .arg(format!("--core={}", self.cores.0))
            .args((cell.backend == Backend::Mem).then_some("--fill"))
            .args(self.keys(cell, self.seconds));
        Ok(Sample {
            report: programs::report(&mut command)?,
            target: None,
            counters: Counters::default(),
        })
    }

    fn job(&self, cell: &Cell, seconds: f64) -> impl Iterator<Item = String> {
        let keys = self.keys(cell, seconds).into_iter();
        let destroys = cell.workload.writes().then(|| "--destroy-data".to_owned());
        keys.map(|key| format!("--{key}")).chain(destroys)
    }

    fn keys(&self, cell: &Cell, seconds: f64) -> Vec<String> {
        let own = [
            format!("bs={}", cell.size.0),
            format!("iodepth={}", cell.depth.0),
            format!("numjobs={}", cell.queue_pairs.0),
            format!("runtime={}us", (seconds * 1e6) as u64),
        ];
        let fixed = ["time_based=1", "norandommap=1", "group_reporting=1"];
        let fixed = cell.workload.keys().iter().chain(&fixed);
        own.into_iter()
            .chain(fixed.map(|key| (*key).to_owned()))
            .collect()
    }

    /// Writes the whole memory disk: otherwise, all reads would access one page, and writes would
    /// allocate pages.
    fn fill(&self, cell: &Cell) -> Result<()> {
        let keys = ["--rw=write", "--destroy-data", "--bs=1m", "--iodepth=4"];
        self.run_host(cell, keys.map(str::to_owned).into_iter())
            .map(drop)
    }

    fn run_host(&self, cell: &Cell, keys: impl Iterator<Item = String>) -> Result<Report> {
        programs::report(self.host(cell, self.addresses.1).args(keys))
    }

    fn host(&self, cell: &Cell, address: IpAddr) -> Command {
        let mut command = programs::pinned(self.cores.1, self.programs.join("cairn-initiator"));
        command
            .arg("bench")
            .args(["-a", &self.addresses.0.to_string()])
            .args(["-w", &address.to_string()])
            .args(["--provider", &cell.provider.to_string()])
            .args(["--eta=never", "--output-format=json"]);
        command
    }

    fn disk_image(&self) -> PathBuf {
        self.folder.join("disk.img")
    }

    pub(super) fn disk(&self) -> PathBuf {
        self.own_disk.clone().unwrap_or_else(|| self.disk_image())
    }

    fn export(&self, cell: &Cell) -> String {
        match cell.backend {
            Backend::Null => format!("null:{DISK}"),
            Backend::Mem => format!("mem:{DISK}"),
            Backend::File => self.disk_image().display().to_string(),
        }
    }

    fn configuration(&self, cell: &Cell) -> String {
        let export = self.export(cell);
        let (address, core) = (self.addresses.0, self.cores.0);
        let provider = cell.provider;
        format!(
            "[target]\ncores = [{core}]\n\n\
             [[listener]]\naddress = \"{address}\"\nprovider = \"{provider}\"\n\n\
             [[subsystem]]\nnqn = \"nqn.2026-01.org.example:bench\"\nallow_any_host = true\n\n\
             [[subsystem.namespace]]\nnsid = 1\nexport = \"{export}\"\nblock_size = 4096\n"
        )
    }
}

struct Target {
    child: Child,
    log: PathBuf,
}

impl Target {
    fn start(stage: &Stage, cell: &Cell) -> Result<Self> {
        let configuration = stage.folder.join("target.toml");
        fs::write(&configuration, stage.configuration(cell))
            .with_context(|| format!("cannot write {}", configuration.display()))?;
        let log = stage.folder.join("target.log");
        let errors = fs::File::create(&log)?;
        let mut child = Command::new(stage.programs.join("cairn-target"))
            .args(["serve", "--config"])
            .arg(&configuration)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .with_context(|| format!("cannot run cairn-target of {}", stage.programs.display()))?;
        let stdout = child.stdout.take().expect("it is piped");
        let target = Self { child, log };
        target.wait_until_ready(stdout)?;
        Ok(target)
    }

    fn wait_until_ready(&self, stdout: impl std::io::Read + Send + 'static) -> Result<()> {
        let (sender, ready) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if line == "ready" {
                    let _ = sender.send(());
                }
            }
        });
        match ready.recv_timeout(START_TIMEOUT) {
            Ok(()) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => bail!("cairn-target ended:\n{}", self.said()),
            Err(RecvTimeoutError::Timeout) => {
                bail!(
                    "cairn-target does not listen after {START_TIMEOUT:?}:\n{}",
                    self.said()
                )
            }
        }
    }

    fn stop(mut self) -> Result<String> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).context("cannot stop cairn-target")?;
        let status = self.child.wait()?;
        ensure!(
            status.success(),
            "cairn-target ended with {status}:\n{}",
            self.said()
        );
        Ok(self.said())
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn check_device(provider: Provider, sysfs: &Path) -> Result<()> {
    let has_device = || {
        let entries = fs::read_dir(sysfs.join("class/infiniband"));
        entries.is_ok_and(|mut entries| entries.next().is_some())
    };
    ensure!(
        provider != Provider::Verbs || has_device(),
        "--provider verbs needs an RDMA device, and this machine has none \
         (/sys/class/infiniband is empty); `cargo xtask vm bench` measures verbs over rdma_rxe"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_require_a_device() {
        let sysfs = tempfile::tempdir().unwrap();
        let error = check_device(Provider::Verbs, sysfs.path()).unwrap_err();
        assert!(
            error.to_string().contains("needs an RDMA device"),
            "{error}"
        );
        check_device(Provider::Soft, sysfs.path()).unwrap();
        fs::create_dir_all(sysfs.path().join("class/infiniband/rxe0")).unwrap();
        check_device(Provider::Verbs, sysfs.path()).unwrap();
    }
}
