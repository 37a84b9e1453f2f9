//! Second host, which loads the target during measurements of the first host.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

const HEAD_START: Duration = Duration::from_secs(2);

const START_OF_THE_FIRST_S: f64 = 4.0;

pub(super) fn covering(seconds: f64) -> f64 {
    HEAD_START.as_secs_f64() + seconds + START_OF_THE_FIRST_S
}

pub(super) struct Neighbour(Child);

impl Neighbour {
    pub(super) fn start(command: &mut Command) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {command:?}"))?;
        thread::sleep(HEAD_START);
        Ok(Self(child))
    }

    pub(super) fn outlasted(mut self) -> Result<String> {
        let ended = self.0.try_wait()?;
        let mut said = String::new();
        let mut errors = String::new();
        let mut stdout = self.0.stdout.take().context("it is piped")?;
        stdout.read_to_string(&mut said)?;
        let mut stderr = self.0.stderr.take().context("it is piped")?;
        stderr.read_to_string(&mut errors)?;
        ensure!(
            ended.is_none(),
            "the neighbour ended before the job beside it:\n{said}{errors}"
        );
        let status = self.0.wait()?;
        ensure!(
            status.success(),
            "the neighbour ended with {status}:\n{said}{errors}"
        );
        Ok(said)
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_ends_early_is_an_error() {
        let early = Neighbour::start(&mut Command::new("true")).unwrap();
        assert!(early.outlasted().is_err());
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 4; echo done"]);
        let there = Neighbour::start(&mut command).unwrap();
        assert_eq!(there.outlasted().unwrap(), "done\n");
    }
}
