//! Machine that builds the lab: distribution, package sources, and tools.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::apt;
use super::arch::Arch;
use super::process;
use crate::cache;

/// Tools of the lab with their Debian packages, beside QEMU; the last two are only required without
/// root.
const TOOLS: [(&str, &str); 8] = [
    ("mmdebstrap", "mmdebstrap"),
    ("mke2fs", "e2fsprogs"),
    ("cpio", "cpio"),
    ("depmod", "kmod"),
    ("xz", "xz-utils"),
    ("ip", "iproute2"),
    ("newuidmap", "uidmap"),
    ("fakeroot", "fakeroot"),
];
const TOOLS_OF_ROOT: usize = 6;

pub(crate) const CEPH: [(&str, &str); 3] = [
    ("ceph-mon", "ceph-mon"),
    ("ceph-osd", "ceph-osd"),
    ("rbd", "ceph-common"),
];

pub(crate) struct Host {
    id: String,
    /// Codename of this machine's distribution release. The guest uses the same release, because it
    /// runs programs built here.
    pub(crate) suite: String,
    root: bool,
    pub(crate) arch: Arch,
    apt_config: Option<PathBuf>,
}

impl Host {
    pub(crate) fn prepare(arch: Arch) -> Result<Self> {
        let mut host = Self::detect(arch)?;
        host.install_missing_tools()?;
        if arch.is_foreign() {
            let folder = cache::folder()?
                .join("vm")
                .join(format!("apt-{}", arch.debian()));
            host.apt_config = Some(apt::configure(arch, &host.package_sources()?, &folder)?);
        }
        Ok(host)
    }

    fn detect(arch: Arch) -> Result<Self> {
        let release = fs::read_to_string("/etc/os-release").context("cannot read os-release")?;
        let id = os_release(&release, "ID").unwrap_or_default();
        let suite = os_release(&release, "VERSION_CODENAME").unwrap_or_default();
        ensure!(
            !suite.is_empty() && on_path("apt-get"),
            "the VM lab builds its guest from Debian or Ubuntu packages and needs such a host; \
             this is {id:?}. Run it in a Debian container or on a Debian machine."
        );
        ensure!(
            cfg!(target_arch = "x86_64"),
            "the VM lab emulates an x86-64 guest that runs this machine's own binaries, and this \
             machine is not x86-64"
        );
        let uid = process::output(process::command("id").arg("-u"))?;
        Ok(Self {
            id,
            suite,
            root: uid.trim() == "0",
            arch,
            apt_config: None,
        })
    }

    fn install_missing_tools(&self) -> Result<()> {
        let missing = self.missing_tools();
        if missing.is_empty() {
            return Ok(());
        }
        self.install(&missing)
    }

    fn missing_tools(&self) -> Vec<&'static str> {
        let needed = if self.root {
            &TOOLS[..TOOLS_OF_ROOT]
        } else {
            &TOOLS[..]
        };
        [self.arch.qemu()]
            .iter()
            .chain(needed)
            .filter(|(tool, _)| !on_path(tool))
            .map(|&(_, package)| package)
            .collect()
    }

    fn install(&self, missing: &[&str]) -> Result<()> {
        let packages = missing.join(" ");
        if !self.root {
            bail!(
                "programs are needed that are not installed. As root, run:\n\n    \
                 apt-get update && apt-get install -y --no-install-recommends {packages}\n"
            );
        }
        eprintln!("apt-get install {packages}");
        self.refresh_package_lists()?;
        let mut apt = process::command("apt-get");
        apt.args(["-qq", "install", "-y", "--no-install-recommends"])
            .args(missing);
        apt.env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let status = apt.status().context("cannot run apt-get")?;
        ensure!(
            status.success(),
            "apt-get install {packages} failed (its words are above)"
        );
        Ok(())
    }

    pub(crate) fn refresh_package_lists(&self) -> Result<()> {
        if self.root || self.apt_config.is_some() {
            let mut apt = self.apt("apt-get");
            apt.args(["-qq", "update"])
                .stdin(Stdio::null())
                .stdout(Stdio::null());
            apt.status().context("cannot run apt-get update")?;
        }
        Ok(())
    }

    pub(crate) fn kernel_packages(&self) -> &'static [&'static str] {
        match self.id.as_str() {
            "ubuntu" => &["linux-image-generic"],
            _ => self.arch.debian_kernels(),
        }
    }

    /// A program of apt that downloads packages of the guest's architecture.
    pub(crate) fn apt(&self, program: &str) -> Command {
        let mut command = process::command(program);
        if let Some(config) = &self.apt_config {
            command.env("APT_CONFIG", config);
        }
        command
    }

    pub(crate) fn package_sources(&self) -> Result<Vec<String>> {
        let mut apt = process::command("apt-get");
        apt.args([
            "indextargets",
            "--format",
            "$(CODENAME) $(REPO_URI) $(RELEASE) $(COMPONENT)",
        ]);
        let targets = process::output(apt.arg("Created-By: Packages"))?;
        let lines: Vec<String> = targets
            .lines()
            .filter_map(|line| {
                let [codename, uri, release, component] =
                    line.split(' ').collect::<Vec<_>>().try_into().ok()?;
                let ours = codename.starts_with(&self.suite);
                ours.then(|| format!("deb {uri} {release} {component}"))
            })
            .collect();
        ensure!(
            !lines.is_empty(),
            "apt knows no package source for {}: run `apt-get update` as root",
            self.suite
        );
        Ok(lines)
    }

    pub(crate) fn rooted(&self, program: &str) -> Command {
        if self.root {
            return process::command(program);
        }
        let mut command = process::command("fakeroot");
        command.args(["--", program]);
        command
    }
}

pub(crate) fn require(programs: &[&str], lab: bool) -> Result<()> {
    let mut missing: Vec<&str> = programs
        .iter()
        .copied()
        .filter(|program| !on_path(program))
        .collect();
    if missing.is_empty() && !lab {
        return Ok(());
    }
    let host = Host::detect(Arch::X86_64)?;
    if lab {
        missing.extend(host.missing_tools());
    }
    if missing.is_empty() {
        return Ok(());
    }
    host.install(&missing)
}

pub(crate) fn require_programs(programs: &[(&str, &'static str)]) -> Result<()> {
    let missing = programs.iter().filter(|(program, _)| !on_path(program));
    let packages: Vec<&str> = missing.map(|&(_, package)| package).collect();
    if packages.is_empty() {
        return Ok(());
    }
    Host::detect(Arch::X86_64)?.install(&packages)
}

fn os_release(text: &str, key: &str) -> Option<String> {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
    Some(value.trim_matches('"').to_owned())
}

pub(crate) fn on_path(program: &str) -> bool {
    process::search_path()
        .split(':')
        .any(|dir| Path::new(dir).join(program).exists())
}

#[cfg(test)]
mod tests {
    use super::os_release;

    #[test]
    fn os_release_values_may_be_quoted() {
        let text = "PRETTY_NAME=\"Debian\"\nID=debian\nVERSION_CODENAME=\"bookworm\"\n";
        assert_eq!(os_release(text, "ID").as_deref(), Some("debian"));
        assert_eq!(
            os_release(text, "VERSION_CODENAME").as_deref(),
            Some("bookworm")
        );
        assert_eq!(os_release(text, "VERSION"), None);
    }
}
