use std::fmt;

use serde::Serialize;

/// Severity of a finding, ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Information; nothing is wrong.
    Note,
    /// RoCE works, but is slower or less reliable than possible.
    Warning,
    /// RoCE does not work for some purpose.
    Error,
}

impl Severity {
    /// Returns the exit code of a program whose worst finding has this severity.
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// File that was read, or question to the kernel.
    pub path: String,
    pub value: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fix {
    pub command: String,
    /// Words of the command if `doctor --fix` may run it: it does not interrupt traffic.
    pub safe: Option<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// [`Rule::name`](super::Rule::name) of the reporting rule.
    pub rule: &'static str,
    pub severity: Severity,
    /// Affected device, netdev, address or limit.
    pub subject: String,
    pub what: String,
    pub why: String,
    pub evidence: Vec<Evidence>,
    /// Remedies, best first.
    pub fix: Vec<Fix>,
}

impl Finding {
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

    pub(super) fn because(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
    }

    pub(super) fn seen(mut self, path: impl Into<String>, value: impl fmt::Display) -> Self {
        self.evidence.push(Evidence {
            path: path.into(),
            value: value.to_string(),
        });
        self
    }

    pub(super) fn fixed_by(mut self, command: impl Into<String>) -> Self {
        self.fix.push(Fix {
            command: command.into(),
            safe: None,
        });
        self
    }

    pub(super) fn safely_fixed_by(mut self, words: &[&str]) -> Self {
        self.fix.push(Fix {
            command: words.join(" "),
            safe: Some(words.iter().map(|word| (*word).to_owned()).collect()),
        });
        self
    }
}

pub(super) fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{} {name}", bytes.div_ceil(*unit)),
        None => format!("{bytes} B"),
    }
}
