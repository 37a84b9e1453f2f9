use std::time::{Duration, Instant};

use cairn_tests::logged::lines;

pub(crate) fn expect(parts: &[&str]) -> String {
    let deadline = Instant::now() + super::PATIENCE;
    loop {
        if let Some(line) = lines(parts).pop() {
            assert_in_order(&line, parts);
            return line;
        }
        assert!(
            Instant::now() < deadline,
            "no line with {parts:?} in\n{}",
            lines(&[]).join("\n")
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn assert_in_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let (_, after) = rest
            .split_once(part)
            .unwrap_or_else(|| panic!("no {part:?} (there) in\n{text}"));
        rest = after;
    }
}
