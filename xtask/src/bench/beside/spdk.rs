//! NVMe/TCP target and benchmark of SPDK, from a build tree.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::super::neighbour::Neighbour;
use super::super::programs;

pub(super) const HOW_TO_BUILD: &str = "\
Give the build tree of an SPDK by --spdk DIR. To build one beside this repository:

  git clone --recurse-submodules https://github.com/spdk/spdk && cd spdk
  sudo scripts/pkgdep.sh
  ./configure --disable-tests --disable-unit-tests --disable-examples
  make -j

It takes about ten minutes and 3 GB. No huge pages and no device are needed.";

const NQN: &str = "nqn.2026-01.org.example:spdk";
const PORT: u16 = 4420;
const DISK_MIB: u32 = 256;
const MEMORY_MIB: u32 = 1024;
const START_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) struct Spdk {
    folder: PathBuf,
}

pub(super) struct Job {
    pub(super) rw: String,
    pub(super) bytes: u32,
    pub(super) depth: u32,
    pub(super) seconds: u32,
}

#[derive(Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) iops: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) p999_us: f64,
    pub(super) max_us: f64,
}

impl Spdk {
    pub(super) fn find(folder: &Path) -> Result<Self> {
        for program in ["nvmf_tgt", "spdk_nvme_perf"] {
            let path = folder.join("build/bin").join(program);
            ensure!(
                path.is_file(),
                "{} is missing: build SPDK there, or give another folder by --spdk\n\n{HOW_TO_BUILD}",
                path.display()
            );
        }
        let folder = folder.canonicalize()?;
        Ok(Self { folder })
    }

    pub(super) fn version(&self) -> String {
        let text = fs::read_to_string(self.folder.join("VERSION"));
        text.map_or("unknown version".to_owned(), |text| text.trim().to_owned())
    }

    /// Between samples, no SPDK target may run: it polls even when idle.
    pub(super) fn measure(
        &self,
        job: &Job,
        (target_core, host_core): (usize, usize),
        folder: &Path,
    ) -> Result<Sample> {
        let target = self.serve(target_core, host_core, folder)?;
        let said = run(&mut self.perf(job, host_core))?;
        target.stop()?;
        Sample::read(&said).with_context(|| format!("the output of spdk_nvme_perf:\n{said}"))
    }

    pub(super) fn with_neighbour(
        &self,
        job: &Job,
        neighbour: &Job,
        (target_core, host_core): (usize, usize),
        folder: &Path,
    ) -> Result<Sample> {
        let target = self.serve(target_core, host_core, folder)?;
        let beside = Neighbour::start(&mut self.perf(neighbour, host_core))?;
        let said = run(&mut self.perf(job, host_core))?;
        Sample::read(&beside.outlasted()?).context("the neighbour's output")?;
        target.stop()?;
        Sample::read(&said).with_context(|| format!("the output of spdk_nvme_perf:\n{said}"))
    }

    fn serve(&self, target_core: usize, host_core: usize, folder: &Path) -> Result<Target> {
        let target = self.start(target_core, folder)?;
        let fill = Job {
            rw: "write".to_owned(),
            bytes: 1 << 20,
            depth: 4,
            seconds: 1,
        };
        run(&mut self.perf(&fill, host_core))?;
        Ok(target)
    }

    fn start(&self, core: usize, folder: &Path) -> Result<Target> {
        let configuration = folder.join("spdk.json");
        fs::write(&configuration, configured().to_string())?;
        let log = fs::File::create(folder.join("spdk.log"))?;
        let mut child = Command::new(self.program("nvmf_tgt"))
            .args(["--no-huge", "-s", &MEMORY_MIB.to_string()])
            .args(["-m", &format!("{:#x}", 1 << core)])
            .arg("-r")
            .arg(folder.join("spdk.sock"))
            .arg("--json")
            .arg(&configuration)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot run nvmf_tgt")?;
        let latest = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT))).is_err() {
            let said = || fs::read_to_string(folder.join("spdk.log")).unwrap_or_default();
            if child.try_wait()?.is_some() {
                bail!("nvmf_tgt ended:\n{}", said());
            }
            if Instant::now() > latest {
                let _ = child.kill();
                bail!(
                    "nvmf_tgt does not listen after {START_TIMEOUT:?}:\n{}",
                    said()
                );
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(Target { child })
    }

    fn perf(&self, job: &Job, core: usize) -> Command {
        let mut command = programs::pinned(core, self.program("spdk_nvme_perf"));
        command
            .args(["--no-huge", "-s", &MEMORY_MIB.to_string(), "-L"])
            .args(["-c", &format!("{:#x}", 1 << core)])
            .args(["-q", &job.depth.to_string()])
            .args(["-o", &job.bytes.to_string()])
            .args(["-t", &job.seconds.to_string()])
            .args(["-w", &job.rw])
            .arg("-r")
            .arg(format!(
                "trtype:TCP adrfam:IPv4 traddr:127.0.0.1 trsvcid:{PORT} subnqn:{NQN}"
            ));
        command
    }

    fn program(&self, name: &str) -> PathBuf {
        self.folder.join("build/bin").join(name)
    }
}

fn run(perf: &mut Command) -> Result<String> {
    let output = perf.stdin(Stdio::null()).output();
    let output = output.context("cannot run spdk_nvme_perf")?;
    ensure!(
        output.status.success(),
        "spdk_nvme_perf ended with {}:\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn configured() -> serde_json::Value {
    let disk =
        json!({"name": "Malloc0", "block_size": 4096, "num_blocks": u64::from(DISK_MIB) << 8});
    let namespace = json!({"nqn": NQN, "namespace": {"bdev_name": "Malloc0"}});
    let address = json!({"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": PORT.to_string()});
    let call = |method: &str, params| json!({"method": method, "params": params});
    json!({"subsystems": [
        {"subsystem": "bdev", "config": [call("bdev_malloc_create", disk)]},
        {"subsystem": "nvmf", "config": [
            call("nvmf_create_transport", json!({"trtype": "TCP"})),
            call("nvmf_create_subsystem", json!({"nqn": NQN, "allow_any_host": true})),
            call("nvmf_subsystem_add_ns", namespace),
            call("nvmf_subsystem_add_listener", json!({"nqn": NQN, "listen_address": address})),
        ]},
    ]})
}

impl Sample {
    fn read(text: &str) -> Result<Self> {
        let total = text.lines().find_map(|line| {
            let (head, figures) = line.split_once(':')?;
            (head.trim() == "Total").then_some(figures)
        });
        let total = total.context("no line of the total")?;
        let figures = total.split_whitespace().map(str::parse::<f64>);
        let figures = figures.collect::<Result<Vec<f64>, _>>()?;
        let [iops, _, _, _, max_us] = figures[..] else {
            bail!("the line of the total has not five figures: {total}");
        };
        let percentile = |wanted: f64| -> Result<f64> {
            let line = text.lines().find_map(|line| {
                let (percent, us) = line.split_once("% :")?;
                (percent.trim().parse() == Ok(wanted)).then_some(us)
            });
            let us = line.with_context(|| format!("no percentile {wanted}"))?;
            Ok(us.trim().trim_end_matches("us").parse()?)
        };
        Ok(Self {
            iops,
            p50_us: percentile(50.0)?,
            p99_us: percentile(99.0)?,
            p999_us: percentile(99.9)?,
            max_us,
        })
    }
}

struct Target {
    child: Child,
}

impl Target {
    fn stop(mut self) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).context("cannot stop nvmf_tgt")?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_and_its_percentiles_are_read() {
        let text = "\
Device Information                    :       IOPS      MiB/s    Average        min        max
TCP (addr:127.0.0.1 subnqn:x) NSID 1 from core  1:  366000.50  1429.69  87.33  20.10  900.25
========================================================
Total                                 :  366000.50    1429.69      87.33      20.10     900.25

Summary latency data for TCP (addr:127.0.0.1 subnqn:x) NSID 1 from core 1:
 50.00000% :    85.500us
 99.00000% :   150.000us
 99.90000% :   300.125us
 99.99000% :   800.000us
";
        let expected = Sample {
            iops: 366_000.5,
            p50_us: 85.5,
            p99_us: 150.0,
            p999_us: 300.125,
            max_us: 900.25,
        };
        assert_eq!(Sample::read(text).unwrap(), expected);
        assert!(Sample::read("").is_err());
    }
}
