//! Progress bar, only on a terminal.

use cairn_bench::{Audience, Glimpse};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const PARTS: u64 = 1000;

#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub(crate) fn new(label: impl Into<String>) -> Self {
        let bar = ProgressBar::with_draw_target(Some(PARTS), ProgressDrawTarget::stdout());
        Self::on(bar, label.into())
    }

    fn on(bar: ProgressBar, label: String) -> Self {
        let style = ProgressStyle::with_template("  {prefix:28} [{bar:30}] {percent:>3} %")
            .expect("the template is well-formed")
            .progress_chars("=> ");
        bar.set_style(style);
        bar.set_prefix(label);
        Self { bar }
    }
}

impl Audience for Progress {
    fn glimpse(&mut self, glimpse: &Glimpse) {
        if let Some(done) = glimpse.progress {
            let parts = done.clamp(0.0, 1.0) * PARTS as f64;
            self.bar.set_position(parts as u64);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
