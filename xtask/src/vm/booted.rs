//! A machine that has booted, kept in a file: scenarios that require nothing of their machine begin there.
//!
//! Emulated, a boot takes ten seconds of a processor, and reading its result one. The machine is kept
//! before it has opened anything of this machine's: QEMU keeps none that has mounted a folder, and none of
//! its disks has been read but for its size.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::lab::Files;
use super::machine::{self, Shares};
use super::process;
use super::scenario::Options;
use super::tree::create_dir;

/// The machine, in the layer's folder.
pub(crate) const STATE: &str = "state";
/// Names the file for the shell that QEMU runs, so that no path has to be quoted.
const STATE_VARIABLE: &str = "CAIRN_STATE";
/// What `init.sh` says when it has come so far, on a line of its own.
const HELD: &str = "cairn: booted";
/// What `init.sh` leaves in the scenario's folder when it goes on.
const AWAKE: &str = "awake";

/// Lines of the console that explain a failure.
const CONSOLE_LINES: usize = 20;

/// How long a boot may take on a busy machine, and the writing of 120 MB.
const BOOT_MAX: Duration = Duration::from_secs(180);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// QEMU's version, which must be the same to read what it wrote.
pub(crate) fn version() -> Result<String> {
    process::output(process::command("qemu-system-x86_64").arg("--version"))
}

/// Fills the layer: one file.
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

/// Writes the machine to its file. The monitor takes a command when the one before it has ended.
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

/// The machine begins with this state instead of a boot.
pub(crate) fn begin_with(qemu: &mut Command, state: &Path) {
    qemu.args(["-incoming", &format!("exec:cat \"${STATE_VARIABLE}\"")])
        .env(STATE_VARIABLE, state)
        .stdin(Stdio::piped());
}

/// Has the machine go on. What reaches its console before its state is read is lost, so this repeats until the machine does.
pub(crate) fn release(mut console: ChildStdin, out_dir: &Path) {
    let awake = out_dir.join(AWAKE);
    thread::spawn(move || {
        while !awake.exists() && console.write_all(b"\n").is_ok() {
            thread::sleep(LOOK_AGAIN);
        }
    });
}
