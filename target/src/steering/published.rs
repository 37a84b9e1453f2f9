//! State that the change queue publishes to the control methods.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use cairn_config::Nqn;
use cairn_control::Disk;
use cairn_interop::spdk::{self, Notices, bdev_name};

use super::warnings::Warnings;
use crate::server::{Snapshot, Step};

type Place = (Nqn, u32);

#[derive(Debug, Default)]
pub(super) struct Published {
    facts: Mutex<Facts>,
    notices: Mutex<Notices>,
    pub(super) warnings: Warnings,
}

#[derive(Debug, Default, Clone)]
pub(super) struct Facts {
    pub(super) disks: BTreeMap<String, Disk>,
    pub(super) text: Arc<str>,
    pub(super) reload: Option<ReloadEnd>,
}

#[derive(Debug, Clone)]
pub(super) struct ReloadEnd {
    pub(super) at: SystemTime,
    pub(super) ended: Result<(), String>,
    /// True if the file was unreadable, or differed from the configuration in force before.
    pub(super) is_other_text: bool,
}

impl ReloadEnd {
    /// Returns the time and error of a failed reload, unless the file has been put back since.
    pub(super) fn problem(&self, is_stale: bool) -> Option<(SystemTime, &str)> {
        let error = self.ended.as_ref().err()?;
        (is_stale || !self.is_other_text).then_some((self.at, error))
    }
}

impl Published {
    pub(super) fn facts(&self) -> Facts {
        self.lock().clone()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Facts> {
        // Poisoning is harmless, because each change is one assignment.
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn notices(&self, snapshot: &Snapshot) -> MutexGuard<'_, Notices> {
        let disks = spdk::sizes(snapshot, &self.lock().disks);
        // After a panic, at most one notice is missing.
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        notices.note(disks);
        notices
    }

    pub(super) fn note_step(&self, now: &Snapshot, step: &Step, removed: Vec<(String, u64)>) {
        let made = |(name, _): &(String, u64)| self.lock().disks.contains_key(name);
        let is_simple = !removed.iter().any(made);
        let added = sizes(now, &step.added);
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

pub(super) fn sizes(snapshot: &Snapshot, places: &[Place]) -> Vec<(String, u64)> {
    let exports = places.iter().filter_map(|place| snapshot.export(place));
    let sizes = exports.map(|export| (bdev_name(export.config), export.entry.view.nsze));
    sizes.collect()
}
