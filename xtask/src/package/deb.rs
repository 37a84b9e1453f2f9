use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::assets::Assets;
use super::{About, do_it};
use crate::cache::{Tool, cached_tool, installed_tool};

const TOOL: Tool = Tool {
    name: "cargo-deb",
    version: "3.8.0",
    busy: &["md-5"],
};

pub(super) struct Package {
    name: &'static str,
    depends: &'static str,
    recommends: &'static str,
    description: &'static str,
    scripts: Option<&'static str>,
}

pub(super) const MAIN: Package = Package {
    name: "cairn",
    depends: "libc6 (>= GLIBC), libgcc-s1, passwd",
    recommends: "libibverbs1, librdmacm1",
    description: "NVMe over Fabrics target and host on RDMA and user-space RoCE",
    scripts: Some(concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging")),
};

pub(super) const DEBUG: Package = Package {
    name: "cairn-dbgsym",
    depends: "cairn (= VERSION)",
    recommends: "",
    description: "Debug symbols of cairn",
    scripts: None,
};

pub(super) const ENGINE: Package = Package {
    name: "cairn-fio",
    depends: "libc6 (>= GLIBC), libgcc-s1, fio",
    recommends: "libibverbs1, librdmacm1",
    description: "An engine of fio: NVMe over Fabrics from user space",
    scripts: None,
};

#[derive(Clone, Copy)]
pub(super) enum Compression {
    Xz,
    /// For emulated processors, which decompress xz slowly.
    Gzip,
}

pub(super) fn write(
    tree: &Path,
    package: &Package,
    about: &About,
    out: &Path,
    compression: Compression,
) -> Result<PathBuf> {
    let tool = installed_tool(&TOOL).map_or_else(|| cached_tool(&TOOL), Ok)?;
    let folder = out.join("deb");
    fs::create_dir_all(folder.join("src"))?;
    fs::write(folder.join("src/main.rs"), "fn main() {}\n")?;
    fs::write(folder.join("Cargo.toml"), manifest(tree, package, about)?)?;
    let file = out.join(format!(
        "{}_{}_{}.deb",
        package.name,
        about.version,
        about.processor.debian()
    ));
    let mut tool = Command::new(tool);
    tool.args(["deb", "--quiet", "--offline", "--no-build", "--no-strip"])
        .args(["--no-dbgsym", "--compress-system"])
        .arg(match compression {
            Compression::Xz => "--compress-type=xz",
            Compression::Gzip => "--compress-type=gz",
        })
        .args(["--deb-version", &about.version])
        .args(["--target", about.processor.platform()])
        .arg("--output")
        .arg(&file)
        .env("SOURCE_DATE_EPOCH", &about.time)
        .current_dir(&folder);
    do_it(&mut tool)?;
    fs::remove_dir_all(folder)?;
    Ok(file)
}

fn manifest(tree: &Path, package: &Package, about: &About) -> Result<String> {
    let depends = package.depends.replace("GLIBC", &about.glibc);
    let depends = depends.replace("VERSION", &about.version);
    let scripts = package
        .scripts
        .map(|folder| format!("maintainer-scripts = \"{folder}\"\n"));
    Ok(format!(
        "[package]\nname = \"{name}\"\nversion = \"{version}\"\nedition = \"2024\"\n\
         license = \"MIT OR Apache-2.0\"\ndescription = \"{description}\"\n\
         [package.metadata.deb]\nmaintainer = \"The Cairn developers <cairn@example.org>\"\n\
         copyright = \"The Cairn developers\"\nsection = \"admin\"\npriority = \"optional\"\n\
         depends = \"{depends}\"\nrecommends = \"{recommends}\"\n{scripts}assets = [\n{assets}]\n[workspace]\n",
        name = package.name,
        version = env!("CARGO_PKG_VERSION"),
        description = package.description,
        recommends = package.recommends,
        scripts = scripts.unwrap_or_default(),
        assets = Assets::of(tree)?.of_deb(),
    ))
}
