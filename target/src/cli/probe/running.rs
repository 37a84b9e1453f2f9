//! Objects of a checked file that a running target uses already.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cairn_config::Config;
use cairn_control::{BindError, Client};
use cairn_doctor::rules::Severity;
use serde_json::{Value, json};

use super::{Finding, PATIENCE, PORT_IN_USE};
use crate::files;
use crate::server::StateInUse;
use crate::steering;

/// Object that one process at a time can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Object {
    ControlSocket,
    /// Value of a disk's `export`.
    Disk(String),
    Listener(String),
    MetricsPort,
    /// State directory that the target with this process ID has locked.
    State(Option<u32>),
}

/// Failed attempt to use an object.
pub(super) struct Problem {
    text: String,
    /// Severity, unless a running target uses the object.
    severity: Severity,
    in_use: Option<Object>,
}

/// Fragments of error messages about an object in use.
const IN_USE: [&str; 2] = [PORT_IN_USE, "is already exported"];

impl Problem {
    /// Problem of which only the file can be the cause.
    pub(super) fn of_file(text: String) -> Self {
        Self {
            text,
            severity: Severity::Warning,
            in_use: None,
        }
    }

    pub(super) fn of(object: Object, text: String) -> Self {
        let is_taken = IN_USE.iter().any(|words| text.contains(words));
        Self {
            in_use: is_taken.then_some(object),
            ..Self::of_file(text)
        }
    }

    pub(super) fn of_state(error: &StateInUse) -> Self {
        Self {
            text: error.to_string(),
            severity: Severity::Error,
            in_use: Some(Object::State(error.pid)),
        }
    }

    pub(super) fn of_socket(error: &BindError, severity: Severity) -> Self {
        let is_taken = matches!(error, BindError::InUse { .. });
        Self {
            text: error.to_string(),
            severity,
            in_use: is_taken.then_some(Object::ControlSocket),
        }
    }
}

/// Objects in use by the target at a control socket; the default for one that does not answer.
#[derive(Default)]
struct Running {
    pid: u64,
    serves_file: bool,
    disks: BTreeSet<String>,
    listeners: BTreeSet<String>,
    has_metrics: bool,
    problems: Vec<String>,
}

impl Running {
    fn find(config: &Config) -> Option<Self> {
        let path = steering::path_of(&config.control)?;
        let mut client = Client::connect(&path, PATIENCE).ok()?;
        Some(Self::ask(&mut client, config).unwrap_or_default())
    }

    fn ask(client: &mut Client, config: &Config) -> Option<Self> {
        let status = client.call("cairn_status", &json!({})).ok()?;
        let namespaces = client.call("cairn_namespace_list", &json!({})).ok()?;
        let texts = |all: &Value, is_used: fn(&Value) -> bool, key: &str| -> BTreeSet<String> {
            let all = all.as_array().into_iter().flatten();
            let used = all.filter(|one| is_used(one));
            used.filter_map(|one| one[key].as_str().map(str::to_owned))
                .collect()
        };
        let missing = texts(&status["missing"], |_| true, "kind");
        Some(Self {
            pid: status["pid"].as_u64()?,
            serves_file: is_same(&status["config_file"], config.file.as_deref()),
            disks: texts(&namespaces, |one| one["state"] != "missing", "export"),
            listeners: texts(&status["listeners"], |_| true, "address"),
            has_metrics: !missing.contains("metrics"),
            problems: problems(&status),
        })
    }

    fn has(&self, object: &Object) -> bool {
        match object {
            Object::ControlSocket => true,
            Object::Disk(export) => self.disks.contains(export),
            Object::Listener(address) => self.listeners.contains(address),
            Object::MetricsPort => self.has_metrics,
            Object::State(pid) => pid.is_none_or(|pid| self.pid == u64::from(pid)),
        }
    }

    /// True if the end of the target may free an object of another file.
    fn may_have(&self, object: &Object) -> bool {
        !matches!(object, Object::State(_)) || self.has(object)
    }
}

/// True if both paths lead to one file.
pub(in crate::cli) fn is_same(served: &Value, checked: Option<&Path>) -> bool {
    let (Some(served), Some(checked)) = (served.as_str(), checked) else {
        return false;
    };
    let real = |path: &Path| files::call_here(path, resolved).ok()?;
    let served = real(Path::new(served));
    served.is_some() && served == real(checked)
}

/// Kinds of problems in the status that `check` finds by itself, or that are not of the file.
const FOUND_BY_CHECK: [&str; 4] = [
    "missing",
    "reload",
    "host",
    crate::answers::Problem::REFUSED,
];

/// Returns the problems of the running target that `check` cannot find.
fn problems(status: &Value) -> Vec<String> {
    let problems = status["problems"].as_array().into_iter().flatten();
    let others = problems.filter(|one| {
        let kind = one["kind"].as_str().unwrap_or_default();
        !FOUND_BY_CHECK.contains(&kind)
    });
    let texts = others.map(|one| {
        let of = |key: &str| one[key].as_str().unwrap_or_default();
        format!(
            "the running target: {}: {}; {}",
            of("what"),
            of("why"),
            of("remedy")
        )
    });
    texts.collect()
}

#[expect(clippy::disallowed_methods, reason = "on a thread of `files`")]
fn resolved(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok()
}

/// Returns the findings about problems. Objects in use by the running target of the checked file
/// are one note together; with a running target of another file, each object in use is a note.
pub(super) fn findings(config: &Config, problems: Vec<Problem>) -> Vec<Finding> {
    let is_taken = problems.iter().any(|one| one.in_use.is_some());
    let running = is_taken.then(|| Running::find(config)).flatten();
    let mut findings = Vec::new();
    let mut own = Vec::new();
    for problem in problems {
        let Problem {
            text,
            severity,
            in_use,
        } = problem;
        findings.push(match (&running, in_use) {
            (Some(running), Some(object)) if running.serves_file && running.has(&object) => {
                own.push(object);
                continue;
            }
            (Some(running), Some(object)) if !running.serves_file && running.may_have(&object) => {
                Finding::note(format!("{text} (a running target may have it)"))
            }
            _ => Finding { severity, text },
        });
    }
    if let Some(running) = running.filter(|one| one.serves_file) {
        let problems = running.problems.iter().cloned();
        findings.extend(problems.map(|text| Finding {
            severity: Severity::Warning,
            text,
        }));
        findings.extend(note(&running, &own));
    }
    findings
}

fn note(running: &Running, own: &[Object]) -> Option<Finding> {
    let count = |is: fn(&Object) -> bool, one: &str, more: &str| match own
        .iter()
        .filter(|object| is(object))
        .count()
    {
        0 => None,
        1 => Some(format!("1 {one}")),
        count => Some(format!("{count} {more}")),
    };
    let parts = [
        count(|one| *one == Object::ControlSocket, "control socket", ""),
        count(
            |one| matches!(one, Object::Listener(_)),
            "listener",
            "listeners",
        ),
        count(|one| matches!(one, Object::Disk(_)), "disk", "disks"),
        count(|one| *one == Object::MetricsPort, "metrics port", ""),
        count(|one| matches!(one, Object::State(_)), "state directory", ""),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| {
        Finding::note(format!(
            "not tried, because the running target of this file (process ID {}) uses them: {}",
            running.pid,
            parts.join(", ")
        ))
    })
}
