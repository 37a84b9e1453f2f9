//! JSON objects whose keys stay in the order in which they were given, as those
//! of fio and nvme-cli do.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::Value;

/// An object under construction.
#[derive(Debug, Clone, Default)]
pub(crate) struct Object(Vec<(String, Member)>);

/// A member's value.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
enum Member {
    Value(Value),
    Object(Object),
    List(Vec<Object>),
}

impl Object {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// With one more member: a number, a text, a flag or a list of such.
    #[must_use]
    pub(crate) fn with(mut self, key: &str, value: impl Serialize) -> Self {
        let value = serde_json::to_value(value).expect("plain values can be JSON");
        self.0.push((key.to_owned(), Member::Value(value)));
        self
    }

    /// With a member that is an object itself.
    #[must_use]
    pub(crate) fn with_object(mut self, key: &str, object: Object) -> Self {
        self.0.push((key.to_owned(), Member::Object(object)));
        self
    }

    /// With a member that is a list of objects.
    #[must_use]
    pub(crate) fn with_list(mut self, key: &str, list: impl IntoIterator<Item = Object>) -> Self {
        let list = list.into_iter().collect();
        self.0.push((key.to_owned(), Member::List(list)));
        self
    }

    /// The members that are plain values.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().filter_map(|(key, member)| match member {
            Member::Value(value) => Some((key.as_str(), value)),
            Member::Object(_) | Member::List(_) => None,
        })
    }

    /// As indented text.
    pub(crate) fn pretty(&self) -> String {
        serde_json::to_string_pretty(self).expect("objects can be written to memory")
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, member) in &self.0 {
            map.serialize_entry(key, member)?;
        }
        map.end()
    }
}
