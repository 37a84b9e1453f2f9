//! `cargo xtask compiled`: shares compiled dependencies between clones, for CI.
//!
//! Each clone still compiles the packages of the workspace.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

use crate::cache::{fingerprint, folder};
use crate::vm::process;
use crate::vm::tree::Tree;

const RECIPE: [&str; 5] = [
    ".cargo/config.toml",
    "Cargo.lock",
    "Cargo.toml",
    "fuzz/Cargo.lock",
    "fuzz/Cargo.toml",
];

const NOTES: &str = ".fingerprint";

/// Folders of compiled output in the order of extraction. The fingerprints are last: after an
/// interrupted extraction, cargo ignores output without a fingerprint.
const FOLDERS: [&str; 3] = ["build", "deps", NOTES];

const DEPTH: usize = 4;

/// Maximum size in bytes of an archive for other versions of compiler or dependencies.
const OTHER_VERSIONS_MAX: u64 = 6 << 30;

#[derive(clap::Args)]
pub(crate) struct Args {
    action: Action,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Action {
    /// Copy matching compiled dependencies from the cache, if available
    Take,
    /// Copy the compiled dependencies of this clone to the cache
    Keep,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let tree = Tree::locate()?;
    let archive = archive(&tree)?;
    match args.action {
        Action::Take => match closest(archive)? {
            Some(archive) => take(&archive, tree.build())?,
            None => println!("nothing is kept: all crates are compiled"),
        },
        Action::Keep => keep(&archive, &tree)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn archive(tree: &Tree) -> Result<PathBuf> {
    let mut recipe = Vec::new();
    for file in RECIPE {
        let path = tree.workspace().join(file);
        recipe.push(fs::read_to_string(&path).with_context(|| path.display().to_string())?);
    }
    recipe.push(process::output(Command::new("rustc").arg("-vV"))?);
    let mut nightly = Command::new("rustup");
    nightly.args(["run", "nightly", "rustc", "-vV"]);
    recipe.push(process::output(&mut nightly).unwrap_or_default());
    let home = ["CARGO_HOME", "HOME"].map(|name| std::env::var(name).unwrap_or_default());
    recipe.extend(home);
    let recipe: Vec<&str> = recipe.iter().map(String::as_str).collect();
    Ok(folder()?.join(format!("compiled/{:016x}.tar", fingerprint(&recipe))))
}

/// Returns the archive `exact`, or else the newest archive for other versions of compiler or
/// dependencies. Cargo can use a part of such an archive.
fn closest(exact: PathBuf) -> Result<Option<PathBuf>> {
    if exact.exists() {
        return Ok(Some(exact));
    }
    let dir = exact.parent().context("the archive is in a folder")?;
    let others = fs::read_dir(dir).into_iter().flatten().flatten();
    let others = others.filter_map(|entry| Some((entry.metadata().ok()?, entry.path())));
    let others = others.filter(|(about, path)| {
        about.len() <= OTHER_VERSIONS_MAX && path.extension().is_some_and(|ending| ending == "tar")
    });
    Ok(others
        .max_by_key(|(about, _)| about.modified().ok())
        .map(|(_, path)| path))
}

fn take(archive: &Path, output: &Path) -> Result<()> {
    fs::create_dir_all(output)?;
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(output).arg("-xf").arg(archive);
    println!("other people's crates come from {}", archive.display());
    ensure!(
        tar.status().context("cannot run tar")?.success(),
        "tar cannot read {}: remove it",
        archive.display()
    );
    Ok(())
}

/// Replaces all cached archives by the compiled dependencies, if these are over 2 % larger than
/// `archive`. Prints nothing, because CI output must end with the total of the tests.
fn keep(archive: &Path, tree: &Tree) -> Result<()> {
    let dir = archive.parent().context("the archive is in a folder")?;
    fs::create_dir_all(dir)?;
    let found = others(tree.build(), &own_names(tree.workspace())?)?;
    let kept = fs::metadata(archive).map_or(0, |about| about.len());
    let new: u64 = found
        .iter()
        .map(|path| size(&tree.build().join(path)))
        .sum();
    if new <= kept + kept / 50 {
        return Ok(());
    }
    let partial = tempfile::NamedTempFile::new_in(dir)?;
    let mut tar = Command::new("tar");
    tar.args(["--format=posix", "-C"])
        .arg(tree.build())
        .arg("-cf");
    tar.arg(partial.path())
        .args(["--null", "--files-from=-"])
        .stdin(Stdio::piped());
    let mut child = tar.spawn().context("cannot run tar")?;
    let mut list = child.stdin.take().context("tar was started with a pipe")?;
    for path in found {
        list.write_all(path.as_os_str().as_encoded_bytes())?;
        list.write_all(&[0])?;
    }
    drop(list);
    ensure!(
        child.wait()?.success(),
        "tar cannot write {}",
        dir.display()
    );
    for old in fs::read_dir(dir)?.flatten() {
        if old.path() != partial.path() {
            let _ = fs::remove_file(old.path());
        }
    }
    partial.persist(archive)?;
    Ok(())
}

fn own_names(workspace: &Path) -> Result<HashSet<String>> {
    let mut names = HashSet::new();
    for manifest in ["Cargo.toml", "fuzz/Cargo.toml"] {
        let mut metadata = Command::new("cargo");
        metadata
            .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
            .args(["--manifest-path", manifest])
            .current_dir(workspace);
        let metadata: serde_json::Value = serde_json::from_str(&process::output(&mut metadata)?)?;
        let packages = metadata["packages"].as_array().context("no packages")?;
        for package in packages {
            let targets = package["targets"].as_array().context("no targets")?;
            let named = std::iter::once(package).chain(targets);
            names.extend(named.filter_map(|one| Some(one["name"].as_str()?.replace('-', "_"))));
        }
    }
    Ok(names)
}

fn others(output: &Path, own: &HashSet<String>) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let places = places(output, DEPTH);
    for folder in FOLDERS {
        for place in &places {
            for entry in fs::read_dir(place.join(folder)).into_iter().flatten() {
                let path = entry?.path();
                let name = path.file_name().and_then(|name| name.to_str());
                if name
                    .and_then(crate_of)
                    .is_some_and(|name| !own.contains(&name))
                {
                    found.push(path.strip_prefix(output)?.to_owned());
                }
            }
        }
    }
    Ok(found)
}

fn size(path: &Path) -> u64 {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| size(&entry.path())).sum(),
        Err(_) => fs::symlink_metadata(path).map_or(0, |about| about.len()),
    }
}

fn places(folder: &Path, depth: usize) -> Vec<PathBuf> {
    if folder.join(NOTES).exists() {
        return vec![folder.to_owned()];
    }
    if depth == 0 {
        return Vec::new();
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders
        .flat_map(|entry| places(&entry.path(), depth - 1))
        .collect()
}

fn crate_of(file: &str) -> Option<String> {
    let stem = file.split('.').next()?;
    let (name, hash) = stem.rsplit_once('-')?;
    let is_hash = hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    let library = file.ends_with("lib") || file.ends_with(".rmeta") || file.ends_with(".so");
    let name = if library {
        name.strip_prefix("lib").unwrap_or(name)
    } else {
        name
    };
    is_hash.then(|| name.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_have_the_crate() {
        for (file, name) in [
            ("libserde_json-0123456789abcdef.rlib", Some("serde_json")),
            ("libserde_json-0123456789abcdef.rmeta", Some("serde_json")),
            ("libserde_derive-0123456789abcdef.so", Some("serde_derive")),
            ("serde-json-0123456789abcdef", Some("serde_json")),
            ("libc-0123456789abcdef", Some("libc")),
            ("libc-0123456789abcdef.d", Some("libc")),
            ("liblibc-0123456789abcdef.rlib", Some("libc")),
            ("end_to_end-0123456789abcdef.d", Some("end_to_end")),
            ("README", None),
            ("no-hash", None),
        ] {
            assert_eq!(crate_of(file).as_deref(), name, "{file}");
        }
    }

    #[test]
    fn the_archive_of_other_versions_serves_until_it_is_large() {
        let folder = tempfile::tempdir().unwrap();
        let exact = folder.path().join("1.tar");
        assert_eq!(closest(exact.clone()).unwrap(), None);
        let other = folder.path().join("2.tar");
        for (name, length) in [
            ("2.tar", 1),
            ("partial", 1),
            ("3.tar", OTHER_VERSIONS_MAX + 1),
        ] {
            let file = fs::File::create(folder.path().join(name)).unwrap();
            file.set_len(length).unwrap();
        }
        assert_eq!(closest(exact.clone()).unwrap(), Some(other));
        fs::write(&exact, "").unwrap();
        assert_eq!(closest(exact.clone()).unwrap(), Some(exact));
    }

    #[test]
    fn what_is_ours_is_left_out() {
        let own = own_names(Tree::locate().unwrap().workspace()).unwrap();
        for name in [
            "cairn_target",
            "xtask",
            "end_to_end",
            "queue_pair",
            "nvme_proto",
        ] {
            assert!(own.contains(name), "{name}");
        }
        let output = tempfile::tempdir().unwrap();
        let folder = output.path().join("msrv/debug");
        for path in [
            ".fingerprint/serde-0123456789abcdef/lib-serde",
            ".fingerprint/cairn-target-0123456789abcdef/lib-cairn_target",
            "build/serde-0123456789abcdef/output",
            "deps/libserde-0123456789abcdef.rmeta",
            "deps/libcairn_target-0123456789abcdef.rmeta",
            "deps/end_to_end-0123456789abcdef",
            "incremental/serde-0123456789abcdef/file",
            "cairn-target",
        ] {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let found = others(output.path(), &own).unwrap();
        let expected = [
            "build/serde-0123456789abcdef",
            "deps/libserde-0123456789abcdef.rmeta",
            ".fingerprint/serde-0123456789abcdef",
        ];
        assert_eq!(
            found,
            expected.map(|path| Path::new("msrv/debug").join(path))
        );
    }
}
