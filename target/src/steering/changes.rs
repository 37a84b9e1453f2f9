//! Queue of configuration changes, executed one at a time, or in batches of only additions or only
//! removals.
//!
//! A change edits a copy of the configuration text. The copy is checked, written to a temporary
//! file, applied like a reload, and renamed over the configuration file. Failures restore the
//! previous state.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use cairn_config::{Config, Draft};
use cairn_control::{Disk, Error, Kind, Stage};
use rustix::io::Errno;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::Reloaded;
use super::differences::Former;
use super::file::{ConfigFile, Prepared};
use super::last_copies::{LastCopy, look, refuse_losses, sentence};
use super::losses::Before;
use super::lost_state;
use super::policy::{self, has, late};
use super::published::{Published, ReloadEnd, sizes};
use super::refused::{Refused, all_stopped, of_change, of_write, refuse_read_only, stopped};
use super::source::Source;
use crate::answers::Removed;
use crate::files;
use crate::panics::{Part, confine_part};
use crate::server::{Handle, ReloadError, ReloadScope, Snapshot, Step};

pub(super) const JOBS_MAX: usize = 1024;
const TOGETHER_MAX: usize = 256;

const PANICKED: &str = "a bug in Cairn, which is an error in the log: report that line";

/// Change of the configuration. May run several times, on different stages.
pub(super) type Change = Box<dyn Fn(&mut Stage) -> Result<Value, Error> + Send + Sync>;

pub(super) enum Job {
    Reload {
        answer: oneshot::Sender<Reloaded>,
    },
    /// Scans the pool directories. The answer is true if another scan is due.
    Rescan {
        answer: oneshot::Sender<bool>,
    },
    Change(Pending),
}

pub(super) struct Pending {
    pub(super) kind: Kind,
    pub(super) change: Change,
    pub(super) answer: oneshot::Sender<Result<Value, Error>>,
}

pub(super) struct ChangeQueue {
    handle: Handle,
    source: Arc<Source>,
    file: ConfigFile,
    draft: Option<Draft>,
    checked: Option<Arc<Config>>,
    unsettled: Option<Error>,
    disks: BTreeMap<String, Disk>,
    kept: BTreeSet<(String, u32)>,
    published: Arc<Published>,
}

struct Checked {
    draft: Draft,
    config: Arc<Config>,
    scope: ReloadScope,
    prepared: Prepared,
}

impl ChangeQueue {
    pub(super) fn new(handle: Handle, source: Arc<Source>, text: String) -> (Self, Arc<Published>) {
        let published = Arc::new(Published::default());
        let file = ConfigFile::new(source.path().map(Path::to_path_buf), text);
        published.lock().text = file.text();
        let queue = Self {
            handle,
            source,
            file,
            draft: None,
            checked: None,
            disks: BTreeMap::new(),
            kept: BTreeSet::new(),
            unsettled: None,
            published: Arc::clone(&published),
        };
        (queue, published)
    }

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
                    let _ = answer.send(self.reload().await);
                }
                Some(Job::Rescan { answer }) => {
                    if let Err(error) = self.rescan().await {
                        // Logged when an exported directory changes.
                        tracing::error!(%error, "cannot report the changes of a directory");
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

    async fn reload(&mut self) -> Reloaded {
        let read = self.read_file().await;
        let is_other_text = read
            .as_ref()
            .map_or(true, |text| **text != *self.file.text());
        let reloaded = match read {
            Ok(text) => self.apply_file(text).await,
            Err(error) => Err(error),
        };
        let ended = reloaded.as_ref().map(|_| ()).map_err(String::clone);
        self.handle.note_reload(&ended);
        self.published.lock().reload = Some(ReloadEnd {
            at: SystemTime::now(),
            ended,
            is_other_text,
        });
        reloaded
    }

    async fn read_file(&self) -> Result<String, String> {
        let Some(path) = self.source.path() else {
            return Ok(self.file.text().to_string());
        };
        let read = files::call(path, cairn_config::read_file).await;
        let read = read.map_err(|error| format!("{}: {error}", path.display()))?;
        read.map_err(|error| error.to_string())
    }

    async fn apply_file(&mut self, text: String) -> Reloaded {
        let before = self.handle.snapshot().await;
        let before = before.ok_or("the target stops")?;
        self.source.pools().note_in_force(&before.config);
        let (former, connected) = (Former::of(&before), Before::of(&before));
        let source = Arc::clone(&self.source);
        let read = elsewhere(move || source.parse(&text).map(|config| (text, config))).await;
        let read = read.map_err(|error| format!("reading the configuration: {error}"))?;
        let (text, mut config) = read.map_err(|error| error.to_string())?;
        look(&before, &config, &ReloadScope::Whole).await;
        let copies = LastCopy::of(&before).into_iter();
        let kept = copies.filter(|one| one.keep(&mut config, true));
        let kept: BTreeSet<_> = kept.map(|one| one.place()).collect();
        for warning in config.warnings() {
            // Logged after a reload.
            tracing::warn!("{warning}");
        }
        let unsettled = unsettled(self.handle.reload(config).await)?;
        self.file.adopt(text);
        self.kept.clone_from(&kept);
        (self.draft, self.checked) = (None, None);
        self.publish();
        self.notice().await;
        let mut changes = self.changes_since(former, Some(connected)).await;
        changes.extend(kept.iter().map(sentence));
        changes.extend(unsettled);
        // Logged after a reload.
        tracing::info!(changes = summary(&changes), "configuration reloaded");
        Ok(changes)
    }

    async fn changes_since(&self, former: Former, connected: Option<Before>) -> Vec<String> {
        let Some(now) = self.handle.snapshot().await else {
            return Vec::new();
        };
        let lost_state = lost_state::look(&now).await;
        let changes = elsewhere(move || {
            let mut changes = former.changes_to(&now);
            let losses = connected.map_or_else(Vec::new, |before| before.losses(&now));
            changes.extend(Removed::of(losses).warnings);
            changes
        })
        .await;
        let mut changes = changes.unwrap_or_default();
        changes.extend(lost_state.map(|(folder, why)| {
            let folder = folder.display();
            format!("state_directory {folder} is lost: {why}; see cairn-target status")
        }));
        changes
    }

    /// Applies the present content of pool directories without reading the configuration file.
    async fn rescan(&mut self) -> Result<(), String> {
        let Some(snapshot) = self.handle.snapshot().await else {
            return Ok(());
        };
        let former = Former::of(&snapshot);
        let (source, mut config) = (Arc::clone(&self.source), Config::clone(&snapshot.config));
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
        let unsettled = unsettled(ended)?;
        let mut changes = self.changes_since(former, None).await;
        changes.extend(unsettled);
        // Logged when an exported directory changes.
        tracing::info!(
            changes = summary(&changes),
            "exported directories read again"
        );
        Ok(())
    }

    async fn notice(&self) {
        if let Some(snapshot) = self.handle.snapshot().await {
            drop(self.published.notices(&snapshot));
        }
    }

    /// Applies a batch. After a failure that one change may have caused, applies each change
    /// separately.
    async fn change_all(&mut self, batch: Vec<Pending>) {
        let mut refused = None;
        let mut tried = self.try_all(&batch).await;
        if batch.len() > 1
            && let Err(Refused::ByOne(error)) = &tried
        {
            // Logged for a control socket request.
            tracing::debug!(%error, changes = batch.len(), "one of several changes failed: trying each separately");
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
        self.file.sweep().await;
        for (pending, result) in batch.into_iter().zip(results) {
            let _ = pending.answer.send(result);
        }
    }

    async fn try_all(&mut self, batch: &[Pending]) -> Result<Vec<Result<Value, Error>>, Refused> {
        let snapshot = self.handle.snapshot().await.ok_or_else(all_stopped)?;
        // A reload may have made the socket read-only meanwhile.
        refuse_read_only(&snapshot.config).map_err(Refused::All)?;
        self.source.pools().note_in_force(&snapshot.config);
        let mut stage = Stage {
            draft: self.draft_for(batch)?,
            disks: self.disks.clone(),
            rereads: false,
            loses_data: false,
            kept: self.kept.clone(),
        };
        let mut results = make(batch, &mut stage);
        if results.iter().any(Result::is_ok) {
            let kind = batch.first().map_or(Kind::Alone, |pending| pending.kind);
            self.take_on(stage, kind, &snapshot).await?;
            if let Some(error) = self.unsettled.take() {
                let made = results.iter_mut().filter(|result| result.is_ok());
                made.for_each(|result| *result = Err(error.clone()));
            }
        } else if stage.draft.is_settled() {
            self.draft = Some(stage.draft);
        }
        Ok(results)
    }

    fn draft_for(&mut self, batch: &[Pending]) -> Result<Draft, Refused> {
        let is_simple = !batch.iter().any(|pending| pending.kind.is_made_alone());
        match self.draft.take().filter(|_| is_simple) {
            Some(draft) => Ok(draft),
            None => Draft::new(&self.file.text()).map_err(|error| Refused::All(error.into())),
        }
    }

    async fn take_on(
        &mut self,
        stage: Stage,
        kind: Kind,
        before: &Snapshot,
    ) -> Result<(), Refused> {
        let text = stage.draft.text();
        let has_other_disks = self.disks != stage.disks;
        let mut taken = None;
        if *text != *self.file.text() || stage.rereads {
            let checked = self
                .prepare(
                    (stage.draft, &stage.kept),
                    text,
                    stage.rereads,
                    kind,
                    before,
                )
                .await?;
            if !stage.loses_data {
                refuse_losses(before, &checked.config, &checked.scope)
                    .await
                    .map_err(Refused::ByOne)?;
            }
            let step = match &checked.scope {
                ReloadScope::Step(step) => Some(step.clone()),
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
        self.kept = stage.kept;
        self.publish();
        match taken {
            Some((now, step, removed)) if !has_other_disks => {
                self.published.note_step(&now, &step, removed);
            }
            _ => self.notice().await,
        }
        Ok(())
    }

    async fn change_to(
        &mut self,
        checked: Checked,
        before: &Arc<Config>,
    ) -> Result<(Snapshot, Draft), Refused> {
        let config = checked.config;
        let changed = self.handle.change(Arc::clone(&config), checked.scope);
        self.unsettled = of_change(changed.await)?;
        let finished = self.finish(&config, before, checked.prepared).await;
        let now = match finished {
            Ok(now) => now,
            Err(error) => {
                // The former configuration is valid, because it was in force until now.
                let back = self
                    .handle
                    .change(Arc::clone(before), ReloadScope::Text)
                    .await;
                if let Err(back) = back {
                    // Logged for a control socket request.
                    tracing::error!(error = %back, "cannot write a change to the configuration: \
                                                    it stays in effect until the next reload");
                }
                return Err(error);
            }
        };
        let is_it = Arc::ptr_eq(&now.config, &config) || now.config == config;
        self.checked = is_it.then(|| Arc::clone(&now.config));
        Ok((now, checked.draft))
    }

    async fn prepare(
        &mut self,
        (draft, kept): (Draft, &BTreeSet<(String, u32)>),
        text: String,
        rereads: bool,
        kind: Kind,
        before: &Snapshot,
    ) -> Result<Checked, Refused> {
        let source = Arc::clone(&self.source);
        let mut kept_copies = Vec::new();
        if !kept.is_empty() {
            kept_copies = LastCopy::of(before);
            kept_copies.retain(|one| kept.contains(&one.place()));
        }
        let base = self.checked.take().filter(|_| self.kept.is_empty());
        let base = base.filter(|base| Arc::ptr_eq(base, &before.config) && !rereads);
        let file = self.file.text();
        let in_force = Arc::clone(&before.config);
        let prepare = move || {
            let base = base.filter(|_| source.may_step());
            let (config, scope) = match base.and_then(|base| step(base, &draft)) {
                Some((config, step)) => (config, ReloadScope::Step(step)),
                None => {
                    let config = source.parse_draft(&text);
                    let mut config = config
                        .map_err(|error| Refused::ByOne(Error::invalid(error.to_string())))?;
                    for copy in &kept_copies {
                        copy.keep(&mut config, !copy.has_subsystem_in(&file));
                    }
                    let scope = if rereads {
                        ReloadScope::Whole
                    } else {
                        ReloadScope::Text
                    };
                    (config, scope)
                }
            };
            let is_removal_alone =
                matches!(&scope, ReloadScope::Step(step) if step.added.is_empty());
            if !is_removal_alone {
                policy::check(kind, &config, &in_force).map_err(Refused::ByOne)?;
            }
            Ok((draft, Arc::new(config), scope, text))
        };
        let checked = elsewhere(prepare).await;
        let (draft, config, scope, text) =
            checked.map_err(|error| Refused::ByOne(Error::new(Error::INTERNAL, error)))??;
        let prepared = self.file.prepare(text).await.map_err(of_write)?;
        Ok(Checked {
            draft,
            config,
            scope,
            prepared,
        })
    }

    async fn finish(
        &self,
        config: &Arc<Config>,
        before: &Arc<Config>,
        prepared: Prepared,
    ) -> Result<Snapshot, Refused> {
        let now = self.handle.snapshot().await.ok_or_else(all_stopped)?;
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
        prepared.commit().await.map_err(of_write)?;
        let published = Arc::clone(&self.published);
        let (config, before) = (Arc::clone(config), Arc::clone(before));
        let _ = elsewhere(move || published.warnings.log_new(&config, &before)).await;
        Ok(now)
    }

    fn publish(&self) {
        let mut facts = self.published.lock();
        facts.disks.clone_from(&self.disks);
        facts.text = self.file.text();
        self.source.pools().note_changed();
    }
}

/// Returns the text of an error after which the new configuration is in force. Fails if the former
/// configuration stays in force.
fn unsettled(ended: Result<(), ReloadError>) -> Result<Option<String>, String> {
    match ended {
        Ok(()) => Ok(None),
        Err(error) if error.is_in_force() => Ok(Some(error.to_string())),
        Err(error) => Err(error.to_string()),
    }
}

const LOGGED_MAX: usize = 16;

fn summary(changes: &[String]) -> String {
    let shown = changes.len().min(LOGGED_MAX);
    let mut text = changes[..shown].join(", ");
    if changes.len() > shown {
        text += &format!(", and {} more", changes.len() - shown);
    }
    text
}

/// Returns the configuration of `draft` and its difference from `from`, or `None` if only a full
/// check can decide.
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

/// Applies the changes to the stage in order, and returns the result of each.
///
/// A failed change of a batch is undone: the stage is restored from a copy, and the changes since
/// the copy are repeated. A copy costs as much as thousands of changes, so it is made only at the
/// start and after failures. After the failure of a single change, the caller must drop the stage.
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
                    // The attempt cannot fail: the change already succeeded on this text.
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

async fn elsewhere<T: Send + 'static>(
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let job = move || confine_part(Part::Control, job);
    let done = tokio::task::spawn_blocking(job).await;
    done.map_err(|error| error.to_string())?
        .ok_or_else(|| PANICKED.to_owned())
}
