use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::fio;
use super::run::Run;
use super::target::{Kind, connect, disconnect};
use super::undo::Undo;

const UNDER_IO: Duration = Duration::from_secs(2);

impl Run<'_> {
    pub(super) fn reconnect(&mut self, kind: Kind, undo: &mut Undo) -> Result<()> {
        let target = self.start(kind, undo)?;
        let began = Instant::now();
        for done in 0..self.args.reconnects {
            connect().with_context(|| format!("after {done} connects of {}", kind.name()))?;
            disconnect()?;
        }
        let (count, took) = (self.args.reconnects, began.elapsed());
        self.note(format!(
            "{count} connects and disconnects of {}: all succeeded, {:.1} s.",
            kind.name(),
            took.as_secs_f64()
        ));
        target.stop()
    }

    pub(super) fn kill_target(&mut self, undo: &mut Undo) -> Result<()> {
        let target = self.start(Kind::Cairn, undo)?;
        let mut writer = Writer::start(&connect()?)?;
        sleep(UNDER_IO);
        target.kill()?;
        writer.still_runs("cairn-target was killed")?;
        let target = self.start(Kind::Cairn, undo)?;
        writer.finish("cairn-target was killed")?;
        self.note(
            "cairn-target was killed under I/O and started again: fio verified all its data."
                .to_owned(),
        );
        disconnect()?;
        target.stop()
    }

    pub(super) fn kill_host(&mut self, kind: Kind, undo: &mut Undo) -> Result<()> {
        let target = self.start(kind, undo)?;
        let device = connect()?;
        fio::fill_verified(&device)?;
        let mut writer = Writer::start(&device)?;
        sleep(UNDER_IO);
        writer.still_runs("it was killed")?;
        writer.kill()?;
        disconnect()?;
        fio::verify(&connect()?)
            .with_context(|| format!("blocks of {} after fio was killed", kind.name()))?;
        self.note(format!(
            "fio was killed under I/O to {}: after a new connect each block was whole.",
            kind.name()
        ));
        disconnect()?;
        target.stop()
    }

    fn note(&mut self, note: String) {
        println!("{note}");
        self.results.notes.push(note);
    }
}

/// fio that writes for at least four seconds, then verifies.
struct Writer(Child);

impl Writer {
    fn start(device: &Path) -> Result<Self> {
        let mut fio = fio::command_on(device);
        fio.args(["--rw=randwrite", "--bs=4k", "--iodepth=8", "--io_size=32m"]);
        fio.args(["--rate_iops=2000", "--verify=crc32c", "--verify_fatal=1"]);
        fio.args(["--verify_state_save=0", "--thread"]);
        let fio = fio.stdout(Stdio::null()).spawn();
        Ok(Self(fio.context("cannot run fio")?))
    }

    fn still_runs(&mut self, event: &str) -> Result<()> {
        match self.0.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("fio ended before {event}: {status}"),
        }
    }

    fn kill(&mut self) -> Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }

    fn finish(&mut self, event: &str) -> Result<()> {
        let status = self.0.wait()?;
        ensure!(
            status.success(),
            "fio found wrong data, or errors, after {event}: {status}"
        );
        Ok(())
    }
}
