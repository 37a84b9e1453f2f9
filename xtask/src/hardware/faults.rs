use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::fio;
use super::run::Run;
use super::target::{EVERY, Kind, connect, disconnect, is_host_disconnected, wait_until};

const UNDER_IO: Duration = Duration::from_secs(2);
/// Maximum time in which a person and the host react.
const HAND: Duration = Duration::from_secs(120);

impl Run<'_> {
    pub(super) fn reconnect(&mut self, kind: Kind) -> Result<()> {
        let target = self.start(kind)?;
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

    pub(super) fn disturb(&mut self) -> Result<()> {
        let target = self.start(Kind::Cairn)?;
        self.kill_fio()?;
        let device = connect()?;
        let mut writer = Writer::start(&device)?;
        sleep(UNDER_IO);
        target.kill()?;
        writer.still_runs("cairn-target was killed")?;
        let target = self.start(Kind::Cairn)?;
        writer.finish("cairn-target was killed")?;
        self.note(
            "cairn-target was killed under I/O and started again: fio verified all its data."
                .to_owned(),
        );
        if self.args.pull {
            self.pull(&device)?;
        }
        disconnect()?;
        target.stop()
    }

    fn kill_fio(&mut self) -> Result<()> {
        let device = connect()?;
        fio::fill_verified(&device)?;
        let mut writer = Writer::start(&device)?;
        sleep(UNDER_IO);
        writer.still_runs("it was killed")?;
        writer.kill()?;
        disconnect()?;
        fio::verify(&connect()?).context("fio was killed, and blocks are damaged")?;
        disconnect()?;
        self.note("fio was killed under I/O: after a new connect each block was whole.".to_owned());
        Ok(())
    }

    fn pull(&mut self, device: &Path) -> Result<()> {
        println!("pull the cable out of one port");
        let mut writer = Writer::start(device)?;
        let deadline = Instant::now() + HAND;
        while self.ports.have_carrier()? {
            ensure!(
                Instant::now() < deadline,
                "both ports still have a carrier after {HAND:?}: pull the cable between them"
            );
            writer.again_if_done(device)?;
            sleep(EVERY);
        }
        writer.again_if_done(device)?;
        wait_until(
            HAND,
            "the host to lose its connection",
            is_host_disconnected,
        )?;
        println!("plug the cable in again");
        let began = Instant::now();
        wait_until(HAND, "the carrier", || {
            matches!(self.ports.have_carrier(), Ok(true))
        })?;
        wait_until(HAND, "the host to connect again", || {
            !is_host_disconnected()
        })?;
        let took = began.elapsed();
        writer.finish("the cable was pulled")?;
        self.note(format!(
            "The cable was pulled under I/O, and the host connected again {:.1} s after the \
             request to plug it in: fio verified all its data.",
            took.as_secs_f64()
        ));
        Ok(())
    }

    fn note(&mut self, note: String) {
        println!("{note}");
        self.results.notes.push(note);
    }
}

struct Writer(Child);

impl Writer {
    fn start(device: &Path) -> Result<Self> {
        let fio = fio::writer(device).stdout(Stdio::null()).spawn();
        Ok(Self(fio.context("cannot run fio")?))
    }

    fn still_runs(&mut self, event: &str) -> Result<()> {
        match self.0.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("fio ended before {event}: {status}"),
        }
    }

    fn again_if_done(&mut self, device: &Path) -> Result<()> {
        if self.0.try_wait()?.is_some() {
            self.finish("it began")?;
            *self = Self::start(device)?;
        }
        Ok(())
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

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}
