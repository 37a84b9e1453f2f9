//! Directories whose files are namespaces: `export = "dir:/srv/cairn"`.
//!
//! A thread scans each directory for each new configuration and after each change in the directory.
//! While the file system hangs, the previous result stays in use.

mod contents;
mod scan;
mod table;
mod writers;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cairn_config::{Backing, Config, FileId, LeftOut, Namespace, Pool};
use cairn_disk::{disks_max, where_to_look};
use tokio::sync::Notify;

use crate::panics::{Part, confine_part};
use crate::server::DiskRules;
pub(crate) use contents::check_folder;
use contents::{Contents, Memory, Shown};

const LOOK_TIMEOUT: Duration = Duration::from_secs(10);

const NAMED_MAX: usize = 8;

#[derive(Debug, Clone, Default)]
pub(crate) struct Pools(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    slots: Mutex<HashMap<PathBuf, Slot>>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Slot {
    memory: Memory,
    away: Option<Away>,
    last: Contents,
    in_force: HashMap<u32, FileId>,
    waits: bool,
}

#[derive(Debug)]
struct Away {
    since: Instant,
    back: Receiver<(Memory, Contents)>,
}

impl Pools {
    pub(crate) fn expand(&self, config: &mut Config, keep: bool) {
        let mut slots = self.0.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let all = config.subsystems.iter().flat_map(|one| &one.pools);
        let folders: HashSet<&PathBuf> = all.clone().map(|pool| &pool.folder).collect();
        slots.retain(|folder, _| folders.contains(folder));
        let rules = DiskRules::of(config);
        for pool in all {
            let slot = slots.entry(pool.folder.clone()).or_default();
            slot.begin(&rules, pool, keep, &self.0);
        }
        let mut room = room(config);
        for subsystem in &mut config.subsystems {
            for pool in &mut subsystem.pools {
                let slot = slots.entry(pool.folder.clone()).or_default();
                slot.end();
                subsystem.namespaces.extend(slot.fit(pool, &mut room));
            }
            subsystem.namespaces.sort_by_key(|namespace| namespace.nsid);
        }
    }

    pub(crate) fn note_in_force(&self, config: &Config) {
        let mut slots = self.0.slots.lock().unwrap_or_else(PoisonError::into_inner);
        for subsystem in &config.subsystems {
            let pooled = subsystem.namespaces.iter();
            let pooled = pooled.filter_map(|one| Some((one.nsid, one.pooled?.id)));
            let pooled: HashMap<u32, FileId> = pooled.collect();
            for pool in &subsystem.pools {
                if let Some(slot) = slots.get_mut(&pool.folder) {
                    let of_pool = pooled.iter().filter(|(nsid, _)| pool.nsids.contains(nsid));
                    slot.in_force = of_pool.map(|(nsid, id)| (*nsid, *id)).collect();
                }
            }
        }
    }

    pub(crate) fn note_changed(&self) {
        self.0.changed.notify_one();
    }

    pub(crate) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    pub(crate) fn waits(&self) -> bool {
        let slots = self.0.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.values().any(|slot| slot.last.waits || slot.waits)
    }
}

fn room(config: &Config) -> usize {
    let all = config.subsystems.iter().flat_map(|one| &one.namespaces);
    let disks = all.filter(|one| matches!(one.backing, Backing::Disk(_)));
    disks_max().saturating_sub(disks.count())
}

impl Slot {
    fn begin(&mut self, rules: &DiskRules, pool: &Pool, keep: bool, shared: &Arc<Shared>) {
        if let Some(away) = &self.away {
            match away.back.try_recv() {
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {}
                Ok((memory, _)) => self.memory = memory,
            }
        }
        let (out, back) = sync_channel(1);
        let since = Instant::now();
        let memory = std::mem::take(&mut self.memory);
        let (rules, pool) = (rules.clone(), pool.clone());
        let shared = Arc::clone(shared);
        let job = move || run(memory, (&rules, &pool), keep, since, &out, &shared);
        let thread = std::thread::Builder::new().name("directory".into());
        match thread.spawn(job) {
            Ok(_) => self.away = Some(Away { since, back }),
            Err(error) => {
                self.away = None;
                self.last.problem = Some(format!("no thread to look at a directory: {error}"));
            }
        }
    }

    fn end(&mut self) {
        let Some(away) = self.away.take() else {
            return;
        };
        let left = LOOK_TIMEOUT.saturating_sub(away.since.elapsed());
        match away.back.recv_timeout(left) {
            Ok((memory, contents)) => (self.memory, self.last) = (memory, contents),
            Err(RecvTimeoutError::Disconnected) => {
                let panicked = "the look at a directory panicked, which is an error in the log";
                self.last.problem = Some(panicked.to_owned());
            }
            Err(RecvTimeoutError::Timeout) => {
                self.last.is_late = true;
                self.last.waits = false;
                self.away = Some(away);
            }
        }
    }

    fn fit(&mut self, pool: &mut Pool, room: &mut usize) -> Vec<Namespace> {
        let contents = &self.last;
        let in_range = contents
            .files
            .iter()
            .filter(|one| pool.nsids.contains(&one.nsid));
        // An NSID is reused only after its previous namespace was removed.
        let (free, taken): (Vec<&Shown>, Vec<&Shown>) = in_range.partition(|one| {
            let now = self.in_force.get(&one.nsid);
            now.is_none_or(|id| *id == one.file.id)
        });
        self.waits = !taken.is_empty();
        // Existing namespaces come first, so that no new file displaces one.
        let (mut fitting, new): (Vec<&Shown>, Vec<&Shown>) = free
            .into_iter()
            .partition(|one| self.in_force.contains_key(&one.nsid));
        fitting.extend(new);
        let left_out = fitting.split_off(fitting.len().min(*room));
        *room -= fitting.len();
        let no_room = "the limit on open files has no room for more disks (raise LimitNOFILE in the service, or `ulimit -n`)";
        let mut surplus: Vec<LeftOut> = contents.without_nsid(pool);
        surplus.extend(left_out.iter().map(|one| LeftOut {
            name: contents::escaped(&one.name),
            reason: no_room.to_owned(),
        }));
        pool.problem = match (&contents.problem, contents.is_late) {
            (_, true) => Some(format!(
                "{} does not answer, and shows what it showed before: {}",
                pool.folder.display(),
                where_to_look(&pool.folder)
            )),
            (Some(problem), _) => Some(problem.clone()),
            (None, _) => explain_surplus(pool, &surplus),
        };
        pool.left_out.clone_from(&contents.left_out);
        pool.left_out.extend(surplus);
        let namespaces = fitting.iter().map(|one| Namespace {
            nsid: one.nsid,
            backing: Backing::Disk(pool.folder.join(&one.name)),
            pooled: Some(one.file),
            ..pool.like.clone()
        });
        namespaces.collect()
    }
}

fn run(
    mut memory: Memory,
    (rules, pool): (&DiskRules, &Pool),
    keep: bool,
    since: Instant,
    out: &SyncSender<(Memory, Contents)>,
    shared: &Shared,
) {
    let result = confine_part(Part::Open, move || {
        let contents = memory.examine(rules, pool, keep);
        (memory, contents)
    });
    if let Some(result) = result {
        let _ = out.send(result);
    }
    if since.elapsed() >= LOOK_TIMEOUT {
        shared.changed.notify_one();
    }
}

fn explain_surplus(pool: &Pool, surplus: &[LeftOut]) -> Option<String> {
    let first = surplus.first()?;
    let named = surplus.iter().take(NAMED_MAX).map(|one| one.name.as_str());
    let mut names: Vec<&str> = named.collect();
    let more = format!("and {} more", surplus.len() - names.len());
    if surplus.len() > names.len() {
        names.push(&more);
    }
    let (folder, count) = (pool.folder.display(), surplus.len());
    let reason = &first.reason;
    Some(format!(
        "{folder}: {count} left out, as {reason}: {}",
        names.join(", ")
    ))
}
