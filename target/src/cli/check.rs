//! `cairn-target check`: verdict on a configuration file.

use std::path::PathBuf;

use cairn_config::{Config, Flags};
use cairn_doctor::cli::{Format, OutputArgs, print_finding};
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
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Report<'a> {
    verdict: &'static str,
    /// Advice on a configuration without an effect on the verdict.
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
        let worst = probe::worst(findings);
        let verdict = match worst {
            Severity::Note => "ok",
            Severity::Warning => "degraded",
            Severity::Error => "refused",
        };
        if self.output.format == Format::Json {
            let report = Report {
                verdict,
                warnings,
                findings,
            };
            print_line(&serde_json::to_string_pretty(&report).expect("the report is JSON"));
            return worst.exit_code();
        }
        for warning in warnings {
            print_finding(Severity::Warning, warning);
        }
        probe::print(findings);
        let without = if worst == Severity::Warning {
            "; serve would start without what the warnings name"
        } else {
            ""
        };
        print_line(&format!("{verdict}: {summary}{without}"));
        worst.exit_code()
    }
}
