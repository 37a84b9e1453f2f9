//! Changes, one after the other, and many of a kind at once.
//!
//! A change works on a copy of the configuration's text. The new text is checked, written
//! beside the file, changed to as by a reload, and then takes the file's place; what fails
//! leaves all as it was. Changes that wait are made together if all of them add something,
//! or all remove something, so that nothing that was removed comes back within one reload.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use cairn_config::{Config, Draft, EditError, NewLimits, Nqn};
use cairn_control::Error;
use rustix::io::Errno;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::notices::Notices;
use super::source::{Prepared, Source, WriteError};
use crate::panics::{Part, confine_part};
use crate::server::{Handle, Picture, ReloadError};

/// Jobs that may wait.
pub(super) const JOBS_MAX: usize = 1024;
/// Changes made together.
const TOGETHER_MAX: usize = 256;

/// What a request is answered that panicked.
const PANICKED: &str = "a bug in Cairn, which is an error in the log: report that line";

/// What a change does to the configuration; it may be done anew.
pub(super) type Change = Box<dyn Fn(&mut Stage) -> Result<Value, Error> + Send + Sync>;

/// Which changes may be made together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It adds.
    Grows,
    /// It removes.
    Shrinks,
    /// It does both, or neither.
    Alone,
}

/// What waits in the queue.
pub(super) enum Job {
    /// Reads the file again.
    Reload {
        answer: oneshot::Sender<Result<(), String>>,
    },
    /// A directory has changed. The answer: when one is to be looked at again in any case.
    Look { answer: oneshot::Sender<bool> },
    /// Changes something.
    Change(Pending),
}

/// A change, and who waits for it.
pub(super) struct Pending {
    pub(super) kind: Kind,
    pub(super) change: Change,
    pub(super) answer: oneshot::Sender<Result<Value, Error>>,
}

/// A disk that has a name and need not be exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Disk {
    /// As a namespace has it.
    pub(super) export: String,
    pub(super) block_size: Option<u32>,
    pub(super) uuid: Option<String>,
    /// What a client calls its kind.
    pub(super) product: &'static str,
    pub(super) blocks: u64,
    pub(super) block_bytes: u32,
    pub(super) read_only: bool,
    /// Those of the namespace that it becomes.
    pub(super) limits: NewLimits,
}

/// What changes work on.
#[derive(Debug, Clone)]
pub(super) struct Stage {
    pub(super) draft: Draft,
    /// By name: those that clients have made since the start.
    pub(super) disks: BTreeMap<String, Disk>,
    /// Whether keys and sizes of disks are read again, though the text stays as it is.
    pub(super) rereads: bool,
}

/// What other threads may read of the changes.
#[derive(Debug, Default)]
pub(super) struct Known {
    facts: Mutex<Facts>,
    notices: Mutex<Notices>,
}

/// What others know.
#[derive(Debug, Default, Clone)]
pub(super) struct Facts {
    pub(super) disks: BTreeMap<String, Disk>,
    pub(super) text: String,
    /// When the file was last read again, and how that ended.
    pub(super) reload: Option<(SystemTime, Result<(), String>)>,
}

impl Known {
    pub(super) fn facts(&self) -> Facts {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Facts> {
        // Whole whatever panics: each change is one assignment.
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What became of disks, as far as it is seen in `picture`.
    pub(super) fn notices(&self, picture: &Picture) -> MutexGuard<'_, Notices> {
        let disks = super::spdk::sizes(picture, &self.lock().disks);
        // Whole whatever panics, but for one notice.
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        notices.note(disks);
        notices
    }
}

/// Carries out changes.
pub(super) struct ChangeQueue {
    handle: Handle,
    source: Arc<Source>,
    /// Of the configuration in force.
    text: String,
    disks: BTreeMap<String, Disk>,
    known: Arc<Known>,
}

impl ChangeQueue {
    pub(super) fn new(handle: Handle, source: Arc<Source>, text: String) -> (Self, Arc<Known>) {
        let known = Arc::new(Known::default());
        known.lock().text.clone_from(&text);
        let queue = Self {
            handle,
            source,
            text,
            disks: BTreeMap::new(),
            known: Arc::clone(&known),
        };
        (queue, known)
    }

    /// Carries out what comes.
    pub(super) async fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        let mut held = None;
        self.notice().await;
        loop {
            let next = match held.take() {
                Some(job) => Some(job),
                None => jobs.recv().await,
            };
            match next {
                None => return,
                Some(Job::Reload { answer }) => {
                    let ended = self.reload().await;
                    self.handle.note_reload(&ended);
                    self.known.lock().reload = Some((SystemTime::now(), ended.clone()));
                    let _ = answer.send(ended);
                }
                Some(Job::Look { answer }) => {
                    if let Err(error) = self.look().await {
                        // Cause: a directory that is exported has changed.
                        tracing::error!(%error, "what has changed in a directory is not shown");
                    }
                    let _ = answer.send(self.source.pools().waits());
                }
                Some(Job::Change(first)) => {
                    let kind = first.kind;
                    let mut batch = vec![first];
                    while kind != Kind::Alone && batch.len() < TOGETHER_MAX {
                        match jobs.try_recv() {
                            Ok(Job::Change(next)) if next.kind == kind => batch.push(next),
                            Ok(other) => {
                                held = Some(other);
                                break;
                            }
                            Err(_) => break,
                        }
                    }
                    self.change_all(batch).await;
                }
            }
        }
    }

    async fn reload(&mut self) -> Result<(), String> {
        let source = Arc::clone(&self.source);
        let before = self.text.clone();
        let read = move || match source.path() {
            Some(_) => source.read(),
            None => source.parse(&before).map(|config| (before, config)),
        };
        if let Some(picture) = self.handle.look().await {
            self.source.pools().note_in_force(&picture.config);
        }
        let read = elsewhere(read).await;
        let read = read.map_err(|error| format!("reading the configuration: {error}"))?;
        let (text, config) = read.map_err(|error| error.to_string())?;
        for warning in config.warnings() {
            // Cause: a reload.
            tracing::warn!("{warning}");
        }
        let ended = self.handle.reload(config).await;
        ended.map_err(|error| error.to_string())?;
        self.text = text;
        self.publish();
        self.notice().await;
        Ok(())
    }

    /// Shows what is in directories now; the file is not read again.
    async fn look(&mut self) -> Result<(), String> {
        let Some(picture) = self.handle.look().await else {
            return Ok(());
        };
        let (source, mut config) = (Arc::clone(&self.source), picture.config);
        source.pools().note_in_force(&config);
        let (config, has_changed) = elsewhere(move || {
            let before = config.subsystems.clone();
            for subsystem in &mut config.subsystems {
                subsystem.namespaces.retain(|one| one.pooled.is_none());
            }
            source.pools().expand(&mut config, true);
            let has_changed = before != config.subsystems;
            (config, has_changed)
        })
        .await?;
        if !has_changed {
            return Ok(());
        }
        let ended = self.handle.reload(config).await;
        self.notice().await;
        ended.map_err(|error| error.to_string())
    }

    /// Notes which disks have come, gone or changed.
    async fn notice(&self) {
        if let Some(picture) = self.handle.look().await {
            drop(self.known.notices(&picture));
        }
    }

    /// Together, or each for itself if that fails.
    async fn change_all(&mut self, mut batch: Vec<Pending>) {
        if batch.len() > 1 {
            match self.try_all(&batch).await {
                Ok(results) => {
                    for (pending, result) in batch.into_iter().zip(results) {
                        let _ = pending.answer.send(result);
                    }
                    return;
                }
                Err(error) => {
                    // Cause: a request of the control socket.
                    tracing::debug!(%error, changes = batch.len(), "one of several changes fails: each for itself");
                }
            }
        }
        for pending in batch.drain(..) {
            let single = std::slice::from_ref(&pending);
            let result = match self.try_all(single).await {
                Ok(mut results) => results.pop().unwrap_or_else(|| Err(stopped())),
                Err(error) => Err(error),
            };
            let _ = pending.answer.send(result);
        }
    }

    /// What each comes to, once those that can be made are in force and on the disk.
    async fn try_all(&mut self, batch: &[Pending]) -> Result<Vec<Result<Value, Error>>, Error> {
        let picture = self.handle.look().await.ok_or_else(stopped)?;
        if picture.config.control.read_only {
            return Err(Error::errno(
                Errno::ROFS,
                "the configuration says [control] read_only = true: change the file where it is \
                 managed, then reload",
            ));
        }
        let config = picture.config;
        self.source.pools().note_in_force(&config);
        let mut stage = Stage {
            draft: Draft::new(&self.text).map_err(of_edit)?,
            disks: self.disks.clone(),
            rereads: false,
        };
        let results = make(batch, &mut stage);
        if results.iter().any(Result::is_ok) {
            self.take_on(stage, &config).await?;
        }
        Ok(results)
    }

    async fn take_on(&mut self, stage: Stage, before: &Config) -> Result<(), Error> {
        let text = stage.draft.text();
        if text != self.text || stage.rereads {
            let (config, prepared) = self.prepare(text.clone()).await?;
            self.handle
                .reload(config.clone())
                .await
                .map_err(of_reload)?;
            if let Err(error) = self.finish(&config, before, prepared).await {
                // The former configuration can be applied.
                let back = self.handle.reload(before.clone()).await;
                if let Err(back) = back {
                    // Cause: a request of the control socket.
                    tracing::error!(error = %back, "a change that could not be written stays until the next reload");
                }
                return Err(error);
            }
            self.text = text;
        }
        self.disks = stage.disks;
        self.publish();
        self.notice().await;
        Ok(())
    }

    async fn prepare(&self, text: String) -> Result<(Config, Option<Prepared>), Error> {
        let (source, old) = (Arc::clone(&self.source), self.text.clone());
        let prepare = move || {
            let config = source.parse(&text);
            let config = config.map_err(|error| Error::invalid(error.to_string()))?;
            let prepared = source.prepare(&old, &text).map_err(of_write)?;
            Ok((config, prepared))
        };
        let prepared = elsewhere(prepare).await;
        prepared.map_err(|error| Error::new(Error::INTERNAL, error))?
    }

    /// Once it is in force: whole, and the file says so.
    async fn finish(
        &self,
        config: &Config,
        before: &Config,
        prepared: Option<Prepared>,
    ) -> Result<(), Error> {
        let now = self.handle.look().await.ok_or_else(stopped)?;
        let was_late = late(config, &now.config).find(|place| !has(before, *place));
        if let Some((nqn, nsid)) = was_late {
            return Err(Error::errno(
                Errno::TIMEDOUT,
                format!("namespace {nsid} of {nqn}: its disk does not answer: see the log"),
            ));
        }
        let Some(prepared) = prepared else {
            return Ok(());
        };
        let committed = elsewhere(move || prepared.commit()).await;
        committed
            .map_err(|error| Error::new(Error::INTERNAL, error))?
            .map_err(of_write)
    }

    fn publish(&self) {
        let mut facts = self.known.lock();
        facts.disks.clone_from(&self.disks);
        facts.text.clone_from(&self.text);
        self.source.pools().note_changed();
    }
}

/// Makes changes to the stage, one after the other; one that fails leaves nothing of itself. A copy of the
/// stage costs as much as thousands of changes, so there is one at first and one after each failure.
fn make(batch: &[Pending], stage: &mut Stage) -> Vec<Result<Value, Error>> {
    let attempt = |pending: &Pending, stage: &mut Stage| {
        let result = confine_part(Part::Control, || (pending.change)(stage));
        result.unwrap_or_else(|| Err(Error::new(Error::INTERNAL, PANICKED)))
    };
    let mut results = Vec::new();
    let mut copy = stage.clone();
    let mut copied = 0;
    for (index, pending) in batch.iter().enumerate() {
        let result = attempt(pending, stage);
        if result.is_err() {
            stage.clone_from(&copy);
            for (since, done) in batch[copied..index].iter().zip(&results[copied..]) {
                if Result::is_ok(done) {
                    // The same change to the same text: it ends as it did.
                    let _ = attempt(since, stage);
                }
            }
            copy = stage.clone();
            copied = index + 1;
        }
        results.push(result);
    }
    results
}

/// Does what may block on another thread.
async fn elsewhere<T: Send + 'static>(
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let job = move || confine_part(Part::Control, job);
    let done = tokio::task::spawn_blocking(job).await;
    done.map_err(|error| error.to_string())?
        .ok_or_else(|| PANICKED.to_owned())
}

/// The namespaces that are wanted and not there.
fn late<'a>(wanted: &'a Config, there: &'a Config) -> impl Iterator<Item = (Nqn, u32)> + 'a {
    let all = wanted.subsystems.iter().flat_map(|subsystem| {
        let namespaces = subsystem.namespaces.iter();
        namespaces.map(|namespace| (subsystem.nqn, namespace.nsid))
    });
    let is_there: std::collections::HashSet<(Nqn, u32)> = there
        .subsystems
        .iter()
        .flat_map(|subsystem| {
            subsystem
                .namespaces
                .iter()
                .map(|ns| (subsystem.nqn, ns.nsid))
        })
        .collect();
    all.filter(move |place| !is_there.contains(place))
}

fn has(config: &Config, (nqn, nsid): (Nqn, u32)) -> bool {
    let mut subsystems = config.subsystems.iter().filter(|one| one.nqn == nqn);
    subsystems.any(|one| one.namespaces.iter().any(|ns| ns.nsid == nsid))
}

pub(super) fn stopped() -> Error {
    Error::errno(Errno::SHUTDOWN, "the target stops")
}

/// What a change that cannot be made comes to.
#[expect(clippy::needless_pass_by_value, reason = "map_err passes it")]
pub(super) fn of_edit(error: EditError) -> Error {
    let message = error.to_string();
    match error {
        EditError::Missing(_) => Error::errno(Errno::NOENT, message),
        EditError::Exists(_) => Error::errno(Errno::EXIST, message),
        EditError::Full(_) => Error::errno(Errno::NOSPC, message),
        EditError::Unreadable(_) => Error::invalid(message),
    }
}

fn of_write(error: WriteError) -> Error {
    let message = error.to_string();
    match error {
        WriteError::Changed(_) => Error::errno(Errno::STALE, message),
        WriteError::System { source, .. } => {
            let errno = source
                .raw_os_error()
                .map_or(Errno::IO, Errno::from_raw_os_error);
            Error::errno(errno, message)
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "map_err passes it")]
fn of_reload(error: ReloadError) -> Error {
    let message = error.to_string();
    match error {
        ReloadError::Unavailable(_) => Error::invalid(message),
        ReloadError::NamespaceChanged { .. } | ReloadError::ListenerChanged { .. } => {
            Error::errno(Errno::BUSY, message)
        }
        ReloadError::Superseded => Error::errno(Errno::AGAIN, message),
        ReloadError::Stopped => stopped(),
    }
}
