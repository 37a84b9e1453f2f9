//! The two ends of a measurement: a target and a host, each a process of its own
//! on a core of its own. Both are started for each sample, so that no sample
//! inherits another's memory, queues or luck.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::cell::{Backend, Cell, Provider};
use super::cpu_time::CpuTime;
use super::sample::Sample;

/// How long a target may take to listen.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of the exported disk: more than any cache of a processor.
pub(super) const DISK: &str = "256MiB";

/// Where the two ends are, and what they are.
pub(super) struct Stage {
    /// The folder with cairn-target and cairn-initiator.
    pub(super) programs: PathBuf,
    /// For configurations, logs and the exported file.
    pub(super) folder: PathBuf,
    /// Of the target, and of the host.
    pub(super) addresses: (IpAddr, IpAddr),
    /// Of the target's reactor, and of the host.
    pub(super) cores: (usize, usize),
    pub(super) seconds: f64,
}

impl Stage {
    /// Measures a cell once.
    pub(super) fn measure(&self, cell: &Cell) -> Result<Sample> {
        let target = Target::start(self, cell)?;
        let before = CpuTime::of_process(target.child.id());
        let report = self.run_host(cell)?;
        let busy = CpuTime::of_process(target.child.id()) - before;
        let log = target.stop()?;
        Sample::read(&report, busy, &log)
            .with_context(|| format!("the report of cairn-initiator bench: {report}"))
    }

    /// Runs the host to its end, and gives its report.
    fn run_host(&self, cell: &Cell) -> Result<String> {
        let (target, host) = self.addresses;
        let mut command = self.pinned(self.cores.1, "cairn-initiator");
        command
            .arg("bench")
            .args(["-a", &target.to_string(), "-w", &host.to_string()])
            .args(["--provider", &cell.provider.to_string()])
            .args(cell.workload.keys())
            .arg(format!("--bs={}", cell.size.0))
            .arg(format!("--iodepth={}", cell.depth.0))
            .arg(format!("--numjobs={}", cell.queue_pairs.0))
            .arg("--group_reporting")
            .args(["--norandommap", "--time_based"])
            .arg(format!("--runtime={}us", (self.seconds * 1e6) as u64))
            .args(["--eta=never", "--output-format=json"]);
        let output = command
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot run {command:?}"))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{command:?} ended with {}:\n{errors}",
            output.status
        );
        String::from_utf8(output.stdout).context("its report is no text")
    }

    /// A program of ours, on a core.
    fn pinned(&self, core: usize, program: &str) -> Command {
        let mut command = Command::new("taskset");
        command
            .args(["-c", &core.to_string()])
            .arg(self.programs.join(program));
        command
    }

    /// The file that a `file` backend exports: written, so that reads have a disk to read.
    pub(super) fn disk_image(&self) -> PathBuf {
        self.folder.join("disk.img")
    }

    fn configuration(&self, cell: &Cell) -> String {
        let export = match cell.backend {
            Backend::Null => format!("null:{DISK}"),
            Backend::Mem => format!("mem:{DISK}"),
            Backend::File => self.disk_image().display().to_string(),
        };
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

/// A running target. Killed if it is dropped.
struct Target {
    child: Child,
    log: PathBuf,
}

impl Target {
    /// Starts it, and waits until hosts may come.
    fn start(stage: &Stage, cell: &Cell) -> Result<Self> {
        let configuration = stage.folder.join("target.toml");
        fs::write(&configuration, stage.configuration(cell))
            .with_context(|| format!("cannot write {}", configuration.display()))?;
        let log = stage.folder.join("target.log");
        let errors = fs::File::create(&log)?;
        // Not pinned as a process: its reactor pins itself, and whatever else it
        // does shall not take that core.
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
        // Reads to the end, so that the target never finds its stdout full.
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

    /// Ends it in order, and gives its log.
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
        // It has ended already, if all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether there is what a provider needs.
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
    fn verbs_want_a_device() {
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
