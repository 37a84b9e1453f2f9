//! NVMe qualified names (Base, 4.5).

use core::fmt;
use core::str::FromStr;

/// Maximum bytes of an NQN, without NUL.
pub const NQN_BYTES_MAX: usize = 223;
/// Length of an NQN in wire structures, padded with NULs.
pub const NQN_FIELD_BYTES: usize = 256;
/// Well-known NQN of the discovery subsystem.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

const PREFIX: &str = "nqn.";
const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// NVMe qualified name: UTF-8 text of at most [`NQN_BYTES_MAX`] bytes without NUL.
///
/// Any such text is accepted, even if empty, because some peers violate the NQN format;
/// [`Nqn::irregularity`] checks it. Names are compared bytewise. `Display` and `Debug` escape
/// control characters, to protect terminals and log lines.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nqn {
    bytes: [u8; NQN_BYTES_MAX],
    len: u8,
}

/// Error in an NQN field or text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NqnError {
    /// The name exceeds [`NQN_BYTES_MAX`] bytes, or the field has no NUL.
    TooLong,
    /// The field is not UTF-8.
    NotUtf8,
    /// The text contains a NUL.
    Nul,
}

/// Violation of the NQN format (Base, 4.5).
///
/// Formats: `nqn.yyyy-mm.reverse.domain:unique`, `nqn.2014-08.org.nvmexpress:uuid:UUID` and
/// [`DISCOVERY_NQN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Irregularity {
    /// The name is empty.
    Empty,
    /// The name contains a control character.
    ControlCharacter,
    /// The prefix `nqn.` is missing.
    Prefix,
    /// The date `yyyy-mm.` is missing.
    Date,
    /// The reverse domain name is missing.
    Domain,
    /// The colon or the text after it is missing.
    UserString,
    /// The UUID is missing or invalid.
    Uuid,
}

impl Nqn {
    /// Creates an NQN from text; does not check the format.
    pub fn parse(name: &str) -> Result<Self, NqnError> {
        if name.len() > NQN_BYTES_MAX {
            return Err(NqnError::TooLong);
        }
        if name.contains('\0') {
            return Err(NqnError::Nul);
        }
        let mut bytes = [0; NQN_BYTES_MAX];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Ok(Self {
            len: name.len() as u8,
            bytes,
        })
    }

    /// Decodes a NUL-terminated NQN field.
    pub fn decode(field: &[u8; NQN_FIELD_BYTES]) -> Result<Self, NqnError> {
        let len = field
            .iter()
            .position(|&b| b == 0)
            .ok_or(NqnError::TooLong)?;
        Self::parse(core::str::from_utf8(&field[..len]).map_err(|_| NqnError::NotUtf8)?)
    }

    /// Encodes the name, padded with NUL.
    #[must_use]
    pub fn encode(&self) -> [u8; NQN_FIELD_BYTES] {
        let mut field = [0; NQN_FIELD_BYTES];
        field[..NQN_BYTES_MAX].copy_from_slice(&self.bytes);
        field
    }

    /// Returns the well-known discovery NQN.
    #[must_use]
    pub fn discovery() -> Self {
        Self::parse(DISCOVERY_NQN).expect("the well-known discovery NQN is short enough")
    }

    /// True if the name is the well-known discovery NQN.
    #[must_use]
    pub fn is_discovery(&self) -> bool {
        self.raw() == DISCOVERY_NQN
    }

    /// True if the name is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Unescaped text, to compare, hash and send; for output use `Display`.
    #[must_use]
    pub fn raw(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.len)])
            .expect("an Nqn is UTF-8 from its construction on")
    }

    /// Returns the first violation of the format, if any.
    #[must_use]
    pub fn irregularity(&self) -> Option<Irregularity> {
        check(self.raw()).err()
    }
}

/// Formats a peer's text, with unprintable characters and backslashes escaped as in Rust literals.
/// Different texts have different output.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '"' | '\'' => fmt::Write::write_char(f, c)?,
                c => write!(f, "{}", c.escape_debug())?,
            }
        }
        Ok(())
    }
}

/// Formats text as a TOML string.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c.escape_debug().count() == 1 || c == '\'' => write!(f, "{c}")?,
                c => write!(f, "\\U{:08X}", u32::from(c))?,
            }
        }
        f.write_str("\"")
    }
}

fn check(name: &str) -> Result<(), Irregularity> {
    if name.is_empty() {
        return Err(Irregularity::Empty);
    }
    if name.chars().any(char::is_control) {
        return Err(Irregularity::ControlCharacter);
    }
    if name == DISCOVERY_NQN {
        return Ok(());
    }
    if let Some(uuid) = name.strip_prefix(UUID_PREFIX) {
        return if is_uuid(uuid) {
            Ok(())
        } else {
            Err(Irregularity::Uuid)
        };
    }
    let dated = name.strip_prefix(PREFIX).ok_or(Irregularity::Prefix)?;
    let named = strip_date(dated).ok_or(Irregularity::Date)?;
    let (domain, user) = named.split_once(':').ok_or(Irregularity::UserString)?;
    let label_ok = |label: &str| !label.is_empty() && !label.contains(char::is_whitespace);
    if !domain.split('.').all(label_ok) {
        return Err(Irregularity::Domain);
    }
    if user.is_empty() {
        Err(Irregularity::UserString)
    } else {
        Ok(())
    }
}

fn strip_date(text: &str) -> Option<&str> {
    let (date, rest) = text.split_once('.')?;
    let (year, month) = date.split_once('-')?;
    let digits = |s: &str, n: usize| s.len() == n && s.bytes().all(|b| b.is_ascii_digit());
    let month_ok = digits(month, 2) && ("01"..="12").contains(&month);
    (digits(year, 4) && month_ok).then_some(rest)
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(i, b)| match i {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_hexdigit(),
        })
}

impl FromStr for Nqn {
    type Err = NqnError;

    fn from_str(name: &str) -> Result<Self, NqnError> {
        Self::parse(name)
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Escaped(self.raw()).fmt(f)
    }
}

impl fmt::Debug for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.raw(), f)
    }
}

impl fmt::Display for NqnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "the name is longer than {NQN_BYTES_MAX} bytes"),
            Self::NotUtf8 => f.write_str("the name is not UTF-8"),
            Self::Nul => f.write_str("the name holds a NUL character"),
        }
    }
}

impl fmt::Display for Irregularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the name is empty"),
            Self::ControlCharacter => f.write_str("the name holds a control character"),
            Self::Prefix => f.write_str("an NQN starts with \"nqn.\""),
            Self::Date => f.write_str("\"nqn.\" is followed by a date, as in \"nqn.2024-01.\""),
            Self::Domain => f.write_str(
                "the date is followed by a reverse domain name, as in \"nqn.2024-01.com.example:\"",
            ),
            Self::UserString => f.write_str(
                "the domain is followed by a colon and a name, as in \"nqn.2024-01.com.example:disk1\"",
            ),
            Self::Uuid => write!(f, "\"{UUID_PREFIX}\" is followed by a UUID"),
        }
    }
}

impl core::error::Error for NqnError {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;
    use std::string::{String, ToString};

    #[test]
    fn good_names() {
        for name in [
            DISCOVERY_NQN,
            "nqn.2014-08.org.nvmexpress:uuid:0d2c54d4-3b7a-4d7c-9d37-0fb4d0a1a2b3",
            "nqn.2014-08.org.nvmexpress:NVMf:uuid:0d2c54d4-3b7a-4d7c-9d37-0fb4d0a1a2b3",
            "nqn.2024-01.com.example:disk one/ä",
            "nqn.2024-12.com:x",
        ] {
            let nqn = Nqn::parse(name).unwrap();
            assert_eq!((nqn.raw(), nqn.irregularity()), (name, None));
            assert_eq!(nqn.to_string(), name);
            assert_eq!(Nqn::decode(&nqn.encode()), Ok(nqn));
        }
        assert!(Nqn::discovery().is_discovery());
    }

    #[test]
    fn other_names_are_names_and_say_which_rule_they_break() {
        for (name, error) in [
            ("", Irregularity::Empty),
            ("disk1", Irregularity::Prefix),
            ("testnqn", Irregularity::Prefix),
            ("nqn.24-01.com.example:x", Irregularity::Date),
            ("nqn.2024-13.com.example:x", Irregularity::Date),
            ("nqn.2024-01", Irregularity::Date),
            ("nqn.2024-01.:x", Irregularity::Domain),
            ("nqn.2024-01.com..example:x", Irregularity::Domain),
            ("nqn.2024-01.com.example", Irregularity::UserString),
            ("nqn.2024-01.com.example:", Irregularity::UserString),
            (
                "nqn.2024-01.com.example:a\nb",
                Irregularity::ControlCharacter,
            ),
            (
                "nqn.2014-08.org.nvmexpress:uuid:0d2c54d4",
                Irregularity::Uuid,
            ),
        ] {
            let nqn = Nqn::parse(name).unwrap();
            assert_eq!(nqn.irregularity(), Some(error), "{name:?}");
            assert_eq!(Nqn::decode(&nqn.encode()), Ok(nqn));
            assert_eq!(nqn.is_empty(), name.is_empty());
        }
    }

    #[test]
    fn what_is_shown_controls_no_terminal_and_stays_distinct() {
        for (name, shown) in [
            ("a\nb", "a\\nb"),
            ("a\\nb", "a\\\\nb"),
            ("\u{1b}[2J", "\\u{1b}[2J"),
            ("\u{9b}2J\u{7f}", "\\u{9b}2J\\u{7f}"),
            ("a\u{202e}b", "a\\u{202e}b"),
            ("ä \"q\" 'q'", "ä \"q\" 'q'"),
        ] {
            let nqn = Nqn::parse(name).unwrap();
            assert_eq!(nqn.to_string(), shown);
            assert!(!format!("{nqn:?}").chars().any(char::is_control));
            assert_eq!(nqn.raw(), name);
        }
    }

    #[test]
    fn names_compare_as_text_does() {
        let names = [
            "nqn.2024-01.com:a",
            "nqn.2024-01.com:ab",
            "nqn.2024-01.com:b",
        ];
        for (a, b) in names.iter().flat_map(|a| names.map(|b| (*a, b))) {
            let (parsed_a, parsed_b) = (Nqn::parse(a).unwrap(), Nqn::parse(b).unwrap());
            assert_eq!(parsed_a.cmp(&parsed_b), a.cmp(b));
            assert_eq!(parsed_a == parsed_b, a == b);
        }
    }

    #[test]
    fn length_limit_is_223_bytes() {
        let mut name = String::from("nqn.2024-01.com.example:");
        while name.len() < NQN_BYTES_MAX {
            name.push('x');
        }
        assert!(Nqn::parse(&name).is_ok());
        name.push('x');
        assert_eq!(Nqn::parse(&name), Err(NqnError::TooLong));
    }

    #[test]
    fn a_field_without_nul_is_refused() {
        assert_eq!(Nqn::decode(&[b'n'; 256]), Err(NqnError::TooLong));
        let mut long = [b'n'; 256];
        long[NQN_BYTES_MAX + 1] = 0;
        assert_eq!(Nqn::decode(&long), Err(NqnError::TooLong));
        assert_eq!(Nqn::parse("a\0b"), Err(NqnError::Nul));
        let mut field = Nqn::discovery().encode();
        field[2] = 0xff;
        assert_eq!(Nqn::decode(&field), Err(NqnError::NotUtf8));
    }

    #[test]
    fn a_quoted_name_is_one_string() {
        for (name, quoted) in [
            ("nqn.2026-01.org.example:a", "\"nqn.2026-01.org.example:a\""),
            ("a\", \"b", r#""a\", \"b""#),
            ("back\\slash'", r#""back\\slash'""#),
            ("a\nb\u{202e}", r#""a\U0000000Ab\U0000202E""#),
        ] {
            assert_eq!(Quoted(name).to_string(), quoted);
        }
    }
}
