//! Root file system of the guest: the distribution of this machine, with storage tools.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::host::Host;
use super::kernel;
use super::process::{self, Log};

pub(crate) const IMAGE: &str = "root.ext4";

const PACKAGES: [&str; 30] = [
    "bsdextrautils",
    "dmsetup",
    "e2fsprogs",
    "ethtool",
    "fio",
    "gawk",
    "ibverbs-providers",
    "ibverbs-utils",
    "iproute2",
    "iputils-ping",
    "jq",
    "kmod",
    "less",
    "libibverbs1",
    "librdmacm1",
    "mount",
    "nvme-cli",
    "openssh-server",
    "passwd",
    "perftest",
    "procps",
    "psmisc",
    "rdma-core",
    "rdmacm-utils",
    "strace",
    "systemd",
    "tcpdump",
    "udev",
    "util-linux",
    "xfsprogs",
];

/// Size of the image, with room for files of scenarios. The image is sparse.
const IMAGE_SIZE: &str = "6G";

/// Hook that prepares an empty root for packages which expect /bin in /usr.
const MERGED_USR: &str = r#"for dir in bin lib sbin; do
    mkdir -p "$1/usr/$dir" && ln -s "usr/$dir" "$1/$dir" || exit
done"#;

/// Results of maintainer scripts that scenarios need, in the root folder. Packages of a foreign
/// architecture are only extracted, because their scripts cannot run on this machine.
const CONFIGURE: &str = "for file in passwd group; do
        cp usr/share/base-passwd/$file.master etc/$file
    done
    ln -s /run var/run
    ln -s mawk usr/bin/awk
    id=$(cat /proc/sys/kernel/random/uuid)
    echo $id > etc/nvme/hostid
    echo nqn.2014-08.org.nvmexpress:uuid:$id > etc/nvme/hostnqn";

pub(crate) fn build(host: &Host, kernel_dir: &Path, dir: &Path, log: &Log) -> Result<()> {
    host.refresh_package_lists()?;
    let archive = dir.join("root.tar");
    let mut mmdebstrap = process::command("mmdebstrap");
    mmdebstrap.arg("--dpkgopt=path-exclude=/usr/share/man/*");
    if host.arch.is_foreign() {
        mmdebstrap.arg(format!("--architectures={}", host.arch.debian()));
        mmdebstrap.args(["--variant=extract", "--include=?essential"]);
        mmdebstrap.arg(format!("--setup-hook={MERGED_USR}"));
    } else {
        mmdebstrap.arg("--variant=apt");
    }
    mmdebstrap.arg(format!("--include={}", PACKAGES.join(",")));
    mmdebstrap
        .arg(&host.suite)
        .arg(&archive)
        .args(host.package_sources()?);
    log.run(&mut mmdebstrap)?;

    // A single shell, because fakeroot keeps file owners only while it runs.
    let tree = dir.join("tree");
    let script = "set -e
        mkdir \"$1\"
        tar -C \"$1\" -xf \"$2\" --exclude='./dev/*'
        mkdir -p \"$1\"/cairn/tests \"$1\"/cairn/programs \"$1\"/cairn/out
        (cd \"$1\"; eval \"$6\")
        cp -a \"$3\" \"$1\"/usr/lib/
        mke2fs -q -t ext4 -O ^has_journal -m 0 -L root -d \"$1\" \"$4\" \"$5\"";
    let mut shell = host.rooted("sh");
    shell.args(["-c", script, "sh"]).arg(&tree).arg(&archive);
    shell
        .arg(kernel::tree(kernel_dir).join("lib/modules"))
        .arg(dir.join(IMAGE))
        .arg(IMAGE_SIZE)
        .arg(if host.arch.is_foreign() {
            CONFIGURE
        } else {
            ""
        });
    log.run(&mut shell)?;

    fs::remove_file(&archive)?;
    fs::remove_dir_all(&tree)?;
    Ok(())
}
