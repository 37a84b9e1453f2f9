//! Inline keys, and masking of secrets in displayed text.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Prefix of a secret (NVMe Base 2.0, 8.13.5.8).
const START: &str = "DHHC-";

/// Key written in the configuration itself; `Debug` omits the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct InlineKey(String);

impl InlineKey {
    /// Returns the key, or `None` if `value` refers to a key.
    #[must_use]
    pub fn of(value: &str) -> Option<Self> {
        let value = value.trim();
        value.starts_with(START).then(|| Self(value.to_owned()))
    }

    /// Returns the secret, `DHHC-1:..`.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for InlineKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InlineKey(..)")
    }
}

/// Masks each character of a secret with a star; lines and columns stay.
///
/// Accepts a configuration, a line or a message. Strings are parsed as TOML, because escapes and
/// line breaks could hide a secret; elsewhere the prefix identifies secrets.
#[must_use]
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    if !text.contains(START) && !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let (root, _) = DeTable::parse_recoverable(text);
    let mut spans = Vec::new();
    for (_, value) in root.get_ref() {
        add_written_otherwise(value, text, &mut spans);
    }
    spans.sort_by_key(|span| span.start);
    let mut shown = String::with_capacity(text.len());
    let mut end = 0;
    for span in &spans {
        add_plain(&text[end..span.start], &mut shown);
        let is_kept = |char: char| matches!(char, '\n' | '\r' | '"' | '\'');
        let stars = text[span.clone()].chars();
        shown.extend(stars.map(|char| if is_kept(char) { char } else { '*' }));
        end = span.end;
    }
    add_plain(&text[end..], &mut shown);
    match shown == text {
        true => Cow::Borrowed(text),
        false => Cow::Owned(shown),
    }
}

fn add_written_otherwise(value: &Spanned<DeValue<'_>>, text: &str, spans: &mut Vec<Range<usize>>) {
    match value.get_ref() {
        DeValue::String(string) => {
            let span = value.span();
            let written = text.get(span.clone());
            let is_plain = written.is_none_or(|written| {
                !written.contains(['\\', '\n']) && written.contains(&**string)
            });
            if string.contains(START) && !is_plain {
                spans.push(span);
            }
        }
        DeValue::Array(values) => {
            for value in values {
                add_written_otherwise(value, text, spans);
            }
        }
        DeValue::Table(table) => {
            for (_, value) in table {
                add_written_otherwise(value, text, spans);
            }
        }
        _ => {}
    }
}

fn add_plain(text: &str, shown: &mut String) {
    let mut rest = text;
    while let Some(at) = rest.find(START) {
        let (before, secret) = rest.split_at(at + START.len());
        shown.push_str(before);
        let is_part = |char: char| char.is_ascii_alphanumeric() || "+/=:-".contains(char);
        let end = secret.find(|char| !is_part(char)).unwrap_or(secret.len());
        shown.extend(std::iter::repeat_n('*', end));
        rest = &secret[end..];
    }
    shown.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_value_that_begins_as_secrets_do() {
        assert!(InlineKey::of("/etc/cairn/DHHC-1.key").is_none());
        let key = InlineKey::of(" DHHC-1:00:c2VjcmV0: ").unwrap();
        assert_eq!(key.secret(), "DHHC-1:00:c2VjcmV0:");
        assert!(!format!("{key:?}").contains("c2V"));
    }

    #[test]
    fn nothing_of_a_secret_is_shown_and_all_else_is() {
        for (text, shown) in [
            ("nsid = 1", "nsid = 1"),
            ("a = \"DHHC-1:00:a+/=:\" # é", "a = \"DHHC-**********\" # é"),
            ("DHHC-1:x: DHHC-", "DHHC-**** DHHC-"),
            ("DHHC-DHHC-1", "DHHC-******"),
        ] {
            assert_eq!(without_secrets(text), shown);
        }
        assert!(matches!(without_secrets("nsid = 1"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_secret_is_found_by_its_meaning() {
        for text in [
            "a = \"\\u0044HHC-1:00:c2VjcmV0:\"",
            "a = \"\\U00000044\\x48HC-1:00:c2VjcmV0:\" # e",
            "a = \"\"\"DHHC-1:\\\n  00:c2VjcmV0:\"\"\"\nb = 1",
            "a = \"\"\"\nDHHC-1:00:\nc2VjcmV0:\"\"\"\nb = 1",
            "a = '''\nDHHC-1:00:\nc2VjcmV0:'''",
            "[[a.b]]\nc = { d = [\"x\", \"\\u0044HHC-1:00:c2VjcmV0:\"] }",
            "a = \"\\u0044HHC-1:00:c2VjcmV0:\"\nb = = 3",
        ] {
            let shown = without_secrets(text);
            assert!(!shown.contains("c2VjcmV0"), "{text}\n{shown}");
            let chars = |text: &str| text.lines().map(|line| line.chars().count()).collect();
            let (before, after): (Vec<usize>, Vec<usize>) = (chars(text), chars(&shown));
            assert_eq!(before, after);
        }
        assert_eq!(without_secrets("a = \"\\u0044\""), "a = \"\\u0044\"");
    }
}
