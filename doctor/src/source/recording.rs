//! Recording of a machine as text.
//!
//! ```text
//! # A comment
//! [/sys/class/infiniband/mlx5_0]
//! node_type = 1: CA
//! device -> ../../../0000:08:00.0
//! ports/1/gid_attrs/types/1 = RoCE v2\n
//! ports/2/hw_counters/
//! ports/2/state ! permission denied
//! [/dev/infiniband]
//! uverbs0 @ 0666 0 0
//! [?]
//! pause eth2 = {"rx":true,"tx":true,"autonegotiated":false}
//! dcb eth2 ! not supported by the driver
//! [later]
//! [/sys/class/infiniband/mlx5_0/ports/1/counters]
//! port_xmit_discards = 17
//! ```
//!
//! A path in brackets is the prefix of the names below it. `=` precedes the content of a file, `->`
//! the destination of a link, `@` the mode, owner and group of a device node, and `!` the reason
//! why a path is unreadable. A name ending in `/` is an empty directory. `[?]` precedes the
//! kernel's answers. Lines after `[later]` replace earlier lines from the second reading on.
//! `< FILE` includes another recording first. `- PATH` removes an answer, or a path with everything
//! below it. In file content, `\n` and `\t` are a newline and a tab.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::{Node, Question, Reason, Source, Unknown};

const DEPTH_MAX: u32 = 8;

/// Source that answers from a recording.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    first: Moment,
    later: Moment,
    is_later: Cell<bool>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Moment {
    pub(super) entries: BTreeMap<String, Entry>,
    pub(super) answers: BTreeMap<String, Result<Value, Reason>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    File(String),
    Link(String),
    Node(Node),
    Directory,
    Unreadable(Reason),
}

#[derive(Debug, PartialEq, Eq)]
pub struct RecordingError {
    line: usize,
    what: String,
}

impl fmt::Display for RecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of the recording: {}", self.line, self.what)
    }
}

impl std::error::Error for RecordingError {}

impl Recording {
    /// Opens a recording and its includes.
    pub fn open(file: &Path) -> Result<Self, String> {
        Self::open_within(file, DEPTH_MAX)
    }

    fn open_within(file: &Path, depth: u32) -> Result<Self, String> {
        let name = file.display();
        let depth = depth
            .checked_sub(1)
            .ok_or_else(|| format!("{name}: recordings begin with one another without end"))?;
        let text =
            fs::read_to_string(file).map_err(|error| format!("cannot read {name}: {error}"))?;
        let base = text.lines().find_map(|line| line.strip_prefix("< "));
        let mut this = match base {
            Some(base) => Self::open_within(&file.with_file_name(base.trim()), depth)?,
            None => Self::default(),
        };
        this.amend(&text)
            .map_err(|error| format!("{name}: {error}"))?;
        Ok(this)
    }

    /// Parses a recording without includes.
    pub fn parse(text: &str) -> Result<Self, RecordingError> {
        let mut this = Self::default();
        this.amend(text)?;
        Ok(this)
    }

    /// Adds lines, which replace results for the same path or question.
    pub fn amend(&mut self, text: &str) -> Result<(), RecordingError> {
        let mut base = String::new();
        let mut is_later = false;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') || line.starts_with("< ") {
                continue;
            }
            if line == "[later]" {
                is_later = true;
            } else if let Some(path) = line.strip_prefix("- ") {
                self.forget(path);
            } else if let Some(path) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                path.clone_into(&mut base);
            } else {
                let moment = if is_later {
                    &mut self.later
                } else {
                    &mut self.first
                };
                moment.add(&base, line).map_err(|what| RecordingError {
                    line: number + 1,
                    what,
                })?;
            }
        }
        Ok(())
    }

    pub fn forget(&mut self, path: &str) {
        for moment in [&mut self.first, &mut self.later] {
            moment.entries.retain(|entry, _| !is_below(entry, path));
            moment.answers.remove(path);
        }
    }

    fn now(&self) -> impl Iterator<Item = &Moment> {
        let later = self.is_later.get().then_some(&self.later);
        later.into_iter().chain([&self.first])
    }

    fn entry(&self, path: &str) -> Result<Option<&Entry>, Unknown> {
        let above = path.match_indices('/').map(|(at, _)| &path[..at]);
        for directory in above.chain([path]) {
            let found = self.now().find_map(|moment| moment.entries.get(directory));
            if let Some(Entry::Unreadable(reason)) = found {
                return Err(Unknown {
                    path: path.to_owned(),
                    reason: reason.clone(),
                });
            }
        }
        Ok(self.now().find_map(|moment| moment.entries.get(path)))
    }
}

impl Moment {
    fn add(&mut self, base: &str, line: &str) -> Result<(), String> {
        let (name, sign, value) = split(line)?;
        if base == "?" {
            let answer = match sign {
                "=" => Ok(serde_json::from_str(value).map_err(|error| error.to_string())?),
                "!" => Err(reason(value)),
                _ => return Err(format!("an answer cannot be {sign}")),
            };
            self.answers.insert(name.to_owned(), answer);
            return Ok(());
        }
        let path = if base.is_empty() {
            name.to_owned()
        } else {
            format!("{base}/{name}")
        };
        if !path.starts_with('/') {
            return Err(format!("{path:?} is not an absolute path"));
        }
        let entry = match sign {
            "=" => Entry::File(value.replace("\\n", "\n").replace("\\t", "\t")),
            "->" => Entry::Link(value.to_owned()),
            "!" => Entry::Unreadable(reason(value)),
            "@" => Entry::Node(node(value)?),
            _ => Entry::Directory,
        };
        self.entries.insert(path, entry);
        Ok(())
    }
}

fn split(line: &str) -> Result<(&str, &str, &str), String> {
    // The first sign ends the name; the value may contain signs.
    let line_end = format!("{line} ");
    let sign = ["=", "->", "!", "@"]
        .into_iter()
        .filter_map(|sign| Some((line_end.find(&format!(" {sign} "))?, sign)))
        .min();
    if let (None, Some(directory)) = (sign, line.strip_suffix('/')) {
        return Ok((directory, "/", ""));
    }
    let (at, sign) = sign.ok_or_else(|| format!("{line:?} has no sign (=, ->, !, @ or /)"))?;
    let value = line.get(at + sign.len() + 2..).unwrap_or_default();
    Ok((line[..at].trim_end(), sign, value))
}

fn reason(text: &str) -> Reason {
    match text {
        "not there" => Reason::Absent,
        "permission denied" => Reason::Denied,
        other => Reason::Other(other.to_owned()),
    }
}

fn node(text: &str) -> Result<Node, String> {
    let numbers: Vec<u32> = text
        .split_whitespace()
        .enumerate()
        .map_while(|(at, word)| u32::from_str_radix(word, if at == 0 { 8 } else { 10 }).ok())
        .collect();
    let [mode, uid, gid] = numbers[..] else {
        return Err(format!("{text:?} is not MODE UID GID"));
    };
    Ok(Node { mode, uid, gid })
}

fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Source for Recording {
    fn read(&self, path: &str) -> Result<String, Unknown> {
        match self.entry(path)? {
            Some(Entry::File(content)) => Ok(content.clone()),
            _ => Err(Unknown::absent(path)),
        }
    }

    fn list(&self, path: &str) -> Result<Vec<String>, Unknown> {
        let own = self.entry(path)?;
        let prefix = format!("{path}/");
        let names: BTreeSet<String> = self
            .now()
            .flat_map(|moment| moment.entries.range(prefix.clone()..))
            .filter_map(|(entry, _)| entry.strip_prefix(&prefix))
            .filter_map(|rest| rest.split('/').next())
            .map(str::to_owned)
            .collect();
        if names.is_empty() && !matches!(own, Some(Entry::Directory)) {
            return Err(Unknown::absent(path));
        }
        Ok(names.into_iter().collect())
    }

    fn link(&self, path: &str) -> Result<String, Unknown> {
        match self.entry(path)? {
            Some(Entry::Link(target)) => Ok(target.clone()),
            _ => Err(Unknown::absent(path)),
        }
    }

    fn node(&self, path: &str) -> Result<Node, Unknown> {
        match self.entry(path)? {
            Some(Entry::Node(node)) => Ok(*node),
            _ => Err(Unknown::absent(path)),
        }
    }

    fn ask(&self, question: &Question) -> Result<Value, Unknown> {
        let name = question.to_string();
        let answer = self.now().find_map(|moment| moment.answers.get(&name));
        match answer {
            Some(Ok(value)) => Ok(value.clone()),
            Some(Err(reason)) => Err(Unknown {
                path: name,
                reason: reason.clone(),
            }),
            None => Err(Unknown::other(&name, "not in the recording".to_owned())),
        }
    }

    fn wait(&self, _: Duration) {
        self.is_later.set(true);
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut base = "";
        let mut entries = self.entries.iter().peekable();
        while let Some((path, entry)) = entries.next() {
            let has_names = entries.peek().is_some_and(|(next, _)| is_below(next, path));
            if *entry == Entry::Directory && has_names {
                continue;
            }
            let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
            if directory != base {
                writeln!(f, "[{directory}]")?;
                base = directory;
            }
            match entry {
                Entry::File(content) => {
                    writeln!(f, "{name} = {}", escaped(content))
                }
                Entry::Link(target) => writeln!(f, "{name} -> {target}"),
                Entry::Node(Node { mode, uid, gid }) => {
                    writeln!(f, "{name} @ {mode:04o} {uid} {gid}")
                }
                Entry::Directory => writeln!(f, "{name}/"),
                Entry::Unreadable(reason) => writeln!(f, "{name} ! {}", short(reason)),
            }?;
        }
        writeln!(f, "[?]")?;
        for (name, answer) in &self.answers {
            match answer {
                Ok(value) => writeln!(f, "{name} = {value}"),
                Err(reason) => writeln!(f, "{name} ! {}", short(reason)),
            }?;
        }
        Ok(())
    }
}

fn escaped(content: &str) -> String {
    content.trim().replace('\n', "\\n").replace('\t', "\\t")
}

fn short(reason: &Reason) -> String {
    match reason {
        Reason::Denied => "permission denied".to_owned(),
        other => other.to_string().replace('\n', " "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# one\n[/a/b]\nfile = x = y\\nz\nempty =\nto -> ../c\nhidden ! permission denied\n\
                        none/\nnode @ 0660 0 42\n[?]\naddresses = []\npause e0 ! no\n[later]\n[/a/b]\nfile = 2\n";

    #[test]
    fn a_recording_answers_like_a_machine() {
        let recording = Recording::parse(TEXT).unwrap();
        assert_eq!(recording.read("/a/b/file").unwrap(), "x = y\nz");
        assert_eq!(recording.read("/a/b/empty").unwrap(), "");
        assert_eq!(recording.link("/a/b/to").unwrap(), "../c");
        assert_eq!(recording.node("/a/b/node").unwrap().mode, 0o660);
        assert_eq!(recording.list("/a").unwrap(), ["b"]);
        assert!(recording.list("/a/b/none").unwrap().is_empty());
        let hidden = recording.read("/a/b/hidden/below").unwrap_err();
        assert_eq!(hidden.reason, Reason::Denied);
        assert_eq!(recording.read("/a/x").unwrap_err().reason, Reason::Absent);
        assert!(recording.ask(&Question::Addresses).is_ok());
        assert!(recording.ask(&Question::Pause("e0".into())).is_err());
        recording.wait(Duration::ZERO);
        assert_eq!(recording.read("/a/b/file").unwrap(), "2");
    }

    #[test]
    fn what_is_forgotten_is_absent() {
        let mut recording = Recording::parse(TEXT).unwrap();
        recording.forget("/a/b/file");
        assert_eq!(
            recording.read("/a/b/file").unwrap_err().reason,
            Reason::Absent
        );
        recording.forget("/a");
        assert!(recording.list("/a").is_err());
    }

    #[test]
    fn a_line_without_sense_is_named() {
        for wrong in [
            "[/a]\nfile",
            "file = 1",
            "[?]\naddresses = [",
            "[/a]\nb @ rw 0 0",
        ] {
            let error = Recording::parse(wrong).unwrap_err();
            assert_eq!(error.line, wrong.lines().count(), "{error}");
        }
    }

    #[test]
    fn recordings_begin_with_others_and_forget() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        file("base", TEXT);
        let top = file(
            "top",
            "# more\n< base\n- /a/b/to\n- addresses\n[/a/b]\nnew = 1\n",
        );
        let recording = Recording::open(&top).unwrap();
        assert_eq!(recording.read("/a/b/new").unwrap(), "1");
        assert_eq!(recording.read("/a/b/empty").unwrap(), "");
        assert!(recording.link("/a/b/to").is_err());
        assert!(recording.ask(&Question::Addresses).is_err());
        let endless = file("endless", "< endless\n");
        assert!(Recording::open(&endless).unwrap_err().contains("end"));
    }

    #[test]
    fn what_is_written_reads_the_same() {
        let recording = Recording::parse(TEXT).unwrap();
        let again = Recording::parse(&recording.first.to_string()).unwrap();
        assert_eq!(again.first.entries, recording.first.entries);
        assert_eq!(again.first.answers, recording.first.answers);
    }
}
