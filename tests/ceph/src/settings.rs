//! Initial files of a cluster: configuration, keys, and stores of monitor and OSD.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

use super::{proc_text, succeed};

const DISK_BYTES: u64 = 16 << 30;

pub(crate) fn prepare(folder: &Path) -> io::Result<String> {
    let port = free_port()?;
    let fsid = proc_text("/proc/sys/kernel/random/uuid")?;
    let uuid = proc_text("/proc/sys/kernel/random/uuid")?;
    let conf = folder.join("ceph.conf");
    fs::create_dir(folder.join("mon"))?;
    fs::create_dir(folder.join("osd"))?;
    fs::write(&conf, text(folder, &fsid, port))?;
    make_keys(folder)?;
    let monmap = folder.join("monmap");
    let address = format!("[v2:127.0.0.1:{port}/0]");
    succeed(
        Command::new("monmaptool")
            .args([
                "--create",
                "--clobber",
                "--fsid",
                &fsid,
                "--addv",
                "a",
                &address,
            ])
            .args(["--set-min-mon-release", "16"])
            .arg(&monmap),
    )?;
    succeed(
        Command::new("ceph-mon")
            .args(["-i", "a", "--mkfs", "--monmap"])
            .arg(&monmap)
            .arg("--keyring")
            .arg(folder.join("keyring"))
            .arg("-c")
            .arg(&conf),
    )?;
    succeed(
        Command::new("ceph-osd")
            .args([
                "-i",
                "0",
                "--no-mon-config",
                "--mkfs",
                "--osd-uuid",
                &uuid,
                "-c",
            ])
            .arg(&conf),
    )?;
    Ok(uuid)
}

fn free_port() -> io::Result<u16> {
    static TURN: AtomicU16 = AtomicU16::new(0);
    let turn = TURN.fetch_add(1, Ordering::Relaxed);
    let start = (std::process::id() as u16)
        .wrapping_mul(37)
        .wrapping_add(turn * 301)
        % 9000;
    (0..1000)
        .map(|n| 20_000 + (start + n) % 9000)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .ok_or_else(|| io::Error::other("no port is free on loopback"))
}

fn make_keys(folder: &Path) -> io::Result<()> {
    let everything = ["--cap", "mon", "allow *", "--cap", "osd", "allow *"];
    let osd = [
        "--cap",
        "mon",
        "allow profile osd",
        "--cap",
        "osd",
        "allow *",
    ];
    let keys: [(&str, &[&str]); 3] = [
        ("mon.", &["--cap", "mon", "allow *"]),
        ("client.admin", &everything),
        ("osd.0", &osd),
    ];
    for (index, (name, caps)) in keys.into_iter().enumerate() {
        let mut tool = Command::new("ceph-authtool");
        tool.arg(folder.join("keyring"));
        if index == 0 {
            tool.arg("--create-keyring");
        }
        succeed(tool.args(["--gen-key", "-n", name]).args(caps))?;
    }
    Ok(())
}

fn text(folder: &Path, fsid: &str, port: u16) -> String {
    let folder = folder.display();
    let (osd_min, osd_max) = (port + 1, port + 200);
    format!(
        "\
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{port}/0]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
auth allow insecure global id reclaim = false
keyring = {folder}/keyring
run dir = {folder}
log to stderr = false
osd pool default size = 1
osd pool default min size = 1
osd crush chooseleaf type = 0
osd objectstore = bluestore
ms async op threads = 2
objecter tick interval = 0.5
[mon]
log file = {folder}/mon.log
mon data = {folder}/mon
admin socket = {folder}/mon.a.asok
mon allow pool size one = true
mon allow pool delete = true
mon cluster log to file = false
mon data avail warn = 1
mon data avail crit = 1
paxos propose interval = 0.02
paxos min wait = 0.01
[osd]
log file = {folder}/osd.log
osd data = {folder}/osd
admin socket = {folder}/osd.0.asok
ms bind port min = {osd_min}
ms bind port max = {osd_max}
osd memory target = 1073741824
bluestore cache autotune = false
bluestore cache size = 67108864
bluestore fsck on mkfs = false
bdev aio poll ms = 10
bluefs log compact min size = 1048576
bluestore block size = {DISK_BYTES}
osd op num shards = 2
osd op num threads per shard = 1
osd min pg log entries = 100
osd max pg log entries = 500
osd max scrubs = 0
"
    )
}
