//! Sources of facts. All facts are read through [`Source`], so that a recording can replace the
//! machine.

mod answers;
mod live;
mod question;
mod recorder;
mod recording;
mod unknown;

use std::str::FromStr;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

pub use answers::{
    Address, Attributes, Dcb, Defaults, Driver, Echo, Neighbour, Pause, PortMtu, QueuePairs,
    Reached, Rings, Route,
};
pub use live::Live;
pub use question::Question;
pub use recorder::Recorder;
pub use recording::{Recording, RecordingError};
pub use unknown::{Known, Reason, Unknown};

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Node {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

/// Machine whose facts are read; paths are absolute.
pub trait Source {
    fn read(&self, path: &str) -> Result<String, Unknown>;
    /// Returns the names in a directory, sorted.
    fn list(&self, path: &str) -> Result<Vec<String>, Unknown>;
    fn link(&self, path: &str) -> Result<String, Unknown>;
    fn node(&self, path: &str) -> Result<Node, Unknown>;
    fn ask(&self, question: &Question) -> Result<Value, Unknown>;
    fn wait(&self, time: Duration);
}

impl dyn Source + '_ {
    pub fn text(&self, path: &str) -> Result<String, Unknown> {
        Ok(self.read(path)?.trim().to_owned())
    }

    pub fn number<T: FromStr>(&self, path: &str) -> Result<T, Unknown> {
        let text = self.text(path)?;
        text.parse()
            .map_err(|_| Unknown::other(path, format!("{text:?} is not the number expected")))
    }

    pub fn optional(&self, path: &str) -> Result<Option<String>, Unknown> {
        unless_absent(self.text(path))
    }

    #[must_use]
    pub fn has_directory(&self, path: &str) -> bool {
        self.list(path).is_ok()
    }

    pub fn link_name(&self, path: &str) -> Result<String, Unknown> {
        let target = self.link(path)?;
        Ok(target.rsplit('/').next().unwrap_or_default().to_owned())
    }

    pub fn answer<T: DeserializeOwned>(&self, question: &Question) -> Result<T, Unknown> {
        let value = self.ask(question)?;
        serde_json::from_value(value)
            .map_err(|error| Unknown::other(&question.to_string(), error.to_string()))
    }
}

pub(crate) fn unless_absent<T>(result: Result<T, Unknown>) -> Result<Option<T>, Unknown> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(unknown) if unknown.reason == Reason::Absent => Ok(None),
        Err(unknown) => Err(unknown),
    }
}
