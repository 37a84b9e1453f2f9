//! Initramfs of the guest: busybox, modules for the root file system, and a script.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::arch::Arch;
use super::host::Host;
use super::kernel;
use super::process::{self, Log};
use super::tree::create_dir;

pub(crate) const IMAGE: &str = "initramfs.gz";
pub(crate) const INIT: &str = include_str!("init.sh");

/// Modules for the disk, its file system and shared folders; dependencies are added.
const MODULES: [&str; 7] = [
    "virtio_pci",
    "virtio_blk",
    "virtio_rng",
    "crc32c_generic",
    "ext4",
    "9pnet_virtio",
    "9p",
];

/// Modules for a machine restored from a file: the clock, and the generation ID that announces the
/// restored copy.
const MODULES_OF_RESTORED: [&str; 2] = ["rtc-cmos", "vmgenid"];

pub(crate) fn build(host: &Host, kernel_dir: &Path, dir: &Path, log: &Log) -> Result<()> {
    let tree = dir.join("tree");
    for folder in ["bin", "dev", "proc", "sys", "root", "modules"] {
        create_dir(&tree.join(folder))?;
    }
    copy_busybox(host, dir, &tree, log)?;
    copy_modules(host.arch, kernel_dir, &tree)?;
    fs::write(tree.join("init"), INIT)?;
    fs::set_permissions(tree.join("init"), fs::Permissions::from_mode(0o755))?;

    let pack = "find . | cpio --quiet -o -H newc -R 0:0 | gzip -1 > ../initramfs.gz";
    log.run(process::command("sh").args(["-c", pack]).current_dir(&tree))?;
    fs::remove_dir_all(&tree)?;
    Ok(())
}

/// Extracts busybox without installing it, which would replace an ordinary busybox.
fn copy_busybox(host: &Host, dir: &Path, tree: &Path, log: &Log) -> Result<()> {
    let unpacked = dir.join("busybox");
    kernel::download_and_unpack(host, &["busybox-static".to_owned()], &unpacked, log)?;
    let places = ["bin/busybox", "usr/bin/busybox"].map(|place| unpacked.join(place));
    let busybox = places
        .iter()
        .find(|place| place.exists())
        .context("busybox-static is empty")?;
    fs::copy(busybox, tree.join("bin/busybox"))?;
    fs::remove_dir_all(&unpacked)?;
    Ok(())
}

/// Copies each module once, and writes their loading order to `modules/order`.
fn copy_modules(arch: Arch, kernel_dir: &Path, tree: &Path) -> Result<()> {
    let version = kernel::version(kernel_dir)?;
    let mut order: Vec<String> = Vec::new();
    let of_restored = MODULES_OF_RESTORED.iter().filter(|_| !arch.is_foreign());
    for module in MODULES.iter().chain(of_restored) {
        let mut modprobe = process::command("modprobe");
        modprobe
            .arg("-d")
            .arg(kernel::tree(kernel_dir))
            .args(["-S", &version, "--show-depends"]);
        let steps = process::output(modprobe.arg(module))?;
        for path in steps
            .lines()
            .filter_map(|step| step.strip_prefix("insmod "))
        {
            let path = Path::new(path.trim());
            let name = path
                .file_name()
                .context("a module without a name")?
                .to_string_lossy();
            if order.iter().all(|known| *known != name) {
                fs::copy(path, tree.join("modules").join(&*name))?;
                order.push(name.into_owned());
            }
        }
    }
    ensure!(!order.is_empty(), "modprobe named no module to load");
    order.push(String::new());
    fs::write(tree.join("modules/order"), order.join("\n"))?;
    Ok(())
}
