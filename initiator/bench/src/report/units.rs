fn short(mut value: f64, base: f64, units: &[&str]) -> String {
    let mut steps = 0;
    while value >= 9999.5 && steps + 1 < units.len() {
        value /= base;
        steps += 1;
    }
    let decimals = match value {
        _ if steps == 0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}{}", units[steps])
}

/// Formats with a decimal unit, such as `12.8k`.
#[must_use]
pub fn decimal(value: f64) -> String {
    short(value, 1000.0, &["", "k", "M", "G"])
}

/// Formats bytes with a binary unit, such as `50.0MiB`.
#[must_use]
pub fn binary_bytes(bytes: f64) -> String {
    if bytes < 1024.0 {
        return format!("{bytes:.0}B");
    }
    short(bytes / 1024.0, 1024.0, &["KiB", "MiB", "GiB", "TiB", "PiB"])
}

#[must_use]
pub(super) fn decimal_bytes(bytes: f64) -> String {
    if bytes < 1000.0 {
        return format!("{bytes:.0}B");
    }
    short(bytes / 1000.0, 1000.0, &["kB", "MB", "GB", "TB", "PB"])
}

#[must_use]
pub(super) fn time_unit(min_ns: f64, max_ns: f64) -> (f64, &'static str) {
    if min_ns > 2e6 && max_ns > 99_999e3 {
        (1e6, "msec")
    } else if min_ns > 2e3 && max_ns > 99_999.0 {
        (1e3, "usec")
    } else {
        (1.0, "nsec")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_short_as_in_fio() {
        assert_eq!(decimal(12_799.0), "12.8k");
        assert_eq!(decimal(9999.0), "9999");
        assert_eq!(binary_bytes(104_857_600.0), "100MiB");
        assert_eq!(binary_bytes(52_428_800.0), "50.0MiB");
        assert_eq!(decimal_bytes(52_428_800.0), "52.4MB");
        assert_eq!(binary_bytes(802_816.0), "784KiB");
        assert_eq!(decimal_bytes(802_816.0), "803kB");
        assert_eq!(binary_bytes(512.0), "512B");
        assert_eq!(decimal(1_234_567.0), "1235k");
    }
}
