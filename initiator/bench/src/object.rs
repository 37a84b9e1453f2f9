//! JSON objects that keep the order of their keys.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::Value;

#[derive(Debug, Clone, Default)]
pub struct Object(Vec<(String, Member)>);

#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
enum Member {
    Value(Value),
    Object(Object),
    List(Vec<Object>),
}

impl Object {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a number, text, boolean or list of these.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Serialize) -> Self {
        let value = serde_json::to_value(value).expect("plain values can be JSON");
        self.0.push((key.to_owned(), Member::Value(value)));
        self
    }

    #[must_use]
    pub fn with_object(mut self, key: &str, object: Object) -> Self {
        self.0.push((key.to_owned(), Member::Object(object)));
        self
    }

    #[must_use]
    pub fn with_list(mut self, key: &str, list: impl IntoIterator<Item = Object>) -> Self {
        let list = list.into_iter().collect();
        self.0.push((key.to_owned(), Member::List(list)));
        self
    }

    /// Returns the members that are neither objects nor lists of objects.
    pub fn values(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().filter_map(|(key, member)| match member {
            Member::Value(value) => Some((key.as_str(), value)),
            Member::Object(_) | Member::List(_) => None,
        })
    }

    /// Formats as indented JSON. Escapes unprintable characters, because a target's text must not
    /// control the terminal.
    pub fn pretty(&self) -> String {
        pretty(self)
    }

    #[must_use]
    pub fn pretty_list(list: &[Self]) -> String {
        pretty(list)
    }
}

fn pretty(json: &(impl Serialize + ?Sized)) -> String {
    let json = serde_json::to_string_pretty(json).expect("objects can be written to memory");
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii_graphic() || matches!(c, ' ' | '\n') || c.escape_debug().len() == 1 {
            out.push(c);
        } else {
            let units = c.encode_utf16(&mut [0; 2]).to_vec();
            out.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    out
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_any_text_and_controls_no_terminal() {
        let text = "ä\"\\\u{1b}\u{9b}2J\u{7f}\u{202e}\u{e0041}\n";
        let json = Object::new().with("name", text).pretty();
        assert!(!json.chars().any(|c| c.is_control() && c != '\n'), "{json}");
        assert!(json.contains("\\u009b2J") && json.contains('ä'), "{json}");
        let read: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(read["name"], text);
    }
}
