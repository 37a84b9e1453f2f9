//! A finding: what is wrong, and all that it takes to fix it.

use std::fmt;

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// It works, but slower or less surely than it could.
    Warning,
    /// Something does not work.
    Error,
}

impl Severity {
    /// The exit code of a program whose worst finding this is.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Note => 0,
            Self::Warning => 1,
            Self::Error => 2,
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// Where a finding is seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// The file, or the question asked.
    pub path: String,
    /// What it says.
    pub value: String,
}

/// What fixes a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fix {
    /// To be typed, or to be put where the text says.
    pub command: String,
    /// The words of the command, if it does no harm to run it: no traffic stops,
    /// and what it changes is said, so that it can be set back.
    pub safe: Option<Vec<String>>,
}

/// Something that a rule found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The rule.
    pub rule: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The device, netdev, address or limit that it is about.
    pub subject: String,
    /// What is so.
    pub what: String,
    /// Why that matters.
    pub why: String,
    /// Where it is seen.
    pub evidence: Vec<Evidence>,
    /// What fixes it, the best first.
    pub fix: Vec<Fix>,
}

impl Finding {
    /// A finding; why, evidence and fixing follow.
    pub(super) fn new(
        rule: &'static str,
        severity: Severity,
        subject: impl Into<String>,
        what: impl Into<String>,
    ) -> Self {
        Self {
            rule,
            severity,
            subject: subject.into(),
            what: what.into(),
            why: String::new(),
            evidence: Vec::new(),
            fix: Vec::new(),
        }
    }

    /// Why it matters.
    pub(super) fn because(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
    }

    /// Where it is seen.
    pub(super) fn seen(mut self, path: impl Into<String>, value: impl fmt::Display) -> Self {
        self.evidence.push(Evidence {
            path: path.into(),
            value: value.to_string(),
        });
        self
    }

    /// A command whose consequences a person must weigh first.
    pub(super) fn fixed_by(mut self, command: impl Into<String>) -> Self {
        self.fix.push(Fix {
            command: command.into(),
            safe: None,
        });
        self
    }

    /// A command that is safe to run at once.
    pub(super) fn safely_fixed_by(mut self, words: &[&str]) -> Self {
        self.fix.push(Fix {
            command: words.join(" "),
            safe: Some(words.iter().map(|word| (*word).to_owned()).collect()),
        });
        self
    }
}

/// Bytes, in the largest binary unit that leaves at least one of it; rounded up.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{} {name}", bytes.div_ceil(*unit)),
        None => format!("{bytes} B"),
    }
}
