//! Audit log of connections, refusals and changes (docs/operations/audit-log.md).
//!
//! Each destination has a bounded queue and a thread. Adding an event never blocks: events beyond a
//! full queue are lost, and a later line counts them.

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

pub use event::Event;
use output::Destination;
pub use output::{JOURNAL, check_file};
use writer::Writer;

const QUEUE_MAX: usize = 4096;

/// Time limit for writing a line, after which the destination counts as failed.
const PATIENCE: Duration = Duration::from_secs(2);

const JOIN_STEP: Duration = Duration::from_millis(5);

/// Callback for a possible change of [`Audit::troubles`].
pub type Changed = Arc<dyn Fn() + Send + Sync>;

/// Audit log without destinations until [`apply`](Self::apply).
#[derive(Debug, Clone, Default)]
pub struct Audit {
    sinks: Arc<Mutex<Vec<Sink>>>,
}

/// After a drop, the sink's thread still writes the queued events.
#[derive(Debug)]
struct Sink {
    destination: Destination,
    items: Sender<Item>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

enum Item {
    Event(Arc<Event>),
    Wake,
}

struct Shared {
    reopen: AtomicBool,
    ended: AtomicBool,
    lines: AtomicU64,
    lost: AtomicU64,
    unreported: AtomicU64,
    started: Instant,
    /// Start of the current system call, in nanoseconds after `started`; 0 between calls.
    call_ns: AtomicU64,
    trouble: Mutex<Option<String>>,
    changed: Changed,
}

pub struct Counts {
    pub output: &'static str,
    pub lines: u64,
    pub lost: u64,
}

impl Audit {
    /// Switches to the configured destinations, and reopens those already in use. If the thread of
    /// a new destination cannot start, nothing changes.
    pub fn apply(&self, config: &cairn_config::Audit, changed: &Changed) -> io::Result<()> {
        let wanted = Destination::all(config);
        let known: Vec<Destination> = self.lock().iter().map(|s| s.destination.clone()).collect();
        let new = wanted.iter().filter(|wanted| !known.contains(wanted));
        let new: io::Result<Vec<Sink>> = new.map(|new| Sink::start(new, changed)).collect();
        let new = new?;
        let mut sinks = self.lock();
        sinks.retain(|sink| wanted.contains(&sink.destination));
        for sink in &*sinks {
            sink.shared.reopen.store(true, Ordering::Relaxed);
            // A full queue needs no wake-up: the thread is writing or will retry.
            let _ = sink.items.try_send(Item::Wake);
        }
        sinks.extend(new);
        Ok(())
    }

    pub fn record(&self, event: impl FnOnce() -> Event) {
        let sinks = self.lock();
        if sinks.is_empty() {
            return;
        }
        let event = Arc::new(event());
        for sink in &*sinks {
            sink.record(Arc::clone(&event));
        }
    }

    pub fn troubles(&self) -> Vec<(&'static str, String)> {
        let sinks = self.lock();
        let trouble = |sink: &Sink| Some((sink.destination.name(), sink.shared.trouble().clone()?));
        sinks.iter().filter_map(trouble).collect()
    }

    pub fn counts(&self) -> Vec<Counts> {
        let sinks = self.lock();
        let counts = sinks.iter().map(|sink| Counts {
            output: sink.destination.name(),
            lines: sink.shared.lines.load(Ordering::Relaxed),
            lost: sink.shared.lost.load(Ordering::Relaxed),
        });
        counts.collect()
    }

    pub fn end(&self, within: Duration) {
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
        // Poisoning is harmless: each change is one call.
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
        // Poisoning is harmless: each change is one assignment.
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
