//! The command `doctor`: findings as text or JSON, and their fixes.

use std::io::{BufRead, Write};
use std::process::Command;
use std::time::Duration;

use cairn_trouble::Caller;
use clap::Parser;
use serde::Serialize;

use super::{DoctorArgs, FabricArgs, Failure, Format, output, run_fabric};
use crate::rules::{Examination, Finding, Fix, Intent, RULES, Severity};

#[derive(Parser)]
enum Own {
    Fabric(FabricArgs),
}

#[derive(Serialize)]
struct Report<'a> {
    worst: Option<Severity>,
    findings: &'a [Finding],
}

pub(super) fn run(
    args: &DoctorArgs,
    intent: Intent,
    printed: &[Severity],
    out: &mut dyn Write,
) -> Result<u8, Failure> {
    if args.fix && args.machine.output.format == Format::Json {
        return Err("--fix talks with people: leave -o json away".to_owned());
    }
    let source = args.machine.source()?;
    let interval = Duration::from_secs_f64(args.interval);
    let caller = intent.caller;
    let examination = Examination::of(&*source, intent, args.peer, interval);
    let findings = examination.findings();
    let all: Vec<Severity> = findings.iter().map(|one| one.severity).collect();
    let all = [&all, printed].concat();
    let worst = all.iter().max().copied();
    match args.machine.output.format {
        Format::Json => {
            let report = Report {
                worst,
                findings: &findings,
            };
            output::json(&report, out)?;
        }
        _ => output::text(&describe(&findings, &all), out)?,
    }
    if args.fix {
        fix(args, caller, &findings, out)?;
    }
    Ok(worst.map_or(0, Severity::exit_code))
}

fn describe(findings: &[Finding], all: &[Severity]) -> String {
    let mut text = String::new();
    for finding in findings {
        text.push_str(&format!(
            "{}: {}: {} [{}]\n",
            finding.severity, finding.subject, finding.what, finding.rule
        ));
        text.push_str(&format!("  why:  {}\n", finding.why));
        for evidence in &finding.evidence {
            text.push_str(&format!("  seen: {}: {}\n", evidence.path, evidence.value));
        }
        for fix in &finding.fix {
            text.push_str(&format!("  fix: {}\n", fix.command));
        }
        text.push('\n');
    }
    let count = |severity: Severity| {
        let number = all.iter().filter(|one| **one == severity).count();
        format!("{number} {severity}{}", if number == 1 { "" } else { "s" })
    };
    text.push_str(&format!(
        "{} rules: {}, {}, {}\n",
        RULES.len(),
        count(Severity::Error),
        count(Severity::Warning),
        count(Severity::Note)
    ));
    text
}

fn fix(
    args: &DoctorArgs,
    caller: Caller,
    findings: &[Finding],
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut judged: Vec<&Fix> = Vec::new();
    for finding in findings
        .iter()
        .filter(|finding| finding.severity > Severity::Note)
    {
        for fix in &finding.fix {
            let Some(words) = fix.safe.as_ref().filter(|_| !judged.contains(&fix)) else {
                continue;
            };
            judged.push(fix);
            if !args.yes && !agreed(&fix.command, out)? {
                output::text("left as it is\n", out)?;
                continue;
            }
            output::text(&format!("running: {}\n", fix.command), out)?;
            match run_words(args, caller, words, out) {
                Ok(()) => output::text("  done\n", out)?,
                Err(failure) => output::text(&format!("  failed: {failure}\n"), out)?,
            }
        }
    }
    if judged.is_empty() {
        output::text("no finding has a command that is safe to run\n", out)?;
    }
    Ok(())
}

fn agreed(command: &str, out: &mut dyn Write) -> Result<bool, Failure> {
    output::text(&format!("run `{command}`? [y/N] "), out)?;
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| error.to_string())?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn run_words(
    args: &DoctorArgs,
    caller: Caller,
    words: &[String],
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let (name, rest) = words.split_first().ok_or("an empty command")?;
    let root = args.machine.root.as_ref();
    if name == caller.program() {
        // The command runs in this process to use the same `--root`.
        let Own::Fabric(mut own) = Own::try_parse_from(words).map_err(|error| error.to_string())?;
        own.machine.root = root.cloned();
        return run_fabric(&own, caller, out);
    }
    if let Some(root) = root {
        return Err(format!("{} is not this machine", root.display()));
    }
    let status = Command::new(name).args(rest).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name} ended with {status}")),
        Err(error) => Err(format!("cannot run {name}: {error}")),
    }
}
