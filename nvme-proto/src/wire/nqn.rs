//! NVMe qualified names (Base, 4.5).

use core::fmt;
use core::str::FromStr;

/// The longest NQN, in bytes, its terminating NUL not counted.
pub const NQN_BYTES_MAX: usize = 223;
/// Bytes of the field that carries an NQN in every structure.
pub const NQN_FIELD_BYTES: usize = 256;
/// The well-known NQN of every discovery subsystem.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

const PREFIX: &str = "nqn.";
const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// A name that follows the rules: `nqn.yyyy-mm.reverse.domain:unique`,
/// `nqn.2014-08.org.nvmexpress:uuid:UUID`, or [`DISCOVERY_NQN`].
///
/// Names compare as their bytes do: no name holds the zeroes that follow it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nqn {
    bytes: [u8; NQN_BYTES_MAX],
    len: u8,
}

/// What is wrong with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NqnError {
    /// No character at all.
    Empty,
    /// More than [`NQN_BYTES_MAX`] bytes, or no NUL in its field.
    TooLong,
    /// Not UTF-8.
    NotUtf8,
    /// It holds a control character.
    ControlCharacter,
    /// It does not start with `nqn.`.
    Prefix,
    /// No `yyyy-mm.` after the prefix.
    Date,
    /// No reverse domain name between the date and the colon.
    Domain,
    /// Nothing after the colon, or no colon.
    UserString,
    /// `nqn.2014-08.org.nvmexpress:uuid:` without a UUID behind it.
    Uuid,
}

impl Nqn {
    /// Checks a name.
    ///
    /// # Errors
    /// The first rule it breaks.
    pub fn parse(name: &str) -> Result<Self, NqnError> {
        check(name)?;
        let mut bytes = [0; NQN_BYTES_MAX];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Ok(Self {
            len: name.len() as u8,
            bytes,
        })
    }

    /// Reads the name from a NUL-terminated field.
    ///
    /// # Errors
    /// The first rule it breaks.
    pub fn decode(field: &[u8; NQN_FIELD_BYTES]) -> Result<Self, NqnError> {
        let len = field
            .iter()
            .position(|&b| b == 0)
            .ok_or(NqnError::TooLong)?;
        Self::parse(core::str::from_utf8(&field[..len]).map_err(|_| NqnError::NotUtf8)?)
    }

    /// The name in a field, padded with NUL.
    #[must_use]
    pub fn encode(&self) -> [u8; NQN_FIELD_BYTES] {
        let mut field = [0; NQN_FIELD_BYTES];
        field[..NQN_BYTES_MAX].copy_from_slice(&self.bytes);
        field
    }

    /// The well-known discovery name.
    #[must_use]
    pub fn discovery() -> Self {
        Self::parse(DISCOVERY_NQN).expect("the well-known discovery NQN is valid")
    }

    /// Whether this is the well-known discovery name.
    #[must_use]
    pub fn is_discovery(&self) -> bool {
        self.as_str() == DISCOVERY_NQN
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.len)])
            .expect("an Nqn is UTF-8 from its construction on")
    }
}

fn check(name: &str) -> Result<(), NqnError> {
    if name.is_empty() {
        return Err(NqnError::Empty);
    }
    if name.len() > NQN_BYTES_MAX {
        return Err(NqnError::TooLong);
    }
    if name.chars().any(char::is_control) {
        return Err(NqnError::ControlCharacter);
    }
    if name == DISCOVERY_NQN {
        return Ok(());
    }
    if let Some(uuid) = name.strip_prefix(UUID_PREFIX) {
        return if is_uuid(uuid) {
            Ok(())
        } else {
            Err(NqnError::Uuid)
        };
    }
    let dated = name.strip_prefix(PREFIX).ok_or(NqnError::Prefix)?;
    let named = strip_date(dated).ok_or(NqnError::Date)?;
    let (domain, user) = named.split_once(':').ok_or(NqnError::UserString)?;
    let label_ok = |label: &str| !label.is_empty() && !label.contains(char::is_whitespace);
    if !domain.split('.').all(label_ok) {
        return Err(NqnError::Domain);
    }
    if user.is_empty() {
        Err(NqnError::UserString)
    } else {
        Ok(())
    }
}

/// What follows `yyyy-mm.`.
fn strip_date(text: &str) -> Option<&str> {
    let (date, rest) = text.split_once('.')?;
    let (year, month) = date.split_once('-')?;
    let digits = |s: &str, n: usize| s.len() == n && s.bytes().all(|b| b.is_ascii_digit());
    let month_ok = digits(month, 2) && ("01"..="12").contains(&month);
    (digits(year, 4) && month_ok).then_some(rest)
}

/// Whether this is a UUID as RFC 4122 writes it: 8-4-4-4-12 hexadecimal digits.
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
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for NqnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the NQN is empty"),
            Self::TooLong => write!(f, "the NQN is longer than {NQN_BYTES_MAX} bytes"),
            Self::NotUtf8 => f.write_str("the NQN is not UTF-8"),
            Self::ControlCharacter => f.write_str("the NQN holds a control character"),
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
    use std::string::String;

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
            assert_eq!(nqn.as_str(), name);
            assert_eq!(Nqn::decode(&nqn.encode()), Ok(nqn));
        }
        assert!(Nqn::discovery().is_discovery());
    }

    #[test]
    fn bad_names_say_what_is_wrong() {
        for (name, error) in [
            ("", NqnError::Empty),
            ("disk1", NqnError::Prefix),
            ("nqn.24-01.com.example:x", NqnError::Date),
            ("nqn.2024-13.com.example:x", NqnError::Date),
            ("nqn.2024-01", NqnError::Date),
            ("nqn.2024-01.:x", NqnError::Domain),
            ("nqn.2024-01.com..example:x", NqnError::Domain),
            ("nqn.2024-01.com.example", NqnError::UserString),
            ("nqn.2024-01.com.example:", NqnError::UserString),
            ("nqn.2024-01.com.example:a\nb", NqnError::ControlCharacter),
            ("nqn.2014-08.org.nvmexpress:uuid:0d2c54d4", NqnError::Uuid),
        ] {
            assert_eq!(Nqn::parse(name), Err(error), "{name:?}");
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
        let mut field = Nqn::discovery().encode();
        field[2] = 0xff;
        assert_eq!(Nqn::decode(&field), Err(NqnError::NotUtf8));
    }
}
