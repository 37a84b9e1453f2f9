//! Cross-compilation of the workspace for aarch64.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::host;

const PLATFORM: &str = "aarch64-unknown-linux-gnu";
const FOLDER: &str = "build/aarch64";
const COMPILER: [(&str, &str); 2] = [
    ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    ("/usr/aarch64-linux-gnu/lib/crti.o", "libc6-dev-arm64-cross"),
];

/// Environment in which cargo builds for aarch64 in the workspace, with a linker for it.
pub(crate) const ENVIRONMENT: [(&str, &str); 4] = [
    ("CARGO_BUILD_TARGET", PLATFORM),
    ("CARGO_TARGET_DIR", FOLDER),
    ("CARGO_PROFILE_DEV_DEBUG", "0"),
    (
        "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
        COMPILER[0].0,
    ),
];

pub(crate) fn require_compiler() -> Result<()> {
    host::require_programs(&COMPILER)?;
    let mut add = Command::new("rustup");
    cairn_skips::probe(add.args(["target", "add", PLATFORM])).map_err(anyhow::Error::msg)?;
    Ok(())
}

pub(super) fn built(workspace: &Path) -> PathBuf {
    workspace.join(FOLDER).join(PLATFORM)
}
