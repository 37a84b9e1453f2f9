//! blktests for the guest: its scripts, without its compiled programs.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::process;
use super::tree::create_dir;

const PARTS: [&str; 3] = ["check", "common", "tests"];

pub(super) fn stage(checkout: &Path, programs: &Path) -> Result<()> {
    ensure!(
        PARTS.iter().all(|part| checkout.join(part).exists()),
        "{} is no checkout of blktests: git clone https://github.com/linux-blktests/blktests, and \
         give that folder by --blktests",
        checkout.display()
    );
    let folder = programs.join("blktests");
    create_dir(&folder)?;
    let parts = PARTS.iter().map(|part| checkout.join(part));
    let mut copy = Command::new("cp");
    process::output(copy.arg("-r").args(parts).arg(&folder)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_folder_is_an_error_with_the_place_of_blktests() {
        let folder = tempfile::tempdir().unwrap();
        let error = stage(folder.path(), folder.path()).unwrap_err().to_string();
        assert!(error.contains("linux-blktests"), "{error}");
    }
}
