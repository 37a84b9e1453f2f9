//! Cache of tools built by xtask, shared by all clones.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};

pub(crate) fn folder() -> Result<PathBuf> {
    let user_cache = || {
        std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))
            .map(|cache| cache.join("cairn"))
    };
    std::env::var_os("CAIRN_CACHE")
        .map(PathBuf::from)
        .or_else(user_cache)
        .context("no place for tools and the VM lab: set CAIRN_CACHE or HOME")
}

pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Dependencies to compile with optimisation, because the tool spends most of its time in them.
    pub(crate) busy: &'static [&'static str],
}

pub(crate) fn installed_tool(tool: &Tool) -> Option<PathBuf> {
    succeeds(Command::new(tool.name).arg("--version")).then(|| tool.name.into())
}

pub(crate) fn cached_tool(tool: &Tool) -> Result<PathBuf> {
    let Tool {
        name,
        version,
        busy,
    } = tool;
    let root = folder()?.join(format!("tools/{name}-{version}"));
    let program = root.join("bin").join(name);
    let _lock = lock(&root)?;
    if succeeds(Command::new(&program).arg("--version")) {
        return Ok(program);
    }
    println!(
        "installing {name} {version} into {}: a few minutes, once",
        root.display()
    );
    let building = root.join("build");
    let mut install = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    install
        .args(["install", "--locked", "--quiet", "--debug"])
        .args(["--version", *version, *name])
        .arg("--root")
        .arg(&root)
        .arg("--target-dir")
        .arg(&building)
        .args(
            busy.iter()
                .map(|package| format!("--config=profile.dev.package.{package}.opt-level=2")),
        )
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        // Outside the workspace, its cargo settings do not apply to the tool.
        .current_dir(Path::new("/"));
    let installed = cairn_skips::probe(&mut install);
    let _ = fs::remove_dir_all(&building);
    match installed {
        Ok(_) => Ok(program),
        Err(reason) => bail!("{name} cannot be installed: {reason}"),
    }
}

fn lock(root: &Path) -> Result<File> {
    fs::create_dir_all(root).with_context(|| format!("cannot create {}", root.display()))?;
    let path = root.join(".lock");
    let file = File::create(&path).with_context(|| format!("cannot open {}", path.display()))?;
    flock(&file, FlockOperation::LockExclusive)
        .with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}

/// Downloads a Debian package and unpacks one of its paths below `root`, because installing the
/// package might start services.
pub(crate) fn unpack_package(package: &str, path: &str, root: &Path) -> Result<()> {
    let archives = tempfile::tempdir()?;
    let unpack = "apt-get -o APT::Sandbox::User=root download \"$1\" && mkdir -p \"$0\" \
                  && dpkg-deb --fsys-tarfile \"$1\"_*.deb | tar -x -C \"$0\" \"$2\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", unpack]).arg(root).args([package, path]);
    cairn_skips::probe(shell.current_dir(&archives)).map_err(anyhow::Error::msg)?;
    Ok(())
}

pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

pub(crate) fn fingerprint(recipe: &[&str]) -> u64 {
    let bytes = recipe.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn fingerprints_tell_recipes_apart() {
        assert_eq!(fingerprint(&["a", "b"]), fingerprint(&["a", "b"]));
        assert_ne!(fingerprint(&["ab"]), fingerprint(&["a", "b"]));
        assert_ne!(fingerprint(&["a", "b"]), fingerprint(&["b", "a"]));
    }
}
