use std::fmt;
use std::ops::Add;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: u32,
    pub(super) failed: u32,
    pub(super) skipped: u32,
}

impl Tally {
    /// Returns the counts in a summary line of cargo test, nextest or this program; zero for other
    /// lines.
    pub(super) fn of_line(line: &str) -> Self {
        let line = without_escapes(line);
        let line = line.trim();
        let closing = line.starts_with("test result:")
            || (line.starts_with("Summary [") && line.contains(" run: "))
            || (line.contains(" passed, ") && line.starts_with(|c: char| c.is_ascii_digit()));
        if !closing {
            return Self::default();
        }
        let counts = line.rsplit("run:").next().unwrap_or(line);
        let words: Vec<&str> = counts
            .split([' ', ',', ';'])
            .filter(|word| !word.is_empty())
            .collect();
        let before = |name: &str| {
            words
                .windows(2)
                .find(|pair| pair[1] == name)
                .and_then(|pair| pair[0].parse().ok())
                .unwrap_or(0)
        };
        Self {
            passed: before("passed"),
            failed: before("failed") + before("timed"),
            skipped: before("skipped") + before("ignored"),
        }
    }

    pub(super) fn is_empty(self) -> bool {
        self == Self::default()
    }
}

pub(super) fn without_escapes(line: &str) -> String {
    let mut parts = line.split("\x1b[");
    let mut plain = parts.next().unwrap_or("").to_owned();
    for part in parts {
        plain.push_str(part.split_once('m').map_or("", |(_, text)| text));
    }
    plain
}

impl Add for Tally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        match self.skipped {
            0 => Ok(()),
            skipped => write!(f, ", {skipped} skipped"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_counted() {
        for (line, passed, failed, skipped) in [
            (
                "test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured",
                7,
                0,
                1,
            ),
            (
                "test result: FAILED. 6 passed; 2 failed; 0 ignored",
                6,
                2,
                0,
            ),
            (
                "     Summary [   0.500s] 20 tests run: 20 passed, 3 skipped",
                20,
                0,
                3,
            ),
            (
                "     Summary [   0.5s] 20 tests run: 18 passed (1 slow), 2 failed, 3 skipped",
                18,
                2,
                3,
            ),
            (
                "     Summary [  60.0s] 3 tests run: 2 passed, 1 timed out, 0 skipped",
                2,
                1,
                0,
            ),
            (
                "\x1b[32;1m     Summary\x1b[0m [ 0.5s] \x1b[1m2\x1b[0m tests run: \x1b[1m2\x1b[0m passed",
                2,
                0,
                0,
            ),
            ("9 passed, 0 failed", 9, 0, 0),
            ("9 passed, 1 failed, 2 skipped", 9, 1, 2),
            ("error: 3 tests passed, 4 failed", 0, 0, 0),
            ("running 7 tests", 0, 0, 0),
            ("", 0, 0, 0),
        ] {
            let tally = Tally {
                passed,
                failed,
                skipped,
            };
            assert_eq!(Tally::of_line(line), tally, "{line}");
        }
    }
}
