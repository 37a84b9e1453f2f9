//! `cairn-target check`: checks a configuration file and prints a verdict.

use std::path::PathBuf;

use cairn_config::{Config, Flags, Problem};
use cairn_doctor::cli::{Format, OutputArgs};
use cairn_doctor::rules::Severity;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::probe::{self, Finding};
use super::{announce, print_line};
use crate::files;
use crate::steering::OddHost;

#[derive(Debug, Clone, Args)]
pub(super) struct Check {
    file: PathBuf,
    /// Check only the file, not this machine
    #[arg(long)]
    offline: bool,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Report<'a> {
    /// `ok`; `degraded` if a finding is a warning; `refused` if one is an error.
    verdict: &'static str,
    findings: Vec<Located<'a>>,
}

/// Finding with its line and column in the file, counted from 1; null if unknown.
#[derive(Serialize, JsonSchema)]
struct Located<'a> {
    #[serde(flatten)]
    finding: &'a Finding,
    line: Option<usize>,
    column: Option<usize>,
}

fn odd_hosts(config: &Config) -> Vec<(String, Finding)> {
    let odd = crate::steering::odd_hosts(config).into_iter();
    let finding = |odd: OddHost| {
        let text = format!("{odd}; compare it with /etc/nvme/hostnqn of the host");
        let severity = Severity::Warning;
        (odd.host.to_string(), Finding { severity, text })
    };
    odd.map(finding).collect()
}

/// Returns the findings that need no access to this machine.
fn configured(config: &Config) -> Vec<Finding> {
    let (odd, keyless) = (odd_hosts(config), config.keyless());
    let repeats = |one: &str, host: &str| one.contains(&format!("host \"{host}\" is not an NQN"));
    let mut notes = config.warnings();
    notes.retain(|one| !keyless.contains(one) && odd.iter().all(|(host, _)| !repeats(one, host)));
    let finding = |severity| move |text| Finding { severity, text };
    let notes = notes.into_iter().map(finding(Severity::Note));
    let keyless = keyless.into_iter().map(finding(Severity::Warning));
    let odd = odd.into_iter().map(|(_, finding)| finding);
    notes.chain(keyless).chain(odd).collect()
}

impl Check {
    pub(super) fn run(&self) -> u8 {
        let read = files::call_here(&self.file, |file| {
            Config::from_file(file, &Flags::default())
        });
        let config = match read {
            Ok(Ok(config)) => config,
            Ok(Err(error)) => {
                let problems = error.problems().iter();
                let places: Vec<_> = problems.clone().map(Problem::line_column).collect();
                return self.refuse(problems.map(Problem::to_string), &places);
            }
            Err(error) => {
                let text = format!("{}: {error}", self.file.display());
                return self.refuse([text], &[]);
            }
        };
        let mut findings = configured(&config);
        if !self.offline {
            findings.extend(probe::probe(&config));
        }
        self.report(&announce::summary(&config), &findings, &[])
    }

    fn refuse(
        &self,
        errors: impl IntoIterator<Item = String>,
        places: &[Option<(usize, usize)>],
    ) -> u8 {
        let finding = |text: String| Finding {
            severity: Severity::Error,
            text: text.trim_start_matches("error: ").to_owned(),
        };
        let findings: Vec<Finding> = errors.into_iter().map(finding).collect();
        self.report("serve would not start", &findings, places)
    }

    fn report(&self, summary: &str, findings: &[Finding], places: &[Option<(usize, usize)>]) -> u8 {
        let worst = probe::worst(findings);
        let verdict = match worst {
            Severity::Note => "ok",
            Severity::Warning => "degraded",
            Severity::Error => "refused",
        };
        if self.output.format == Format::Json {
            let places = places.iter().copied().chain(std::iter::repeat(None));
            let located = findings.iter().zip(places).map(|(finding, place)| Located {
                finding,
                line: place.map(|(line, _)| line),
                column: place.map(|(_, column)| column),
            });
            let report = Report {
                verdict,
                findings: located.collect(),
            };
            print_line(&serde_json::to_string_pretty(&report).expect("the report is JSON"));
            return worst.exit_code();
        }
        probe::print(findings);
        let without = if worst == Severity::Warning {
            "; serve would start, with what the warnings name missing or without effect"
        } else {
            ""
        };
        print_line(&format!("{verdict}: {summary}{without}"));
        worst.exit_code()
    }
}
