//! Parsed configuration file with the position of each value.

use std::borrow::Cow;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::key_path::{KeyPath, Step};
use crate::problem::{Excerpt, Problem};
use crate::secret::without_secrets;

pub(crate) struct Document<'t> {
    name: &'t str,
    text: &'t str,
    shown: Cow<'t, str>,
    pub(crate) root: Spanned<DeTable<'t>>,
}

impl<'t> Document<'t> {
    /// After syntax errors, the document has the valid parts.
    pub(crate) fn parse(name: &'t str, text: &'t str) -> (Self, Vec<Problem>) {
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

    /// Returns an excerpt at `place`, or at the nearest enclosing value in the file.
    pub(crate) fn locate(&self, place: &KeyPath) -> Excerpt {
        let mut place = place.clone();
        loop {
            if let Some(span) = self.span(&place) {
                return self.excerpt(span);
            }
            match place.parent() {
                Some(parent) => place = parent,
                None => return Excerpt::of_file(self.name),
            }
        }
    }

    pub(crate) fn locate_key(&self, place: &KeyPath) -> Excerpt {
        let (Some(parent), Some(Step::Key(key))) = (place.parent(), place.steps().last()) else {
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
        let start = floor_char_boundary(self.text, span.start);
        let line_start = self.text[..start]
            .rfind('\n')
            .map_or(0, |newline| newline + 1);
        let before = &self.text[line_start..start];
        let end = floor_char_boundary(self.text, span.end.max(start));
        let marked = self.text[start..end].lines().next().unwrap_or("");
        let index = self.text[..line_start].matches('\n').count();
        // Secrets are masked in the whole text: a single line does not show whether it continues a
        // secret.
        let line = self.shown.split('\n').nth(index).unwrap_or("");
        Excerpt::of_line(
            self.name,
            index + 1,
            before.chars().count() + 1,
            line.trim_end_matches('\r'),
            marked.chars().count().max(1),
        )
    }
}

fn floor_char_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len()))
        .rev()
        .find(|&index| text.is_char_boundary(index))
        .unwrap_or(0)
}
