//! Disks that wait, fail, reorder and lose data: for tests.
//!
//! A test registers a file, and exports that file as any other. From then on the rings
//! of all targets in the process send the file's operations here, and the file itself
//! gives its size only. [`BlockFile`](crate::backend) and all above it are those of
//! production. Two targets that export the file (`shared = true`) share the disk, and a
//! target that is started again finds what the last one left.
//!
//! ```text
//! let file = Scratch::in_memory("held", 1 << 20);
//! let disk = SimulatedDisk::register(file.path(), &clock, seed)?;
//! // a target exports file.path() ...
//! disk.hold(Operation::Write);           // writes wait from now on
//! assert_eq!(disk.waiting(Operation::Write), 1);
//! disk.release_oldest(Operation::Write); // the first of them runs
//! disk.release(Operation::Write);        // all of them, and no more wait
//! disk.fail(Operation::Flush, libc::EIO, 1);
//! disk.set_habits(Habits { delay: MS..10 * MS, again: 100, ..Habits::default() });
//! drop(target);
//! disk.crash(CacheFate::Lost);           // the power fails: all un-flushed writes go
//! assert_eq!(disk.contents(0, 512), [0; 512]);
//! ```
//!
//! It works below a target in a simulation (`SteppedTarget`), where the simulated clock
//! says when an operation ends, and below a target with threads, where a thread of its
//! own waits for each delay. An operation moves its bytes when it ends, not when it is
//! submitted: a buffer that is used again too early is noticed.
//!
//! The ordinary program registers none. It pays one load when a ring gets a file, and a
//! test of a bit for each operation on a file.

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

use cairn_rdma::{Clock, Mapping};

pub(crate) use attachment::{Attachment, Completions};
pub use medium::CacheFate;
use medium::Medium;
use operations::{Chance, Pending, State};

/// What a disk keeps whole when it tears a write.
const BLOCK_BYTES: usize = 512;

/// Kinds of operations that a test holds or fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A read.
    Read,
    /// A write, durable or not.
    Write,
    /// A flush.
    Flush,
    /// Zeroing or giving back a range.
    Zero,
}

/// How a disk behaves by chance. Numbers without a unit are in a thousand operations.
#[derive(Debug, Clone, Default)]
pub struct Habits {
    /// The time that an operation takes. Those that take less overtake others.
    pub delay: Range<Duration>,
    /// Operations that wait until [`SimulatedDisk::release_all`].
    pub hang: u64,
    /// Operations that end in EIO. A write may have been carried out in part.
    pub error: u64,
    /// Writes and zeroing that end in ENOSPC.
    pub no_space: u64,
    /// Reads and writes that move fewer bytes than asked for.
    pub short: u64,
    /// Operations that begin a storm of EAGAIN.
    pub again: u64,
    /// Flushes that end in EIO. By chance all, or nothing, was made durable, and the
    /// writes are dropped from the cache or not.
    pub flush_error: u64,
    /// A bug, for tests of those who look for bugs.
    pub lie: Option<(Lie, u64)>,
}

/// What a disk does wrong and reports as success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// A write is not carried out.
    LostWrite,
    /// Only the first half of a write is carried out.
    TornWrite,
    /// A write is carried out once more, some time later.
    LateWrite,
    /// A write goes to another place of the disk.
    MisplacedWrite,
    /// A flush makes nothing durable.
    EmptyFlush,
    /// A read returns what was there at the last flush.
    OldRead,
    /// The second half of what a read returns is what was there at the last flush.
    TornRead,
}

/// A simulated disk. Clones are the same one. The file is an ordinary one again when
/// the last is dropped and no ring uses it any more.
#[derive(Debug, Clone)]
pub struct SimulatedDisk(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: Clock,
    state: Mutex<State>,
    /// Whether only a simulated clock makes operations end.
    stepped: AtomicBool,
}

/// What an operation is to do.
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

/// The bytes in memory of an operation.
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

/// Disks by the identity of their files, and how many there may be.
type Registry = HashMap<(u64, u64), Weak<Shared>>;
static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);
static REGISTERED: AtomicUsize = AtomicUsize::new(0);

fn registry() -> MutexGuard<'static, Option<Registry>> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimulatedDisk {
    /// Has a simulated disk stand for a file from now on. It is as large as the file
    /// and full of zeroes.
    ///
    /// # Errors
    /// There is no such file.
    pub fn register(path: &Path, clock: &Clock, seed: u64) -> io::Result<Self> {
        let file = std::fs::metadata(path)?;
        let bytes = file.len() as usize / BLOCK_BYTES * BLOCK_BYTES;
        let state = State {
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

    /// The disk that stands for an open file, if one does.
    pub(crate) fn find(fd: RawFd) -> Option<Self> {
        if REGISTERED.load(Ordering::Acquire) == 0 {
            return None;
        }
        let file = std::fs::metadata(format!("/proc/self/fd/{fd}")).ok()?;
        let registry = registry();
        let disk = registry.as_ref()?.get(&(file.dev(), file.ino()))?;
        disk.upgrade().map(Self)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it behaves by chance from now on.
    pub fn set_habits(&self, habits: Habits) {
        self.state().habits = habits;
    }

    /// Operations of this kind wait from now on. Those that were submitted before do not.
    pub fn hold(&self, operation: Operation) {
        self.state().held[operation as usize] = true;
    }

    /// New operations of this kind wait no more; those that waited do.
    pub fn hold_no_more(&self, operation: Operation) {
        self.state().held[operation as usize] = false;
    }

    /// Operations of this kind wait no more, and those that waited end.
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

    /// Nothing waits any more, not even what hangs by chance.
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

    /// Ends the operation of this kind that has waited longest; whether there was one.
    pub fn release_oldest(&self, operation: Operation) -> bool {
        let now = self.0.clock.glance();
        let mut state = self.state();
        let waits =
            |pending: &&mut Pending| pending.due.is_none() && pending.work.operation() == operation;
        // They are in the order of their submission.
        let found = state.pending.iter_mut().find(waits);
        let released = found.map(|pending| pending.due = Some(now)).is_some();
        state.run(now);
        released
    }

    /// Whether operations that wait can be cancelled from now on. At first they cannot.
    pub fn allow_cancel(&self, allow: bool) {
        self.state().cancels = allow;
    }

    /// Lets go of operations that wait, if that is allowed.
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

    /// Operations of this kind that are held or hang.
    #[must_use]
    pub fn waiting(&self, operation: Operation) -> usize {
        self.waiting_since(operation).len()
    }

    /// When those were submitted.
    #[must_use]
    pub fn waiting_since(&self, operation: Operation) -> Vec<Instant> {
        let waits =
            |pending: &&Pending| pending.due.is_none() && pending.work.operation() == operation;
        let state = self.state();
        let waiting = state.pending.iter().filter(waits);
        waiting.map(|pending| pending.since).collect()
    }

    /// Operations that have not ended.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.state().pending.len()
    }

    /// The next `count` operations of this kind end in an error, and do nothing.
    pub fn fail(&self, operation: Operation, errno: i32, count: u32) {
        self.state().failures[operation as usize] = (errno, count);
    }

    /// The power fails. Operations that have not ended never do: of a write each block
    /// may or may not have been written.
    pub fn crash(&self, fate: CacheFate) {
        let now = self.0.clock.glance();
        let mut state = self.state();
        state.run(now);
        for pending in std::mem::take(&mut state.pending) {
            state.cut_off(&pending.work);
        }
        let State { medium, chance, .. } = &mut *state;
        medium.crash(fate, chance);
        state.storm = 0;
    }

    /// What a read of these bytes returns.
    #[must_use]
    pub fn contents(&self, offset: usize, length: usize) -> Vec<u8> {
        self.state().medium.read(offset, length).to_vec()
    }

    /// What is there after a crash that loses all it can.
    #[must_use]
    pub fn durable(&self, offset: usize, length: usize) -> Vec<u8> {
        self.state().medium.stable(offset, length).to_vec()
    }

    /// Makes all writes durable, and returns when they are.
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

    /// Takes an operation; `done` receives its end.
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

    /// Under a clock that goes by itself.
    fn run_later(&self, delay: Duration) {
        let this = self.clone();
        std::thread::spawn(move || {
            std::thread::sleep(delay);
            this.state().run(this.0.clock.glance());
        });
    }

    /// Ends what is due, and says in what time to look again.
    fn step(&self) -> Option<Duration> {
        self.0.stepped.store(true, Ordering::Relaxed);
        let now = self.0.clock.glance();
        let mut state = self.state();
        state.run(now);
        let due = state.pending.iter().filter_map(|pending| pending.due);
        due.min().map(|due| due.duration_since(now))
    }
}
