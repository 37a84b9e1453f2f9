//! Private network of the guest and of programs on this machine.
//!
//! QEMU and the programs run in new namespaces for network and processes. A tap interface connects
//! the guest's network card to the network namespace. The process namespace ends with this process.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use super::process;
use super::tree::Tree;

const TAP: &str = "tap0";

/// Options of `unshare` for root, and for users who become root in the namespaces.
const WAYS: [&[&str]; 2] = [&[], &["--user", "--map-root-user"]];
const NAMESPACES: [&str; 5] = ["--net", "--pid", "--fork", "--kill-child", "--mount-proc"];

pub(crate) fn card() -> [String; 4] {
    let netdev = format!("tap,id=lan,ifname={TAP},script=no,downscript=no");
    [
        "-netdev".into(),
        netdev,
        "-device".into(),
        "virtio-net-pci,netdev=lan".into(),
    ]
}

pub(crate) fn enclose(
    qemu: &Command,
    tree: &Tree,
    beside: &str,
    out_dir: &Path,
) -> Result<Command> {
    let scripts = tree.vm_tests();
    let mut enclosed = namespace(way_in()?);
    enclosed
        .arg("bash")
        .arg(scripts.join("lib/lan.sh"))
        .arg(TAP)
        .arg(scripts.join(format!("beside/{beside}.sh")))
        .arg(qemu.get_program())
        .args(qemu.get_args());
    let path = format!("{}:{}", tree.programs().display(), process::search_path());
    enclosed.env("PATH", path).env("OUT", out_dir);
    Ok(enclosed)
}

pub(crate) fn way_in() -> Result<&'static [&'static str]> {
    let mut errors = String::new();
    for way in WAYS {
        let mut attempt = namespace(way);
        attempt.args(["ip", "tuntap", "add", "dev", TAP, "mode", "tap"]);
        match process::output(&mut attempt) {
            Ok(_) => return Ok(way),
            Err(error) => errors += &format!("\n    {error:#}"),
        }
    }
    bail!(
        "this machine does not allow a network namespace with a tap:{errors}\n   Run it as \
         root, or allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, \
         kernel.apparmor_restrict_unprivileged_userns=0) and /dev/net/tun to be opened; in a \
         container, give it CAP_SYS_ADMIN, CAP_NET_ADMIN and --device /dev/net/tun"
    )
}

fn namespace(way: &[&str]) -> Command {
    let mut command = process::command("setpriv");
    command
        .args(["--pdeathsig", "KILL", "unshare"])
        .args(way)
        .args(NAMESPACES);
    command
}
