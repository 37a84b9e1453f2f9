//! Kernel of the distribution with its modules: downloaded and unpacked, not installed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::host::Host;
use super::process::{self, Log};
use super::tree::create_dir;

pub(crate) const VMLINUZ: &str = "vmlinuz";
/// Folder that contains `lib/modules/VERSION`.
const TREE: &str = "tree";
/// File with the kernel version, as printed by `uname -r`.
const VERSION: &str = "version";

/// Modules for hardware that guests lack; they make up most of the size.
const BULKY: [&str; 20] = [
    "sound",
    "drivers/accel",
    "drivers/ata",
    "drivers/bluetooth",
    "drivers/gpu",
    "drivers/hid",
    "drivers/iio",
    "drivers/infiniband/hw",
    "drivers/input",
    "drivers/media",
    "drivers/mfd",
    "drivers/mtd",
    "drivers/net/can",
    "drivers/net/ethernet",
    "drivers/net/usb",
    "drivers/net/wireless",
    "drivers/net/wwan",
    "drivers/staging",
    "drivers/thunderbolt",
    "drivers/usb",
];

pub(crate) fn build(host: &Host, dir: &Path, log: &Log) -> Result<()> {
    host.refresh_package_lists()?;
    let unpacked = dir.join("unpacked");
    download_and_unpack(host, &kernel_packages(host)?, &unpacked, log)?;

    let version = kernel_version(&unpacked)?;
    fs::rename(
        unpacked.join("boot").join(format!("vmlinuz-{version}")),
        dir.join(VMLINUZ),
    )
    .context("the kernel package has no kernel where one is expected")?;
    fs::write(dir.join(VERSION), &version)?;
    let modules = dir.join(TREE).join("lib/modules").join(&version);
    create_dir(modules.parent().expect("the path has folders"))?;
    fs::rename(modules_dir(&unpacked)?.join(&version), &modules)?;
    fs::remove_dir_all(&unpacked)?;

    for bulky in BULKY {
        let _ = fs::remove_dir_all(modules.join("kernel").join(bulky));
    }
    for (suffix, tool) in [("xz", "xz"), ("zst", "zstd")] {
        let mut find = process::command("find");
        find.arg(&modules)
            .args(["-name", &format!("*.ko.{suffix}")]);
        let unpack = ["-exec", tool, "-d", "-q", "{}", "+"];
        log.run(find.args(unpack))?;
        if suffix == "zst" {
            let mut sweep = process::command("find");
            log.run(sweep.arg(&modules).args(["-name", "*.ko.zst", "-delete"]))?;
        }
    }
    log.run(
        process::command("depmod")
            .arg("-b")
            .arg(dir.join(TREE))
            .arg(&version),
    )
}

pub(crate) fn version(kernel_dir: &Path) -> Result<String> {
    fs::read_to_string(kernel_dir.join(VERSION)).context("the kernel layer has no version")
}

pub(crate) fn tree(kernel_dir: &Path) -> PathBuf {
    kernel_dir.join(TREE)
}

pub(crate) fn download_and_unpack(
    host: &Host,
    packages: &[String],
    into: &Path,
    log: &Log,
) -> Result<()> {
    let archives = into.with_extension("debs");
    create_dir(&archives)?;
    let mut apt = host.apt("apt-get");
    apt.args(["-o", "APT::Sandbox::User=root", "download"])
        .args(packages);
    log.run(apt.current_dir(&archives))?;
    for archive in fs::read_dir(&archives)? {
        let mut dpkg = process::command("dpkg-deb");
        log.run(dpkg.arg("-x").arg(archive?.path()).arg(into))?;
    }
    fs::remove_dir_all(&archives)?;
    Ok(())
}

/// Packages of the distribution's newest kernel and its modules, on which linux-image-amd64
/// depends.
fn kernel_packages(host: &Host) -> Result<Vec<String>> {
    let names = host.kernel_packages();
    let mut open: Vec<String> = names
        .iter()
        .find(|name| depends(host, name).is_ok_and(|found| !found.is_empty()))
        .map(|name| vec![(*name).to_owned()])
        .with_context(|| format!("apt offers none of {}", names.join(", ")))?;
    let mut found = BTreeSet::new();
    while let Some(name) = open.pop() {
        for dependency in depends(host, &name)? {
            if found.insert(dependency.clone()) {
                open.push(dependency);
            }
        }
    }
    Ok(found.into_iter().collect())
}

fn depends(host: &Host, package: &str) -> Result<Vec<String>> {
    let listed = process::output(host.apt("apt-cache").args(["depends", package]))?;
    let names = listed
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "));
    Ok(names
        .filter(|name| is_kernel_part(name))
        .map(str::to_owned)
        .collect())
}

fn is_kernel_part(package: &str) -> bool {
    ["linux-image-", "linux-modules-", "linux-modules-extra-"]
        .iter()
        .any(|prefix| {
            let rest = package.strip_prefix(prefix).unwrap_or_default();
            rest.starts_with(|c: char| c.is_ascii_digit())
        })
}

fn modules_dir(unpacked: &Path) -> Result<PathBuf> {
    let places = ["lib/modules", "usr/lib/modules"].map(|place| unpacked.join(place));
    places
        .into_iter()
        .find(|dir| dir.exists())
        .context("the kernel packages have no modules")
}

fn kernel_version(unpacked: &Path) -> Result<String> {
    let versions: Vec<_> = fs::read_dir(modules_dir(unpacked)?)?.collect::<Result<_, _>>()?;
    ensure!(
        versions.len() == 1,
        "found {} kernel versions instead of one",
        versions.len()
    );
    Ok(versions[0].file_name().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::is_kernel_part;

    #[test]
    fn only_versioned_kernel_packages_are_parts() {
        assert!(is_kernel_part("linux-image-6.12.117+deb12-amd64"));
        assert!(is_kernel_part("linux-modules-extra-6.8.0-31-generic"));
        assert!(!is_kernel_part("linux-image-amd64"));
        assert!(!is_kernel_part("linux-firmware"));
        assert!(!is_kernel_part("initramfs-tools"));
    }
}
