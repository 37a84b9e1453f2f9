//! Changes, one after the other, and many of a kind at once.
//!
//! A change works on a copy of the configuration's text. The new text is checked, written
//! beside the file, changed to as by a reload, and then takes the file's place; what fails
//! leaves all as it was. Changes that wait are made together if all of them add something,
//! or all remove something, so that nothing that was removed comes back within one reload.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use cairn_config::{Config, Draft, NewLimits, Nqn};
use cairn_control::Error;
use rustix::io::Errno;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::file::{ConfigFile, Prepared};
use super::notices::Notices;
use super::policy;
pub(super) use super::policy::Kind;
use super::refused::{
    Refused, all_stopped, of_change, of_edit, of_write, refuse_read_only, stopped,
};
use super::source::Source;
use crate::panics::{Part, confine_part};
use crate::server::{Extent, Handle, Picture, ReloadError, Step};

/// Jobs that may wait.
pub(super) const JOBS_MAX: usize = 1024;
/// Changes made together.
const TOGETHER_MAX: usize = 256;

/// What a request is answered that panicked.
const PANICKED: &str = "a bug in Cairn, which is an error in the log: report that line";

/// What a change does to the configuration; it may be done anew.
pub(super) type Change = Box<dyn Fn(&mut Stage) -> Result<Value, Error> + Send + Sync>;

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
    pub(super) text: Arc<str>,
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

    /// The same, if a step is all that became of disks; `removed`: those that it removed.
    fn note_step(&self, now: &Picture, step: &Step, removed: Vec<(String, u64)>) {
        let made = |(name, _): &(String, u64)| self.lock().disks.contains_key(name);
        let is_simple = !removed.iter().any(made);
        let added = sizes(now, &step.added);
        // Whole whatever panics, but for one notice.
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        let is_noted = is_simple
            && notices.note_removed(removed.into_iter())
            && notices.note_added(added.into_iter());
        if !is_noted {
            drop(notices);
            drop(self.notices(now));
        }
    }
}

/// Name and blocks of the disks at these places.
fn sizes(picture: &Picture, places: &[Place]) -> Vec<(String, u64)> {
    let exports = places.iter().filter_map(|place| picture.export(place));
    exports.map(|export| super::spdk::size(&export)).collect()
}

/// Carries out changes.
pub(super) struct ChangeQueue {
    handle: Handle,
    source: Arc<Source>,
    file: ConfigFile,
    /// The text of the file, ready for additions.
    draft: Option<Draft>,
    /// What the text means, if the control plane has just that.
    checked: Option<Arc<Config>>,
    /// Error of a change that is in force, while disks have commands from before it.
    unsettled: Option<Error>,
    disks: BTreeMap<String, Disk>,
    known: Arc<Known>,
}

/// NQN and NSID.
type Place = (Nqn, u32);

/// A text that was checked, and is beside the file.
struct Checked {
    draft: Draft,
    config: Arc<Config>,
    extent: Extent,
    prepared: Prepared,
}

impl ChangeQueue {
    pub(super) fn new(handle: Handle, source: Arc<Source>, text: String) -> (Self, Arc<Known>) {
        let known = Arc::new(Known::default());
        let file = ConfigFile::new(source.path().map(Path::to_path_buf), text);
        known.lock().text = file.text();
        let queue = Self {
            handle,
            source,
            file,
            draft: None,
            checked: None,
            disks: BTreeMap::new(),
            unsettled: None,
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
                    while !kind.is_made_alone() && batch.len() < TOGETHER_MAX {
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
        let before = self.file.text();
        let read = move || match source.path() {
            Some(_) => source.read(),
            None => source
                .parse(&before)
                .map(|config| (before.to_string(), config)),
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
        let in_force = ended
            .as_ref()
            .map_or_else(ReloadError::is_in_force, |()| true);
        if in_force {
            self.file.adopt(text);
            (self.draft, self.checked) = (None, None);
            self.publish();
            self.notice().await;
        }
        ended.map_err(|error| error.to_string())
    }

    /// Shows what is in directories now; the file is not read again.
    async fn look(&mut self) -> Result<(), String> {
        let Some(picture) = self.handle.look().await else {
            return Ok(());
        };
        let (source, mut config) = (Arc::clone(&self.source), Config::clone(&picture.config));
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

    /// Together, or each for itself if one of them may be why that fails.
    async fn change_all(&mut self, batch: Vec<Pending>) {
        let mut refused = None;
        let mut tried = self.try_all(&batch).await;
        if batch.len() > 1
            && let Err(Refused::ByOne(error)) = &tried
        {
            // Cause: a request of the control socket.
            tracing::debug!(%error, changes = batch.len(), "one of several changes fails: each for itself");
            let mut results = Vec::new();
            for pending in &batch {
                results.push(match &refused {
                    Some(error) => Err(Error::clone(error)),
                    None => match self.try_all(std::slice::from_ref(pending)).await {
                        Ok(mut results) => results.pop().unwrap_or_else(|| Err(stopped())),
                        Err(Refused::ByOne(error)) => Err(error),
                        Err(Refused::All(error)) => {
                            refused = Some(error.clone());
                            Err(error)
                        }
                    },
                });
            }
            tried = Ok(results);
        }
        let results = match tried {
            Ok(results) => results,
            Err(Refused::ByOne(error) | Refused::All(error)) => vec![Err(error); batch.len()],
        };
        for (pending, result) in batch.into_iter().zip(results) {
            let _ = pending.answer.send(result);
        }
    }

    /// What each comes to, once those that can be made are in force and on the disk.
    async fn try_all(&mut self, batch: &[Pending]) -> Result<Vec<Result<Value, Error>>, Refused> {
        let picture = self.handle.look().await.ok_or_else(all_stopped)?;
        // A reload may have said so while the request waited.
        refuse_read_only(&picture.config).map_err(Refused::All)?;
        self.source.pools().note_in_force(&picture.config);
        let mut stage = Stage {
            draft: self.draft_for(batch)?,
            disks: self.disks.clone(),
            rereads: false,
        };
        let mut results = make(batch, &mut stage);
        if results.iter().any(Result::is_ok) {
            let kind = batch.first().map_or(Kind::Alone, |pending| pending.kind);
            self.take_on(stage, kind, &picture).await?;
            if let Some(error) = self.unsettled.take() {
                let made = results.iter_mut().filter(|result| result.is_ok());
                made.for_each(|result| *result = Err(error.clone()));
            }
        } else if stage.draft.is_settled() {
            self.draft = Some(stage.draft);
        }
        Ok(results)
    }

    /// The draft is kept while namespaces alone come and go.
    fn draft_for(&mut self, batch: &[Pending]) -> Result<Draft, Refused> {
        let is_simple = !batch.iter().any(|pending| pending.kind.is_made_alone());
        match self.draft.take().filter(|_| is_simple) {
            Some(draft) => Ok(draft),
            None => Draft::new(&self.file.text()).map_err(|error| Refused::All(of_edit(error))),
        }
    }

    async fn take_on(&mut self, stage: Stage, kind: Kind, before: &Picture) -> Result<(), Refused> {
        let text = stage.draft.text();
        let has_other_disks = self.disks != stage.disks;
        let mut taken = None;
        if *text != *self.file.text() || stage.rereads {
            let checked = self
                .prepare(stage.draft, text, stage.rereads, kind, before)
                .await?;
            let step = match &checked.extent {
                Extent::Step(step) => Some(step.clone()),
                _ => None,
            };
            let removed = step.as_ref().map(|step| sizes(before, &step.removed));
            let (now, draft) = self.change_to(checked, &before.config).await?;
            self.draft = draft.changes_namespaces_alone().then_some(draft);
            if let Some(draft) = &mut self.draft {
                draft.settle();
            }
            taken = step
                .zip(removed)
                .map(|(step, removed)| (now, step, removed));
        } else if stage.draft.is_settled() {
            self.draft = Some(stage.draft);
        }
        self.disks = stage.disks;
        self.publish();
        match taken {
            Some((now, step, removed)) if !has_other_disks => {
                self.known.note_step(&now, &step, removed);
            }
            _ => self.notice().await,
        }
        Ok(())
    }

    /// Changes to what was checked, and has the file say so, or changes nothing.
    async fn change_to(
        &mut self,
        checked: Checked,
        before: &Arc<Config>,
    ) -> Result<(Picture, Draft), Refused> {
        let config = checked.config;
        let changed = self.handle.change(Arc::clone(&config), checked.extent);
        self.unsettled = of_change(changed.await)?;
        let finished = self.finish(&config, before, checked.prepared).await;
        let now = match finished {
            Ok(now) => now,
            Err(error) => {
                // The former configuration can be applied.
                let back = self.handle.change(Arc::clone(before), Extent::Text).await;
                if let Err(back) = back {
                    // Cause: a request of the control socket.
                    tracing::error!(error = %back, "a change that could not be written stays until the next reload");
                }
                return Err(error);
            }
        };
        let is_it = Arc::ptr_eq(&now.config, &config) || now.config == config;
        self.checked = is_it.then(|| Arc::clone(&now.config));
        Ok((now, checked.draft))
    }

    /// Checks the text of a draft, or the step that it is from the last one, and writes it beside the file.
    async fn prepare(
        &mut self,
        draft: Draft,
        text: String,
        rereads: bool,
        kind: Kind,
        before: &Picture,
    ) -> Result<Checked, Refused> {
        let (source, file) = (Arc::clone(&self.source), self.file.clone());
        let base = self.checked.take();
        let base = base.filter(|base| Arc::ptr_eq(base, &before.config) && !rereads);
        let in_force = Arc::clone(&before.config);
        let prepare = move || {
            let base = base.filter(|_| source.may_step());
            let (config, extent) = match base.and_then(|base| step(base, &draft)) {
                Some((config, step)) => (config, Extent::Step(step)),
                None => {
                    let config = source.parse(&text);
                    let config = config
                        .map_err(|error| Refused::ByOne(Error::invalid(error.to_string())))?;
                    let extent = if rereads { Extent::Whole } else { Extent::Text };
                    (config, extent)
                }
            };
            let is_removal_alone = matches!(&extent, Extent::Step(step) if step.added.is_empty());
            if !is_removal_alone {
                policy::check(kind, &config, &in_force).map_err(Refused::ByOne)?;
            }
            let prepared = file.prepare(text).map_err(of_write)?;
            Ok(Checked {
                draft,
                config: Arc::new(config),
                extent,
                prepared,
            })
        };
        let prepared = elsewhere(prepare).await;
        prepared.map_err(|error| Refused::ByOne(Error::new(Error::INTERNAL, error)))?
    }

    /// Once it is in force: whole, and the file says so.
    async fn finish(
        &self,
        config: &Arc<Config>,
        before: &Config,
        prepared: Prepared,
    ) -> Result<Picture, Refused> {
        let now = self.handle.look().await.ok_or_else(all_stopped)?;
        let was_late = if Arc::ptr_eq(config, &now.config) {
            None
        } else {
            late(config, &now.config).find(|place| !has(before, *place))
        };
        if let Some((nqn, nsid)) = was_late {
            return Err(Refused::ByOne(Error::errno(
                Errno::TIMEDOUT,
                format!("namespace {nsid} of {nqn}: its disk does not answer: see the log"),
            )));
        }
        let committed = elsewhere(move || prepared.commit()).await;
        committed
            .map_err(|error| Refused::All(Error::new(Error::INTERNAL, error)))?
            .map_err(of_write)?;
        Ok(now)
    }

    fn publish(&self) {
        let mut facts = self.known.lock();
        facts.disks.clone_from(&self.disks);
        facts.text = self.file.text();
        self.source.pools().note_changed();
    }
}

/// The configuration that a draft leads to by namespaces that come or go, and those.
fn step(from: Arc<Config>, draft: &Draft) -> Option<(Config, Step)> {
    if let Some((config, added)) = from.grown(draft) {
        let removed = Vec::new();
        return Some((
            config,
            Step {
                from,
                added,
                removed,
            },
        ));
    }
    let (config, removed) = from.shrunk(draft)?;
    let added = Vec::new();
    Some((
        config,
        Step {
            from,
            added,
            removed,
        },
    ))
}

/// Makes changes to the stage, one after the other; one that fails leaves nothing of itself, but for one
/// that is alone, whose stage the caller drops unless it is as it was. A copy of the
/// stage costs as much as thousands of changes, so there is one at first and one after each failure.
fn make(batch: &[Pending], stage: &mut Stage) -> Vec<Result<Value, Error>> {
    let attempt = |pending: &Pending, stage: &mut Stage| {
        let result = confine_part(Part::Control, || (pending.change)(stage));
        result.unwrap_or_else(|| Err(Error::new(Error::INTERNAL, PANICKED)))
    };
    let mut results = Vec::new();
    let mut copy = (batch.len() > 1).then(|| stage.clone());
    let mut copied = 0;
    for (index, pending) in batch.iter().enumerate() {
        let result = attempt(pending, stage);
        if result.is_err()
            && let Some(copy) = &mut copy
        {
            stage.clone_from(copy);
            for (since, done) in batch[copied..index].iter().zip(&results[copied..]) {
                if Result::is_ok(done) {
                    // The same change to the same text: it ends as it did.
                    let _ = attempt(since, stage);
                }
            }
            copy.clone_from(stage);
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
