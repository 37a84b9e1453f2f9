//! Ceph cluster on loopback: one monitor and one OSD in a folder.
//!
//! The cluster requires Debian's `ceph-mon`, `ceph-osd` and `ceph-common`, but neither systemd nor
//! root. Dropping the [`Cluster`] ends all processes; the caller deletes the folder.

// Public items are for tests; names and types document them.
#![allow(missing_docs)]

mod daemon;
mod settings;

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use daemon::Daemon;

const PROGRAMS: [&str; 6] = [
    "ceph-mon",
    "ceph-osd",
    "ceph",
    "rbd",
    "ceph-authtool",
    "monmaptool",
];

/// Command that installs Ceph on Debian and Ubuntu.
pub const INSTALL: &str = "apt-get install --no-install-recommends ceph-mon ceph-osd ceph-common";

const TIMEOUT: Duration = Duration::from_secs(60);

const LOOK: Duration = Duration::from_millis(50);

pub const POOL: &str = "rbd";

pub struct Cluster {
    folder: PathBuf,
    monitor: Option<Daemon>,
    osd: Option<Daemon>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster({})", self.folder.display())
    }
}

/// Returns an error message if a Ceph program is not installed.
#[must_use]
pub fn missing() -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let is_there = |program: &&&str| folders.iter().any(|it| it.join(program).is_file());
    let missing = PROGRAMS.iter().find(|program| !is_there(program))?;
    Some(format!("no program {missing}: {INSTALL}"))
}

impl Cluster {
    /// Starts a new cluster with a pool for images in an empty folder.
    pub fn start(folder: &Path) -> io::Result<Self> {
        if let Some(missing) = missing() {
            return Err(io::Error::other(missing));
        }
        let folder = folder.canonicalize()?;
        if folder.as_os_str().len() > 80 {
            let shown = folder.display();
            return Err(io::Error::other(format!("{shown} is too long a path")));
        }
        let uuid = settings::prepare(&folder)?;
        let mut this = Self {
            folder,
            monitor: None,
            osd: None,
        };
        this.start_monitor()?;
        this.ceph(&["osd", "new", &uuid, "0"])?;
        this.launch_osd()?;
        this.ceph(&["osd", "pool", "create", POOL, "8", "8"])?;
        this.wait_for_osd()?;
        this.rbd(&["pool", "init", POOL])?;
        Ok(this)
    }

    #[must_use]
    pub fn conf(&self) -> PathBuf {
        self.folder.join("ceph.conf")
    }

    pub fn image(&self, name: &str, size: &str) -> io::Result<()> {
        self.rbd(&["create", "--size", size, name]).map(drop)
    }

    pub fn rbd(&self, arguments: &[&str]) -> io::Result<String> {
        self.run("rbd", arguments)
    }

    pub fn ceph(&self, arguments: &[&str]) -> io::Result<String> {
        self.run("ceph", arguments)
    }

    pub fn kill_osd(&mut self) -> io::Result<()> {
        self.osd.take().map_or(Ok(()), Daemon::kill)
    }

    pub fn start_osd(&mut self) -> io::Result<()> {
        self.launch_osd()?;
        self.wait_for_osd()
    }

    /// Kills the only monitor with SIGKILL: the cluster loses its quorum.
    pub fn kill_monitor(&mut self) -> io::Result<()> {
        self.monitor.take().map_or(Ok(()), Daemon::kill)
    }

    pub fn start_monitor(&mut self) -> io::Result<()> {
        self.monitor = Some(Daemon::start(
            &self.folder,
            "mon",
            "ceph-mon",
            &["-i", "a"],
        )?);
        self.wait_for("mon.a", "mon_status", r#""state": "leader""#)
    }

    fn launch_osd(&mut self) -> io::Result<()> {
        let arguments = ["-i", "0", "--no-mon-config"];
        self.osd = Some(Daemon::start(&self.folder, "osd", "ceph-osd", &arguments)?);
        Ok(())
    }

    fn wait_for_osd(&mut self) -> io::Result<()> {
        self.wait_for("osd.0", "status", r#""state": "active""#)
    }

    fn wait_for(&mut self, daemon: &str, command: &str, answer: &str) -> io::Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        let socket = self.folder.join(format!("{daemon}.asok"));
        loop {
            let mut ask = self.command("ceph");
            ask.arg("--admin-daemon").arg(&socket).arg(command);
            ask.stderr(Stdio::null());
            let answered = ask.output()?;
            if String::from_utf8_lossy(&answered.stdout).contains(answer) {
                return Ok(());
            }
            for daemon in [&mut self.monitor, &mut self.osd].into_iter().flatten() {
                daemon.check()?;
            }
            if Instant::now() >= deadline {
                let shown = self.folder.display();
                return Err(io::Error::other(format!(
                    "{daemon} is not ready: see {shown}"
                )));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn command(&self, program: &str) -> Command {
        // `timeout` ends the command, because a Ceph client waits for a missing OSD without limit.
        let mut command = Command::new("timeout");
        command.arg(TIMEOUT.as_secs().to_string()).arg(program);
        command.env("CEPH_CONF", self.conf()).env("CEPH_ARGS", "");
        command
    }

    fn run(&self, program: &str, arguments: &[&str]) -> io::Result<String> {
        let mut command = self.command(program);
        command.args(arguments);
        succeed(&mut command)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.kill_osd();
    }
}

fn succeed(command: &mut Command) -> io::Result<String> {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output()?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    let arguments: Vec<&OsStr> = command.get_args().collect();
    let words = String::from_utf8_lossy(&stderr);
    Err(io::Error::other(format!(
        "{arguments:?}: {status}: {words}"
    )))
}

fn proc_text(path: &str) -> io::Result<String> {
    Ok(fs::read_to_string(path)?.trim().to_owned())
}
