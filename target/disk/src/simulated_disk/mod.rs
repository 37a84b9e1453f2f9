//! Simulated disks for tests, which delay, fail, reorder and lose operations.
//!
//! A test registers a file, and exports it as usual. All rings of the process redirect operations
//! on this file to the simulated disk.
//!
//! In a simulation (`SteppedTarget`), the simulated clock completes operations. Otherwise a thread
//! waits for each delay. Data is copied on completion, so a buffer reused too early causes wrong
//! data.

mod attachment;
mod medium;
mod operations;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use cairn_base::{Clock, Mapping};

pub(crate) use attachment::{Attachment, Completions};
pub use medium::CacheFate;
use medium::Medium;
use operations::{Chance, Pending, SimulatedState};

const BLOCK_BYTES: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Read,
    Write,
    Flush,
    /// Zeroing or deallocation of a range.
    Zero,
}

/// Random behaviour. Values without a unit are frequencies per thousand operations.
#[derive(Debug, Clone, Default)]
pub struct Habits {
    /// Range of the duration of an operation. An operation may overtake an earlier operation that
    /// takes longer.
    pub delay: Range<Duration>,
    /// Frequency of operations that hang until [`SimulatedDisk::release_all`].
    pub hang: u64,
    /// Frequency of failures with EIO; a failing write may be executed in part.
    pub error: u64,
    /// Frequency of writes and zeroing operations that fail with ENOSPC.
    pub no_space: u64,
    /// Frequency of reads and writes shorter than requested.
    pub short: u64,
    /// Frequency of operations that start a series of EAGAIN.
    pub again: u64,
    /// Frequency of flushes that fail with EIO. Such a flush makes all data durable or none, and
    /// the cache keeps or drops the writes.
    pub flush_error: u64,
    /// Bug injected to test checkers, and its frequency.
    pub lie: Option<(Lie, u64)>,
}

/// Wrong behaviour reported as success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    LostWrite,
    TornWrite,
    LateWrite,
    MisplacedWrite,
    EmptyFlush,
    /// A read returns the data of the last flush.
    OldRead,
    /// The second half of a read is from the last flush.
    TornRead,
}

/// Simulated disk, shared by its clones. The file becomes an ordinary file again when no clone
/// exists and no ring uses the disk.
#[derive(Debug, Clone)]
pub struct SimulatedDisk(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: Clock,
    state: Mutex<SimulatedState>,
    stepped: AtomicBool,
}

#[derive(Debug)]
pub(crate) enum Work {
    Read {
        offset: u64,
        memory: Memory,
    },
    Write {
        offset: u64,
        memory: Memory,
        durable: bool,
    },
    Flush,
    Zero {
        offset: u64,
        length: u64,
    },
}

#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) at: usize,
    pub(crate) length: usize,
}

impl Work {
    fn operation(&self) -> Operation {
        match self {
            Self::Read { .. } => Operation::Read,
            Self::Write { .. } => Operation::Write,
            Self::Flush => Operation::Flush,
            Self::Zero { .. } => Operation::Zero,
        }
    }
}

type Registry = HashMap<(u64, u64), Weak<Shared>>;
static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);
static REGISTERED: AtomicUsize = AtomicUsize::new(0);

fn registry() -> MutexGuard<'static, Option<Registry>> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimulatedDisk {
    /// Registers a zeroed simulated disk in place of a file, with the size of the file.
    pub fn register(path: &Path, clock: &Clock, seed: u64) -> io::Result<Self> {
        let file = std::fs::metadata(path)?;
        let bytes = file.len() as usize / BLOCK_BYTES * BLOCK_BYTES;
        let state = SimulatedState {
            medium: Medium::new(bytes, BLOCK_BYTES),
            chance: Chance::new(seed),
            habits: Habits::default(),
            held: [false; 4],
            failures: [(0, 0); 4],
            cancels: false,
            storm: 0,
            pending: Vec::new(),
            submitted: 0,
        };
        let shared = Arc::new(Shared {
            clock: clock.clone(),
            state: Mutex::new(state),
            stepped: AtomicBool::new(false),
        });
        let mut registry = registry();
        let registry = registry.get_or_insert_default();
        registry.retain(|_, disk| disk.strong_count() > 0);
        registry.insert((file.dev(), file.ino()), Arc::downgrade(&shared));
        REGISTERED.store(registry.len(), Ordering::Release);
        Ok(Self(shared))
    }

    pub(crate) fn find(fd: RawFd) -> Option<Self> {
        if REGISTERED.load(Ordering::Acquire) == 0 {
            return None;
        }
        let file = std::fs::metadata(format!("/proc/self/fd/{fd}")).ok()?;
        let registry = registry();
        let disk = registry.as_ref()?.get(&(file.dev(), file.ino()))?;
        disk.upgrade().map(Self)
    }

    fn state(&self) -> MutexGuard<'_, SimulatedState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_habits(&self, habits: Habits) {
        self.state().habits = habits;
    }

    pub fn hold(&self, operation: Operation) {
        self.state().held[operation as usize] = true;
    }

    /// Held operations stay held.
    pub fn hold_no_more(&self, operation: Operation) {
        self.state().held[operation as usize] = false;
    }

    /// Stops holding operations of this kind and completes held ones.
    pub fn release(&self, operation: Operation) {
        let now = self.0.clock.glance();
        let mut state = self.state();
        state.held[operation as usize] = false;
        for pending in &mut state.pending {
            if pending.work.operation() == operation {
                pending.due.get_or_insert(now);
            }
        }
        state.run(now);
    }

    pub fn release_all(&self) {
        for operation in [
            Operation::Read,
            Operation::Write,
            Operation::Flush,
            Operation::Zero,
        ] {
            self.release(operation);
        }
    }

    pub fn release_oldest(&self, operation: Operation) -> bool {
        let now = self.0.clock.glance();
        let mut state = self.state();
        let waits =
            |pending: &&mut Pending| pending.due.is_none() && pending.work.operation() == operation;
        let found = state.pending.iter_mut().find(waits);
        let released = found.map(|pending| pending.due = Some(now)).is_some();
        state.run(now);
        released
    }

    /// Sets whether held operations can be cancelled; by default they cannot.
    pub fn allow_cancel(&self, allow: bool) {
        self.state().cancels = allow;
    }

    fn cancel(&self, tag: u64, done: &Arc<Completions>) {
        let mut state = self.state();
        if !state.cancels {
            return;
        }
        state.pending.retain(|pending| {
            let waiter = pending.waiter.as_ref();
            let theirs = waiter.is_some_and(|(own, of)| *of == tag && Arc::ptr_eq(own, done));
            let goes = theirs && pending.due.is_none();
            if goes {
                done.push(tag, Err(libc::ECANCELED));
            }
            !goes
        });
    }

    #[must_use]
    pub fn waiting(&self, operation: Operation) -> usize {
        self.waiting_since(operation).len()
    }

    #[must_use]
    pub fn waiting_since(&self, operation: Operation) -> Vec<Instant> {
        let waits =
            |pending: &&Pending| pending.due.is_none() && pending.work.operation() == operation;
        let state = self.state();
        let waiting = state.pending.iter().filter(waits);
        waiting.map(|pending| pending.since).collect()
    }

    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.state().pending.len()
    }

    /// Makes the next `count` operations of this kind fail without effect.
    pub fn fail(&self, operation: Operation, errno: i32, count: u32) {
        self.state().failures[operation as usize] = (errno, count);
    }

    /// Simulates a power failure. Pending operations never complete; each block of a pending write
    /// is written or not, at random.
    pub fn crash(&self, fate: CacheFate) {
        let now = self.0.clock.glance();
        let mut state = self.state();
        state.run(now);
        for pending in std::mem::take(&mut state.pending) {
            state.cut_off(&pending.work);
        }
        let SimulatedState { medium, chance, .. } = &mut *state;
        medium.crash(fate, chance);
        state.storm = 0;
    }

    #[must_use]
    pub fn contents(&self, offset: usize, length: usize) -> Vec<u8> {
        self.state().medium.read(offset, length).to_vec()
    }

    #[must_use]
    pub fn durable(&self, offset: usize, length: usize) -> Vec<u8> {
        self.state().medium.stable(offset, length).to_vec()
    }

    /// Blocks while flushes are held. In a simulation, fails with `TimedOut` instead.
    pub(crate) fn flush(&self) -> io::Result<()> {
        while self.state().held[Operation::Flush as usize] {
            if self.0.stepped.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut state = self.state();
        let upto = state.medium.writes();
        match state.flush(upto) {
            Ok(_) => Ok(()),
            Err(errno) => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    fn submit(&self, tag: u64, work: Work, done: &Arc<Completions>) {
        let now = self.0.clock.glance();
        let mut state = self.state();
        state.submitted += 1;
        let held = state.held[work.operation() as usize];
        let hang = state.habits.hang;
        let delay = state.delay();
        let due = if held || state.chance.per_mille(hang) {
            None
        } else {
            Some(now + delay)
        };
        let pending = Pending {
            work,
            waiter: Some((Arc::clone(done), tag)),
            since: now,
            due,
            number: state.submitted,
            writes_before: state.medium.writes(),
        };
        state.pending.push(pending);
        if !self.0.stepped.load(Ordering::Relaxed) {
            if delay > Duration::ZERO && due.is_some() {
                self.run_later(delay);
            }
            state.run(now);
        }
    }

    fn run_later(&self, delay: Duration) {
        let this = self.clone();
        std::thread::spawn(move || {
            std::thread::sleep(delay);
            this.state().run(this.0.clock.glance());
        });
    }

    fn step(&self) -> Option<Duration> {
        self.0.stepped.store(true, Ordering::Relaxed);
        let now = self.0.clock.glance();
        let mut state = self.state();
        state.run(now);
        let due = state.pending.iter().filter_map(|pending| pending.due);
        due.min().map(|due| due.duration_since(now))
    }
}
