//! Where facts come from: files, and answers of the kernel that no file has.
//!
//! A machine is read through [`Source`] and nothing else, so that a recording
//! of another machine can stand in for this one: in tests, and when a user
//! sends in what `fabric --record` wrote.

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
    Address, Dcb, Defaults, Driver, Echo, Neighbour, Pause, PortMtu, QueuePairs, Reached, Rings,
    Route,
};
pub use live::Live;
pub use question::Question;
pub use recorder::Recorder;
pub use recording::{Recording, RecordingError};
pub use unknown::{Known, Reason, Unknown};

/// The owner and mode of a device node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Node {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// A machine, as far as it can be asked. Paths are absolute, as on that machine.
pub trait Source {
    /// A file's content.
    fn read(&self, path: &str) -> Result<String, Unknown>;
    /// The names in a directory, sorted.
    fn list(&self, path: &str) -> Result<Vec<String>, Unknown>;
    /// Where a symbolic link points.
    fn link(&self, path: &str) -> Result<String, Unknown>;
    /// Who may open a device node.
    fn node(&self, path: &str) -> Result<Node, Unknown>;
    /// What only the kernel knows.
    fn ask(&self, question: &Question) -> Result<Value, Unknown>;
    /// Lets time pass, between two readings of the counters.
    fn wait(&self, time: Duration);
}

/// What every reader of facts needs, in terms of the above.
impl dyn Source + '_ {
    /// A file's content without the white space around it.
    pub fn text(&self, path: &str) -> Result<String, Unknown> {
        Ok(self.read(path)?.trim().to_owned())
    }

    /// A file that holds one number.
    pub fn number<T: FromStr>(&self, path: &str) -> Result<T, Unknown> {
        let text = self.text(path)?;
        text.parse()
            .map_err(|_| Unknown::other(path, format!("{text:?} is not the number expected")))
    }

    /// A file that need not be there.
    pub fn optional(&self, path: &str) -> Result<Option<String>, Unknown> {
        unless_absent(self.text(path))
    }

    /// Whether something is there; what cannot be looked at counts as absent.
    #[must_use]
    pub fn has_directory(&self, path: &str) -> bool {
        self.list(path).is_ok()
    }

    /// The last component of where a link points.
    pub fn link_name(&self, path: &str) -> Result<String, Unknown> {
        let target = self.link(path)?;
        Ok(target.rsplit('/').next().unwrap_or_default().to_owned())
    }

    /// The answer to a question, in its type.
    pub fn answer<T: DeserializeOwned>(&self, question: &Question) -> Result<T, Unknown> {
        let value = self.ask(question)?;
        serde_json::from_value(value)
            .map_err(|error| Unknown::other(&question.to_string(), error.to_string()))
    }
}

/// Absence turned from a failure into a fact.
pub(crate) fn unless_absent<T>(result: Result<T, Unknown>) -> Result<Option<T>, Unknown> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(unknown) if unknown.reason == Reason::Absent => Ok(None),
        Err(unknown) => Err(unknown),
    }
}
