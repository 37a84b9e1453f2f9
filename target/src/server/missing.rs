//! Configured parts that are unavailable: disks, addresses, the metrics port.
//!
//! The target serves everything else. It retries them when the kernel reports a relevant change
//! ([`arrivals`]) and at intervals, for changes that the kernel does not report.
//!
//! A namespace whose disk is missing does not exist for hosts: no list contains it, and its NSID is
//! inactive. Once the disk opens, the namespace is added as by a reload, with the same event to
//! hosts. Therefore a namespace visible to hosts always has the identity of its disk.
//!
//! [`arrivals`]: super::arrivals

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_config::Backing;
use tokio::sync::watch;

use super::arrivals::Arrivals;
use super::control::Control;
use super::error::StartError;
use super::identities::check_identities;
use super::opening::Found;
use crate::namespace::Namespace;
use crate::outlook::{Missing, Outlook, Place, Thing};

/// First interval between attempts.
const PAUSE_FIRST: Duration = Duration::from_secs(1);

/// Longest interval between attempts.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Time to collect kernel reports before an attempt.
const SETTLE: Duration = Duration::from_millis(100);

/// Missing parts, and the time of the next attempt.
#[derive(Debug)]
pub(super) struct MissingParts {
    all: Vec<Missing>,
    pause: Duration,
    next_try: Option<Instant>,
    outlook: watch::Sender<Arc<Outlook>>,
}

impl MissingParts {
    pub(super) fn new() -> (Self, watch::Receiver<Arc<Outlook>>) {
        let (outlook, seen) = watch::channel(Arc::default());
        let parts = Self {
            all: Vec::new(),
            pause: PAUSE_FIRST,
            next_try: None,
            outlook,
        };
        (parts, seen)
    }

    pub(super) fn outlook(&self) -> watch::Receiver<Arc<Outlook>> {
        self.outlook.subscribe()
    }

    pub(super) fn all(&self) -> &[Missing] {
        &self.all
    }

    pub(super) fn includes(&self, thing: &Thing) -> bool {
        self.all.iter().any(|missing| missing.thing == *thing)
    }

    pub(super) fn has(&self, place: &Place) -> bool {
        self.includes(&Thing::Namespace(*place))
    }

    pub(super) fn places(&self) -> impl Iterator<Item = Place> {
        self.all.iter().filter_map(|missing| missing.thing.place())
    }

    pub(super) fn next_try(&self) -> Option<Instant> {
        self.next_try
    }

    /// Schedules an attempt soon, after a kernel report.
    pub(super) fn try_soon(&mut self, now: Instant) {
        self.pause = PAUSE_FIRST;
        let soon = now + SETTLE;
        self.next_try = Some(self.next_try.map_or(soon, |next| next.min(soon)));
    }

    /// Schedules the next attempt after the interval, which doubles each time.
    fn try_later(&mut self, now: Instant) {
        if self.all.is_empty() {
            self.next_try = None;
            return;
        }
        self.next_try = Some(now + self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    fn remove(&mut self, thing: &Thing) {
        self.all.retain(|missing| missing.thing != *thing);
    }
}

impl Control {
    /// Records a missing part. Logs it once for each reason.
    pub(super) fn note_missing(&mut self, thing: Thing, reason: &dyn std::fmt::Display) {
        let reason = reason.to_string();
        let mut all = self.missing.all.iter_mut();
        if let Some(known) = all.find(|known| known.thing == thing) {
            if known.reason == reason {
                return;
            }
            known.reason.clone_from(&reason);
        } else {
            self.missing.all.push(Missing {
                thing,
                reason: reason.clone(),
                since: self.clock.now(),
            });
        }
        // Cause: the configuration, or what the machine lacks.
        tracing::warn!(
            missing = %thing, reason,
            "degraded: all else is served, and this as soon as it is there"
        );
    }

    /// Replaces all missing parts except audit destinations.
    pub(super) fn replace_missing(&mut self, missing: Vec<(Thing, StartError)>) {
        let stays = |known: &Missing| {
            matches!(known.thing, Thing::Audit(_))
                || missing.iter().any(|(thing, _)| *thing == known.thing)
        };
        self.missing.all.retain(stays);
        for (thing, error) in missing {
            self.note_missing(thing, &error);
        }
    }

    /// Publishes the served and missing parts and watches for the missing ones.
    pub(super) fn publish_outlook(&mut self) {
        let served = self.exports.values().map(|export| export.namespaces.len());
        let subsystems = self.config.subsystems.iter();
        let directories = subsystems.flat_map(|subsystem| {
            let pools = subsystem.pools.iter();
            pools.map(|pool| ((subsystem.nqn, pool.like.nsid), pool.left_out.len()))
        });
        let outlook = Outlook {
            left_out: directories.collect(),
            subsystems: self.exports.len(),
            namespaces: served.sum(),
            addresses: self.addresses(),
            missing: self.missing.all.clone(),
        };
        self.missing.outlook.send_replace(Arc::new(outlook));
        let now = self.clock.now();
        self.missing.pause = PAUSE_FIRST;
        self.missing.try_later(now);
        self.await_arrivals();
    }

    /// Asks the kernel to report changes relevant to the missing parts.
    fn await_arrivals(&mut self) {
        let mut paths: Vec<PathBuf> = Vec::new();
        for subsystem in &self.config.subsystems {
            for namespace in &subsystem.namespaces {
                // Pool files are scanned elsewhere. Watching a path that hangs would block this
                // thread.
                if let Backing::Disk(path) = &namespace.backing
                    && namespace.pooled.is_none()
                    && self.missing.has(&(subsystem.nqn, namespace.nsid))
                    && !self.openings.is_stuck(path)
                {
                    paths.push(path.clone());
                }
            }
        }
        let mut things = self.missing.all.iter().map(|missing| missing.thing);
        let addresses = things.any(|thing| thing.is_address());
        self.arrivals = Arrivals::of(&paths, addresses);
    }

    /// Retries the missing parts if an attempt is due.
    pub(super) fn try_missing(&mut self) {
        let now = self.clock.now();
        if self.missing.next_try.is_none_or(|next| now < next) {
            return;
        }
        self.missing.try_later(now);
        // A reload retries all parts itself, and so do openings in progress.
        if self.reloading.is_some() || self.openings.is_busy() {
            return;
        }
        self.try_addresses();
        let places: HashSet<Place> = self.missing.places().collect();
        if !places.is_empty() {
            self.begin_reopening(&places);
            self.go_on_reloading();
        }
    }

    fn try_addresses(&mut self) {
        let missing: Vec<Thing> = self.missing.all.iter().map(|one| one.thing).collect();
        let mut has_changed = false;
        for thing in missing {
            has_changed |= match thing {
                // The audit log reports recovery itself, and scans find directories.
                Thing::Namespace(_) | Thing::Directory(_) | Thing::Audit(_) => false,
                Thing::Metrics(address) => {
                    self.metrics = self.serve_metrics(Some(address));
                    self.metrics.is_some() && self.found(&thing)
                }
                Thing::Listener(address) => self.try_listener(address),
            };
        }
        if has_changed {
            self.update_discovery();
            self.publish_outlook();
        }
    }

    fn try_listener(&mut self, address: SocketAddr) -> bool {
        let thing = Thing::Listener(address);
        let mut configured = self.config.listeners.iter();
        let found = configured.find(|listener| listener.socket_address() == address);
        let Some(config) = found.cloned() else {
            return self.found(&thing);
        };
        match self.listen(&config) {
            Ok(listener) => {
                self.listeners.push(listener);
                self.found(&thing)
            }
            Err(error) => {
                self.note_missing(thing, &error);
                false
            }
        }
    }

    /// Removes a missing part; always returns true.
    pub(super) fn found(&mut self, thing: &Thing) -> bool {
        self.missing.remove(thing);
        true
    }

    /// Exports disks that were missing and have opened.
    fn add_found(&mut self, mut opened: HashMap<Place, Arc<Namespace>>) {
        let new = opened.iter().map(|((nqn, _), disk)| (nqn, disk));
        let is_checked = check_identities(self.exported().chain(new)).is_ok();
        let mut added = HashSet::new();
        let config = self.config.clone();
        for subsystem in &config.subsystems {
            let mut disks = Vec::new();
            for namespace in &subsystem.namespaces {
                let disk = opened.remove(&(subsystem.nqn, namespace.nsid));
                let introduced = disk.map(|disk| self.introduce(subsystem, namespace, Some(disk)));
                if let Some(Ok(disk)) = introduced {
                    disks.push((namespace, disk));
                }
            }
            let nsids = self.add_namespaces(subsystem.nqn, disks, is_checked);
            added.extend(nsids.into_iter().map(|nsid| (subsystem.nqn, nsid)));
        }
        let is_there =
            |missing: &Missing| missing.thing.place().is_some_and(|at| added.contains(&at));
        self.missing.all.retain(|missing| !is_there(missing));
    }

    /// Handles the results of a retry of missing disks.
    pub(super) fn end_reopening(&mut self, found: Found) {
        let before = self.missing.all.len();
        for late in &found.late {
            self.note_missing(Thing::Namespace(late.place), &late.error());
        }
        for (place, error) in found.missing {
            self.note_missing(Thing::Namespace(place), &error);
        }
        self.add_found(found.opened);
        if self.missing.all.len() != before {
            self.publish_outlook();
        } else {
            self.await_arrivals();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit_and_end_when_nothing_is_missing() {
        let (mut parts, _) = MissingParts::new();
        let start = Instant::now();
        parts.try_later(start);
        assert_eq!(parts.next_try(), None);
        parts.all.push(Missing {
            thing: Thing::Metrics("127.0.0.1:9464".parse().unwrap()),
            reason: String::new(),
            since: start,
        });
        let mut pauses = Vec::new();
        for _ in 0..7 {
            parts.try_later(start);
            pauses.push((parts.next_try().unwrap() - start).as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        // A kernel report never delays an attempt, and several reports cause one attempt.
        parts.try_soon(start);
        parts.try_soon(start + SETTLE / 2);
        assert_eq!(parts.next_try(), Some(start + SETTLE));
    }
}
