use std::io::Write;
use std::process::{Child, Stdio};

use anyhow::{Context, Result};

use crate::vm::process::{command, output};

/// Shell script that runs its input lines in reverse order when its input ends, even after SIGKILL
/// of this process.
const RESTORER: &str = r#"script=
while IFS= read -r line; do script="( $line ) > /dev/null 2>&1
$script"; done
eval "$script""#;

pub(super) struct Undo(Child);

impl Undo {
    pub(super) fn start() -> Result<Self> {
        let restorer = command("setsid")
            .args(["sh", "-c", RESTORER])
            .stdin(Stdio::piped())
            .spawn()
            .context("cannot run setsid")?;
        Ok(Self(restorer))
    }

    /// Adds a line of shell that reverts the caller's next step.
    pub(super) fn by(&mut self, line: &str) -> Result<()> {
        let pipe = self
            .0
            .stdin
            .as_mut()
            .expect("the pipe is open until the end");
        writeln!(pipe, "{line}").context("the shell that restores the machine has ended")
    }

    pub(super) fn finish(mut self) -> Result<()> {
        self.wait()
    }

    fn wait(&mut self) -> Result<()> {
        drop(self.0.stdin.take());
        self.0.wait().context("cannot wait for the restoration")?;
        Ok(())
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        let _ = self.wait();
    }
}

pub(super) fn sh(script: &str) -> Result<String> {
    output(command("sh").args(["-ec", script]))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::Undo;

    #[test]
    fn steps_are_undone_in_reverse_order_even_if_one_fails() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("undone");
        let mut undo = Undo::start().unwrap();
        for line in ["echo first", "exit 3", "echo 'second  \\n'"] {
            undo.by(&format!("({line}) >> '{}'", file.display()))
                .unwrap();
        }
        assert!(!file.exists());
        drop(undo);
        let undone = fs::read_to_string(file).unwrap();
        assert!(
            undone.starts_with("second") && undone.ends_with("first\n"),
            "{undone}"
        );
    }
}
