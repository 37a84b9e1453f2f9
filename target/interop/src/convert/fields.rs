use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::rc::Rc;

use serde_json::Value;

use super::Notes;

/// Reader of a JSON object. Adds a note for each setting that cannot be converted and, when
/// dropped, for each unread member, unless the object was [left out](Self::leave_out). An object
/// with an invalid member is not converted ([`are_readable`](Self::are_readable)).
pub(super) struct Fields<'v> {
    what: String,
    object: &'v Value,
    notes: Notes,
    asked: RefCell<Vec<&'static str>>,
    is_unreadable: Cell<bool>,
    is_taken_whole: Cell<bool>,
    is_left_out: Rc<Cell<bool>>,
}

impl<'v> Fields<'v> {
    pub(super) fn of(what: impl Into<String>, object: &'v Value, notes: &Notes) -> Self {
        let fields = Self {
            what: what.into(),
            object,
            notes: notes.clone(),
            asked: RefCell::default(),
            is_unreadable: Cell::new(false),
            is_taken_whole: Cell::new(false),
            is_left_out: Rc::default(),
        };
        if !object.is_object() && !object.is_null() {
            fields.unreadable::<()>("it", "an object", object);
        }
        fields
    }

    pub(super) fn what(&self) -> &str {
        &self.what
    }

    pub(super) fn named(mut self, what: impl Into<String>) -> Self {
        self.what = what.into();
        self
    }

    pub(super) fn text(&self, key: &'static str) -> Option<String> {
        match self.get(key)? {
            Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
            Value::Number(number) => Some(number.to_string()),
            other => self.unreadable(key, "text", other),
        }
    }

    pub(super) fn number(&self, key: &'static str) -> Option<u64> {
        let value = self.get(key)?;
        let number = match value {
            Value::Number(number) => number.as_u64(),
            Value::String(text) if text.trim().is_empty() => return None,
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        number.or_else(|| self.unreadable(key, "a number", value))
    }

    pub(super) fn number_u32(&self, key: &'static str) -> Option<u32> {
        let number = self.number(key)?;
        let narrow = u32::try_from(number).ok();
        narrow.or_else(|| self.unreadable(key, "a number of 32 bits", &Value::from(number)))
    }

    pub(super) fn flag(&self, key: &'static str) -> Option<bool> {
        let value = self.get(key)?;
        match value {
            Value::Bool(is_so) => Some(*is_so),
            _ => match self.number(key)? {
                0 => Some(false),
                1 => Some(true),
                _ => self.unreadable(key, "true or false", value),
            },
        }
    }

    pub(super) fn identity(&self, key: &'static str) -> Option<String> {
        let text = self.text(key)?;
        let is_set = text.bytes().any(|byte| !matches!(byte, b'0' | b'-'));
        is_set.then_some(text)
    }

    pub(super) fn array(&self, key: &'static str) -> &'v [Value] {
        match self.get(key) {
            None => &[],
            Some(Value::Array(values)) => values,
            Some(other) => self.unreadable(key, "an array", other).unwrap_or(&[]),
        }
    }

    pub(super) fn texts(&self, key: &'static str) -> Vec<String> {
        let values = self.array(key).iter();
        let texts = values.filter_map(|value| match value {
            Value::String(text) => Some(text.trim().to_owned()),
            other => self.unreadable(key, "an array of texts", other),
        });
        texts.collect()
    }

    pub(super) fn object(&self, key: &'static str) -> Self {
        let value = self.get(key).unwrap_or(&Value::Null);
        let mut object = Self::of(self.what.clone(), value, &self.notes);
        object.is_left_out = Rc::clone(&self.is_left_out);
        object
    }

    pub(super) fn value(&self, key: &'static str) -> &'v Value {
        self.get(key).unwrap_or(&Value::Null)
    }

    pub(super) fn options(&self) -> BTreeMap<String, String> {
        self.is_taken_whole.set(true);
        let all = self.object.as_object().into_iter().flatten();
        let options = all.filter_map(|(key, value)| match value {
            Value::Null => None,
            Value::String(text) => Some((key.clone(), text.clone())),
            Value::Number(number) => Some((key.clone(), number.to_string())),
            Value::Bool(is_so) => Some((key.clone(), is_so.to_string())),
            other => self.unreadable(key, "text", other),
        });
        options.collect()
    }

    /// Marks each member of `usual` as read if it is missing or has its default.
    pub(super) fn ignore_usual(&self, usual: &[(&'static str, &str)]) {
        let has = |(key, default): &&(&'static str, &str)| match self.object.get(key) {
            Some(Value::String(text)) => text == default,
            Some(value) => default
                .parse()
                .is_ok_and(|default: Value| default == *value),
            None => true,
        };
        let keys = usual.iter().filter(has).map(|(key, _)| *key);
        self.asked.borrow_mut().extend(keys);
    }

    pub(super) fn ignore_all(&self) {
        self.is_taken_whole.set(true);
    }

    pub(super) fn are_all_known(&self) -> bool {
        let asked = self.asked.borrow();
        let mut members = self.object.as_object().into_iter().flatten();
        members.all(|(key, value)| value.is_null() || asked.contains(&key.as_str()))
    }

    pub(super) fn has(&self, key: &'static str) -> bool {
        self.get(key).is_some()
    }

    pub(super) fn ignore(&self, keys: &[&'static str]) {
        self.asked.borrow_mut().extend(keys);
    }

    pub(super) fn leave_out(&self, why: impl Display) {
        self.notes
            .lacks(format!("{} is left out: {why}", self.what));
        self.is_left_out.set(true);
    }

    /// Leaves out a namespace. Its note precedes the notes about other objects.
    pub(super) fn leave_out_namespace(&self, why: impl Display) {
        let note = format!("{} is left out: {why}", self.what);
        self.notes.lacks_namespace(note);
        self.is_left_out.set(true);
    }

    /// Leaves out an object and adds `note`. Does not set `Converted::is_partial`, because no host
    /// could use the object, or Cairn has no counterpart.
    pub(super) fn leave_out_whole(&self, note: impl Into<String>) {
        self.notes.add(note);
        self.is_left_out.set(true);
    }

    /// Leaves out an object that restricts hosts. Sets `Converted::opens`, because the result
    /// admits more hosts.
    pub(super) fn leave_out_open(&self, note: impl Into<String>) {
        self.notes.opens(note);
        self.is_left_out.set(true);
    }

    pub(super) fn are_readable(&self, parts: &[&Self]) -> bool {
        let mut all = parts.iter().copied().chain([self]);
        let is_readable = !all.any(|one| one.is_unreadable.get());
        if !is_readable {
            self.notes.lacks(format!("{} is left out", self.what));
            self.is_left_out.set(true);
        }
        is_readable
    }

    fn get(&self, key: &'static str) -> Option<&'v Value> {
        self.asked.borrow_mut().push(key);
        self.object.get(key).filter(|value| !value.is_null())
    }

    fn unreadable<T>(&self, key: &str, expected: impl Display, value: &Value) -> Option<T> {
        self.is_unreadable.set(true);
        // Host keys must not appear in notes.
        let value = cairn_config::without_secrets(&value.to_string()).into_owned();
        self.notes
            .add(format!("{}: {key} is not {expected}: {value}", self.what));
        None
    }
}

impl Drop for Fields<'_> {
    fn drop(&mut self) {
        if !self.is_left_out.get() && !self.is_taken_whole.get() {
            self.notes
                .unknown(&self.what, self.object, &self.asked.borrow());
        }
    }
}
