//! The audit log: who connected, who was refused, and who changed what; apart from the log, and
//! never cut off by its limits.
//!
//! Each destination has a bounded queue and a thread of its own. Reactors and the control plane
//! put events into the queue and never wait: what a full queue has no room for is counted, and
//! the count is a line once the destination takes lines again. docs/guide-target.md has the
//! lines.

mod event;
mod folding;
mod output;
mod writer;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded};

pub(crate) use event::Event;
use output::Destination;
pub(crate) use output::JOURNAL;
use writer::Writer;

/// Events that wait for one destination.
const QUEUE_MAX: usize = 4096;

/// How long a destination may take for one line before that is a trouble.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often to look whether a thread has ended.
const JOIN_STEP: Duration = Duration::from_millis(5);

/// Called when [`Audit::troubles`] may have changed.
pub(crate) type Changed = Arc<dyn Fn() + Send + Sync>;

/// The way to all destinations; off until [`apply`](Self::apply).
#[derive(Debug, Clone, Default)]
pub(crate) struct Audit {
    sinks: Arc<Mutex<Vec<Sink>>>,
}

/// The way to one destination. Dropped, its thread writes what waits and ends.
#[derive(Debug)]
struct Sink {
    destination: Destination,
    items: Sender<Item>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

enum Item {
    Event(Arc<Event>),
    /// Look at what is asked for.
    Wake,
}

/// What a destination's thread shares with the others.
struct Shared {
    reopen: AtomicBool,
    ended: AtomicBool,
    /// Lines that were written.
    lines: AtomicU64,
    /// Events that were lost.
    lost: AtomicU64,
    /// Those of them that no line has reported.
    unreported: AtomicU64,
    started: Instant,
    /// When the call that is under way began, in nanoseconds since `started`; 0: none is.
    call_ns: AtomicU64,
    trouble: Mutex<Option<String>>,
    changed: Changed,
}

/// Of metrics.
pub(crate) struct Counts {
    pub(crate) output: &'static str,
    pub(crate) lines: u64,
    pub(crate) lost: u64,
}

impl Audit {
    /// Writes there from now on. Destinations that stay are opened anew.
    ///
    /// # Errors
    /// A destination gets no thread. Then nothing has changed.
    pub(crate) fn apply(&self, config: &cairn_config::Audit, changed: &Changed) -> io::Result<()> {
        let wanted = Destination::all(config);
        let known: Vec<Destination> = self.lock().iter().map(|s| s.destination.clone()).collect();
        let new = wanted.iter().filter(|wanted| !known.contains(wanted));
        let new: io::Result<Vec<Sink>> = new.map(|new| Sink::start(new, changed)).collect();
        let new = new?;
        let mut sinks = self.lock();
        sinks.retain(|sink| wanted.contains(&sink.destination));
        for sink in &*sinks {
            sink.shared.reopen.store(true, Ordering::Relaxed);
            // A full queue is being written, or waits for the next try.
            let _ = sink.items.try_send(Item::Wake);
        }
        sinks.extend(new);
        Ok(())
    }

    /// Records an event, if anything is recorded. Never waits.
    pub(crate) fn record(&self, event: impl FnOnce() -> Event) {
        let sinks = self.lock();
        if sinks.is_empty() {
            return;
        }
        let event = Arc::new(event());
        for sink in &*sinks {
            sink.record(Arc::clone(&event));
        }
    }

    /// Which destinations do not take what they should, and why.
    pub(crate) fn troubles(&self) -> Vec<(&'static str, String)> {
        let sinks = self.lock();
        let trouble = |sink: &Sink| Some((sink.destination.name(), sink.shared.trouble().clone()?));
        sinks.iter().filter_map(trouble).collect()
    }

    /// For metrics.
    pub(crate) fn counts(&self) -> Vec<Counts> {
        let sinks = self.lock();
        let counts = sinks.iter().map(|sink| Counts {
            output: sink.destination.name(),
            lines: sink.shared.lines.load(Ordering::Relaxed),
            lost: sink.shared.lost.load(Ordering::Relaxed),
        });
        counts.collect()
    }

    /// Writes what waits, as far as it can within this time.
    pub(crate) fn end(&self, within: Duration) {
        let deadline = Instant::now() + within;
        let sinks = std::mem::take(&mut *self.lock());
        let threads: Vec<_> = sinks.into_iter().map(Sink::end).collect();
        for thread in threads.into_iter().flatten() {
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(JOIN_STEP);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Sink>> {
        // Whole whatever panics: a change is one call.
        self.sinks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink {
    fn start(destination: &Destination, changed: &Changed) -> io::Result<Self> {
        let (sender, items) = bounded(QUEUE_MAX);
        let shared = Arc::new(Shared {
            reopen: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            lines: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            unreported: AtomicU64::new(0),
            started: Instant::now(),
            call_ns: AtomicU64::new(0),
            trouble: Mutex::new(None),
            changed: Arc::clone(changed),
        });
        let writer = Writer::new(destination.clone(), Arc::clone(&shared), items);
        let thread = std::thread::Builder::new().name("audit".into());
        let thread = thread.spawn(move || writer.run())?;
        Ok(Self {
            destination: destination.clone(),
            items: sender,
            shared,
            thread: Some(thread),
        })
    }

    fn record(&self, event: Arc<Event>) {
        if self.items.try_send(Item::Event(event)).is_err() {
            self.shared.lose(1);
        }
        self.shared.look_at_call(&self.destination);
    }

    fn end(mut self) -> Option<JoinHandle<()>> {
        self.thread.take()
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    /// So many events were lost.
    fn lose(&self, count: u64) {
        self.lost.fetch_add(count, Ordering::Relaxed);
        self.unreported.fetch_add(count, Ordering::Relaxed);
    }

    fn begin_call(&self) {
        let since = self.started.elapsed().as_nanos() as u64;
        self.call_ns.store(since.max(1), Ordering::Relaxed);
    }

    fn end_call(&self) {
        self.call_ns.store(0, Ordering::Relaxed);
    }

    /// Notes a call that does not return.
    fn look_at_call(&self, destination: &Destination) {
        let begun = Duration::from_nanos(self.call_ns.load(Ordering::Relaxed));
        if begun.is_zero() || self.started.elapsed() < begun + PATIENCE {
            return;
        }
        if self.trouble().is_none() {
            self.failed(&format!(
                "the audit log's {destination} takes no line: the kernel has had one for \
                 {PATIENCE:?}; look for a disk that hangs; events wait, and those beyond \
                 {QUEUE_MAX} are counted and lost"
            ));
        }
    }

    fn failed(&self, trouble: &str) {
        let before = self.trouble().replace(trouble.to_owned());
        if before.as_deref() != Some(trouble) {
            (self.changed)();
        }
    }

    fn recovered(&self) {
        let before = self.trouble().take();
        if before.is_some() {
            (self.changed)();
        }
    }

    fn trouble(&self) -> MutexGuard<'_, Option<String>> {
        // Whole whatever panics: each change is one assignment.
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({:?})", self.trouble())
    }
}

#[cfg(test)]
mod tests;
