//! Blocking jobs, kept off the control plane's thread.

use std::sync::Arc;

use crate::panics::{Panics, Part};

pub(super) type Job = Box<dyn FnOnce() + Send>;

pub(super) struct Jobs {
    has_threads: bool,
    panics: Arc<Panics>,
    running: Arc<()>,
}

impl Jobs {
    pub(super) fn new(has_threads: bool) -> Self {
        Self {
            has_threads,
            panics: Arc::new(Panics::new(has_threads)),
            running: Arc::new(()),
        }
    }

    pub(super) fn has_threads(&self) -> bool {
        self.has_threads
    }

    pub(super) fn panics(&self) -> &Arc<Panics> {
        &self.panics
    }

    pub(super) fn run(&self, job: Job) {
        if !self.has_threads {
            return job();
        }
        let (running, panics) = (Arc::clone(&self.running), Arc::clone(&self.panics));
        drop(tokio::task::spawn_blocking(move || {
            panics.confine(Part::Flush, job);
            drop(running);
        }));
    }

    pub(super) fn running(&self) -> usize {
        Arc::strong_count(&self.running) - 1
    }
}
