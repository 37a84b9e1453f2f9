//! What this process logs, to be read back.

use std::io::{self, Write};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

/// All lines so far. A test's lines are told from another's by what is in them.
static LINES: Mutex<Vec<u8>> = Mutex::new(Vec::new());

#[derive(Clone, Copy)]
struct Tap;

impl Write for Tap {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        lines.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Tap {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        *self
    }
}

/// Begins to listen. Once is enough for a process.
pub(crate) fn listen() {
    static BEGUN: OnceLock<()> = OnceLock::new();
    BEGUN.get_or_init(|| {
        tracing_subscriber::fmt()
            .with_writer(Tap)
            .with_ansi(false)
            .init();
    });
}

/// The lines with all of these parts.
pub(crate) fn lines(parts: &[&str]) -> Vec<String> {
    let bytes = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    drop(bytes);
    let lines = text.lines();
    let of_all = lines.filter(|line| parts.iter().all(|part| line.contains(part)));
    of_all.map(str::to_owned).collect()
}

/// Waits for a line with all of these parts, in this order.
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

/// Asserts that `text` has these parts in this order.
pub(crate) fn assert_in_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let (_, after) = rest
            .split_once(part)
            .unwrap_or_else(|| panic!("no {part:?} (there) in\n{text}"));
        rest = after;
    }
}
