//! Applies another configuration while hosts are connected.
//!
//! Every step that can fail runs before the first change, so a configuration that fails leaves the
//! old one unchanged. Disks that hang and parts that were missing before are left out until they
//! are available; the reload does not wait for them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use cairn_config::{Backing, Config, Nqn};
use tokio::sync::oneshot;

use super::control::Control;
use super::error::{ReloadError, StartError};
use super::export::Export;
use super::extent::Extent;
use super::keys::SubsystemKeys;
use super::listeners::OpenListener;
use super::lookup::{by_nsid, missing_pools, of_nqn};
use super::opening::Found;
use super::replacing::{Former, Replaced, UnderWay, check_images};
use super::retiring::RETIRE_TIMEOUT;
use crate::namespace::Namespace;
use crate::outlook::{Place, Thing};

pub(super) struct Reloading {
    pub(super) config: Arc<Config>,
    /// Keys of all subsystems; `None` keeps the keys in force.
    pub(super) keys: Option<SubsystemKeys>,
    pub(super) extent: Extent,
    pub(super) answer: oneshot::Sender<Result<(), ReloadError>>,
}

/// New listeners and namespaces, open but not yet in use.
struct Prepared {
    listeners: Vec<OpenListener>,
    namespaces: HashMap<Place, Arc<Namespace>>,
}

impl Control {
    /// Starts a reload, or queues it behind the current one.
    pub(super) fn reload(&mut self, reloading: Reloading) {
        if self.reloading.is_none() {
            // The reload opens missing disks itself.
            self.openings.abandon();
            self.begin_reload(reloading);
            self.go_on_reloading();
        } else if let Some(earlier) = self.next_reload.replace(reloading) {
            let _ = earlier.answer.send(Err(ReloadError::Superseded));
        }
    }

    fn begin_reload(&mut self, reloading: Reloading) {
        let Reloading {
            mut config,
            keys,
            extent,
            answer,
        } = reloading;
        let extent = match extent {
            Extent::Step(step) if !self.may_take(&step) => Extent::Text,
            extent => extent,
        };
        let is_step = matches!(extent, Extent::Step(_));
        if !is_step {
            Arc::make_mut(&mut config).share_hosts(&self.config);
        }
        let known: HashSet<Place> = self.missing.places().collect();
        let replaced = if is_step {
            Replaced::default()
        } else {
            self.replaced_by(&config)
        };
        let check = || {
            if is_step {
                return Ok(super::export::check_count(&config)?);
            }
            check_images(&self.config, &config, &replaced)?;
            self.check_listeners(&config)?;
            super::export::check_count(&config)?;
            Ok(())
        };
        if let Err(error) = check() {
            let _ = answer.send(Err(error));
            return;
        }
        let may_fail = |place: &Place| known.contains(place);
        match &extent {
            Extent::Step(step) => self.begin_opening_at(&config, &step.added),
            Extent::Text => self.begin_opening(&config, false, &replaced, may_fail),
            Extent::Whole => self.begin_opening(&config, true, &replaced, may_fail),
        }
        let reloading = Reloading {
            config,
            keys,
            extent,
            answer,
        };
        self.reloading = Some(UnderWay {
            reloading,
            replaced,
        });
    }

    /// Completes a reload whose openings have ended, and starts the next one.
    pub(super) fn go_on_reloading(&mut self) {
        while let Some(found) = self.openings.take_found() {
            let Some(under_way) = self.reloading.take() else {
                self.end_reopening(found);
                continue;
            };
            let UnderWay {
                reloading,
                replaced,
            } = under_way;
            let Reloading {
                config,
                keys,
                extent,
                answer,
            } = reloading;
            let before = self.served(&extent);
            match self.change((config, keys), extent, &replaced, found) {
                Ok(()) => self.answer_settled(before, answer),
                Err(error) => drop(answer.send(Err(error))),
            }
            if let Some(next) = self.next_reload.take() {
                self.begin_reload(next);
            }
        }
    }

    /// Applies `config`, or leaves everything unchanged on error.
    fn change(
        &mut self,
        (config, keys): (Arc<Config>, Option<SubsystemKeys>),
        extent: Extent,
        replaced: &Replaced,
        mut found: Found,
    ) -> Result<(), ReloadError> {
        if let Some(failure) = found.failure {
            return Err(failure.into());
        }
        let mut missing = Vec::new();
        for late in &found.late {
            if late.was_opened {
                missing.push((Thing::Namespace(late.place), late.error()));
            } else {
                late.report();
            }
        }
        let failed = std::mem::take(&mut found.missing).into_iter();
        missing.extend(failed.map(|(place, error)| (Thing::Namespace(place), error)));
        if let Extent::Step(step) = extent {
            return self.take_step(config, &step, found.opened, missing);
        }
        if keys.as_ref().is_some_and(|keys| !keys.is_empty()) {
            self.authenticator
                .start()
                .map_err(StartError::Authenticator)?;
        }
        let prepared = self.prepare(&config, replaced, found.opened, &mut missing)?;
        self.apply_audit(&config)?;
        missing.extend(missing_pools(&config));
        let keys = keys.unwrap_or_else(|| self.keys.clone());
        self.change_keys(keys);
        self.fixed.change(&config);
        self.replace_missing(missing);
        self.change_listeners(&config, prepared.listeners);
        if self.config.metrics != config.metrics || self.metrics.is_none() {
            self.metrics = None;
            self.metrics = self.serve_metrics(config.metrics.listen);
        }
        self.remove_subsystems(&config);
        let former = self.remove_namespaces(&config, replaced);
        self.change_subsystems(&config, prepared.namespaces, &former);
        for ((nqn, nsid), bytes) in found.sizes {
            if let Some(export) = self.exports.get(&nqn) {
                export.resize(nsid, bytes);
            }
        }
        self.resize_null_disks(&config);
        self.recover_disks();
        self.change_ana(&config);
        self.config = config;
        self.update_discovery();
        self.publish_outlook();
        // Cause: a reload.
        tracing::info!("configuration reloaded");
        Ok(())
    }

    /// Opens new parts; parts that were missing before may still be missing.
    fn prepare(
        &mut self,
        config: &Config,
        replaced: &Replaced,
        mut opened: HashMap<Place, Arc<Namespace>>,
        missing: &mut Vec<(Thing, StartError)>,
    ) -> Result<Prepared, StartError> {
        let absent = missing.iter().filter_map(|(thing, _)| thing.place());
        let absent: HashSet<Place> = absent.collect();
        let mut namespaces = HashMap::new();
        for subsystem in &config.subsystems {
            let export = self.exports.get(&subsystem.nqn);
            let stays = |place: &Place| {
                let is_there = export.is_some_and(|one| one.namespaces.contains_key(&place.1));
                is_there && !replaced.contains(place)
            };
            for namespace in &subsystem.namespaces {
                let place = (subsystem.nqn, namespace.nsid);
                if stays(&place) || absent.contains(&place) {
                    continue;
                }
                let disk = opened.remove(&place);
                let namespace = self.introduce(subsystem, namespace, disk)?;
                namespaces.insert(place, namespace);
            }
        }
        self.leave_out_twins(config, replaced, &mut namespaces, missing)?;
        let mut listeners = Vec::new();
        for listener in &config.listeners {
            if !self.listeners.iter().any(|open| open.serves(listener)) {
                let thing = Thing::Listener(listener.socket_address());
                match self.listen(listener) {
                    Ok(open) => listeners.push(open),
                    Err(error) if self.missing.includes(&thing) => missing.push((thing, error)),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(Prepared {
            listeners,
            namespaces,
        })
    }

    /// Refuses disks with equal identities; pool files are left out instead.
    fn leave_out_twins(
        &self,
        config: &Config,
        replaced: &Replaced,
        new: &mut HashMap<Place, Arc<Namespace>>,
        missing: &mut Vec<(Thing, StartError)>,
    ) -> Result<(), StartError> {
        let all = config.subsystems.iter().flat_map(|subsystem| {
            let pooled = subsystem
                .namespaces
                .iter()
                .filter(|one| one.pooled.is_some());
            pooled.map(|namespace| (subsystem.nqn, namespace.nsid))
        });
        let pooled: HashSet<Place> = all.collect();
        while let Err(error) = self.check_identities(config, replaced, new) {
            let mut twins = error.twins().into_iter();
            let new_one = twins.find(|place| pooled.contains(place) && new.contains_key(place));
            let Some(place) = new_one else {
                return Err(error);
            };
            new.remove(&place);
            missing.push((Thing::Namespace(place), error));
        }
        Ok(())
    }

    /// Checks the identities of the future namespaces.
    pub(super) fn check_identities(
        &self,
        config: &Config,
        replaced: &Replaced,
        new: &HashMap<Place, Arc<Namespace>>,
    ) -> Result<(), StartError> {
        let all = config.subsystems.iter().flat_map(|subsystem| {
            let nqn = &subsystem.nqn;
            let old = self.exports.get(nqn);
            subsystem.namespaces.iter().filter_map(move |namespace| {
                let place = (*nqn, namespace.nsid);
                let stays = || {
                    let old = old.filter(|_| !replaced.contains(&place))?;
                    old.namespaces.get(&namespace.nsid)
                };
                let found = new.get(&place).or_else(stays);
                found.map(|found| (nqn, found))
            })
        });
        super::identities::check_identities(all)
    }

    /// Checks only the new namespaces against the existing ones, which were checked before.
    pub(super) fn check_newcomers(
        &self,
        new: &HashMap<Place, Arc<Namespace>>,
    ) -> Result<(), StartError> {
        let uuids: HashSet<_> = new.values().map(|one| one.uuid).collect();
        let alike = self.exported().filter(|(_, one)| uuids.contains(&one.uuid));
        super::identities::check_identities(
            alike.chain(new.iter().map(|((nqn, _), one)| (nqn, one))),
        )
    }

    /// Refuses two listeners with one address, even if one replaces the other.
    fn check_listeners(&self, config: &Config) -> Result<(), ReloadError> {
        let mut there = self.listeners.iter();
        let other = there.find_map(|open| {
            let at = open.config.socket_address();
            let mut anew = config.listeners.iter();
            let anew = anew.find(|listener| listener.socket_address() == at)?;
            (!open.serves(anew)).then_some(at)
        });
        match other {
            Some(address) => Err(ReloadError::ListenerChanged { address }),
            None => Ok(()),
        }
    }

    fn resize_null_disks(&self, config: &Config) {
        for subsystem in &config.subsystems {
            let Some(export) = self.exports.get(&subsystem.nqn) else {
                continue;
            };
            for namespace in &subsystem.namespaces {
                if let Backing::Null { bytes } = namespace.backing {
                    export.resize(namespace.nsid, bytes);
                }
            }
        }
    }

    /// Sets the keys for later connections; existing queues stay.
    fn change_keys(&mut self, keys: SubsystemKeys) {
        self.keys = keys;
        for (nqn, export) in &self.exports {
            let keys = self.keys.get(nqn).cloned();
            export.subsystem.set_keys(keys.unwrap_or_default());
        }
    }

    fn change_listeners(&mut self, config: &Config, new: Vec<OpenListener>) {
        let mut gone = Vec::new();
        self.listeners.retain(|listener| {
            let stays = config
                .listeners
                .iter()
                .any(|config| listener.serves(config));
            if !stays {
                gone.push((listener.address(), Arc::clone(&listener.shared)));
                // Cause: a reload.
                tracing::info!(address = %listener.address(), "no longer listening");
            }
            stays
        });
        self.listeners.extend(new);
        for (address, listener) in gone {
            self.retire(address, listener, RETIRE_TIMEOUT);
        }
    }

    fn remove_subsystems(&mut self, config: &Config) {
        let stays = |nqn: &Nqn| {
            config
                .subsystems
                .iter()
                .any(|subsystem| subsystem.nqn == *nqn)
        };
        let gone: Vec<Nqn> = self
            .exports
            .keys()
            .filter(|nqn| !stays(nqn))
            .copied()
            .collect();
        for nqn in gone {
            self.registry.remove(&nqn);
            let Some(mut export) = self.exports.remove(&nqn) else {
                continue;
            };
            export.subsystem.remove();
            for namespace in std::mem::take(&mut export.namespaces).into_values() {
                namespace.backend.let_go();
            }
            export.publish();
            // Cause: a reload.
            tracing::info!(subsystem = %nqn, "subsystem removed");
        }
    }

    fn change_subsystems(
        &mut self,
        config: &Config,
        mut new: HashMap<Place, Arc<Namespace>>,
        former: &Former,
    ) {
        for subsystem in &config.subsystems {
            if !self.exports.contains_key(&subsystem.nqn) {
                self.add_subsystem(subsystem);
            }
            let export = self
                .exports
                .get_mut(&subsystem.nqn)
                .expect("it was added if it was new");
            let old = of_nqn(&self.config, &subsystem.nqn);
            let before = by_nsid(old);
            let mut added = Vec::new();
            for namespace in &subsystem.namespaces {
                match new.remove(&(subsystem.nqn, namespace.nsid)) {
                    Some(opened) => added.push((namespace, opened)),
                    None => {
                        export.set_ana_group(namespace);
                        let old = before.get(&namespace.nsid);
                        if old.map(|old| old.write_protection) != Some(namespace.write_protection) {
                            export.set_write_protection(namespace);
                        }
                        if old.is_none_or(|old| old.hosts != namespace.hosts) {
                            export.set_hosts(namespace);
                        }
                        if old.is_none_or(|old| old.limits != namespace.limits) {
                            export.set_limits(namespace);
                        }
                    }
                }
            }
            export.add_after(added, |nsid| former.get(&(subsystem.nqn, nsid)));
            let limits = |of: &cairn_config::Subsystem| (of.limits, of.limits_per_host);
            let differ = |old: &cairn_config::Subsystem| {
                limits(old) != limits(subsystem) || old.limits_of_hosts != subsystem.limits_of_hosts
            };
            if old.is_some_and(differ) {
                export.set_subsystem_limits(subsystem);
            }
            let hosts = super::export::allowed(subsystem);
            export
                .subsystem
                .administer(|subsystem, actions| subsystem.set_hosts(hosts, actions));
            if old.is_some_and(|old| old.listeners != subsystem.listeners) {
                self.leave_listeners(subsystem);
            }
        }
    }

    /// Tests whether disks that lost data work again.
    fn recover_disks(&self) {
        for task in self.exports.values().filter_map(Export::recover) {
            self.jobs.run(task);
        }
    }
}
