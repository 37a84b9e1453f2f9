//! Configured objects that are unavailable: disks, addresses, the metrics port.
//!
//! The target serves all other objects, and retries at intervals and after kernel reports
//! ([`arrivals`](super::arrivals)). Hosts cannot see a namespace without its disk. When the disk
//! appears, the namespace is added as by a reload, so a visible namespace always has its disk's
//! identity.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_base::Clock;
use cairn_config::{Backing, Config};
use tokio::sync::watch;

use super::arrivals::Arrivals;
use super::error::StartError;
use super::exports::{Exports, Refused};
use super::opening::{Late, Openings};
use crate::health::{Health, Missing, Obstacle, Place, Thing};

const PAUSE_FIRST: Duration = Duration::from_secs(1);

const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Time to collect kernel reports before the next attempt.
const SETTLE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct MissingParts {
    all: Vec<Missing>,
    pause: Duration,
    next_try: Option<Instant>,
    health: watch::Sender<Arc<Health>>,
    arrivals: Arrivals,
    clock: Clock,
}

impl MissingParts {
    pub(super) fn new(clock: Clock) -> (Self, watch::Receiver<Arc<Health>>) {
        let (health, seen) = watch::channel(Arc::default());
        let parts = Self {
            all: Vec::new(),
            pause: PAUSE_FIRST,
            next_try: None,
            health,
            arrivals: Arrivals::default(),
            clock,
        };
        (parts, seen)
    }

    pub(super) fn health(&self) -> watch::Receiver<Arc<Health>> {
        self.health.subscribe()
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

    pub(super) fn try_soon(&mut self) {
        let now = self.clock.now();
        self.pause = PAUSE_FIRST;
        let soon = now + SETTLE;
        self.next_try = Some(self.next_try.map_or(soon, |next| next.min(soon)));
    }

    fn try_later(&mut self) {
        let now = self.clock.now();
        if self.all.is_empty() {
            self.next_try = None;
            return;
        }
        self.next_try = Some(now + self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    pub(super) fn is_due(&mut self) -> bool {
        let now = self.clock.now();
        let is_due = self.next_try.is_some_and(|next| next <= now);
        if is_due {
            self.try_later();
        }
        is_due
    }

    pub(super) async fn arrival(&mut self) {
        self.arrivals.next().await;
    }

    pub(super) fn note(&mut self, thing: Thing, error: &StartError) {
        self.note_reason(thing, &error.to_string(), error.obstacle());
    }

    pub(super) fn note_reason(&mut self, thing: Thing, reason: &str, obstacle: Obstacle) {
        let mut all = self.all.iter_mut();
        if let Some(known) = all.find(|known| known.thing == thing) {
            if known.reason == reason {
                return;
            }
            reason.clone_into(&mut known.reason);
            known.obstacle = obstacle;
        } else {
            self.all.push(Missing {
                thing,
                reason: reason.to_owned(),
                obstacle,
                since: self.clock.now(),
            });
        }
        // Logged once for each object that becomes missing.
        tracing::warn!(
            missing = %thing, reason,
            "degraded: a configured object is missing, and is served once it exists"
        );
    }

    pub(super) fn note_disks(&mut self, late: &[Late], failed: Refused) {
        for late in late {
            self.note(Thing::Namespace(late.place), &late.error());
        }
        for (place, error) in failed {
            self.note(Thing::Namespace(place), &error);
        }
    }

    pub(super) fn has_keys(&self) -> bool {
        let mut all = self.all.iter();
        all.any(|missing| matches!(missing.thing, Thing::Keys(_)))
    }

    /// Replaces the subsystems with unreadable keys; returns true if one has all its keys now.
    pub(super) fn replace_keys(&mut self, missing: Vec<(Thing, StartError)>) -> bool {
        self.replace_these(|thing| matches!(thing, Thing::Keys(_)), missing)
    }

    /// Replaces the parts except keys and the audit log, which are replaced separately.
    pub(super) fn replace(&mut self, missing: Vec<(Thing, StartError)>) {
        let is_other = |thing: &Thing| !matches!(thing, Thing::Audit(_) | Thing::Keys(_));
        self.replace_these(is_other, missing);
    }

    /// Replaces the selected parts; returns true if one is no longer missing.
    fn replace_these(
        &mut self,
        is_selected: impl Fn(&Thing) -> bool,
        missing: Vec<(Thing, StartError)>,
    ) -> bool {
        let before = self.all.len();
        self.retain(|known| !is_selected(known) || missing.iter().any(|(thing, _)| thing == known));
        let has_returned = self.all.len() < before;
        for (thing, error) in missing {
            self.note(thing, &error);
        }
        has_returned
    }

    pub(super) fn retain(&mut self, is_missing: impl Fn(&Thing) -> bool) {
        self.all.retain(|missing| is_missing(&missing.thing));
    }

    pub(super) fn remove(&mut self, thing: &Thing) {
        self.retain(|missing| missing != thing);
    }

    pub(super) fn publish(
        &mut self,
        config: &Config,
        exports: &Exports,
        addresses: Vec<SocketAddr>,
        openings: &Openings,
    ) {
        let subsystems = config.subsystems.iter();
        let directories = subsystems.flat_map(|subsystem| {
            let pools = subsystem.pools.iter();
            pools.map(|pool| ((subsystem.nqn, pool.like.nsid), pool.left_out.len()))
        });
        let health = Health {
            left_out: directories.collect(),
            subsystems: exports.len(),
            namespaces: exports.namespaces().count(),
            addresses,
            missing: self.all.clone(),
        };
        self.health.send_replace(Arc::new(health));
        self.pause = PAUSE_FIRST;
        self.try_later();
        self.await_arrivals(config, openings);
    }

    pub(super) fn await_arrivals(&mut self, config: &Config, openings: &Openings) {
        let mut paths: Vec<PathBuf> = Vec::new();
        for subsystem in &config.subsystems {
            for namespace in &subsystem.namespaces {
                // A pool scans its files itself, and folders in hung file systems cannot be
                // watched.
                if let Backing::Disk(path) = &namespace.backing
                    && namespace.pooled.is_none()
                    && self.has(&(subsystem.nqn, namespace.nsid))
                    && !openings.is_stuck(path)
                {
                    paths.push(path.clone());
                }
            }
        }
        let mut things = self.all.iter().map(|missing| missing.thing);
        let addresses = things.any(|thing| thing.is_address());
        self.arrivals = Arrivals::of(&paths, addresses);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit_and_end_when_nothing_is_missing() {
        let clock = Clock::simulated();
        let (mut parts, _) = MissingParts::new(clock.clone());
        let start = clock.now();
        parts.try_later();
        assert_eq!(parts.next_try(), None);
        parts.all.push(Missing {
            thing: Thing::Metrics("127.0.0.1:9464".parse().unwrap()),
            reason: String::new(),
            obstacle: Obstacle::Other,
            since: start,
        });
        let mut pauses = Vec::new();
        for _ in 0..7 {
            parts.try_later();
            pauses.push((parts.next_try().unwrap() - start).as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        parts.try_soon();
        clock.advance_to(start + SETTLE / 2);
        parts.try_soon();
        assert_eq!(parts.next_try(), Some(start + SETTLE));
    }
}
