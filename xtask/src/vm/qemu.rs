//! One boot of the machine, from power on to power off, within bounds.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::lab::Lab;
use super::lan;
use super::process;
use super::scenario::{Network, NvmeNamespace, Options, Variable};
use super::tree::Tree;

/// The guest's console, in a scenario's folder.
pub(crate) const CONSOLE_LOG: &str = "console.log";

/// What QEMU itself has to say, in a scenario's folder.
pub(crate) const QEMU_LOG: &str = "qemu.log";

/// A scenario's second disk; it does not outlive the machine.
const DISK_IMAGE: &str = "disk.raw";

/// Size of each namespace of an NVMe drive.
const NVME_SIZE: &str = "8M";

/// Pages of 4 KiB that it moves in a command, as a power of two: two commands for 256 KiB.
const NVME_MDTS: &str = "5";

/// What a guest may take beyond its scenario's time, to boot and to collect logs, before its
/// power is cut.
const GRACE_S: u64 = 60;

/// Arguments for speed and repeatability; a panic ends the machine at once. An
/// emulated timer may come too late for the check of timers on a busy machine.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 loglevel=4 panic=-1 mitigations=off nokaslr audit=0 \
     apparmor=0 random.trust_cpu=on cryptomgr.notests net.ifnames=0 no_timer_check";

/// What to boot for.
pub(crate) struct Boot<'a> {
    /// A script's name; a shell at the console if empty.
    pub(crate) scenario: &'a str,
    /// The machine it requires.
    pub(crate) options: &'a Options,
    /// Its other settings.
    pub(crate) variables: &'a [Variable],
    /// The scenario's time, counted in the guest.
    pub(crate) timeout_s: u64,
    /// What the guest sees as `/cairn/out`.
    pub(crate) out_dir: PathBuf,
}

/// Who watches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Console {
    /// The log alone.
    Quiet,
    /// The log, and the terminal as it happens.
    Live,
    /// A person who types.
    Terminal,
}

/// How the machine stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// By itself, be it shut down or in a panic.
    PoweredOff,
    /// By us, out of patience.
    TimedOut,
}

/// Runs the machine to its end.
pub(crate) fn run(lab: &Lab, tree: &Tree, boot: &Boot<'_>, console: Console) -> Result<End> {
    let mut qemu = command(lab, tree, boot)?;
    let end = match console {
        Console::Terminal => watch_by_person(&mut qemu),
        _ => watch_by_log(&mut qemu, boot, console),
    };
    if boot.options.disk.is_some() {
        let _ = fs::remove_file(boot.out_dir.join(DISK_IMAGE));
    }
    for nsid in 1..=boot.options.nvme.len() {
        let _ = fs::remove_file(nvme_image(&boot.out_dir, nsid));
    }
    end
}

fn watch_by_person(qemu: &mut Command) -> Result<End> {
    qemu.args(["-serial", "mon:stdio"])
        .status()
        .context("cannot run qemu")?;
    Ok(End::PoweredOff)
}

fn watch_by_log(qemu: &mut Command, boot: &Boot<'_>, console: Console) -> Result<End> {
    qemu.args(["-serial", "stdio"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    qemu.stderr(File::create(boot.out_dir.join(QEMU_LOG))?);
    let mut child = qemu.spawn().context("cannot run qemu")?;
    let patience = Duration::from_secs(boot.timeout_s.saturating_add(GRACE_S));
    let end = follow_console(
        &mut child,
        &boot.out_dir.join(CONSOLE_LOG),
        console,
        patience,
    )?;
    if end == End::TimedOut {
        child.kill().context("cannot stop qemu")?;
    }
    child.wait()?;
    Ok(end)
}

/// Copies the console until the machine closes it or patience ends.
fn follow_console(
    qemu: &mut Child,
    log: &Path,
    console: Console,
    patience: Duration,
) -> Result<End> {
    let mut from = qemu.stdout.take().expect("qemu was started with a pipe");
    let mut log = File::create(log)?;
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            // The log keeps what a terminal would show, less the carriage returns.
            let text: Vec<u8> = bytes[..length]
                .iter()
                .copied()
                .filter(|b| *b != b'\r')
                .collect();
            let _ = log.write_all(&text);
            if console == Console::Live {
                let _ = io::stdout()
                    .write_all(&text)
                    .and_then(|()| io::stdout().flush());
            }
        }
        let _ = done.send(());
    });
    Ok(match ended.recv_timeout(patience) {
        Err(RecvTimeoutError::Timeout) => End::TimedOut,
        _ => End::PoweredOff,
    })
}

/// The machine. Nehalem, because rxe's ICRC is 2-3 times slower where PCLMUL is emulated; without
/// CMPXCHG16B, whose emulation now and then leaves nonsense in the flags, so that the kernel's
/// allocator double-faults; no KVM, because many machines have a /dev/kvm that opens and then
/// hangs.
fn command(lab: &Lab, tree: &Tree, boot: &Boot<'_>) -> Result<Command> {
    let mut qemu = process::command("qemu-system-x86_64");
    qemu.args(["-nodefaults", "-no-user-config", "-display", "none"]);
    if !boot.options.systemd {
        qemu.arg("-no-reboot");
    }
    if boot.options.counted {
        // Time goes by instructions, 2 ns each, however long their emulation takes.
        qemu.args(["-accel", "tcg,thread=single", "-smp", "1"]);
        qemu.args(["-icount", "shift=1,sleep=off"]);
    } else {
        qemu.args(["-accel", "tcg,thread=multi", "-smp", "2"]);
    }
    qemu.args(["-cpu", "Nehalem,cx16=off"]);
    qemu.args(["-m", &boot.options.mem, "-device", "virtio-rng-pci"]);
    qemu.arg("-kernel")
        .arg(&lab.kernel)
        .arg("-initrd")
        .arg(&lab.initramfs);
    // The kernel gives what it does not know to process 1, as environment.
    let mut variables = format!(
        "CAIRN_SCENARIO={} CAIRN_TIMEOUT_S={}",
        boot.scenario, boot.timeout_s
    );
    if boot.options.systemd {
        variables += " CAIRN_INIT=systemd";
    }
    for variable in boot.variables {
        variables += &format!(" {variable}");
    }
    qemu.args(["-append", &format!("{KERNEL_ARGUMENTS} {variables}")]);

    add_disk(&mut qemu, "root", &lab.root_image, "snapshot=on", 512);
    if let Some(size) = &boot.options.disk {
        let image = boot.out_dir.join(DISK_IMAGE);
        process::output(process::command("truncate").args(["-s", size]).arg(&image))?;
        let physical = boot.options.disk_physical;
        add_disk(
            &mut qemu,
            "disk",
            &image,
            "cache=unsafe,discard=unmap",
            physical,
        );
    }
    add_nvme(&mut qemu, &boot.options.nvme, &boot.out_dir)?;
    add_share(&mut qemu, "tests", &tree.vm_tests(), "readonly=on,");
    add_share(&mut qemu, "programs", &tree.programs(), "readonly=on,");
    add_share(&mut qemu, "out", &fs::canonicalize(&boot.out_dir)?, "");
    match &boot.options.network {
        Network::None => {
            qemu.args(["-nic", "none"]);
            Ok(qemu)
        }
        Network::Tap { beside } => {
            qemu.args(lan::card());
            lan::enclose(&qemu, tree, beside, &boot.out_dir)
        }
    }
}

fn add_disk(qemu: &mut Command, id: &str, image: &Path, options: &str, physical: u32) {
    let image = escape_commas(image);
    qemu.args([
        "-drive",
        &format!("if=none,format=raw,id={id},file={image},{options}"),
    ]);
    qemu.args([
        "-device",
        &format!("virtio-blk-pci,drive={id},physical_block_size={physical}"),
    ]);
}

/// An NVMe drive with these namespaces.
fn add_nvme(qemu: &mut Command, namespaces: &[NvmeNamespace], out_dir: &Path) -> Result<()> {
    if namespaces.is_empty() {
        return Ok(());
    }
    qemu.args([
        "-device",
        &format!("nvme,id=nvme,serial=cairn-vm,mdts={NVME_MDTS},vsl=2"),
    ]);
    for (nsid, namespace) in (1..).zip(namespaces) {
        let image = nvme_image(out_dir, nsid);
        process::output(
            process::command("truncate")
                .args(["-s", NVME_SIZE])
                .arg(&image),
        )?;
        let (drive, device) = match namespace {
            NvmeNamespace::Blocks(bytes) => ("", of_blocks(*bytes)),
            NvmeNamespace::Metadata => ("", "ms=8".to_owned()),
            NvmeNamespace::Zoned => ("", "zoned=on,zoned.zone_size=1M".to_owned()),
            NvmeNamespace::ReadOnly => (",readonly=on", of_blocks(4096)),
        };
        let image = escape_commas(&image);
        qemu.args([
            "-drive",
            &format!(
                "if=none,format=raw,id=nvme{nsid},file={image},cache=unsafe,discard=unmap{drive}"
            ),
        ]);
        // A UUID, as drives have, that is the same in each boot.
        let uuid = format!("00000000-0000-4000-8000-00000000000{nsid}");
        qemu.args([
            "-device",
            &format!("nvme-ns,bus=nvme,nsid={nsid},drive=nvme{nsid},uuid={uuid},{device}"),
        ]);
    }
    Ok(())
}

fn of_blocks(bytes: u32) -> String {
    format!("logical_block_size={bytes},physical_block_size={bytes}")
}

fn nvme_image(out_dir: &Path, nsid: usize) -> PathBuf {
    out_dir.join(format!("nvme{nsid}.raw"))
}

fn add_share(qemu: &mut Command, tag: &str, dir: &Path, access: &str) {
    let dir = escape_commas(dir);
    let fsdev = format!("local,id={tag},path={dir},{access}security_model=none,multidevs=remap");
    qemu.args(["-fsdev", &fsdev]);
    qemu.args([
        "-device",
        &format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}"),
    ]);
}

/// QEMU reads a comma as the end of a value, and two as one.
fn escape_commas(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}
