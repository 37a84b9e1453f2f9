//! Output: a line per scenario, failures, and the final table.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::process;
use super::qemu::{CONSOLE_LOG, Console, End, QEMU_LOG};
use crate::times;

const EXIT_CODE: &str = "exit-code";
const EXIT_TIMEOUT: &str = "124";
const TAIL_LINES: usize = 40;

pub(crate) enum Verdict {
    Pass,
    Fail(String),
    Skipped,
}

impl Verdict {
    pub(crate) fn from_machine(end: End, out_dir: &Path) -> Result<Self> {
        let answer = fs::read_to_string(out_dir.join(EXIT_CODE)).unwrap_or_default();
        Ok(match (answer.trim(), end) {
            ("0", End::PoweredOff) => Self::Pass,
            (_, End::TimedOut) => Self::Fail("the guest hung, and its power was cut".into()),
            ("", _) => Self::Fail("the guest stopped before the scenario ended".into()),
            (EXIT_TIMEOUT, _) => Self::Fail("the scenario's time ran out".into()),
            (code, _) => Self::Fail(format!("the scenario ended with exit code {code}")),
        })
    }
}

pub(crate) fn announce(name: &str, summary: &str, left: Duration, console: Console) {
    println!("== {name} ({}): {summary}", times::left(left));
    if console == Console::Live {
        println!();
    }
}

pub(crate) fn explain(
    name: &str,
    verdict: &Verdict,
    out_dir: &Path,
    console: Console,
) -> Result<()> {
    let Verdict::Fail(why) = verdict else {
        return Ok(());
    };
    if console == Console::Quiet {
        print!("{}", process::tail(&out_dir.join(CONSOLE_LOG), TAIL_LINES)?);
    }
    print!("{}", process::tail(&out_dir.join(QEMU_LOG), TAIL_LINES)?);
    println!(
        "   {name} failed: {why}. Its logs are in {}",
        out_dir.display()
    );
    Ok(())
}

#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<(String, Verdict, Duration)>,
}

impl Report {
    pub(crate) fn add(&mut self, name: &str, verdict: Verdict, took: Duration) {
        self.rows.push((name.to_owned(), verdict, took));
    }

    pub(crate) fn failed(&self) -> bool {
        self.rows
            .iter()
            .any(|(_, verdict, _)| matches!(verdict, Verdict::Fail(_)))
    }

    pub(crate) fn print(&self) {
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        println!();
        for (name, verdict, took) in &self.rows {
            let (word, count, why) = match verdict {
                Verdict::Pass => ("PASS", &mut passed, ""),
                Verdict::Fail(why) => ("FAIL", &mut failed, why.as_str()),
                Verdict::Skipped => ("skip", &mut skipped, ""),
            };
            *count += 1;
            let line = format!("{word}  {name:<14} {:>7.1} s  {why}", took.as_secs_f32());
            println!("{}", line.trim_end());
        }
        println!();
        let also = if skipped == 0 {
            String::new()
        } else {
            format!(", {skipped} skipped")
        };
        println!("{passed} passed, {failed} failed{also}");
    }
}
