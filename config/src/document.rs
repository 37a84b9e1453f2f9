//! Parsed configuration file with the position of each value.

use std::borrow::Cow;
use std::ops::Range;

use cairn_base::Trid;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::PORT_DEFAULT;
use crate::key_path::{KeyPath, Step};
use crate::problem::{Excerpt, Problem};
use crate::secret::without_secrets;

pub(crate) struct Document<'t> {
    /// File name for errors. With `None`, errors name an object (a subsystem) instead of a line.
    name: Option<&'t str>,
    text: &'t str,
    shown: Cow<'t, str>,
    pub(crate) root: Spanned<DeTable<'t>>,
}

impl<'t> Document<'t> {
    /// Parses `text`. After syntax errors, the document contains only the valid parts.
    pub(crate) fn parse(name: Option<&'t str>, text: &'t str) -> (Self, Vec<Problem>) {
        let (root, errors) = DeTable::parse_recoverable(text);
        let shown = without_secrets(text);
        let document = Self {
            name,
            text,
            shown,
            root,
        };
        let problems = errors
            .iter()
            .map(|error| {
                Problem::new(error.message())
                    .located(document.excerpt(error.span().unwrap_or(0..0)))
            })
            .collect();
        (document, problems)
    }

    pub(crate) fn locate(&self, place: &KeyPath) -> Excerpt {
        let Some(name) = self.name else {
            return Excerpt::of_flag(&self.object(place));
        };
        let mut place = place.clone();
        loop {
            if let Some(span) = self.span(&place) {
                return self.excerpt(span);
            }
            match place.parent() {
                Some(parent) => place = parent,
                None => return Excerpt::of_file(name),
            }
        }
    }

    pub(crate) fn locate_key(&self, place: &KeyPath) -> Excerpt {
        let (Some(parent), Some(Step::Key(key)), Some(_)) =
            (place.parent(), place.steps().last(), self.name)
        else {
            return self.locate(place);
        };
        match self
            .table(&parent)
            .and_then(|table| table.get_key_value(key.as_str()))
        {
            Some((key, _)) => self.excerpt(key.span()),
            None => self.locate(place),
        }
    }

    /// Returns the name of the value at `place`, such as "namespace 1 of subsystem NQN" or "ana of
    /// listener 192.0.2.1:4420".
    fn object(&self, place: &KeyPath) -> String {
        let (mut at, mut names, mut keys) = (KeyPath::root(), Vec::new(), Vec::new());
        for step in place.steps() {
            match step {
                Step::Key(key) => {
                    at = at.key(key);
                    keys.push(key.as_str());
                }
                Step::Index(index) => {
                    at = at.index(*index);
                    let kind = keys.last().copied().unwrap_or_default();
                    if let Some(name) = self.table(&at).and_then(|table| named(kind, table)) {
                        names.push(name);
                        keys.clear();
                    }
                }
            }
        }
        if !matches!(
            keys[..],
            [] | ["nqn" | "nsid" | "address" | "port" | "name"]
        ) {
            names.push(keys.join("."));
        }
        names.reverse();
        names.join(" of ")
    }

    fn span(&self, place: &KeyPath) -> Option<Range<usize>> {
        self.value(place).map(Spanned::span)
    }

    fn value(&self, place: &KeyPath) -> Option<&Spanned<DeValue<'t>>> {
        let (first, rest) = place.steps().split_first()?;
        let Step::Key(key) = first else { return None };
        rest.iter().try_fold(
            self.root.get_ref().get(key.as_str())?,
            |value, step| match (step, value.get_ref()) {
                (Step::Key(key), DeValue::Table(table)) => table.get(key.as_str()),
                (Step::Index(index), DeValue::Array(array)) => array.get(*index),
                _ => None,
            },
        )
    }

    fn table(&self, place: &KeyPath) -> Option<&DeTable<'t>> {
        if place.steps().is_empty() {
            return Some(self.root.get_ref());
        }
        self.value(place)?.get_ref().as_table()
    }

    pub(crate) fn excerpt(&self, span: Range<usize>) -> Excerpt {
        let Some(name) = self.name else {
            return Excerpt::of_flag("the changed configuration");
        };
        let start = floor_char_boundary(self.text, span.start);
        let line_start = self.text[..start]
            .rfind('\n')
            .map_or(0, |newline| newline + 1);
        let before = &self.text[line_start..start];
        let end = floor_char_boundary(self.text, span.end.max(start));
        let marked = self.text[start..end].lines().next().unwrap_or("");
        let index = self.text[..line_start].matches('\n').count();
        // A secret can span several lines, so `shown` is the whole text with all secrets masked.
        let line = self.shown.split('\n').nth(index).unwrap_or("");
        Excerpt::of_line(
            name,
            index + 1,
            before.chars().count() + 1,
            line.trim_end_matches('\r'),
            marked.chars().count().max(1),
        )
    }
}

fn named(kind: &str, table: &DeTable<'_>) -> Option<String> {
    let text = |key: &str| match table.get(key)?.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        _ => None,
    };
    let [what, key] = match kind {
        "subsystem" => ["subsystem", "nqn"],
        "namespace" => ["namespace", "nsid"],
        "host" => ["host", "nqn"],
        "host_group" => ["host group", "name"],
        "key" => ["key", "name"],
        "referral" => ["referral", "address"],
        "ana" => ["ANA states at listener", "listener"],
        "listener" => {
            let (address, port) = (text("address")?, text("port"));
            let port = port.map_or(Some(PORT_DEFAULT), |port| port.parse().ok())?;
            let at = Trid::parse(&address, port).ok();
            let at = at.map(|at| Trid::new(at.address, port).to_string());
            return Some(format!("listener {}", at.unwrap_or(address)));
        }
        _ => return None,
    };
    Some(format!("{what} {}", text(key)?.escape_debug()))
}

fn floor_char_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len()))
        .rev()
        .find(|&index| text.is_char_boundary(index))
        .unwrap_or(0)
}
