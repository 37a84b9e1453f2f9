use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::assets::Assets;
use super::{About, do_it};
use crate::cache::{Tool, cached_tool, installed_tool};

const TOOL: Tool = Tool {
    name: "cargo-generate-rpm",
    version: "0.21.1",
    busy: &["zstd-sys", "rpm", "sha1", "sha2", "sha3", "keccak", "md-5"],
};

pub(super) fn write(
    tree: &Path,
    about: &About,
    out: &Path,
    install: bool,
) -> Result<Option<PathBuf>> {
    let tool = match installed_tool(&TOOL) {
        Some(tool) => tool,
        None if install => cached_tool(&TOOL)?,
        None => return Ok(None),
    };
    let assets = Assets::of(tree)?.of_rpm();
    let manifest = format!(
        "[package]\nname = \"cairn\"\nversion = \"{}\"\nlicense = \"MIT OR Apache-2.0\"\n\
         description = \"NVMe over Fabrics target and host on RDMA and user-space RoCE\"\n\
         [package.metadata.generate-rpm]\nversion = \"{}\"\n\
         post_install_script = '''\n{}'''\npre_uninstall_script = '''\n{}'''\nassets = [\n{assets}]\n",
        env!("CARGO_PKG_VERSION"),
        about.version,
        include_str!("../../../packaging/rpm-post"),
        include_str!("../../../packaging/rpm-preun"),
    );
    let file = out.join(format!(
        "cairn-{}.{}.rpm",
        about.version,
        about.processor.rpm()
    ));
    let folder = out.join("rpm");
    fs::create_dir(&folder)?;
    fs::write(folder.join("Cargo.toml"), manifest)?;
    let mut tool = Command::new(tool);
    tool.arg("generate-rpm").arg("--output").arg(&file);
    tool.args(["--source-date", &about.time]);
    tool.args(["--arch", about.processor.rpm()]);
    tool.current_dir(&folder);
    do_it(&mut tool)?;
    fs::remove_dir_all(folder)?;
    Ok(Some(file))
}
