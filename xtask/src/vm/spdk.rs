//! SPDK target for the guest: programs of a build tree, with libraries that the guest lacks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::process;
use super::scenario::Scenario;
use super::tree::create_dir;
use crate::spdk_client::{self, CLIENT};

const HOW_TO_BUILD: &str = "\
The guest's processor is a Nehalem, so SPDK has to be built for x86-64-v2:

  git clone --recurse-submodules https://github.com/spdk/spdk && cd spdk
  sudo scripts/pkgdep.sh --rdma
  ./configure --with-rdma --target-arch=x86-64-v2 --disable-tests --disable-unit-tests --disable-examples
  make -j";

/// Libraries not copied, because the guest has other versions.
const OF_THE_GUEST: [&str; 7] = [
    "ld-linux",
    "libc.",
    "libibverbs",
    "libm.",
    "libnl-",
    "librdmacm",
    "linux-vdso",
];

pub(super) fn stage(build_tree: &Path, programs: &Path) -> Result<()> {
    let target = build_tree.join("build/bin/nvmf_tgt");
    ensure!(
        target.is_file(),
        "{} is missing: build SPDK there, or give another folder by --spdk\n\n{HOW_TO_BUILD}",
        target.display()
    );
    let folder = programs.join("spdk");
    create_dir(&folder)?;
    let listed = process::output(Command::new("ldd").arg(&target))?;
    ensure!(
        listed.contains("librdmacm"),
        "{} is built without RDMA\n\n{HOW_TO_BUILD}",
        target.display()
    );
    let libraries = listed.lines().filter_map(library).map(Path::new);
    for file in libraries.chain([target.as_path()]) {
        let name = file.file_name().context("a file has a name")?;
        fs::copy(file, folder.join(name))
            .with_context(|| format!("cannot copy {}", file.display()))?;
    }
    Ok(())
}

pub(super) fn client(given: Option<&Path>, scenarios: &[&Scenario]) -> Option<PathBuf> {
    if let Some(folder) = given {
        return Some(folder.to_path_buf());
    }
    let scenario = scenarios.iter().find(|scenario| scenario.spdk_client)?;
    match spdk_client::fetch() {
        Ok(folder) => Some(folder),
        Err(error) => {
            println!(
                "SKIP [        ] vm {}: SPDK's client, in whose place recorded requests are sent: {error:#}",
                scenario.name
            );
            None
        }
    }
}

pub(super) fn stage_client(package: Option<&Path>, programs: &Path) -> Result<()> {
    let folder = programs.join("spdk-client");
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let Some(package) = package else {
        return Ok(());
    };
    ensure!(
        package.join(CLIENT).is_file(),
        "{} has no folder spdk of SPDK's Python package: leave --spdk-client out, and it is fetched, or unpack the wheel of pip download --no-deps spdk there",
        package.display()
    );
    create_dir(&folder)?;
    process::output(
        Command::new("cp")
            .arg("-r")
            .arg(package.join("spdk"))
            .arg(&folder),
    )
    .map(drop)
}

fn library(line: &str) -> Option<&str> {
    let (name, rest) = line.trim().split_once(" => ")?;
    let own = OF_THE_GUEST.iter().any(|prefix| name.starts_with(prefix));
    let file = rest.split(" (").next()?;
    (!own).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_guest_has_stays_here() {
        let lines = "\
\tlinux-vdso.so.1 (0x00007f50e6050000)
\tlibnuma.so.1 => /lib/x86_64-linux-gnu/libnuma.so.1 (0x00007f50e6032000)
\tlibibverbs.so.1 => /lib/x86_64-linux-gnu/libibverbs.so.1 (0x00007f50e6011000)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f50e501e000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f50e6052000)
";
        let files: Vec<&str> = lines.lines().filter_map(library).collect();
        assert_eq!(files, ["/lib/x86_64-linux-gnu/libnuma.so.1"]);
    }

    #[test]
    fn a_folder_without_it_is_an_error_that_says_how_to_build_it() {
        let folder = tempfile::tempdir().unwrap();
        let error = stage(folder.path(), folder.path()).unwrap_err().to_string();
        assert!(error.contains("x86-64-v2"), "{error}");
    }
}
