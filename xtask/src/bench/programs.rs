//! The programs that are measured, and the files around them.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Where cargo runs.
pub(super) const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Bytes of the file that is exported.
const IMAGE_MIB: usize = 256;

/// Builds target and host; returns the folder that they are in.
pub(super) fn build(debug: bool, no_build: bool) -> Result<PathBuf> {
    if !no_build {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.current_dir(WORKSPACE).args(["build", "--quiet"]);
        cargo.args(["-p", "cairn-target", "-p", "cairn-initiator"]);
        if !debug {
            cargo.arg("--release");
        }
        let status = cargo.status().context("cannot run cargo")?;
        ensure!(status.success(), "cargo build failed");
    }
    let folder = output().join(if debug { "debug" } else { "release" });
    for program in ["cairn-target", "cairn-initiator"] {
        ensure!(
            folder.join(program).exists(),
            "no {program} in {}: leave out --no-build",
            folder.display()
        );
    }
    Ok(folder)
}

/// Where runs leave their results.
pub(super) fn results() -> PathBuf {
    output().join("bench")
}

/// Cargo's output folder.
fn output() -> PathBuf {
    let workspace = Path::new(WORKSPACE);
    let workspace = workspace.canonicalize().unwrap_or(workspace.to_owned());
    let folder = std::env::var_os("CARGO_TARGET_DIR").unwrap_or("build".into());
    workspace.join(folder)
}

/// Writes the file that is exported. All of it: reads of holes are no reads.
pub(super) fn write_image(path: &Path) -> Result<()> {
    let write = || {
        let mut file = File::create(path)?;
        // Nothing that a disk could compress or leave out.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut piece = vec![0; 1 << 20];
        for _ in 0..IMAGE_MIB {
            for word in piece.chunks_exact_mut(8) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                word.copy_from_slice(&state.to_ne_bytes());
            }
            file.write_all(&piece)?;
        }
        file.sync_all()
    };
    write().with_context(|| format!("cannot write {IMAGE_MIB} MiB to {}", path.display()))
}
