#![allow(dead_code)] // Each test program uses a part of this module.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cairn_doctor::cli::{DoctorArgs, FabricArgs, run_doctor, run_fabric};
use cairn_doctor::rules::{Examination, Finding, Intent};
use cairn_doctor::source::{Recording, Source};
use cairn_trouble::{Caller, End};
use clap::Parser;

pub(crate) const PROGRAM: &str = "cairn-target";
pub(crate) const CALLER: Caller = Caller {
    end: End::Target,
    host: "cairn-initiator",
    target: PROGRAM,
};
pub(crate) const PEER: &str = "192.0.2.9";

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings")
}

pub(crate) fn recorded(name: &str) -> Recording {
    Recording::open(&folder().join(format!("{name}.txt"))).unwrap()
}

pub(crate) fn changed(name: &str, changes: &str) -> Recording {
    let mut recording = recorded(name);
    recording.amend(changes).unwrap();
    recording
}

pub(crate) fn intent() -> Intent {
    Intent {
        caller: CALLER,
        addresses: Vec::new(),
        tos: Vec::new(),
        partitions: Vec::new(),
        memory: vec![
            ("data buffers of 2 reactors".to_owned(), 32 << 20),
            ("1024 receives of 2 reactors".to_owned(), 8 << 20),
        ],
        is_soft: false,
    }
}

pub(crate) fn findings(source: &dyn Source) -> Vec<Finding> {
    findings_with(source, intent(), None)
}

pub(crate) fn findings_with_peer(source: &dyn Source) -> Vec<Finding> {
    findings_with(source, intent(), Some(PEER))
}

pub(crate) fn findings_with(
    source: &dyn Source,
    intent: Intent,
    peer: Option<&str>,
) -> Vec<Finding> {
    let peer = peer.map(|peer| peer.parse().unwrap());
    Examination::of(source, intent, peer, Duration::from_secs(1)).findings()
}

pub(crate) fn text(finding: &Finding) -> String {
    let evidence = finding.evidence.iter();
    let seen: Vec<String> = evidence
        .map(|evidence| format!("{}: {}", evidence.path, evidence.value))
        .collect();
    let fix: Vec<&str> = finding.fix.iter().map(|fix| fix.command.as_str()).collect();
    format!(
        "{} [{}] {}: {}\n{}\n{}\n{}",
        finding.severity,
        finding.rule,
        finding.subject,
        finding.what,
        finding.why,
        seen.join("\n"),
        fix.join("\n")
    )
}

pub(crate) fn assert_found(findings: &[Finding], rule: &str, parts: &[&str]) {
    let of_rule: Vec<String> = findings
        .iter()
        .filter(|finding| finding.rule == rule)
        .map(text)
        .collect();
    let has_all = |text: &String| parts.iter().all(|part| text.contains(part));
    assert!(
        of_rule.iter().any(has_all),
        "no finding of {rule} with {parts:?} in:\n{}",
        of_rule.join("\n\n")
    );
}

#[derive(Debug, Parser)]
enum Cli {
    Fabric(FabricArgs),
    Doctor(DoctorArgs),
}

pub(crate) fn parses(command: &str) -> bool {
    Cli::try_parse_from(command.split_whitespace()).is_ok()
}

pub(crate) fn run(command: &str) -> (String, Result<u8, String>) {
    let mut out = Vec::new();
    let mut intent = intent();
    if command.split(' ').next() == Some(CALLER.host) {
        intent.caller.end = End::Host;
    }
    let result = match Cli::try_parse_from(command.split_whitespace()) {
        Ok(Cli::Fabric(args)) => run_fabric(&args, intent.caller, &mut out).map(|()| 0),
        Ok(Cli::Doctor(args)) => run_doctor(&args, intent, &[], &mut out),
        Err(error) => panic!("{command}: {error}"),
    };
    (String::from_utf8(out).unwrap(), result)
}
