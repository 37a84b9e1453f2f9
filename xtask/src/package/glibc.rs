//! Linking with the oldest supported glibc, so that programs run on all later releases.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::processor::Processor;
use super::{do_it, said};
use crate::cache;

const RELEASE: &str = "bullseye";
const MIRROR: &str = "http://deb.debian.org/debian";

const PACKAGES: &str = "libc6-dev,libgcc-s1";

const LIBRARIES: [(&str, &str); 5] = [
    ("libpthread.so", "libpthread.so.0"),
    ("libdl.so", "libdl.so.2"),
    ("librt.so", "librt.so.1"),
    ("libutil.so", "libutil.so.1"),
    ("libm.so", "libm.so.6"),
];

/// Returns the folder of programs built with the old glibc if it can be fetched, else with this
/// machine's glibc.
pub(super) fn build(processor: Processor, profile: &str) -> Result<PathBuf> {
    let old = root(processor).and_then(|root| link_folder(processor, &root));
    match &old {
        Ok(folder) => println!("linked with the glibc in {}", folder.display()),
        Err(error) => println!("linked with this machine's glibc: {error:#}"),
    }
    let built = std::env::current_dir()?.join("build");
    let programs = built.join("package-programs");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--locked", "--profile", profile]);
    cargo.args(["--bin", "cairn-target", "--bin", "cairn-initiator", "--lib"]);
    cargo.env("CARGO_BUILD_BUILD_DIR", &built);
    cargo.env("CARGO_TARGET_DIR", &programs);
    let folder = if profile == "dev" { "debug" } else { profile };
    let mut folder = programs.join(folder);
    if processor.is_foreign() {
        let platform = processor.platform();
        folder = programs
            .join(platform)
            .join(folder.file_name().unwrap_or_default());
        cargo.env("CARGO_BUILD_TARGET", platform);
        let variable = platform.to_uppercase().replace('-', "_");
        cargo.env(
            format!("CARGO_TARGET_{variable}_LINKER"),
            processor.linker(),
        );
    }
    if let Ok(libraries) = &old {
        // The programs read this variable at build time, so its change rebuilds them.
        cargo.env("CAIRN_GLIBC", RELEASE);
        cargo.env(
            "PATH",
            path_with(&linker(processor, &programs, libraries)?)?,
        );
    }
    do_it(&mut cargo)?;
    Ok(folder)
}

fn path_with(folder: &Path) -> Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
    Ok(std::env::join_paths(folders)?)
}

/// Writes a shell script for use as linker, and returns its folder. The script calls the real
/// linker, with `libraries` for programs and the fio engine. It has the linker's name: for a linker
/// with another name, cargo would compile all crates again.
fn linker(processor: Processor, programs: &Path, libraries: &Path) -> Result<PathBuf> {
    let libraries = libraries.display();
    let name = processor.linker();
    let cc = said(Command::new("sh").args(["-c", &format!("command -v {name}")]))?;
    let script = format!(
        "#!/bin/sh\n\
         case \" $* \" in\n\
         *' -o '*/deps/cairn_target-* | *' -o '*/deps/cairn_initiator-* | *' -o '*/libcairn_fio*.so*)\n    \
         set -- \"$@\" '-B{libraries}' '-L{libraries}' '-Wl,-rpath-link,{libraries}' ;;\n\
         esac\n\
         exec {cc} \"$@\"\n"
    );
    let folder = programs.join("linker");
    fs::create_dir_all(&folder)?;
    let path = folder.join(name);
    let new = path.with_extension(format!("new-{}", std::process::id()));
    fs::write(&new, script)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
    fs::rename(&new, &path)?;
    Ok(folder)
}

fn root(processor: Processor) -> Result<PathBuf> {
    let suffix = match processor.is_foreign() {
        true => format!("-{}", processor.debian()),
        false => String::new(),
    };
    let root = cache::folder()?.join(format!("glibc-{RELEASE}{suffix}"));
    if root.is_dir() {
        return Ok(root);
    }
    let new = root.with_extension(format!("new-{}", std::process::id()));
    let made = extract(processor, &new).and_then(|()| match fs::rename(&new, &root) {
        Err(_) if root.is_dir() => Ok(()),
        renamed => Ok(renamed?),
    });
    let _ = fs::remove_dir_all(&new);
    made.map(|()| root)
}

fn extract(processor: Processor, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let archive = to.with_extension("tar");
    let mut mmdebstrap = Command::new("mmdebstrap");
    mmdebstrap.args(["--quiet", "--variant=extract"]);
    mmdebstrap.arg(format!("--architectures={}", processor.debian()));
    mmdebstrap.arg(format!("--include={PACKAGES}")).arg(RELEASE);
    let made = mmdebstrap.arg(&archive).arg(MIRROR).output();
    let made = made.context("run `apt-get install mmdebstrap`")?;
    let errors = String::from_utf8_lossy(&made.stderr);
    ensure!(
        made.status.success(),
        "mmdebstrap cannot fetch Debian's {RELEASE}: {errors}"
    );
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--file").arg(&archive);
    tar.arg("--directory").arg(to);
    tar.args(["--exclude=./dev/*", "--no-same-owner"]);
    let unpacked = do_it(&mut tar);
    fs::remove_file(archive)?;
    unpacked
}

/// Returns the folder of files for the linker; copies them if missing.
fn link_folder(processor: Processor, root: &Path) -> Result<PathBuf> {
    let folder = root.join("link");
    if folder.is_dir() {
        return Ok(folder);
    }
    let new = root.join(format!("link.new-{}", std::process::id()));
    fs::create_dir_all(&new)?;
    let run_time = root.join("lib").join(processor.triplet());
    let link_time = root.join("usr/lib").join(processor.triplet());
    let loader = processor.loader();
    let names = LIBRARIES.map(|(_, name)| name);
    for name in names.iter().chain(&["libc.so.6", "libgcc_s.so.1", loader]) {
        fs::copy(run_time.join(name), new.join(name)).with_context(|| format!("no {name}"))?;
    }
    for (link, name) in LIBRARIES {
        symlink(name, new.join(link))?;
    }
    for name in ["Scrt1.o", "crt1.o", "crti.o", "crtn.o", "libc_nonshared.a"] {
        fs::copy(link_time.join(name), new.join(name)).with_context(|| format!("no {name}"))?;
    }
    let script = format!("GROUP ( libc.so.6 libc_nonshared.a AS_NEEDED ( {loader} ) )\n");
    fs::write(new.join("libc.so"), script)?;
    if fs::rename(&new, &folder).is_err() {
        fs::remove_dir_all(&new)?;
    }
    Ok(folder)
}
