//! Run of the virtual machine from power on to power off, with a time limit.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::lab::Lab;
use super::machine::{self, Shares};
use super::patience::Patience;
use super::scenario::{Network, Options, Variable};
use super::tree::Tree;
use super::{booted, lan};

pub(crate) const CONSOLE_LOG: &str = "console.log";

pub(crate) const QEMU_LOG: &str = "qemu.log";

const SETTINGS: &str = "settings";

/// Time after the limit for the guest to end the scenario and store its logs.
const GRACE: Duration = Duration::from_secs(60);

/// File in the results folder that asks the guest to end the scenario.
const TIME_IS_UP: &str = "time-is-up";

const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(crate) struct Boot<'a> {
    /// Name of the scenario; if empty, the guest starts a shell.
    pub(crate) scenario: &'a str,
    pub(crate) options: &'a Options,
    pub(crate) programs: String,
    pub(crate) variables: &'a [Variable],
    pub(crate) timeout_s: u64,
    pub(crate) out_dir: PathBuf,
}

impl Boot<'_> {
    fn leave_settings(&self) -> Result<()> {
        let mut settings = format!(
            "CAIRN_SCENARIO='{}'\nCAIRN_PROGRAMS='{}'\n",
            self.scenario, self.programs
        );
        if self.options.systemd {
            settings += "CAIRN_INIT='systemd'\n";
        }
        for variable in self.variables {
            settings += &format!("{variable}\n");
        }
        fs::write(self.out_dir.join(SETTINGS), settings).context("cannot write the settings")
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Console {
    Quiet,
    Live,
    Terminal,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    PoweredOff,
    TimedOut,
}

pub(crate) fn run(
    lab: &Lab,
    tree: &Tree,
    boot: &Boot<'_>,
    booted: Option<&Path>,
    console: Console,
) -> Result<End> {
    boot.leave_settings()?;
    let mut qemu = command(lab, tree, boot)?;
    if let Some(state) = booted {
        booted::begin_with(&mut qemu, state);
    } else if console != Console::Terminal {
        qemu.stdin(Stdio::null());
    }
    let end = match console {
        Console::Terminal => watch_by_person(&mut qemu),
        _ => watch_by_log(&mut qemu, boot, console),
    };
    machine::remove_disks(boot.options, &boot.out_dir);
    end
}

fn command(lab: &Lab, tree: &Tree, boot: &Boot<'_>) -> Result<Command> {
    let shares = Shares {
        tests: &tree.vm_tests(),
        programs: &tree.programs(),
        out: &fs::canonicalize(&boot.out_dir)?,
    };
    let mut qemu = machine::command(&lab.files, boot.options, &shares, "")?;
    match &boot.options.network {
        Network::None => {
            qemu.args(["-nic", "none"]);
            Ok(qemu)
        }
        Network::Tap { beside } => {
            qemu.args(lan::card());
            lan::enclose(&qemu, tree, beside, &boot.out_dir)
        }
    }
}

fn watch_by_person(qemu: &mut Command) -> Result<End> {
    qemu.args(["-serial", "mon:stdio"])
        .status()
        .context("cannot run qemu")?;
    Ok(End::PoweredOff)
}

fn watch_by_log(qemu: &mut Command, boot: &Boot<'_>, console: Console) -> Result<End> {
    // An earlier boot of the scenario may have left this file.
    let _ = fs::remove_file(boot.out_dir.join(TIME_IS_UP));
    qemu.args(["-serial", "stdio"]).stdout(Stdio::piped());
    qemu.stderr(File::create(boot.out_dir.join(QEMU_LOG))?);
    let mut child = qemu.spawn().context("cannot run qemu")?;
    if let Some(input) = child.stdin.take() {
        booted::release(input, &boot.out_dir);
    }
    let patience = Patience::new(child.id());
    let ended = follow_console(&mut child, &boot.out_dir.join(CONSOLE_LOG), console)?;
    let end = wait_for_end(&ended, &patience, boot)?;
    if end == End::TimedOut {
        child.kill().context("cannot stop qemu")?;
    }
    child.wait()?;
    Ok(end)
}

/// Returns a channel that sends or closes when the guest's console ends.
fn follow_console(qemu: &mut Child, log: &Path, console: Console) -> Result<Receiver<()>> {
    let mut from = qemu.stdout.take().expect("qemu was started with a pipe");
    let mut log = File::create(log)?;
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            let text: Vec<u8> = bytes[..length]
                .iter()
                .copied()
                .filter(|b| *b != b'\r')
                .collect();
            let _ = log.write_all(&text);
            if console == Console::Live {
                let _ = io::stdout()
                    .write_all(&text)
                    .and_then(|()| io::stdout().flush());
            }
        }
        let _ = done.send(());
    });
    Ok(ended)
}

fn wait_for_end(ended: &Receiver<()>, patience: &Patience, boot: &Boot<'_>) -> Result<End> {
    let limit = Duration::from_secs(boot.timeout_s);
    let time_is_up = boot.out_dir.join(TIME_IS_UP);
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(LOOK_EVERY) {
        if !patience.is_beyond(limit) {
            continue;
        }
        if !time_is_up.exists() {
            File::create(&time_is_up).context("cannot write the file that ends the scenario")?;
        }
        if patience.is_beyond(limit + GRACE) {
            return Ok(End::TimedOut);
        }
    }
    Ok(End::PoweredOff)
}
