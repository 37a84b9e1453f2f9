const LINES_MAX: usize = 20;

#[derive(Default)]
pub(super) struct Failures {
    lines: Vec<String>,
}

impl Failures {
    pub(super) fn read(&mut self, line: &str) {
        let line = line.trim();
        if is_failure(line) && !self.lines.iter().any(|known| known == line) {
            self.lines.push(line.to_owned());
        }
    }

    pub(super) fn print(&self, step: &str) {
        if self.lines.is_empty() {
            println!("failed: {step}: its output above has the reason");
        }
        for line in self.lines.iter().take(LINES_MAX) {
            println!("failed: {step}: {line}");
        }
        if let Some(more) = self.lines.len().checked_sub(LINES_MAX + 1) {
            println!("failed: {step}: and {} more", more + 1);
        }
    }
}

fn is_failure(line: &str) -> bool {
    let test = ["FAIL [", "TIMEOUT [", "SIGABRT [", "SIGSEGV ["];
    let other = ["FAIL  ", "FAILED: ", "error: ", "error["];
    test.iter()
        .chain(&other)
        .any(|start| line.starts_with(start))
        || (line.starts_with("test ") && line.ends_with("... FAILED"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_read_from_output() {
        for (line, failure) in [
            (
                "    FAILED: blocks that differ: expected '0', got '56'",
                true,
            ),
            ("FAIL  suspended-guest   272.7 s", true),
            (
                "        FAIL [   0.1s] ( 3/10) cairn-tests::soak rounds",
                true,
            ),
            (
                "     TIMEOUT [ 120.0s] ( 3/10) xtask package::tests::all",
                true,
            ),
            ("test a::b ... FAILED", true),
            ("error[E0308]: mismatched types", true),
            ("test result: FAILED. 6 passed; 2 failed", false),
            ("PASS  tos               52.4 s", false),
            ("test a::failed_login ... ok", false),
            ("", false),
        ] {
            assert_eq!(is_failure(line.trim()), failure, "{line}");
        }
    }

    #[test]
    fn a_failure_that_is_said_twice_is_kept_once() {
        let mut failures = Failures::default();
        failures.read("    FAIL [   0.1s] a b");
        failures.read("FAIL [   0.1s] a b");
        assert_eq!(failures.lines, ["FAIL [   0.1s] a b"]);
    }
}
