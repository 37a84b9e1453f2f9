use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

const TAIL_LINES: usize = 20;

pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", search_path());
    command
}

pub(crate) fn search_path() -> String {
    format!(
        "{}:/usr/sbin:/sbin",
        std::env::var("PATH").unwrap_or_default()
    )
}

pub(crate) struct Log {
    path: PathBuf,
}

impl Log {
    pub(crate) fn create(path: PathBuf) -> Result<Self> {
        File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path })
    }

    pub(crate) fn run(&self, command: &mut Command) -> Result<()> {
        let out = OpenOptions::new().append(true).open(&self.path)?;
        let status = command
            .stdin(Stdio::null())
            .stderr(out.try_clone()?)
            .stdout(out)
            .status()
            .with_context(|| format!("cannot run {}", describe(command)))?;
        if !status.success() {
            bail!(
                "{} ended with {status}:\n{}",
                describe(command),
                tail(&self.path, TAIL_LINES)?
            );
        }
        Ok(())
    }
}

pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {}", describe(command)))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!(
            "{} ended with {}: {}",
            describe(command),
            output.status,
            said.trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub(crate) fn tail(path: &Path, lines: usize) -> Result<String> {
    let Ok(bytes) = std::fs::read(path) else {
        return Ok(String::new());
    };
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    let last = &all[all.len().saturating_sub(lines)..];
    Ok(last
        .iter()
        .map(|line| format!("    {}\n", line.trim_end()))
        .collect())
}

fn describe(command: &Command) -> String {
    let args = command.get_args().map(|arg| arg.to_string_lossy());
    let words: Vec<_> = std::iter::once(command.get_program().to_string_lossy())
        .chain(args)
        .collect();
    words.join(" ")
}
