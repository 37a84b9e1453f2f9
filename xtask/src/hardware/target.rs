use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::machines::Machines;
use super::ports::TARGET;
use super::shell::{Shell, quote, sh};
use super::spdk::Spdk;

pub(super) const NQN: &str = "nqn.2026-11.io.cairn:hardware";
pub(super) const PORT: u16 = 4420;
const START: Duration = Duration::from_secs(60);
pub(super) const EVERY: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Kind {
    Cairn,
    Nvmet,
    Spdk,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cairn => "cairn",
            Self::Nvmet => "nvmet",
            Self::Spdk => "spdk",
        }
    }
}

/// Returns the path of the disk to export, quoted for a shell.
pub(super) fn open_disk(path: Option<&Path>, far: &Shell) -> Result<String> {
    if let Some(path) = path {
        let path = quote(&path.to_string_lossy());
        let test = far.run(&format!("test -e {path}"));
        test.with_context(|| format!("no disk at {path}: name a block device"))?;
        return Ok(path);
    }
    let folder = "/sys/kernel/config/nullb/cairn_hardware";
    far.undo(&format!("echo 0 > {folder}/power; rmdir {folder}"))?;
    far.run(&format!(
        "modprobe configfs; modprobe null_blk nr_devices=0
         mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
         mkdir {folder}
         cd {folder}
         echo 256 > size; echo 4096 > blocksize; echo 1 > memory_backed; echo 1 > power
         for each in $(seq 300); do
             for disk in /dev/cairn_hardware /dev/nullb$(cat index); do
                 [ ! -e $disk ] || {{ echo $disk; exit 0; }}
             done
             sleep 0.1
         done
         echo 'udev made no device' >&2; exit 1"
    ))
    .context("cannot make a disk of memory by null_blk: name another by --disk")
}

pub(super) struct Targets<'a> {
    pub(super) machines: &'a Machines,
    pub(super) cairn: String,
    pub(super) spdk: Option<Spdk>,
    pub(super) disk: String,
}

impl Targets<'_> {
    pub(super) fn start(&self, kind: Kind) -> Result<Target<'_>> {
        let far = self.machines.far();
        let process = match kind {
            Kind::Cairn => Some(self.start_cairn()?),
            Kind::Nvmet => {
                far.undo(&close_nvmet())?;
                far.run(&open_nvmet(&self.disk))
                    .context("cannot configure nvmet")?;
                None
            }
            Kind::Spdk => {
                let spdk = self.spdk.as_ref().context("SPDK is absent")?;
                Some(spdk.start(&self.disk, far)?)
            }
        };
        Ok(Target { kind, process, far })
    }

    fn start_cairn(&self) -> Result<u32> {
        let far = self.machines.far();
        let (program, disk, folder) = (&self.cairn, &self.disk, far.folder());
        let pid = far.spawn(&format!(
            "exec {program} serve --provider verbs --control off --nqn {NQN} \
                 --listen {TARGET}:{PORT} --export {disk} \
                 > {folder}/cairn.stdout 2>> {folder}/cairn.log"
        ))?;
        far.run(&format!(
            "for each in $(seq 500); do
                 ! grep -qsx ready {folder}/cairn.stdout || exit 0
                 kill -0 {pid} 2> /dev/null || break
                 sleep 0.1
             done
             tail -n 10 {folder}/cairn.log >&2; exit 1"
        ))
        .context("cairn-target did not start")?;
        Ok(pid)
    }
}

pub(super) struct Target<'a> {
    kind: Kind,
    process: Option<u32>,
    far: &'a Shell,
}

impl Target<'_> {
    pub(super) fn pid(&self) -> Option<u32> {
        self.process
    }

    pub(super) fn kill(self) -> Result<()> {
        match self.process {
            Some(pid) => self.far.end(pid, "KILL").map(drop),
            None => Ok(()),
        }
    }

    pub(super) fn stop(self) -> Result<()> {
        let Some(pid) = self.process else {
            let closed = self.far.run(&close_nvmet());
            return closed
                .context("cannot remove nvmet's configuration")
                .map(drop);
        };
        let status = self.far.end(pid, "TERM")?;
        ensure!(
            status == 0 || self.kind != Kind::Cairn,
            "cairn-target ended with {status}"
        );
        Ok(())
    }
}

fn open_nvmet(disk: &str) -> String {
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
         ln -s /sys/kernel/config/nvmet/subsystems/{NQN} ports/7471/subsystems/{NQN}"
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
