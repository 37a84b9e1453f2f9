//! An RPM package, by cargo-generate-rpm.

use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::{About, do_it};
use crate::cache::{Tool, cached_tool, succeeds};

const TOOL: Tool = Tool {
    name: "cargo-generate-rpm",
    version: "0.21.1",
    // It compresses, and sums up what it has compressed.
    busy: &["zstd-sys", "rpm", "sha1", "sha2", "sha3", "keccak", "md-5"],
};

/// Writes the package of a tree; `None` without the tool, which `install` brings.
pub(super) fn write(
    tree: &Path,
    about: &About,
    out: &Path,
    install: bool,
) -> Result<Option<PathBuf>> {
    let tool = if succeeds(Command::new(TOOL.name).arg("--version")) {
        PathBuf::from(TOOL.name)
    } else if install {
        cached_tool(&TOOL)?
    } else {
        return Ok(None);
    };
    let mut assets = String::new();
    list(tree, tree, &mut assets)?;
    // A manifest of its own: the workspace has none that is of all programs.
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
        std::env::consts::ARCH
    ));
    let folder = out.join("rpm");
    fs::create_dir(&folder)?;
    fs::write(folder.join("Cargo.toml"), manifest)?;
    let mut tool = Command::new(tool);
    tool.arg("generate-rpm").arg("--output").arg(&file);
    tool.args(["--source-date", &about.time]);
    tool.current_dir(&folder);
    do_it(&mut tool)?;
    fs::remove_dir_all(folder)?;
    Ok(Some(file))
}

fn list(tree: &Path, folder: &Path, assets: &mut String) -> Result<()> {
    let entries: std::io::Result<Vec<_>> = fs::read_dir(folder)?.collect();
    let mut entries = entries?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if path.is_dir() {
            list(tree, &path, assets)?;
            continue;
        }
        let to = path.strip_prefix(tree)?;
        let is_program = to.parent().and_then(Path::file_name) == Some(OsStr::new("bin"));
        let mode = if is_program { 755 } else { 644 };
        let (from, to) = (path.display(), to.display());
        writeln!(
            assets,
            "{{ source = \"{from}\", dest = \"/{to}\", mode = \"{mode}\" }},"
        )?;
    }
    Ok(())
}
