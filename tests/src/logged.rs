//! Log of this process in memory, for tests.

use std::io::{self, Write};
use std::sync::{Mutex, OnceLock, PoisonError};

use tracing_subscriber::fmt::MakeWriter;

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

/// Starts storing log lines; later calls do nothing.
pub fn listen() {
    static BEGUN: OnceLock<()> = OnceLock::new();
    BEGUN.get_or_init(|| {
        tracing_subscriber::fmt()
            .with_writer(Tap)
            .with_ansi(false)
            .init();
    });
}

#[must_use]
pub fn lines(parts: &[&str]) -> Vec<String> {
    let bytes = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    drop(bytes);
    let lines = text.lines();
    let of_all = lines.filter(|line| parts.iter().all(|part| line.contains(part)));
    of_all.map(str::to_owned).collect()
}
