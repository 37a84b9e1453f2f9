//! Sizes in bytes with units: `64MiB`, `10G`, `4096`.

/// Unit suffixes in lower case with their factors, as in coreutils: `K` and `KiB` are 1024, `KB` is
/// 1000.
const UNITS: [(&str, u64); 20] = [
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("kb", 1_000),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("mb", 1_000_000),
    ("g", 1 << 30),
    ("gib", 1 << 30),
    ("gb", 1_000_000_000),
    ("t", 1 << 40),
    ("tib", 1 << 40),
    ("tb", 1_000_000_000_000),
    ("p", 1 << 50),
    ("pib", 1 << 50),
    ("pb", 1_000_000_000_000_000),
    ("e", 1 << 60),
    ("eib", 1 << 60),
    ("eb", 1_000_000_000_000_000_000),
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SizeError {
    Number,
    Unit(String),
    TooLarge,
}

pub(crate) fn parse(text: &str) -> Result<u64, SizeError> {
    let text = text.trim();
    let digits_end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    if digits.is_empty() || unit.starts_with(['.', ',']) {
        return Err(SizeError::Number);
    }
    let unit = unit.trim_start();
    let scale = UNITS
        .iter()
        .find_map(|(name, scale)| name.eq_ignore_ascii_case(unit).then_some(*scale))
        .ok_or_else(|| SizeError::Unit(unit.to_owned()))?;
    let number: u64 = digits.parse().map_err(|_| SizeError::TooLarge)?;
    number.checked_mul(scale).ok_or(SizeError::TooLarge)
}

/// Parses a size such as `64MiB` on the command line into bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    parse(text).map_err(|error| match error {
        SizeError::Number => "a size is a whole number with a unit, such as 64MiB".to_owned(),
        SizeError::Unit(unit) => format!("{unit:?} is not a unit: write a size such as 64MiB"),
        SizeError::TooLarge => "the size exceeds 64 bits: write a smaller one".to_owned(),
    })
}

/// Formats bytes with the largest unit that gives a whole number.
#[must_use]
pub fn format(bytes: u64) -> String {
    const LARGEST_FIRST: [(&str, u32); 6] = [
        ("EiB", 60),
        ("PiB", 50),
        ("TiB", 40),
        ("GiB", 30),
        ("MiB", 20),
        ("KiB", 10),
    ];
    for (unit, shift) in LARGEST_FIRST {
        if bytes != 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}B")
}

impl SizeError {
    pub(crate) fn explain(&self, text: &str) -> (String, String) {
        match self {
            Self::Number => (
                format!("\"{text}\" is not a size"),
                "write a whole number and a unit, such as \"64MiB\" or \"10GiB\"".to_owned(),
            ),
            Self::Unit(unit) => (
                format!("\"{unit}\" is not a unit of size"),
                "the units are KiB, MiB, GiB, TiB (K, M, G, T for short), or KB, MB, GB, TB for \
                 powers of ten"
                    .to_owned(),
            ),
            Self::TooLarge => (
                format!("\"{text}\" is more than 16 EiB"),
                "write a smaller size".to_owned(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512B", 512),
            ("64MiB", 64 << 20),
            ("64 mib", 64 << 20),
            ("1GiB", 1 << 30),
            ("10G", 10 << 30),
            ("10GB", 10_000_000_000),
            ("2T", 2 << 40),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn not_sizes() {
        for (text, error) in [
            ("", SizeError::Number),
            ("GiB", SizeError::Number),
            ("-1", SizeError::Number),
            ("1.5GiB", SizeError::Number),
            ("5 apples", SizeError::Unit("apples".into())),
            ("99999999999999999999", SizeError::TooLarge),
            ("99999999T", SizeError::TooLarge),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(bytes: u64) {
            prop_assert_eq!(parse(&format(bytes)), Ok(bytes));
        }

        #[test]
        fn any_text_is_a_size_or_an_error(text: String) {
            let _ = parse(&text);
        }
    }
}
