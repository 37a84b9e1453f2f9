//! Files for booting the guest: kernel, root file system and initramfs.

use std::path::PathBuf;

use anyhow::Result;

use super::arch::Arch;
use super::cache::Cache;
use super::host::Host;
use super::{booted, initramfs, kernel, root};

pub(crate) struct Lab {
    pub(crate) files: Files,
    pub(crate) booted: Option<PathBuf>,
}

pub(crate) struct Files {
    pub(crate) arch: Arch,
    pub(crate) kernel: PathBuf,
    pub(crate) initramfs: PathBuf,
    pub(crate) root_image: PathBuf,
}

impl Lab {
    /// Builds the layers with changed recipes, and returns all layers. A recipe contains the
    /// release, the path of the layer below, and the source file that builds the layer.
    pub(crate) fn prepare(arch: Arch, with_booted: bool) -> Result<Self> {
        let host = Host::prepare(arch)?;
        let cache = Cache::open()?;
        let kernel_dir = cache.layer(
            "kernel",
            &[
                include_str!("kernel.rs"),
                &host.suite,
                arch.debian(),
                &host.kernel_packages().join(" "),
            ],
            |dir, log| kernel::build(&host, dir, log),
        )?;
        let kernel_name = kernel_dir.to_string_lossy();
        let initramfs_dir = cache.layer(
            "initramfs",
            &[include_str!("initramfs.rs"), initramfs::INIT, &kernel_name],
            |dir, log| initramfs::build(&host, &kernel_dir, dir, log),
        )?;
        let root_dir = cache.layer(
            "root",
            &[include_str!("root.rs"), &host.suite, &kernel_name],
            |dir, log| root::build(&host, &kernel_dir, dir, log),
        )?;
        let files = Files {
            arch,
            kernel: kernel_dir.join(kernel::VMLINUZ),
            initramfs: initramfs_dir.join(initramfs::IMAGE),
            root_image: root_dir.join(root::IMAGE),
        };
        let booted = (with_booted && !arch.is_foreign()).then(|| {
            let recipe = [
                include_str!("booted.rs"),
                include_str!("machine.rs"),
                &booted::version()?,
                &initramfs_dir.to_string_lossy(),
                &root_dir.to_string_lossy(),
            ];
            cache.layer("booted", &recipe, |dir, _| booted::build(&files, dir))
        });
        let booted = booted.transpose()?.map(|dir| dir.join(booted::STATE));
        Ok(Self { files, booted })
    }
}
