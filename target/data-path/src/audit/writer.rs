//! Thread that writes the lines of one destination and waits for its disk.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::event::line_of_lost;
use super::folding::Folding;
use super::output::{Destination, Output};
use super::{Item, Shared};

/// Maximum lines that wait to be written. At this number, events stay in the queue.
const LINES_MAX: usize = 64;

const PAUSE: Duration = Duration::from_millis(500);

pub(super) struct Writer {
    destination: Destination,
    shared: Arc<Shared>,
    items: Receiver<Item>,
    output: Option<Output>,
    lines: VecDeque<String>,
    /// Bytes of `lines[0]` already written.
    written: usize,
    folding: Folding,
    retry: Option<Instant>,
}

impl Writer {
    pub(super) fn new(
        destination: Destination,
        shared: Arc<Shared>,
        items: Receiver<Item>,
    ) -> Self {
        Self {
            destination,
            shared,
            items,
            output: None,
            lines: VecDeque::new(),
            written: 0,
            folding: Folding::default(),
            retry: None,
        }
    }

    pub(super) fn run(mut self) {
        self.write();
        loop {
            let deadline = match self.retry {
                Some(retry) => Some(retry),
                None => self.folding.ends(),
            };
            let is_full = self.lines.len() >= LINES_MAX;
            if is_full && self.shared.ended.load(Ordering::Relaxed) {
                break;
            }
            let received = match deadline {
                Some(at) if is_full => {
                    std::thread::sleep(at.saturating_duration_since(Instant::now()));
                    Err(RecvTimeoutError::Timeout)
                }
                Some(at) => self.items.recv_deadline(at),
                None => self.items.recv().map_err(RecvTimeoutError::from),
            };
            match received {
                Ok(item) => self.take(&item),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.folding.ends().is_some_and(|at| at <= Instant::now()) && !is_full {
                self.end_folding();
            }
            if self.retry.is_none_or(|at| at <= Instant::now()) {
                self.write();
            }
        }
        self.end_folding();
        self.write();
        let left = self.lines.len() + self.items.len();
        self.shared.lose(left as u64);
    }

    fn take(&mut self, item: &Item) {
        if let Item::Event(event) = item {
            self.lines.extend(self.folding.take(event, Instant::now()));
        }
    }

    fn end_folding(&mut self) {
        let lines = &mut self.lines;
        self.folding.end(|line| lines.push_back(line));
    }

    fn write(&mut self) {
        let opened = self.open();
        // If the new file cannot be opened, lines go to the old one.
        let written = self.write_lines();
        self.shared.end_call();
        let destination = &self.destination;
        let trouble = match (opened, written) {
            (Ok(()), Ok(())) => {
                self.retry = None;
                return self.shared.recovered();
            }
            (Err(error), Ok(())) if self.output.is_some() => format!(
                "the audit log cannot be opened at {destination}, and goes on in the old file: \
                 {error}"
            ),
            (Err(error), _) | (_, Err(error)) => format!(
                "the audit log cannot be written to {destination}: {error}; events wait, and \
                 those beyond {} are counted and lost",
                super::QUEUE_MAX
            ),
        };
        self.retry = Some(Instant::now() + PAUSE);
        self.shared.failed(&trouble);
    }

    /// Opens the destination if it is closed, must be reopened, or was moved while lines wait. A
    /// partly written line is then repeated.
    fn open(&mut self) -> io::Result<()> {
        let again = self.shared.reopen.swap(false, Ordering::Relaxed);
        self.shared.begin_call();
        if let Some(output) = &self.output
            && !again
            && (self.lines.is_empty() || !self.destination.has_left(output))
        {
            return Ok(());
        }
        match self.destination.open() {
            Ok(output) => {
                self.output = Some(output);
                self.written = 0;
                Ok(())
            }
            Err(error) => {
                self.shared.reopen.store(true, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    fn write_lines(&mut self) -> io::Result<()> {
        let Some(output) = &mut self.output else {
            return Ok(());
        };
        loop {
            if self.written == 0 {
                let lost = self.shared.unreported.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    self.lines.push_front(line_of_lost(lost));
                }
            }
            let Some(line) = self.lines.front() else {
                return Ok(());
            };
            self.shared.begin_call();
            match output.write(line, self.written) {
                Ok(written) => self.written += written,
                Err(error) => {
                    // A socket is opened again, because it may have a new peer. A file stays open,
                    // because it has part of the line.
                    if !matches!(output, Output::File(_)) {
                        self.output = None;
                    }
                    return Err(error);
                }
            }
            if self.written > line.len() {
                self.lines.pop_front();
                self.written = 0;
                self.shared.lines.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
