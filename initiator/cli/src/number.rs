//! Parser of numbers as in nvme-cli: decimal, or hexadecimal with 0x.

use std::ops::RangeInclusive;

use super::Result;

pub(super) fn number<T: TryFrom<i128>>(text: &str) -> Result<T> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let hex = digits.strip_prefix("0x").or(digits.strip_prefix("0X"));
    let magnitude = match hex {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    let value = magnitude.map(|magnitude| sign * i128::from(magnitude));
    value
        .ok()
        .and_then(|value| T::try_from(value).ok())
        .ok_or_else(|| {
            let bits = 8 * size_of::<T>();
            format!("{text:?} is not a number of {bits} bits, such as 7 or 0x7")
        })
}

pub(super) fn number_in<T: TryFrom<i128> + Into<u64> + Copy>(
    text: &str,
    bounds: RangeInclusive<u64>,
) -> Result<T> {
    let value: T = number(text)?;
    if bounds.contains(&value.into()) {
        return Ok(value);
    }
    let (least, most) = bounds.into_inner();
    Err(match most {
        u64::MAX => format!("{text} is less than {least}"),
        most => format!("{text} is not from {least} to {most}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_bases_and_every_bound() {
        assert_eq!(number::<u16>("0x10"), Ok(16));
        assert_eq!(number::<i64>("-1"), Ok(-1));
        assert_eq!(number::<u64>("0xffffffffffffffff"), Ok(u64::MAX));
        for wrong in ["", "0x", "65536", "-1", "4k", "0x-1"] {
            assert!(number::<u16>(wrong).is_err(), "{wrong}");
        }
        assert_eq!(number_in::<u16>("0x80", 1..=128), Ok(128));
        assert!(
            number_in::<u16>("0", 1..=128)
                .unwrap_err()
                .contains("from 1 to 128")
        );
    }
}
