use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::ports::TARGET;
use super::undo::{Undo, sh};
use crate::vm::process::{command, tail};

pub(super) const NQN: &str = "nqn.2026-11.io.cairn:hardware";
const PORT: u16 = 4420;
const START: Duration = Duration::from_secs(60);
pub(super) const EVERY: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Kind {
    Cairn,
    Nvmet,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cairn => "cairn",
            Self::Nvmet => "nvmet",
        }
    }
}

pub(super) struct Disk(PathBuf);

impl Disk {
    pub(super) fn open(path: Option<&Path>, undo: &mut Undo) -> Result<Self> {
        if let Some(path) = path {
            ensure!(
                path.exists(),
                "no disk at {}: name a block device",
                path.display()
            );
            return Ok(Self(path.to_owned()));
        }
        let folder = "/sys/kernel/config/nullb/cairn_hardware";
        undo.by(&format!("echo 0 > {folder}/power; rmdir {folder}"))?;
        let index = sh(&format!(
            "modprobe configfs; modprobe null_blk nr_devices=0
             mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
             mkdir {folder}
             cd {folder}
             echo 256 > size; echo 4096 > blocksize; echo 1 > memory_backed; echo 1 > power
             cat index"
        ))
        .context("cannot make a disk of memory by null_blk: name another by --disk")?;
        let named = PathBuf::from("/dev/cairn_hardware");
        let numbered = PathBuf::from(format!("/dev/nullb{}", index.trim()));
        wait_until(START, "the disk of null_blk", || {
            named.exists() || numbered.exists()
        })?;
        Ok(Self(if named.exists() { named } else { numbered }))
    }
}

pub(super) struct Target {
    kind: Kind,
    process: Option<Child>,
}

impl Target {
    pub(super) fn start(
        kind: Kind,
        program: &Path,
        disk: &Disk,
        out: &Path,
        undo: &mut Undo,
    ) -> Result<Self> {
        let process = match kind {
            Kind::Cairn => Some(start_cairn(program, disk, out)?),
            Kind::Nvmet => {
                undo.by(&close_nvmet())?;
                sh(&open_nvmet(disk)).context("cannot configure nvmet")?;
                None
            }
        };
        Ok(Self { kind, process })
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    pub(super) fn kill(mut self) -> Result<()> {
        if let Some(process) = &mut self.process {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    pub(super) fn stop(mut self) -> Result<()> {
        match (self.kind, &mut self.process) {
            (Kind::Cairn, Some(process)) => {
                sh(&format!("kill -TERM {}", process.id()))?;
                let status = process.wait()?;
                ensure!(status.success(), "cairn-target ended with {status}");
            }
            _ => drop(sh(&close_nvmet()).context("cannot remove nvmet's configuration")?),
        }
        Ok(())
    }
}

fn start_cairn(program: &Path, disk: &Disk, out: &Path) -> Result<Child> {
    let log = out.join("cairn-target.log");
    let stdout = out.join("cairn-target.stdout");
    let mut process = command("setpriv")
        .args(["--pdeathsig", "KILL"])
        .arg(program)
        .args(["serve", "--provider", "verbs", "--control", "off"])
        .args(["--nqn", NQN, "--listen", &format!("{TARGET}:{PORT}")])
        .arg("--export")
        .arg(&disk.0)
        .stdout(File::create(&stdout)?)
        .stderr(File::options().create(true).append(true).open(&log)?)
        .spawn()
        .context("cannot run setpriv")?;
    wait_until(START, "cairn-target to be ready", || {
        let said = fs::read_to_string(&stdout).unwrap_or_default();
        said.lines().any(|line| line == "ready") || matches!(process.try_wait(), Ok(Some(_)))
    })?;
    if let Some(status) = process.try_wait()? {
        bail!("cairn-target ended with {status}:\n{}", tail(&log, 10)?);
    }
    Ok(process)
}

fn open_nvmet(disk: &Disk) -> String {
    format!(
        "modprobe nvmet-rdma
         mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
         cd /sys/kernel/config/nvmet
         mkdir subsystems/{NQN} subsystems/{NQN}/namespaces/1 ports/7471
         echo 1 > subsystems/{NQN}/attr_allow_any_host
         echo {disk} > subsystems/{NQN}/namespaces/1/device_path
         echo 1 > subsystems/{NQN}/namespaces/1/enable
         echo rdma > ports/7471/addr_trtype
         echo ipv4 > ports/7471/addr_adrfam
         echo {TARGET} > ports/7471/addr_traddr
         echo {PORT} > ports/7471/addr_trsvcid
         ln -s /sys/kernel/config/nvmet/subsystems/{NQN} ports/7471/subsystems/{NQN}",
        disk = disk.0.display()
    )
}

fn close_nvmet() -> String {
    format!(
        "cd /sys/kernel/config/nvmet && rm -f ports/7471/subsystems/{NQN} && rmdir ports/7471 \
         subsystems/{NQN}/namespaces/1 subsystems/{NQN}"
    )
}

pub(super) fn connect() -> Result<PathBuf> {
    sh(&format!(
        "modprobe nvme-rdma; nvme connect -t rdma -a {TARGET} -s {PORT} -n {NQN} --reconnect-delay=1 --ctrl-loss-tmo=600"
    ))
    .context("the host cannot connect")?;
    let mut found = None;
    wait_until(START, "the namespace", || {
        found = device();
        found.is_some()
    })?;
    found.context("the namespace disappeared")
}

pub(super) fn disconnect() -> Result<()> {
    sh(&format!("nvme disconnect -n {NQN}")).map(drop)
}

pub(super) fn is_host_disconnected() -> bool {
    let Ok(controllers) = fs::read_dir("/sys/class/nvme") else {
        return false;
    };
    controllers.flatten().any(|controller| {
        let read = |name| fs::read_to_string(controller.path().join(name)).unwrap_or_default();
        read("subsysnqn").trim() == NQN && read("state").trim() == "connecting"
    })
}

fn device() -> Option<PathBuf> {
    let disks = fs::read_dir("/sys/block").ok()?;
    disks.flatten().find_map(|disk| {
        let name = disk.file_name().into_string().ok()?;
        let nqn = fs::read_to_string(disk.path().join("device/subsysnqn")).ok()?;
        let device = Path::new("/dev").join(&name);
        let is_path = name.strip_prefix("nvme")?.contains('c');
        (nqn.trim() == NQN && !is_path && device.exists()).then_some(device)
    })
}

pub(super) fn wait_until(
    limit: Duration,
    what: &str,
    mut done: impl FnMut() -> bool,
) -> Result<()> {
    let deadline = Instant::now() + limit;
    while !done() {
        ensure!(
            Instant::now() < deadline,
            "timed out after {limit:?} waiting for {what}"
        );
        sleep(EVERY);
    }
    Ok(())
}
