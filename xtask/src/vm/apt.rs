//! apt of a foreign architecture: its own package lists, in the cache, without root.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::arch::Arch;
use super::tree::create_dir;

pub(crate) fn configure(arch: Arch, sources: &[String], folder: &Path) -> Result<PathBuf> {
    create_dir(&folder.join("lists/partial"))?;
    create_dir(&folder.join("cache/archives/partial"))?;
    let path = folder.join("apt.conf");
    let list = folder.join("sources.list");
    fs::write(&list, sources.join("\n") + "\n")
        .and_then(|()| fs::write(&path, configuration(arch, folder)))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

fn configuration(arch: Arch, folder: &Path) -> String {
    let (debian, folder) = (arch.debian(), folder.display());
    format!(
        "APT::Architecture \"{debian}\";\n\
         APT::Architectures {{ \"{debian}\"; }};\n\
         APT::Sandbox::User \"\";\n\
         Acquire::Languages \"none\";\n\
         Dir::Etc::sourcelist \"{folder}/sources.list\";\n\
         Dir::Etc::sourceparts \"/dev/null\";\n\
         Dir::State::lists \"{folder}/lists\";\n\
         Dir::State::status \"/dev/null\";\n\
         Dir::Cache \"{folder}/cache\";\n"
    )
}
