use std::cell::RefCell;
use std::time::Duration;

use serde_json::Value;

use super::recording::{Entry, Moment};
use super::{Node, Question, Source, Unknown};

/// Source that forwards requests to another source, and records the results.
pub struct Recorder<'a> {
    source: &'a dyn Source,
    moment: RefCell<Moment>,
}

impl<'a> Recorder<'a> {
    #[must_use]
    pub fn new(source: &'a dyn Source) -> Self {
        Self {
            source,
            moment: RefCell::default(),
        }
    }

    /// Returns the recorded results in the format of [`super::Recording`].
    #[must_use]
    pub fn text(&self) -> String {
        self.moment.borrow().to_string()
    }

    fn keep<T>(
        &self,
        path: &str,
        result: Result<T, Unknown>,
        entry: impl FnOnce(&T) -> Option<Entry>,
    ) -> Result<T, Unknown> {
        let entry = match &result {
            Ok(value) => entry(value),
            Err(unknown) if unknown.reason == super::Reason::Absent => None,
            Err(unknown) => Some(Entry::Unreadable(unknown.reason.clone())),
        };
        if let Some(entry) = entry {
            let mut moment = self.moment.borrow_mut();
            // An empty directory is recorded only if the path has no other entry.
            if entry != Entry::Directory || !moment.entries.contains_key(path) {
                moment.entries.insert(path.to_owned(), entry);
            }
        }
        result
    }
}

impl Source for Recorder<'_> {
    fn read(&self, path: &str) -> Result<String, Unknown> {
        let result = self.source.read(path);
        self.keep(path, result, |content| Some(Entry::File(content.clone())))
    }

    fn list(&self, path: &str) -> Result<Vec<String>, Unknown> {
        let result = self.source.list(path);
        let empty = |names: &Vec<String>| names.is_empty().then_some(Entry::Directory);
        self.keep(path, result, empty)?
            .into_iter()
            .map(|name| {
                let below = format!("{path}/{name}");
                self.keep(&below, Ok(()), |()| Some(Entry::Directory))?;
                Ok(name)
            })
            .collect()
    }

    fn link(&self, path: &str) -> Result<String, Unknown> {
        let result = self.source.link(path);
        self.keep(path, result, |target| Some(Entry::Link(target.clone())))
    }

    fn node(&self, path: &str) -> Result<Node, Unknown> {
        let result = self.source.node(path);
        self.keep(path, result, |node| Some(Entry::Node(*node)))
    }

    fn ask(&self, question: &Question) -> Result<Value, Unknown> {
        let result = self.source.ask(question);
        let answer = match &result {
            Ok(value) => Ok(value.clone()),
            Err(unknown) => Err(unknown.reason.clone()),
        };
        let mut moment = self.moment.borrow_mut();
        moment.answers.insert(question.to_string(), answer);
        result
    }

    fn wait(&self, time: Duration) {
        self.source.wait(time);
    }
}
