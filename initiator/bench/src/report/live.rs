use std::io::Write;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::super::lane::Direction;
use super::super::meter::{Count, Phase};
use super::super::run::{Audience, Glimpse};
use super::super::stats::per_second;
use super::units::{binary_bytes, decimal};

/// Progress display on stderr: one redrawn line on a terminal, a line every second elsewhere.
#[derive(Debug)]
pub struct Live {
    drawn: ProgressBar,
    last: Option<Glimpse>,
}

impl Live {
    /// Creates a display, empty until the first [`Audience::glimpse`].
    #[must_use]
    pub fn new() -> Self {
        let drawn = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{wide_msg}");
        drawn.set_style(style.expect("the template is well-formed"));
        Self { drawn, last: None }
    }
}

impl Default for Live {
    fn default() -> Self {
        Self::new()
    }
}

impl Audience for Live {
    fn glimpse(&mut self, glimpse: &Glimpse) {
        let line = line(glimpse, self.last.as_ref());
        self.last = Some(*glimpse);
        if self.drawn.is_hidden() {
            let _ = writeln!(std::io::stderr(), "{line}");
        } else {
            self.drawn.set_message(line);
            self.drawn.tick();
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.drawn.finish_and_clear();
    }
}

fn line(glimpse: &Glimpse, last: Option<&Glimpse>) -> String {
    let since = last.map_or(glimpse.elapsed, |last| glimpse.elapsed - last.elapsed);
    let phase = match glimpse.phase {
        Phase::Waiting => "waits",
        Phase::Ramp => "ramp",
        Phase::Running => "runs",
        Phase::Verifying => "verifies",
        Phase::Ended => "ends",
    };
    let done = glimpse
        .progress
        .map_or(String::new(), |done| format!(" {:3.0}%", done * 100.0));
    let mut line = format!("{:>4} s{done} {phase}", glimpse.elapsed.as_secs());
    if glimpse.running > 1 {
        line += &format!(" ({} jobs)", glimpse.running);
    }
    for direction in Direction::ALL {
        let before = last.map_or(Count::default(), |last| last.counts[direction as usize]);
        let count = glimpse.counts[direction as usize].since(before);
        if count.ios > 0 {
            let latency_us = count.latency_ns as f64 / count.ios as f64 / 1e3;
            line += &format!(
                "  {}: {} IOPS, {}/s, {latency_us:.0} us",
                direction.name(),
                decimal(per_second(count.ios, since)),
                binary_bytes(per_second(count.bytes, since)),
            );
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_line_is_of_the_last_second() {
        let count = |ios| Count {
            ios,
            bytes: ios * 4096,
            latency_ns: ios * 50_000,
        };
        let glimpse = |s, reads| Glimpse {
            elapsed: Duration::from_secs(s),
            counts: [count(reads), Count::default()],
            running: 1,
            phase: Phase::Running,
            progress: Some(0.25),
        };
        let first = glimpse(1, 1000);
        assert_eq!(
            line(&glimpse(2, 21_000), Some(&first)),
            "   2 s  25% runs  read: 20.0k IOPS, 78.1MiB/s, 50 us"
        );
    }
}
