use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    Bytes(u64),
    Percent(u8),
}

impl Size {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text.strip_suffix('%') {
            Some(percent) => match percent.parse() {
                Ok(percent @ 0..=100) => Ok(Self::Percent(percent)),
                _ => Err(format!("{text} is not a percentage from 0% to 100%")),
            },
            None => parse_bytes(text).map(Self::Bytes),
        }
    }

    pub(super) fn of(self, whole: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => {
                (u128::from(whole) * u128::from(percent) / 100).min(u128::from(whole)) as u64
            }
        }
    }
}

/// Parses a decimal or hexadecimal number of bytes. As in fio, `k` means 1024.
pub(super) fn parse_bytes(text: &str) -> Result<u64, String> {
    let not_a_size = || format!("{text:?} is not a size such as 4096, 4k, 16m or 1g");
    if let Some(hex) = text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        return u64::from_str_radix(hex, 16).map_err(|_| not_a_size());
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| not_a_size())?;
    let shift = match suffix.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" => 10,
        "m" | "mb" => 20,
        "g" | "gb" => 30,
        "t" | "tb" => 40,
        "p" | "pb" => 50,
        // fio by default interprets `KiB` as 1000 bytes (kb_base). These suffixes are refused,
        // because users expect 1024.
        "ki" | "kib" | "mi" | "mib" | "gi" | "gib" | "ti" | "tib" | "pi" | "pib" => {
            let plain = &suffix[..1];
            return Err(format!(
                "{text}: fio takes {suffix} for a power of 1000; write {number}{plain} for the \
                 power of 1024"
            ));
        }
        _ => return Err(not_a_size()),
    };
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("{text} is more than 64 bits hold"))
}

pub(super) fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let (low, high) = text
        .split_once(['-', ':'])
        .ok_or_else(|| format!("{text:?} is not a range such as 4k-128k"))?;
    let (low, high) = (parse_bytes(low)?, parse_bytes(high)?);
    if low > high {
        return Err(format!("{text} is a range from larger to smaller"));
    }
    Ok((low, high))
}

pub(super) fn parse_time(text: &str) -> Result<Duration, String> {
    let not_a_time = || format!("{text:?} is not a time such as 30, 30s, 500ms or 5m");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| not_a_time())?;
    let seconds = |unit: u64| {
        let all = number.checked_mul(unit).ok_or_else(not_a_time)?;
        Ok(Duration::from_secs(all))
    };
    match suffix.to_ascii_lowercase().as_str() {
        "us" => Ok(Duration::from_micros(number)),
        "ms" => Ok(Duration::from_millis(number)),
        "" | "s" => seconds(1),
        "m" => seconds(60),
        "h" => seconds(3600),
        "d" => seconds(86_400),
        _ => Err(not_a_time()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_those_of_fio() {
        for text in ["4k", "4K", "4kb", "4096", "0x1000", "4096b"] {
            assert_eq!(parse_bytes(text), Ok(4096), "{text}");
        }
        assert_eq!(parse_bytes("1m"), Ok(1 << 20));
        assert_eq!(parse_bytes("2t"), Ok(2 << 40));
    }

    #[test]
    fn what_fio_takes_for_thousands_is_asked_about() {
        let error = parse_bytes("4KiB").unwrap_err();
        assert!(error.contains("write 4K"), "{error}");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "k", "4x", "-1", "99999999999999999999", "20000000t"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        assert!(parse_range("4k").is_err());
        assert!(parse_range("8k-4k").is_err());
        assert!(Size::parse("101%").is_err());
        assert!(parse_time("5 minutes").is_err());
    }

    #[test]
    fn shares_and_times() {
        assert_eq!(Size::parse("25%").unwrap().of(1 << 40), 1 << 38);
        assert_eq!(Size::parse("100%").unwrap().of(u64::MAX), u64::MAX);
        assert_eq!(parse_time("2"), Ok(Duration::from_secs(2)));
        assert_eq!(parse_time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("1h"), Ok(Duration::from_secs(3600)));
        assert_eq!(parse_range("4k-1m"), Ok((4096, 1 << 20)));
    }
}
