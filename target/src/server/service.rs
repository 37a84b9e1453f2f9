//! Objects that a configuration determines: disks, subsystems, listeners, keys, ports.

use cairn_base::Trid;
use std::collections::HashSet;
use std::sync::Arc;

use cairn_base::Clock;
use cairn_config::Config;

use super::audit_log::AuditLog;
use super::discovery::Discovery;
use super::error::StartError;
use super::exports::Exports;
use super::jobs::Jobs;
use super::keys;
use super::listeners::Listeners;
use super::metrics_port::MetricsPort;
use super::missing::MissingParts;
use super::opening::{Found, Openings};
use super::restart::Fixed;
use crate::health::{Place, Thing};

pub(super) struct Service {
    pub(super) config: Arc<Config>,
    pub(super) fixed: Fixed,
    pub(super) exports: Exports,
    pub(super) listeners: Listeners,
    pub(super) discovery: Discovery,
    pub(super) keys: keys::InForce,
    pub(super) openings: Openings,
    pub(super) missing: MissingParts,
    pub(super) metrics: MetricsPort,
    pub(super) audit: AuditLog,
    pub(super) jobs: Arc<Jobs>,
    pub(super) clock: Clock,
}

impl Service {
    pub(super) fn publish_health(&mut self) {
        let addresses = self.listeners.addresses();
        let (config, exports) = (&self.config, &self.exports);
        self.missing
            .publish(config, exports, addresses, &self.openings);
    }

    pub(super) fn update_discovery(&self) {
        self.discovery.update(&self.config, &self.listeners);
    }

    pub(super) fn apply_audit(&mut self, config: &Config) -> Result<(), StartError> {
        self.audit.apply(config)?;
        self.audit_changed();
        Ok(())
    }

    pub(super) fn audit_changed(&mut self) {
        self.audit.update(&mut self.missing);
        self.publish_health();
    }

    pub(super) fn try_missing(&mut self) {
        self.try_addresses();
        self.try_keys();
        let places: HashSet<Place> = self.missing.places().collect();
        if !places.is_empty() {
            let (exports, now) = (&self.exports, self.clock.now());
            self.openings
                .begin_again(exports, &self.config, &places, now);
        }
    }

    fn try_addresses(&mut self) {
        let missing: Vec<Thing> = self.missing.all().iter().map(|one| one.thing).collect();
        let mut has_changed = false;
        for thing in missing {
            let is_there = match thing {
                // Other code retries these: disks open separately, scans find directories,
                // `try_keys` reads keys, and the audit log reports its recovery.
                Thing::Namespace(_) | Thing::Directory(_) | Thing::Keys(_) | Thing::Audit(_) => {
                    false
                }
                Thing::Metrics(address) => {
                    self.metrics.serve(Some(address), &mut self.missing);
                    self.metrics.is_open()
                }
                Thing::Listener(address) => self.try_listener(address),
            };
            if is_there {
                self.missing.remove(&thing);
                has_changed = true;
            }
        }
        if has_changed {
            self.update_discovery();
            self.publish_health();
        }
    }

    /// Takes the keys that the previous attempt has read, and begins another one for the others.
    fn try_keys(&mut self) {
        if !self.missing.has_keys() {
            return;
        }
        if let Some(loaded) = self.keys.take_read(&self.config)
            && let Ok((keys, missing)) = self.keys.complete(loaded, &self.config, &self.config)
        {
            self.keys.set(keys, &self.exports);
            if self.missing.replace_keys(missing) {
                self.publish_health();
            }
        }
        if self.missing.has_keys() {
            self.keys.read_again(&self.config, &self.jobs);
        }
    }

    fn try_listener(&mut self, address: Trid) -> bool {
        let mut configured = self.config.listeners.iter();
        let found = configured.find(|listener| listener.trid() == address);
        let Some(config) = found else {
            return true;
        };
        match self.listeners.listen(config) {
            Ok(listener) => {
                self.listeners.add(listener);
                true
            }
            Err(error) => {
                self.missing.note(Thing::Listener(address), &error);
                false
            }
        }
    }

    pub(super) fn end_reopening(&mut self, found: Found) {
        let before = self.missing.all().len();
        self.missing.note_disks(&found.late, found.missing);
        let (added, refused) = self.exports.add_found(&self.config, found.opened);
        self.missing.note_disks(&[], refused);
        let is_added = |thing: &Thing| thing.place().is_some_and(|at| added.contains(&at));
        self.missing.retain(|thing| !is_added(thing));
        if self.missing.all().len() != before {
            self.publish_health();
        } else {
            self.missing.await_arrivals(&self.config, &self.openings);
        }
    }
}
