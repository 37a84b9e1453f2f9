//! Opens and measures disks on separate threads, one for each [`Call`].
//!
//! A disk may block a call indefinitely, but the control plane must serve hosts. Late results are
//! therefore discarded. Until a late call returns, its path gets no other call, which bounds the
//! number of blocked threads.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_config::{Backing, Config};
use cairn_disk::{OpenError, where_to_look};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::error::StartError;
use super::exports::{DiskRules, Exports, Replaced};
use super::lookup::at_place;
use crate::health::Place;
use crate::panics::{Part, confine_part};
use cairn_data_path::namespace::Namespace;

/// Time limit to open a disk or read its size.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

const NOTICE_AFTER: Duration = Duration::from_secs(1);

/// Maximum calls in progress, not counting late calls.
const CALLS_MAX: usize = 64;

type Open = Box<dyn FnOnce() -> Result<Arc<Namespace>, OpenError> + Send>;

enum Call {
    Open(Open),
    Measure(Arc<Namespace>),
}

enum Outcome {
    Opened(Result<Arc<Namespace>, OpenError>),
    Measured(io::Result<Option<u64>>),
}

impl Call {
    fn make(self) -> Outcome {
        match self {
            Self::Open(open) => Outcome::Opened(open()),
            Self::Measure(namespace) => Outcome::Measured(namespace.backend.measure()),
        }
    }

    /// Makes the call. After a panic, the disk is closed and the outcome is an error.
    fn make_confined(self, path: &Path) -> Outcome {
        let is_open = matches!(self, Self::Open(_));
        confine_part(Part::Open, || self.make()).unwrap_or_else(|| {
            if is_open {
                Outcome::Opened(Err(OpenError::panicked(path)))
            } else {
                let panicked = "a panic, which is an error in the log: reload to try again";
                Outcome::Measured(Err(io::Error::other(panicked)))
            }
        })
    }
}

struct Task {
    place: Place,
    path: PathBuf,
    /// Folder of a pool file. While a call in a folder is late, no other file of that folder is
    /// opened.
    folder: Option<PathBuf>,
    call: Call,
    may_fail: bool,
}

pub(super) struct Returned {
    call: u64,
    outcome: Outcome,
}

struct Running {
    place: Place,
    path: PathBuf,
    folder: Option<PathBuf>,
    since: Instant,
    is_wanted: bool,
    may_fail: bool,
    was_opened: bool,
    was_noticed: bool,
}

pub(super) struct Late {
    pub(super) place: Place,
    pub(super) path: PathBuf,
    pub(super) waited: Duration,
    pub(super) was_opened: bool,
}

#[derive(Default)]
pub(super) struct Found {
    pub(super) opened: HashMap<Place, Arc<Namespace>>,
    pub(super) sizes: Vec<(Place, u64)>,
    pub(super) late: Vec<Late>,
    /// Disks that failed to open and without which the target may run.
    pub(super) missing: Vec<(Place, StartError)>,
    pub(super) failure: Option<StartError>,
}

pub(super) struct Openings {
    /// True if calls run on threads; simulations run them inline.
    has_threads: bool,
    returned_out: UnboundedSender<Returned>,
    pub(super) returned: UnboundedReceiver<Returned>,
    next_call: u64,
    running: HashMap<u64, Running>,
    waiting: VecDeque<Task>,
    found: Option<Found>,
}

impl Openings {
    pub(super) fn new(has_threads: bool) -> Self {
        let (returned_out, returned) = unbounded_channel();
        Self {
            has_threads,
            returned_out,
            returned,
            next_call: 0,
            running: HashMap::new(),
            waiting: VecDeque::new(),
            found: None,
        }
    }

    /// Opens the disks that `config` adds or replaces. If `measures`, also measures all other disks
    /// except pool files. A failed open ends all openings, unless the disk is a pool file or
    /// `may_fail` is true.
    pub(super) fn begin(
        &mut self,
        exports: &Exports,
        config: &Config,
        measures: bool,
        replaced: &Replaced,
        may_fail: impl Fn(&Place) -> bool,
        now: Instant,
    ) {
        let rules = DiskRules::of(config);
        let mut tasks = VecDeque::new();
        let mut sizes = Vec::new();
        let formers = Arc::new(exports.formers(config, replaced));
        for subsystem in &config.subsystems {
            for namespace in &subsystem.namespaces {
                let place = (subsystem.nqn, namespace.nsid);
                let known = exports.namespace(&place);
                let known = known.filter(|_| !replaced.contains(&place));
                let call = match (known, namespace.pooled) {
                    (Some(_), Some(file)) => {
                        sizes.push((place, file.bytes));
                        continue;
                    }
                    (Some(_), None) if !measures => continue,
                    (Some(known), None) => Call::Measure(Arc::clone(known)),
                    (None, _) => Call::Open(Box::new(exports.opener(
                        &rules,
                        place.0,
                        namespace,
                        &formers,
                        may_fail(&place),
                    ))),
                };
                tasks.extend(Task::new(place, namespace, call, may_fail(&place)));
            }
        }
        self.start(tasks, sizes, now);
    }

    pub(super) fn begin_at(
        &mut self,
        exports: &Exports,
        config: &Config,
        places: &[Place],
        now: Instant,
    ) {
        let rules = DiskRules::of(config);
        let mut tasks = VecDeque::new();
        for place in places {
            if let Some((_, namespace)) = at_place(config, place) {
                let call = Call::Open(Box::new(exports.opener(
                    &rules,
                    place.0,
                    namespace,
                    &Arc::default(),
                    false,
                )));
                tasks.extend(Task::new(*place, namespace, call, false));
            }
        }
        self.start(tasks, Vec::new(), now);
    }

    pub(super) fn begin_again(
        &mut self,
        exports: &Exports,
        config: &Config,
        places: &HashSet<Place>,
        now: Instant,
    ) {
        let rules = DiskRules::of(config);
        let mut tasks = VecDeque::new();
        for subsystem in &config.subsystems {
            for namespace in &subsystem.namespaces {
                let place = (subsystem.nqn, namespace.nsid);
                if places.contains(&place) {
                    let call = Call::Open(Box::new(exports.opener(
                        &rules,
                        place.0,
                        namespace,
                        &Arc::default(),
                        true,
                    )));
                    tasks.extend(Task::new(place, namespace, call, true));
                }
            }
        }
        self.start(tasks, Vec::new(), now);
    }

    fn start(&mut self, tasks: VecDeque<Task>, sizes: Vec<(Place, u64)>, now: Instant) {
        assert!(self.found.is_none(), "one configuration after the other");
        self.waiting = tasks;
        self.found = Some(Found {
            sizes,
            ..Found::default()
        });
        self.advance(now);
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.found.as_ref()?;
        let running = self.running.values();
        let next = running.filter_map(|running| {
            if !running.was_noticed {
                return Some(running.since + NOTICE_AFTER);
            }
            let blocks = |task: &Task| task.path == running.path;
            let matters = running.is_wanted || self.waiting.iter().any(blocks);
            matters.then(|| running.since + OPEN_TIMEOUT)
        });
        next.min()
    }

    pub(super) fn advance(&mut self, now: Instant) {
        let Some(found) = &mut self.found else {
            return;
        };
        for running in self.running.values_mut() {
            running.look(now, found);
        }
        let wanted = self.running.values().filter(|running| running.is_wanted);
        let mut room = CALLS_MAX - wanted.count();
        let mut blocked = Vec::new();
        while room > 0
            && let Some(task) = self.waiting.pop_front()
        {
            let mut running = self.running.values();
            if let Some(before) = running.find(|running| running.blocks(&task, now)) {
                let waited = now.saturating_duration_since(before.since);
                if waited < OPEN_TIMEOUT {
                    blocked.push(task);
                } else {
                    found.late.push(task.late(waited));
                }
                continue;
            }
            let id = self.next_call;
            self.next_call += 1;
            let running = Running::new(&task, now);
            if let Err(error) = task.start(id, self.has_threads, &self.returned_out) {
                let place = running.place;
                found.fail(place, running.may_fail, OpenError::no_thread(&error));
                if running.may_fail {
                    continue;
                }
                break;
            }
            self.running.insert(id, running);
            room -= 1;
        }
        for task in blocked.into_iter().rev() {
            self.waiting.push_front(task);
        }
    }

    pub(super) fn end(&mut self, returned: Returned, now: Instant) {
        let running = self.running.remove(&returned.call);
        let running = running.expect("each call returns once");
        match &mut self.found {
            Some(found) if running.is_wanted => {
                found.take(running.place, running.may_fail, returned.outcome);
            }
            _ => running.report_return(now),
        }
        self.advance(now);
    }

    pub(super) fn take_found(&mut self) -> Option<Found> {
        let has_failed = self.found.as_ref()?.failure.is_some();
        let is_wanted = |running: &Running| running.is_wanted;
        let is_over = self.waiting.is_empty() && !self.running.values().any(is_wanted);
        if !has_failed && !is_over {
            return None;
        }
        self.abandon()
    }

    pub(super) fn abandon(&mut self) -> Option<Found> {
        self.waiting.clear();
        for running in self.running.values_mut() {
            running.is_wanted = false;
        }
        self.found.take()
    }

    pub(super) fn is_stuck(&self, path: &Path) -> bool {
        self.running.values().any(|running| running.path == path)
    }

    pub(super) fn is_busy(&self) -> bool {
        self.found.is_some()
    }
}

impl Found {
    fn take(&mut self, place: Place, may_fail: bool, outcome: Outcome) {
        match outcome {
            Outcome::Opened(Ok(namespace)) => {
                self.opened.insert(place, namespace);
            }
            Outcome::Opened(Err(source)) => self.fail(place, may_fail, source),
            Outcome::Measured(Ok(Some(bytes))) => self.sizes.push((place, bytes)),
            Outcome::Measured(Ok(None)) => {}
            Outcome::Measured(Err(error)) => {
                let (subsystem, nsid) = place;
                // Logged after a reload.
                tracing::warn!(%subsystem, nsid, %error, "cannot read the size of a disk");
            }
        }
    }

    fn fail(&mut self, place: Place, may_fail: bool, source: OpenError) {
        let (nqn, nsid) = place;
        let error = StartError::Export {
            nqn: nqn.to_string(),
            nsid,
            source,
        };
        if may_fail {
            self.missing.push((place, error));
        } else {
            self.failure.get_or_insert(error);
        }
    }
}

impl Running {
    fn new(task: &Task, since: Instant) -> Self {
        Self {
            place: task.place,
            path: task.path.clone(),
            folder: task.folder.clone(),
            since,
            is_wanted: true,
            may_fail: task.may_fail,
            was_opened: matches!(task.call, Call::Open(_)),
            was_noticed: false,
        }
    }

    /// True if `task` must wait for this call: both have the same path, or the call is late and
    /// both have the same folder.
    fn blocks(&self, task: &Task, now: Instant) -> bool {
        let is_late = || now.saturating_duration_since(self.since) >= OPEN_TIMEOUT;
        let same_folder = task.folder.is_some() && self.folder == task.folder;
        self.path == task.path || same_folder && is_late()
    }

    fn look(&mut self, now: Instant, found: &mut Found) {
        let waited = now.saturating_duration_since(self.since);
        if waited >= NOTICE_AFTER && !self.was_noticed {
            self.was_noticed = true;
            let (subsystem, nsid) = self.place;
            // Logged when the configuration is applied or a disk hangs.
            tracing::warn!(
                %subsystem, nsid, path = %self.path.display(),
                "waiting up to {} seconds for a disk to respond, or for its lock",
                OPEN_TIMEOUT.as_secs()
            );
        }
        if waited >= OPEN_TIMEOUT && self.is_wanted {
            self.is_wanted = false;
            found.late.push(Late {
                place: self.place,
                path: self.path.clone(),
                waited,
                was_opened: self.was_opened,
            });
        }
    }

    fn report_return(&self, now: Instant) {
        let waited = now.saturating_duration_since(self.since);
        // A faster disk is not reported: the failure of another disk has ended the wait early.
        if waited >= OPEN_TIMEOUT {
            // Logged for a disk that was slow during a reload.
            tracing::warn!(
                path = %self.path.display(), waited_s = waited.as_secs(),
                "a disk responded too late: it is closed, and reopened if it is still configured"
            );
        }
    }
}

impl Late {
    pub(super) fn error(&self) -> StartError {
        let (nqn, nsid) = self.place;
        StartError::Export {
            nqn: nqn.to_string(),
            nsid,
            source: OpenError::late(&self.path, self.waited),
        }
    }

    pub(super) fn report(&self) {
        let (subsystem, nsid) = self.place;
        // Logged at most once for each reload.
        tracing::error!(
            %subsystem, nsid, path = %self.path.display(), waited_s = self.waited.as_secs(),
            "a disk does not report its size: its namespace stays as it was; {}, and reload when \
             it does", where_to_look(&self.path)
        );
    }
}

impl Task {
    fn new(
        place: Place,
        namespace: &cairn_config::Namespace,
        call: Call,
        may_fail: bool,
    ) -> Option<Self> {
        let path = path_of(&namespace.backing)?;
        let folder = namespace.pooled.and_then(|_| path.parent());
        Some(Self {
            place,
            folder: folder.map(Path::to_path_buf),
            path,
            call,
            may_fail: may_fail || namespace.pooled.is_some(),
        })
    }

    fn late(self, waited: Duration) -> Late {
        Late {
            place: self.place,
            path: self.path,
            waited,
            was_opened: matches!(self.call, Call::Open(_)),
        }
    }

    fn start(self, id: u64, on_a_thread: bool, out: &UnboundedSender<Returned>) -> io::Result<()> {
        let out = out.clone();
        let call = move || {
            let outcome = if on_a_thread {
                self.call.make_confined(&self.path)
            } else {
                self.call.make()
            };
            // Sending fails only after the control plane has ended. The disk is then closed.
            let _ = out.send(Returned { call: id, outcome });
        };
        if on_a_thread {
            let thread = std::thread::Builder::new().name("opener".into());
            thread.spawn(call).map(drop)
        } else {
            call();
            Ok(())
        }
    }
}

fn path_of(backing: &Backing) -> Option<PathBuf> {
    match backing {
        Backing::Disk(path) => Some(path.clone()),
        Backing::Rbd(image) => Some(PathBuf::from(image.to_string())),
        Backing::Memory { .. } | Backing::Null { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::panics::Panics;
    use cairn_config::Nqn;

    fn task(open: Open) -> Task {
        Task {
            place: (Nqn::discovery(), 1),
            path: PathBuf::from("/dev/example"),
            folder: None,
            call: Call::Open(open),
            may_fail: false,
        }
    }

    fn failure_of(openings: &mut Openings, open: Open) -> String {
        let now = Instant::now();
        openings.start(VecDeque::from([task(open)]), Vec::new(), now);
        let deadline = now + Duration::from_secs(30);
        let returned = loop {
            if let Ok(returned) = openings.returned.try_recv() {
                break returned;
            }
            assert!(Instant::now() < deadline, "the thread reports nothing");
            std::thread::sleep(Duration::from_millis(1));
        };
        openings.end(returned, now);
        let found = openings.take_found().unwrap();
        found.failure.unwrap().to_string()
    }

    #[test]
    fn a_disk_whose_open_panics_fails_and_is_tried_again() {
        let mut openings = Openings::new(true);
        let before = Panics::new(true).of_part(Part::Open);
        let failure = failure_of(&mut openings, Box::new(|| panic!("on purpose")));
        assert!(failure.contains("/dev/example"), "{failure}");
        assert!(failure.contains("reload"), "{failure}");
        assert_eq!(Panics::new(true).of_part(Part::Open), before + 1);
        let other = || Err(OpenError::panicked(Path::new("/dev/other")));
        let failure = failure_of(&mut openings, Box::new(other));
        assert!(failure.contains("/dev/other"), "{failure}");
    }
}
