use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::fio;
use super::run::Run;
use super::target::{Kind, connect, disconnect};
use super::undo::Undo;

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
        let device = connect()?;
        let mut fio = fio::command_on(&device);
        fio.args(["--rw=randwrite", "--bs=4k", "--iodepth=8", "--io_size=32m"]);
        fio.args(["--rate_iops=2000", "--verify=crc32c", "--verify_fatal=1"]);
        fio.args(["--verify_state_save=0"]);
        let mut writer = fio
            .stdout(Stdio::null())
            .spawn()
            .context("cannot run fio")?;
        sleep(Duration::from_secs(2));
        target.kill()?;
        let running = writer.try_wait()?.is_none();
        let target = self.start(Kind::Cairn, undo)?;
        let status = writer.wait()?;
        ensure!(
            running,
            "fio ended before cairn-target was killed: {status}"
        );
        ensure!(
            status.success(),
            "fio found wrong data, or errors, after cairn-target was killed: {status}"
        );
        self.note(
            "cairn-target was killed under I/O and started again: fio verified all its data."
                .to_owned(),
        );
        disconnect()?;
        target.stop()
    }

    fn note(&mut self, note: String) {
        println!("{note}");
        self.results.notes.push(note);
    }
}
