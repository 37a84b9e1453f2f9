//! A bar that shows how far something has come, where there is a terminal to
//! draw it on. Elsewhere nothing is drawn, so that logs stay readable.

use std::io::{IsTerminal, Write};

use cairn_bench::{Audience, Glimpse};

const WIDTH: usize = 30;

/// The bar of one piece of work. Gone from the screen with its owner.
#[derive(Debug)]
pub(crate) struct Progress {
    label: String,
    terminal: bool,
    drawn: bool,
}

impl Progress {
    pub(crate) fn new(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            terminal: std::io::stdout().is_terminal(),
            drawn: false,
        }
    }
}

impl Audience for Progress {
    fn glimpse(&mut self, glimpse: &Glimpse) {
        let Some(done) = glimpse.progress.filter(|_| self.terminal) else {
            return;
        };
        self.drawn = true;
        print!("\r  {:<28} {}", self.label, bar(done));
        // A bar that cannot be drawn is no reason to stop.
        let _ = std::io::stdout().flush();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn {
            // Back to the start of the line, and erase it (ECMA-48, EL).
            print!("\r\x1b[K");
            let _ = std::io::stdout().flush();
        }
    }
}

fn bar(done: f64) -> String {
    let done = done.clamp(0.0, 1.0);
    let full = (done * WIDTH as f64) as usize;
    let (full, rest) = ("=".repeat(full), " ".repeat(WIDTH - full));
    format!("[{full}{rest}] {:>3.0} %", done * 100.0)
}

#[cfg(test)]
mod tests {
    use super::bar;

    #[test]
    fn a_bar_is_as_full_as_the_work_is_done() {
        assert_eq!(bar(0.0), format!("[{}]   0 %", " ".repeat(30)));
        assert_eq!(
            bar(0.5),
            format!("[{}{}]  50 %", "=".repeat(15), " ".repeat(15))
        );
        assert_eq!(bar(1.7), format!("[{}] 100 %", "=".repeat(30)));
    }
}
