//! Keys that stand in a configuration's text, and what is shown of such a text.

use std::borrow::Cow;
use std::fmt;

/// What each secret begins with (NVMe Base, 8.13.5.8).
const START: &str = "DHHC-";

/// The text of a key in the configuration itself. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct InlineKey(String);

impl InlineKey {
    /// The key of a value, if it is one itself instead of a place.
    #[must_use]
    pub fn of(value: &str) -> Option<Self> {
        let value = value.trim();
        value.starts_with(START).then(|| Self(value.to_owned()))
    }

    /// The secret, as `DHHC-1:..`.
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

/// A text with a star in place of each character of a secret: lines and columns stay.
#[must_use]
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    if !text.contains(START) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
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
    Cow::Owned(shown)
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
}
