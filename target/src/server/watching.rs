//! Detects truncated, moved or deleted exported files, even without host I/O, and block devices that
//! have grown.
//!
//! A thread checks each disk every few seconds, and after a kernel report of a new size. If a check
//! blocks, a new thread checks the other file systems. A hung file system thus delays no reactor or
//! connection.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;

use super::arrivals::Resizes;
use crate::panics::{Part, confine_part};
use cairn_data_path::namespace::{Entry, Namespace, NamespaceTable};
use cairn_data_path::registry::{ControlMessage, Registry, SubsystemShared};

const PAUSE_MIN: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Pause as a multiple of the time for all checks, to limit the CPU cost of many files.
const PAUSES_PER_ROUND: u32 = 100;

/// Time after which a check counts as hung.
const PATIENCE: Duration = Duration::from_secs(1);

/// Number of hung file systems at which all checks stop.
const HANGING_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Watch {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    is_woken: Arc<AtomicBool>,
}

impl Watch {
    pub(super) fn start(
        registry: &Arc<Registry>,
        messages: UnboundedSender<ControlMessage>,
    ) -> io::Result<Self> {
        let (is_over, is_woken) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let mut files = Files::of(registry, messages);
        let mut rounds = Rounds::new(Arc::clone(&is_over), Arc::clone(&is_woken));
        let thread = thread::Builder::new().name("watch".into());
        let thread = thread.spawn(move || {
            while !rounds.is_over() {
                let before = Instant::now();
                rounds.check_all(files.now());
                let pause = before.elapsed() * PAUSES_PER_ROUND;
                rounds.pause(pause.clamp(PAUSE_MIN, PAUSE_MAX));
            }
        })?;
        Ok(Self {
            is_over,
            thread: Some(thread),
            is_woken,
        })
    }

    /// Ends the pause of the thread at each kernel report of a block device with a new size.
    pub(super) fn resizes(&self) -> impl Future<Output = ()> + Send + use<> {
        let thread = self.thread.as_ref().map(|thread| thread.thread().clone());
        let is_woken = Arc::clone(&self.is_woken);
        async move {
            let (Some(thread), Ok(mut reports)) = (thread, Resizes::of_devices()) else {
                return;
            };
            loop {
                reports.next().await;
                is_woken.store(true, Ordering::Relaxed);
                thread.unpark();
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The join succeeds, because a panic ends the process.
            let _ = thread.join();
        }
    }
}

trait Checked: Send + Sync + 'static {
    fn check(&self);
    fn name(&self) -> String;
}

struct File {
    subsystem: Weak<SubsystemShared>,
    namespace: Weak<Namespace>,
    messages: UnboundedSender<ControlMessage>,
}

impl Checked for File {
    fn check(&self) {
        let Some(namespace) = self.namespace.upgrade() else {
            return;
        };
        let has_failed = confine_part(Part::Open, || namespace.backend.look());
        if has_failed == Some(true)
            && let Some(subsystem) = self.subsystem.upgrade()
        {
            subsystem.show_losses();
        }
        if namespace.backend.grown_bytes().is_some() {
            let _ = self.messages.send(ControlMessage::DiskChanged);
        }
    }

    fn name(&self) -> String {
        let namespace = self.namespace.upgrade();
        namespace.map_or_else(String::new, |namespace| namespace.backing.clone())
    }
}

type ByFileSystem<F> = BTreeMap<u64, Arc<Vec<F>>>;

/// Key of block devices in place of a file system. Checks of devices do not block.
const DEVICES: u64 = u64::MAX;

/// Exported files and devices. Keeps no namespace alive, and allocates only when namespaces change.
struct Files {
    registry: Weak<Registry>,
    messages: UnboundedSender<ControlMessage>,
    /// Namespace tables whose files are in `all`. Each `Weak` prevents reuse of its table's
    /// address.
    tables: Vec<Weak<NamespaceTable>>,
    all: ByFileSystem<File>,
    subsystems: Vec<Arc<SubsystemShared>>,
}

impl Files {
    fn of(registry: &Arc<Registry>, messages: UnboundedSender<ControlMessage>) -> Self {
        Self {
            registry: Arc::downgrade(registry),
            messages,
            tables: Vec::new(),
            all: ByFileSystem::new(),
            subsystems: Vec::new(),
        }
    }

    fn now(&mut self) -> &ByFileSystem<File> {
        if let Some(registry) = self.registry.upgrade() {
            registry.append_to(&mut self.subsystems);
        }
        let tables = self.subsystems.iter().map(|one| one.namespaces());
        let is_known = |(known, table): (&Weak<NamespaceTable>, Arc<NamespaceTable>)| {
            std::ptr::eq(known.as_ptr(), Arc::as_ptr(&table))
        };
        let count = self.subsystems.len();
        if self.tables.len() != count || !self.tables.iter().zip(tables).all(is_known) {
            self.read();
        }
        self.subsystems.clear();
        &self.all
    }

    fn read(&mut self) {
        let mut all: BTreeMap<u64, Vec<File>> = BTreeMap::new();
        self.tables.clear();
        for subsystem in &self.subsystems {
            let table = subsystem.namespaces();
            for Entry { namespace, .. } in &table.namespaces {
                let backend = &namespace.backend;
                let device = backend.is_device().then_some(DEVICES);
                if let Some(file_system) = backend.file_system().or(device) {
                    all.entry(file_system).or_default().push(File {
                        subsystem: Arc::downgrade(subsystem),
                        namespace: Arc::downgrade(namespace),
                        messages: self.messages.clone(),
                    });
                }
            }
            self.tables.push(Arc::downgrade(&table));
        }
        let shared = all.into_iter().map(|(at, files)| (at, Arc::new(files)));
        self.all = shared.collect();
    }
}

struct Rounds<F> {
    is_over: Arc<AtomicBool>,
    /// Ends a pause.
    is_woken: Arc<AtomicBool>,
    idle: Option<Checker<F>>,
    hanging: HashMap<u64, Checker<F>>,
}

impl<F: Checked> Rounds<F> {
    fn new(is_over: Arc<AtomicBool>, is_woken: Arc<AtomicBool>) -> Self {
        Self {
            is_over,
            is_woken,
            idle: None,
            hanging: HashMap::new(),
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn pause(&self, time: Duration) {
        let end = Instant::now() + time;
        while !self.is_over() && !self.is_woken.swap(false, Ordering::Relaxed) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::park_timeout(left);
        }
    }

    fn check_all(&mut self, all: &ByFileSystem<F>) {
        self.hanging.retain(|_, checker| checker.hangs());
        for (&file_system, files) in all {
            if self.is_over() || self.hanging.len() >= HANGING_MAX {
                return;
            }
            if self.hanging.contains_key(&file_system) {
                continue;
            }
            let checker = self.idle.take().map_or_else(Checker::start, Ok);
            let Ok(checker) = checker else {
                return;
            };
            match checker.check_all(files, &self.is_over) {
                Ok(()) => self.idle = Some(checker),
                Err(_) if self.is_over() => {}
                Err(at) => {
                    // Logged once for each hung file system until it responds.
                    tracing::warn!(
                        path = files[at].name(),
                        "the file system does not report the size of a file: truncated and \
                         deleted files are not noticed there until it does; look for a server \
                         that does not respond"
                    );
                    self.hanging.insert(file_system, checker);
                }
            }
        }
    }
}

/// Checking thread. A drop ends the thread after its current check.
struct Checker<F> {
    tasks: SyncSender<Arc<Vec<F>>>,
    ended: Receiver<()>,
    at: Arc<AtomicUsize>,
}

impl<F: Checked> Checker<F> {
    fn start() -> io::Result<Self> {
        let (tasks, waiting) = sync_channel::<Arc<Vec<F>>>(1);
        let (end, ended) = sync_channel(1);
        let at = Arc::new(AtomicUsize::new(0));
        let progress = Arc::clone(&at);
        let thread = thread::Builder::new().name("looker".into());
        thread.spawn(move || {
            for files in waiting {
                for (at, file) in files.iter().enumerate() {
                    progress.store(at, Ordering::Relaxed);
                    file.check();
                }
                if end.send(()).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { tasks, ended, at })
    }

    /// Checks the files. The error is the index of a hung check, or of the current check if
    /// `is_over`.
    fn check_all(&self, files: &Arc<Vec<F>>, is_over: &AtomicBool) -> Result<(), usize> {
        self.at.store(0, Ordering::Relaxed);
        self.tasks
            .send(Arc::clone(files))
            .expect("the thread is there as long as this");
        let mut before = None;
        loop {
            let ended = self.ended.recv_timeout(PATIENCE);
            let at = self.at.load(Ordering::Relaxed);
            match ended {
                Ok(()) => return Ok(()),
                // The checks are slow, but make progress.
                Err(RecvTimeoutError::Timeout)
                    if before != Some(at) && !is_over.load(Ordering::Relaxed) => {}
                Err(_) => return Err(at),
            }
            before = Some(at);
        }
    }

    fn hangs(&self) -> bool {
        matches!(self.ended.try_recv(), Err(TryRecvError::Empty))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Condvar, Mutex};

    #[derive(Default)]
    struct Fake {
        hangs: Mutex<bool>,
        changed: Condvar,
        checks: AtomicUsize,
    }

    impl Fake {
        fn new(hangs: bool) -> Arc<Self> {
            Arc::new(Self {
                hangs: Mutex::new(hangs),
                ..Self::default()
            })
        }

        fn release(&self) {
            *self.hangs.lock().unwrap() = false;
            self.changed.notify_all();
        }

        fn checks(&self) -> usize {
            self.checks.load(Ordering::Relaxed)
        }
    }

    impl Checked for Arc<Fake> {
        fn check(&self) {
            let hangs = self.hangs.lock().unwrap();
            drop(self.changed.wait_while(hangs, |hangs| *hangs).unwrap());
            self.checks.fetch_add(1, Ordering::Relaxed);
        }

        fn name(&self) -> String {
            "fake".to_owned()
        }
    }

    fn on<const N: usize>(all: [(u64, &[&Arc<Fake>]); N]) -> ByFileSystem<Arc<Fake>> {
        let files = |files: &[&Arc<Fake>]| files.iter().copied().cloned().collect();
        let shared = |of| Arc::new(files(of));
        all.into_iter()
            .map(|(file_system, of)| (file_system, shared(of)))
            .collect()
    }

    fn until(what: &str, mut turn: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(120);
        while !turn() {
            assert!(Instant::now() < end, "{what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_file_system_that_hangs_keeps_one_thread_and_no_other_file_system() {
        let (hung, behind, other) = (Fake::new(true), Fake::new(false), Fake::new(false));
        let all = on([(1, &[&hung, &behind]), (2, &[&other])]);
        let mut rounds = Rounds::new(Arc::default(), Arc::default());
        until("looks beside the one that hangs", || {
            rounds.check_all(&all);
            other.checks() > 3
        });
        assert_eq!((hung.checks(), behind.checks()), (0, 0));
        assert!(rounds.hanging.contains_key(&1));
        hung.release();
        until("the return of the look that hung", || {
            rounds.check_all(&on([]));
            !rounds.hanging.contains_key(&1)
        });
        assert_eq!((hung.checks(), behind.checks()), (1, 1));
        until("looks there", || {
            rounds.check_all(&all);
            hung.checks() > 1 && behind.checks() > 1
        });
    }

    #[test]
    fn nothing_is_looked_at_while_too_many_file_systems_hang() {
        let mut rounds = Rounds::new(Arc::default(), Arc::default());
        let hung = Fake::new(true);
        for file_system in 0..HANGING_MAX as u64 {
            let checker = Checker::start().unwrap();
            checker
                .tasks
                .send(Arc::new(vec![Arc::clone(&hung)]))
                .unwrap();
            rounds.hanging.insert(file_system, checker);
        }
        let other = Fake::new(false);
        rounds.check_all(&on([(1000, &[&other])]));
        assert_eq!(other.checks(), 0);
        hung.release();
    }
}
