//! Namespaces with deleted files. Only a forced removal closes such a file, which is the last copy
//! of the data.

use std::path::{Path, PathBuf};

use cairn_config::{Config, Draft, Namespace, Subsystem};
use cairn_control::Error;
use rustix::io::Errno;

use super::wording::word;
use crate::files;
use crate::server::{Export, ReloadScope, Snapshot};

pub(super) struct LastCopy {
    subsystem: Subsystem,
    namespace: Namespace,
}

impl LastCopy {
    pub(super) fn place(&self) -> (String, u32) {
        (self.subsystem.nqn.raw().to_owned(), self.namespace.nsid)
    }

    pub(super) fn has_subsystem_in(&self, text: &str) -> bool {
        let draft = Draft::new(text);
        draft.is_ok_and(|mut draft| draft.remove_subsystem(self.subsystem.nqn.raw()).is_ok())
    }

    pub(super) fn of(before: &Snapshot) -> Vec<Self> {
        let own = before.exports().filter(is_deleted);
        // Deleting a pool file is the way to remove its namespace.
        let own = own.filter(|one| one.config.pooled.is_none());
        let copies = own.filter_map(|one| {
            let mut subsystems = before.config.subsystems.iter();
            let subsystem = subsystems.find(|of| of.nqn == *one.nqn)?;
            Some(Self {
                subsystem: Subsystem {
                    namespaces: Vec::new(),
                    pools: Vec::new(),
                    ..subsystem.clone()
                },
                namespace: one.config.clone(),
            })
        });
        copies.collect()
    }

    pub(super) fn keep(&self, config: &mut Config, adds_subsystem: bool) -> bool {
        let of = |one: &Subsystem| one.nqn == self.subsystem.nqn;
        let at = match config.subsystems.iter().position(of) {
            Some(at) => at,
            None if !adds_subsystem => return false,
            None => {
                config.subsystems.push(self.subsystem.clone());
                config.subsystems.len() - 1
            }
        };
        let all = &mut config.subsystems[at].namespaces;
        let nsid = self.namespace.nsid;
        match all.binary_search_by_key(&nsid, |one| one.nsid) {
            Ok(at) if all[at].backing == self.namespace.backing => return false,
            Ok(at) => all[at] = self.namespace.clone(),
            Err(at) => all.insert(at, self.namespace.clone()),
        }
        true
    }
}

pub(super) fn sentence((nqn, nsid): &(String, u32)) -> String {
    format!(
        "subsystem {nqn}: namespace {nsid} not removed, because its deleted file is the last copy; \
         to lose it: {}",
        removal(nqn, *nsid)
    )
}

pub(super) fn removal(nqn: &str, nsid: u32) -> String {
    format!("cairn-target namespace remove {} {nsid} --force", word(nqn))
}

pub(super) async fn refuse_losses(
    before: &Snapshot,
    now: &Config,
    scope: &ReloadScope,
) -> Result<(), Error> {
    look(before, now, scope).await;
    let mut leaving = leaving(before, now, scope).into_iter();
    match leaving.find(is_deleted) {
        Some(Export { nqn, config, .. }) => Err(refusal(nqn.raw(), config.nsid)),
        None => Ok(()),
    }
}

fn leaving<'s>(before: &'s Snapshot, now: &Config, scope: &ReloadScope) -> Vec<Export<'s>> {
    match scope {
        ReloadScope::Step(step) => {
            let removed = step.removed.iter();
            removed.filter_map(|place| before.export(place)).collect()
        }
        ReloadScope::Text | ReloadScope::Whole => {
            let all = before.exports();
            all.filter(|one| !stays(one, now)).collect()
        }
    }
}

pub(super) fn refusal(nqn: &str, nsid: u32) -> Error {
    Error::errno(
        Errno::BUSY,
        format!(
            "the file of namespace {nsid} of {nqn} was deleted, so its data is lost with the \
             namespace: copy it from a host first; to lose it: {}",
            removal(nqn, nsid)
        ),
    )
}

/// Checks removed namespaces for deleted files; the watch notices deletions only after seconds.
pub(super) async fn look(before: &Snapshot, now: &Config, scope: &ReloadScope) {
    let gone = leaving(before, now, scope).into_iter();
    let gone = gone.map(|one| one.entry.namespace);
    let gone: Vec<_> = gone
        .filter(|one| one.backend.file_system().is_some())
        .collect();
    if let Some(first) = gone.first() {
        let path = PathBuf::from(&first.backing);
        let look = move |_: &Path| {
            for one in gone {
                one.backend.look();
            }
        };
        let _ = files::call(&path, look).await;
    }
}

fn stays(one: &Export<'_>, now: &Config) -> bool {
    let mut subsystems = now.subsystems.iter().filter(|of| of.nqn == *one.nqn);
    subsystems.any(|of| {
        let all = &of.namespaces;
        let at = all.binary_search_by_key(&one.config.nsid, |one| one.nsid);
        at.is_ok_and(|at| all[at].backing == one.config.backing)
    })
}

fn is_deleted(one: &Export<'_>) -> bool {
    one.entry.namespace.backend.is_deleted()
}
