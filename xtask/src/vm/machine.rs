//! QEMU command line for the machine of a scenario.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::lab::Files;
use super::process;
use super::scenario::{NvmeNamespace, Options};

/// Image of a scenario's second disk, deleted with the machine.
const DISK_IMAGE: &str = "disk.raw";

const VHOST_USER_SOCKET: &str = "disk.sock";

const NVME_BYTES: u32 = 8 << 20;

const PROTECTION_BYTES: u32 = 8;

/// MDTS: log2 of the 4 KiB pages in a transfer. A transfer of 256 KiB takes two commands.
const NVME_MDTS: &str = "5";

/// Kernel arguments for speed and repeatability. A panic ends the machine. The timer check is off,
/// because an emulated timer may be too late for it.
const KERNEL_ARGUMENTS: &str = "loglevel=4 panic=-1 mitigations=off nokaslr audit=0 \
     apparmor=0 random.trust_cpu=on cryptomgr.notests net.ifnames=0 no_timer_check";

pub(crate) struct Shares<'a> {
    pub(crate) tests: &'a Path,
    pub(crate) programs: &'a Path,
    pub(crate) out: &'a Path,
}

/// KVM is not used: /dev/kvm opens but hangs on many machines.
///
/// `more` is appended to the kernel command line. Unknown words become the environment of process
/// 1.
pub(crate) fn command(
    files: &Files,
    options: &Options,
    shares: &Shares<'_>,
    more: &str,
) -> Result<Command> {
    let arch = files.arch;
    let mut qemu = process::command(arch.qemu().0);
    qemu.args(["-nodefaults", "-no-user-config", "-display", "none"]);
    if !options.systemd {
        qemu.arg("-no-reboot");
    }
    if options.counted {
        // The clock advances by 2 ns for each instruction, however long its emulation takes.
        qemu.args(["-accel", "tcg,thread=single", "-smp", "1"]);
        qemu.args(["-icount", "shift=1,sleep=off"]);
    } else {
        qemu.args(["-accel", "tcg,thread=multi", "-smp", "2"]);
    }
    qemu.args(arch.machine());
    qemu.args(["-m", &options.mem, "-device", "virtio-rng-pci"]);
    qemu.arg("-kernel")
        .arg(&files.kernel)
        .arg("-initrd")
        .arg(&files.initramfs);
    let console = arch.console();
    qemu.args([
        "-append",
        &format!("console={console} {KERNEL_ARGUMENTS} {more}"),
    ]);
    if !arch.is_foreign() {
        // This device informs a restored kernel, which then reseeds its random numbers.
        qemu.args(["-device", "vmgenid,guid=auto"]);
    }

    add_disk(&mut qemu, "root", &files.root_image, "snapshot=on", 512);
    if let Some(size) = &options.disk {
        let image = shares.out.join(DISK_IMAGE);
        process::output(process::command("truncate").args(["-s", size]).arg(&image))?;
        let physical = options.disk_physical;
        add_disk(
            &mut qemu,
            "disk",
            &image,
            "cache=unsafe,discard=unmap",
            physical,
        );
    }
    if options.vhost_user {
        add_vhost_user(&mut qemu, &options.mem, shares.out);
    }
    add_nvme(&mut qemu, &options.nvme, shares.out)?;
    add_share(&mut qemu, "tests", shares.tests, "readonly=on,");
    add_share(&mut qemu, "programs", shares.programs, "readonly=on,");
    add_share(&mut qemu, "out", shares.out, "");
    Ok(qemu)
}

pub(crate) fn remove_disks(options: &Options, out: &Path) {
    if options.disk.is_some() {
        let _ = fs::remove_file(out.join(DISK_IMAGE));
    }
    for nsid in 1..=options.nvme.len() {
        let _ = fs::remove_file(nvme_image(out, nsid));
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

fn add_vhost_user(qemu: &mut Command, mem: &str, out: &Path) {
    let memory = format!("memory-backend-memfd,id=shared,share=on,size={mem}");
    qemu.args(["-object", &memory, "-machine", "memory-backend=shared"]);
    let socket = escape_commas(&out.join(VHOST_USER_SOCKET));
    let socket = format!("socket,id=served,path={socket},reconnect=1");
    let device = "vhost-user-blk-pci,chardev=served";
    qemu.args(["-chardev", &socket, "-device", device]);
}

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
        let size = image_bytes(namespace).to_string();
        process::output(process::command("truncate").args(["-s", &size]).arg(&image))?;
        let (drive, device) = match namespace {
            NvmeNamespace::Blocks(bytes) => ("", of_blocks(*bytes)),
            NvmeNamespace::Protected { bytes, kind } => (
                "",
                format!("{},ms={PROTECTION_BYTES},pi={kind}", of_blocks(*bytes)),
            ),
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
        // The namespace has a UUID, as real drives do, constant across boots.
        let uuid = format!("00000000-0000-4000-8000-00000000000{nsid}");
        qemu.args([
            "-device",
            &format!("nvme-ns,bus=nvme,nsid={nsid},drive=nvme{nsid},uuid={uuid},{device}"),
        ]);
    }
    Ok(())
}

/// QEMU keeps protection information behind the blocks.
fn image_bytes(namespace: &NvmeNamespace) -> u32 {
    match namespace {
        NvmeNamespace::Protected { bytes, .. } => {
            NVME_BYTES + NVME_BYTES / bytes * PROTECTION_BYTES
        }
        _ => NVME_BYTES,
    }
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

/// Escapes commas, which separate values in QEMU options.
pub(crate) fn escape_commas(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}
