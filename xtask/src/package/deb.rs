//! Debian packages (deb(5)): an `ar` archive of a version and two `tar` archives.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{About, GZIP, do_it, said, tar};

/// One of the packages.
pub(super) struct Package {
    name: &'static str,
    depends: &'static str,
    description: &'static str,
    /// Name and text of each script.
    scripts: &'static [(&'static str, &'static str)],
}

pub(super) const MAIN: Package = Package {
    name: "cairn",
    depends: "libc6 (>= GLIBC), libgcc-s1, passwd",
    description: "NVMe over Fabrics target and host on RDMA and user-space RoCE",
    scripts: &[
        ("postinst", include_str!("../../../packaging/postinst")),
        ("prerm", include_str!("../../../packaging/prerm")),
        ("postrm", include_str!("../../../packaging/postrm")),
    ],
};

pub(super) const DEBUG: Package = Package {
    name: "cairn-dbgsym",
    depends: "",
    description: "Debug symbols of cairn",
    scripts: &[],
};

pub(super) const ENGINE: Package = Package {
    name: "cairn-fio",
    depends: "libc6 (>= GLIBC), libgcc-s1, fio",
    description: "An engine of fio: NVMe over Fabrics from user space",
    scripts: &[],
};

/// Writes the package of a tree.
pub(super) fn write(tree: &Path, package: &Package, about: &About, out: &Path) -> Result<PathBuf> {
    let control = out.join("control");
    if control.exists() {
        fs::remove_dir_all(&control)?;
    }
    fs::create_dir_all(&control)?;
    fs::write(control.join("control"), fields(tree, package, about)?)?;
    let sums = "find usr -type f -print0 | sort -z | xargs -0 -r md5sum";
    let sums = said(Command::new("sh").args(["-c", sums]).current_dir(tree))?;
    fs::write(control.join("md5sums"), sums + "\n")?;
    for (name, text) in package.scripts {
        let script = control.join(name);
        fs::write(&script, text)?;
        fs::set_permissions(script, fs::Permissions::from_mode(0o755))?;
    }
    let (control_tar, data_tar) = (out.join("control.tar.gz"), out.join("data.tar.gz"));
    do_it(tar(&control, &control_tar, about).args([GZIP, "."]))?;
    do_it(tar(tree, &data_tar, about).args([GZIP, "."]))?;
    let name = format!(
        "{}_{}_{}.deb",
        package.name, about.version, about.architecture
    );
    let file = out.join(name);
    let mut archive = fs::File::create(&file)?;
    archive.write_all(b"!<arch>\n")?;
    member(&mut archive, "debian-binary", b"2.0\n", about)?;
    for part in [&control_tar, &data_tar] {
        let name = part.file_name().and_then(|name| name.to_str());
        member(
            &mut archive,
            name.context("a name")?,
            &fs::read(part)?,
            about,
        )?;
        fs::remove_file(part)?;
    }
    fs::remove_dir_all(control)?;
    Ok(file)
}

/// A file in an `ar` archive: its header has fields of fixed width.
fn member(archive: &mut fs::File, name: &str, bytes: &[u8], about: &About) -> Result<()> {
    let (time, length) = (&about.time, bytes.len());
    writeln!(
        archive,
        "{name:<16}{time:<12}{:<6}{:<6}{:<8}{length:<10}`",
        0, 0, 100_644
    )?;
    archive.write_all(bytes)?;
    if length % 2 == 1 {
        archive.write_all(b"\n")?;
    }
    Ok(())
}

fn fields(tree: &Path, package: &Package, about: &About) -> Result<String> {
    let size = said(
        Command::new("du")
            .args(["-sk", "--apparent-size"])
            .arg(tree),
    )?;
    let size = size.split_whitespace().next().unwrap_or("0").to_owned();
    let depends = match package.depends.replace("GLIBC", &about.glibc) {
        none if none.is_empty() => format!("Depends: cairn (= {})\n", about.version),
        depends => format!("Depends: {depends}\nRecommends: libibverbs1, librdmacm1\n"),
    };
    Ok(format!(
        "Package: {}\nVersion: {}\nArchitecture: {}\nMaintainer: The Cairn developers <cairn@example.org>\n\
         Installed-Size: {size}\n{depends}Section: admin\nPriority: optional\n\
         Description: {}\n",
        package.name, about.version, about.architecture, package.description
    ))
}
