//! `cairn-target check`: reports what `serve` would do with a configuration file.

use std::path::PathBuf;

use cairn_config::{Config, Flags};
use cairn_doctor::cli::Format;
use cairn_doctor::rules::Severity;
use clap::Args;
use serde::Serialize;

use super::probe::{self, Finding};
use super::{announce, print_line};
use crate::files;

#[derive(Debug, Clone, Args)]
pub(super) struct Check {
    /// Configuration file
    file: PathBuf,
    /// Check only the file, not this machine
    #[arg(long)]
    offline: bool,
    /// Format of the result
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Degraded,
    Refused,
}

impl Verdict {
    fn of(findings: &[Finding]) -> Self {
        match findings.iter().map(|one| one.severity).max() {
            None | Some(Severity::Note) => Self::Ok,
            Some(Severity::Warning) => Self::Degraded,
            Some(Severity::Error) => Self::Refused,
        }
    }

    fn exit_code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Degraded => 1,
            Self::Refused => 2,
        }
    }
}

#[derive(Serialize)]
struct Report<'a> {
    verdict: Verdict,
    /// Texts about a configuration that `serve` accepts as it is.
    warnings: &'a [String],
    findings: &'a [Finding],
}

impl Check {
    /// Returns the exit code.
    pub(super) fn run(&self) -> u8 {
        let read = files::call_here(&self.file, |file| {
            Config::from_file(file, &Flags::default())
        });
        let read = read.map_err(|error| format!("{}: {error}", self.file.display()));
        match read.and_then(|read| read.map_err(|error| error.to_string())) {
            Ok(config) => {
                let warnings = config.warnings();
                let findings = if self.offline {
                    Vec::new()
                } else {
                    probe::probe(&config)
                };
                self.report(&announce::summary(&config), &warnings, &findings)
            }
            Err(text) => {
                let severity = Severity::Error;
                let text = text.trim_start_matches("error: ").to_owned();
                self.report("serve would not start", &[], &[Finding { severity, text }])
            }
        }
    }

    fn report(&self, summary: &str, warnings: &[String], findings: &[Finding]) -> u8 {
        let verdict = Verdict::of(findings);
        if self.output == Format::Json {
            let report = Report {
                verdict,
                warnings,
                findings,
            };
            print_line(&serde_json::to_string_pretty(&report).expect("the report is JSON"));
            return verdict.exit_code();
        }
        for warning in warnings {
            eprintln!("warning: {warning}");
        }
        for Finding { severity, text } in findings {
            eprintln!("{severity}: {text}");
        }
        print_line(&match verdict {
            Verdict::Ok => format!("ok: {summary}"),
            Verdict::Degraded => {
                format!("degraded: {summary}; serve would start without what the warnings name")
            }
            Verdict::Refused => format!("refused: {summary}"),
        });
        verdict.exit_code()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_is_the_verdict() {
        let finding = |severity| Finding {
            severity,
            text: String::new(),
        };
        let verdict = |all: &[Severity]| {
            let findings: Vec<_> = all.iter().copied().map(finding).collect();
            Verdict::of(&findings)
        };
        assert_eq!(verdict(&[]), Verdict::Ok);
        assert_eq!(verdict(&[Severity::Note]), Verdict::Ok);
        assert_eq!(
            verdict(&[Severity::Warning, Severity::Note]),
            Verdict::Degraded
        );
        assert_eq!(
            verdict(&[Severity::Warning, Severity::Error]),
            Verdict::Refused
        );
        assert_eq!(
            [Verdict::Ok, Verdict::Degraded, Verdict::Refused].map(Verdict::exit_code),
            [0, 1, 2]
        );
    }
}
