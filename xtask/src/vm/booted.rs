//! Saved state of a booted machine, from which scenarios with the default machine start.
//!
//! An emulated boot takes ten seconds of processor time, a restore one second. QEMU cannot save a
//! machine with mounted shares, so the guest is saved before it opens a file of this host.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::arch::Arch;
use super::lab::Files;
use super::machine::{self, Shares};
use super::process;
use super::scenario::Options;
use super::tree::create_dir;

pub(crate) const STATE: &str = "state";
/// Variable with the file's path for QEMU's shell, which avoids quoting.
const STATE_VARIABLE: &str = "CAIRN_STATE";
/// Line printed by `init.sh` when the machine is ready to be saved.
const HELD: &str = "cairn: booted";
/// File created by `init.sh` in the scenario's folder when it continues.
const AWAKE: &str = "awake";

const CONSOLE_LINES: usize = 20;

/// Maximum time to boot on a busy host and to write the state (120 MB).
const BOOT_MAX: Duration = Duration::from_secs(180);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// QEMU version; only the version that wrote a state can read it.
pub(crate) fn version() -> Result<String> {
    process::output(process::command(Arch::X86_64.qemu().0).arg("--version"))
}

pub(crate) fn build(files: &Files, dir: &Path) -> Result<()> {
    let none = dir.join("empty");
    create_dir(&none)?;
    let (console, monitor) = (dir.join("console.log"), dir.join("monitor.log"));
    let shares = Shares {
        tests: &none,
        programs: &none,
        out: &none,
    };
    let mut qemu = machine::command(files, &Options::plain(), &shares, "CAIRN_HOLD=1")?;
    let serial = format!("file:{}", machine::escape_commas(&console));
    let mut child = qemu
        .args(["-nic", "none", "-monitor", "stdio", "-serial", &serial])
        .env(STATE_VARIABLE, dir.join(STATE))
        .stdin(Stdio::piped())
        .stdout(File::create(&monitor)?)
        .stderr(File::create(dir.join("qemu.log"))?)
        .spawn()
        .context("cannot run qemu")?;
    let kept = wait_for_boot(&mut child, &console).and_then(|()| keep(&mut child));
    let _ = child.kill();
    child.wait()?;
    kept.with_context(|| process::tail(&console, CONSOLE_LINES).unwrap_or_default())?;
    let said = fs::read_to_string(&monitor)?;
    ensure!(said.contains("completed"), "QEMU kept no machine:\n{said}");
    fs::remove_dir(&none)?;
    Ok(())
}

fn wait_for_boot(child: &mut Child, console: &Path) -> Result<()> {
    let until = Instant::now() + BOOT_MAX;
    while !fs::read_to_string(console).is_ok_and(|said| said.contains(HELD)) {
        if let Some(status) = child.try_wait()? {
            bail!("the machine stopped while it booted: {status}");
        }
        ensure!(
            Instant::now() < until,
            "the machine did not boot in {BOOT_MAX:?}"
        );
        thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

/// The monitor executes each command after the previous command has ended.
fn keep(child: &mut Child) -> Result<()> {
    let mut monitor = child.stdin.take().context("qemu was started with a pipe")?;
    write!(
        monitor,
        "migrate \"exec:cat > \\\"${STATE_VARIABLE}\\\"\"\ninfo migrate\nquit\n"
    )?;
    let until = Instant::now() + BOOT_MAX;
    while child.try_wait()?.is_none() {
        ensure!(Instant::now() < until, "QEMU did not end in {BOOT_MAX:?}");
        thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

pub(crate) fn begin_with(qemu: &mut Command, state: &Path) {
    qemu.args(["-incoming", &format!("exec:cat \"${STATE_VARIABLE}\"")])
        .env(STATE_VARIABLE, state)
        .stdin(Stdio::piped());
}

/// Resumes the machine. Console input is lost until the state is loaded, so a thread sends newlines
/// until the machine runs.
pub(crate) fn release(mut console: ChildStdin, out_dir: &Path) {
    let awake = out_dir.join(AWAKE);
    thread::spawn(move || {
        while !awake.exists() && console.write_all(b"\n").is_ok() {
            thread::sleep(LOOK_AGAIN);
        }
    });
}
