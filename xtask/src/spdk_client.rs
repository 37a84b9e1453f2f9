//! Fixed version of SPDK's client (rpc.py and spdkcli), from the Python package registry.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::cache;

/// Name, version and SHA-256 of each package, for pip. spdkcli needs the last two.
const WHEELS: [(&str, &str, &str); 3] = [
    (
        "spdk",
        "26.9",
        "42037d98845c82e9317bc8b3c7521af3eb785e44cb5baf13c40a103d5df04f49",
    ),
    (
        "configshell_fb",
        "2.0.3",
        "d0b5fd1d06f26a863178dd283b1a37147fa190197d67e3da85dd0e051a8a7d28",
    ),
    (
        "pyparsing",
        "3.2.5",
        "e38a4f02064cf41fe6593d328d0512495ad1f3d8a91c4f73fc401b3079a59a5e",
    ),
];

pub(crate) const CLIENT: &str = "spdk/rpc/client.py";

pub(crate) const PROGRAMS: [(&str, &str); 2] = [("python3", "python3"), ("pip3", "python3-pip")];

const TIMEOUT_S: &str = "20";

pub(crate) fn run() -> Result<ExitCode> {
    println!("{}", fetch()?.display());
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn fetch() -> Result<PathBuf> {
    let folder = cache::folder()?.join(format!("tools/spdk-client-{}", versions()));
    if folder.join(CLIENT).is_file() {
        return Ok(folder);
    }
    ensure!(
        has_pip(),
        "python3 with pip is not installed: apt-get install python3 python3-pip"
    );
    let parent = folder.parent().context("the cache has a folder")?;
    fs::create_dir_all(parent)
        .with_context(|| format!("cannot make the folder {}", parent.display()))?;
    eprintln!("fetching SPDK's client into {}", folder.display());
    let temporary = tempfile::tempdir_in(parent).context("cannot make a folder in the cache")?;
    let unpacked = temporary.path().join("unpacked");
    download(temporary.path())?;
    unpack(temporary.path(), &unpacked)?;
    ensure!(
        unpacked.join(CLIENT).is_file(),
        "SPDK's package has no {CLIENT}"
    );
    match fs::rename(&unpacked, &folder) {
        Err(_) if folder.join(CLIENT).is_file() => {}
        renamed => renamed.with_context(|| format!("cannot make {}", folder.display()))?,
    }
    Ok(folder)
}

fn versions() -> String {
    WHEELS.map(|(_, version, _)| version).join("-")
}

fn requirements() -> String {
    let lines =
        WHEELS.map(|(name, version, sha256)| format!("{name}=={version} --hash=sha256:{sha256}\n"));
    lines.concat()
}

pub(crate) fn has_pip() -> bool {
    cache::succeeds(Command::new("python3").args(["-m", "pip", "--version"]))
}

fn download(into: &Path) -> Result<()> {
    let list = into.join("requirements.txt");
    fs::write(&list, requirements()).with_context(|| format!("cannot write {}", list.display()))?;
    let output = Command::new("python3")
        .args(["-m", "pip", "download", "--quiet", "--no-deps"])
        .args(["--require-hashes", "--only-binary=:all:"])
        .args(["--retries", "1", "--timeout", TIMEOUT_S])
        .arg("--disable-pip-version-check")
        .arg("--requirement")
        .arg(&list)
        .arg("--dest")
        .arg(into)
        .stdin(Stdio::null())
        .output()
        .context("cannot run pip")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!(
            "SPDK's client cannot be fetched: is the registry of Python packages within reach? {}",
            error_of(&said)
        );
    }
    Ok(())
}

fn error_of(said: &str) -> &str {
    let mut errors = said.lines().rev().filter(|line| line.starts_with("ERROR"));
    errors.next().unwrap_or("pip does not say why")
}

fn unpack(wheels: &Path, into: &Path) -> Result<()> {
    for file in fs::read_dir(wheels).context("cannot read the cache")? {
        let file = file?.path();
        if file.extension().is_some_and(|extension| extension == "whl") {
            let mut zip = Command::new("python3");
            zip.args(["-m", "zipfile", "-e"]).arg(&file).arg(into);
            ensure!(
                cache::succeeds(&mut zip),
                "cannot unpack {}",
                file.display()
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_have_a_version_and_a_hash() {
        let text = requirements();
        assert_eq!(text.lines().count(), WHEELS.len());
        for line in text.lines() {
            let (requirement, hash) = line.split_once(" --hash=sha256:").unwrap();
            assert!(requirement.split_once("==").is_some(), "{line}");
            assert_eq!(hash.len(), 64, "{line}");
            assert!(hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{line}");
        }
    }

    #[test]
    fn an_error_of_pip_is_one_line() {
        let said =
            "WARNING: Retrying\nERROR: Could not find a version\nERROR: No matching distribution\n";
        assert_eq!(error_of(said), "ERROR: No matching distribution");
        assert_eq!(error_of("\n"), "pip does not say why");
    }
}
