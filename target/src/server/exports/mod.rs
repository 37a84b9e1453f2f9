//! Exported subsystems and namespaces, and devices with their memory.

mod backend;
mod export;
mod identities;
mod replacing;
mod subsystem;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use cairn_config::{Backing, Config, Target};
use cairn_disk::{Formers, OpenError};
use cairn_rdma::Device;
use nvme_proto::controller::Termination;
use nvme_proto::wire::Nqn;
use tokio::sync::mpsc::UnboundedSender;

use super::error::StartError;
use super::jobs::Job;
use super::lookup::{at_place, by_nsid, of_nqn};
use super::state_lock::{StateDirectory, StateInUse};
use crate::files;
use crate::health::Place;
use cairn_data_path::ana::ListenerShared;
use cairn_data_path::namespace::Namespace;
use cairn_data_path::registry::{Activity, ControlMessage, HostKeys, Registry, SubsystemShared};

pub(crate) use backend::{DiskRules, check_count, check_stored, try_backend};
pub(crate) use export::Export;
pub(crate) use identities::{Identity, tell_apart};
pub(crate) use replacing::{Former, FormerNamespace, Replaced, check_images};
pub(crate) use subsystem::{Parts, allowed};

use backend::{describe, open_backend};
use identities::check_identities;
use replacing::{file_of, is_same_disk};

pub(crate) type Refused = Vec<(Place, StartError)>;

pub(crate) struct Exports {
    all: HashMap<Nqn, Export>,
    registry: Arc<Registry>,
    parts: Parts,
    next_id: u32,
    devices: Vec<Arc<dyn Device>>,
    polls_drives: bool,
    state_directory: Option<Arc<StateDirectory>>,
}

impl Exports {
    pub(crate) fn new(registry: Arc<Registry>, parts: Parts, target: &Target) -> Self {
        Self {
            all: HashMap::new(),
            registry,
            parts,
            next_id: 1,
            devices: Vec::new(),
            polls_drives: target.poll_drives,
            state_directory: target
                .state_directory
                .as_deref()
                .map(|folder| Arc::new(StateDirectory::new(folder))),
        }
    }

    pub(crate) fn state_directory(&self) -> Option<&Arc<StateDirectory>> {
        self.state_directory.as_ref()
    }

    pub(crate) fn lock_state(&self) -> Result<(), StateInUse> {
        let Some(state) = &self.state_directory else {
            return Ok(());
        };
        let own = Arc::clone(state);
        files::call_here(state.path(), move |_| own.lock()).unwrap_or(Ok(()))
    }

    pub(crate) fn add_discovery(&self, nqn: Nqn) -> Arc<SubsystemShared> {
        let discovery = Arc::new(self.parts.discovery(0, nqn));
        self.registry.add_discovery(nqn, Arc::clone(&discovery));
        discovery
    }

    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn get(&self, nqn: &Nqn) -> Option<&Export> {
        self.all.get(nqn)
    }

    pub(crate) fn get_mut(&mut self, nqn: &Nqn) -> Option<&mut Export> {
        self.all.get_mut(nqn)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Nqn, &Export)> {
        self.all.iter()
    }

    pub(crate) fn namespace(&self, (nqn, nsid): &Place) -> Option<&Arc<Namespace>> {
        self.all.get(nqn)?.namespaces.get(nsid)
    }

    pub(crate) fn namespaces(&self) -> impl Iterator<Item = (&Nqn, &Arc<Namespace>)> {
        self.all.iter().flat_map(|(nqn, export)| {
            let namespaces = export.namespaces.values();
            namespaces.map(move |namespace| (nqn, namespace))
        })
    }

    pub(crate) fn subsystem(&self, id: u32) -> Option<Arc<SubsystemShared>> {
        let mut all = self.registry.all().into_iter();
        all.find(|subsystem| subsystem.id == id)
    }

    /// Exports a subsystem with its namespaces, except those for which `is_missing` returns true.
    ///
    /// # Errors
    /// A disk cannot be opened, or two disks share an identity. If `is_patient`, the second of two
    /// such disks is left out and returned with the reason.
    pub(crate) fn export(
        &mut self,
        (rules, config): (&DiskRules, &cairn_config::Subsystem),
        keys: HostKeys,
        disks: &mut HashMap<Place, Arc<Namespace>>,
        is_missing: impl Fn(&Place) -> bool,
        is_patient: bool,
    ) -> Result<Refused, StartError> {
        let mut opened = Vec::new();
        for namespace in &config.namespaces {
            let place = (config.nqn, namespace.nsid);
            if is_missing(&place) {
                continue;
            }
            let disk = disks.remove(&place);
            opened.push((namespace, self.introduce(rules, config, namespace, disk)?));
        }
        let new = opened.iter().map(|(_, namespace)| (&config.nqn, namespace));
        let checked = check_identities(self.namespaces().chain(new));
        if !is_patient {
            checked?;
            self.add_subsystem(config, keys).add(opened);
            return Ok(Refused::new());
        }
        let is_checked = checked.is_ok();
        self.add_subsystem(config, keys);
        let (_, refused) = self.add_namespaces(config.nqn, opened, is_checked);
        Ok(refused)
    }

    fn add_namespaces(
        &mut self,
        nqn: Nqn,
        disks: Vec<(&cairn_config::Namespace, Arc<Namespace>)>,
        is_checked: bool,
    ) -> (Vec<u32>, Refused) {
        let (mut accepted, mut refused) = (Vec::new(), Refused::new());
        for (config, disk) in disks {
            if !is_checked {
                let before = accepted.iter().map(|(_, disk)| (&nqn, disk));
                let new = before.chain(std::iter::once((&nqn, &disk)));
                if let Err(error) = check_identities(self.namespaces().chain(new)) {
                    refused.push(((nqn, config.nsid), error));
                    continue;
                }
            }
            accepted.push((config, disk));
        }
        let nsids = accepted.iter().map(|(config, _)| config.nsid).collect();
        if let Some(export) = self.all.get_mut(&nqn) {
            export.add(accepted);
        }
        (nsids, refused)
    }

    pub(crate) fn add_found(
        &mut self,
        config: &Config,
        mut opened: HashMap<Place, Arc<Namespace>>,
    ) -> (HashSet<Place>, Refused) {
        let new = opened.iter().map(|((nqn, _), disk)| (nqn, disk));
        let is_checked = check_identities(self.namespaces().chain(new)).is_ok();
        let (mut added, mut refused) = (HashSet::new(), Refused::new());
        let rules = DiskRules::of(config);
        for subsystem in &config.subsystems {
            let mut disks = Vec::new();
            for namespace in &subsystem.namespaces {
                let disk = opened.remove(&(subsystem.nqn, namespace.nsid));
                let introduced =
                    disk.map(|disk| self.introduce(&rules, subsystem, namespace, Some(disk)));
                if let Some(Ok(disk)) = introduced {
                    disks.push((namespace, disk));
                }
            }
            let (nsids, others) = self.add_namespaces(subsystem.nqn, disks, is_checked);
            added.extend(nsids.into_iter().map(|nsid| (subsystem.nqn, nsid)));
            refused.extend(others);
        }
        (added, refused)
    }

    fn add_subsystem(&mut self, config: &cairn_config::Subsystem, keys: HostKeys) -> &mut Export {
        let id = self.next_id;
        self.next_id += 1;
        let subsystem = Arc::new(self.parts.nvm(id, config));
        // Limits and listeners are set before the registration makes the subsystem visible.
        subsystem.set_limits(config);
        subsystem.set_listeners(config.listeners.as_deref());
        subsystem.set_ana(&config.ana);
        subsystem.set_keys(keys);
        let export = Export::new(subsystem);
        // Reactors need the table before a host connects.
        export.publish();
        self.registry.add(config.nqn, Arc::clone(&export.subsystem));
        self.all.entry(config.nqn).insert_entry(export).into_mut()
    }

    /// Returns a job, for any thread, that opens a namespace if `rules` permit its disk. The disk
    /// may take over the lock of one of `formers`. If `is_known`, the disk must not have shrunk.
    pub(crate) fn opener(
        &self,
        rules: &DiskRules,
        nqn: Nqn,
        config: &cairn_config::Namespace,
        formers: &Arc<Formers>,
        is_known: bool,
    ) -> impl FnOnce() -> Result<Arc<Namespace>, OpenError> + Send + 'static {
        let (rules, config) = (rules.clone(), config.clone());
        let reactors = self.parts.reactors.len();
        let transfer_bytes = self.parts.limits.transfer_bytes();
        let (messages, formers) = (self.parts.control.clone(), Arc::clone(formers));
        let orders = Arc::clone(self.registry.orders());
        let state_directory = self.state_directory.clone();
        let is_served = self.namespace(&(nqn, config.nsid)).is_some();
        move || {
            let backend = open_backend((&rules, &config), transfer_bytes, messages, &formers)?;
            let backing = describe(&config.backing);
            if let Some(state) = &state_directory {
                let locked = state.lock().map_err(|error| error.to_string());
                let checked = locked.and_then(|()| state.check_files());
                checked.map_err(OpenError::new)?;
            }
            let kept_in = state_directory.as_ref().map(|state| (state.path(), nqn));
            let opened = Namespace::new(&config, backend, backing, reactors, &orders, kept_in)?;
            // If the namespace is served, the reload compares the new disk with the former one.
            if !is_served {
                if is_known {
                    opened.check_size()?;
                }
                opened.keep_size();
                opened.list_reservations();
            }
            Ok(Arc::new(opened))
        }
    }

    pub(crate) fn introduce(
        &self,
        rules: &DiskRules,
        subsystem: &cairn_config::Subsystem,
        config: &cairn_config::Namespace,
        disk: Option<Arc<Namespace>>,
    ) -> Result<Arc<Namespace>, StartError> {
        let opened = disk.map_or_else(
            self.opener(rules, subsystem.nqn, config, &Arc::default(), false),
            Ok,
        );
        let namespace = opened.map_err(|source| StartError::Export {
            nqn: subsystem.nqn.to_string(),
            nsid: config.nsid,
            source,
        })?;
        if self.polls_drives {
            namespace.warn_unless_polled();
        }
        for device in &self.devices {
            // After a failed registration, a reactor retries and logs the failure.
            let _ = namespace.region(device);
        }
        Ok(namespace)
    }

    /// Registers the memory of all namespaces with a new device. Too slow for reactors.
    pub(crate) fn introduce_device(&mut self, device: &Arc<dyn Device>) {
        if self.devices.iter().any(|known| known.id() == device.id()) {
            return;
        }
        for (_, namespace) in self.namespaces() {
            let _ = namespace.region(device);
        }
        self.devices.push(Arc::clone(device));
    }

    pub(crate) fn forget_device(&mut self, device: u64) -> Option<String> {
        let known = self.devices.iter().position(|known| known.id() == device);
        let known = known.map(|at| self.devices.remove(at).name().to_owned());
        for (_, namespace) in self.namespaces() {
            namespace.forget_device(device);
        }
        known
    }

    pub(crate) fn replaced_by(&self, old: &Config, new: &Config) -> Replaced {
        let mut replaced = HashSet::new();
        for subsystem in &new.subsystems {
            let Some(export) = self.all.get(&subsystem.nqn) else {
                continue;
            };
            let before = by_nsid(of_nqn(old, &subsystem.nqn));
            let others = subsystem.namespaces.iter().filter(|namespace| {
                let before = before.get(&namespace.nsid);
                let is_other = before.is_some_and(|before| !is_same_disk(before, namespace));
                is_other && export.namespaces.contains_key(&namespace.nsid)
            });
            replaced.extend(others.map(|namespace| (subsystem.nqn, namespace.nsid)));
        }
        replaced
    }

    pub(crate) fn formers(&self, config: &Config, replaced: &Replaced) -> Formers {
        let mut formers = Formers::default();
        for (nqn, export) in &self.all {
            for (nsid, namespace) in &export.namespaces {
                let place = (*nqn, *nsid);
                if replaced.contains(&place) || at_place(config, &place).is_none() {
                    formers.add(&namespace.backend);
                }
            }
        }
        formers
    }

    /// Removes from `new`, and returns, each pool file whose identity another disk has. Fails if
    /// two disks share an identity and neither is a new pool file.
    pub(crate) fn leave_out_twins(
        &self,
        config: &Config,
        replaced: &Replaced,
        new: &mut HashMap<Place, Arc<Namespace>>,
    ) -> Result<Refused, StartError> {
        let all = config.subsystems.iter().flat_map(|subsystem| {
            let pooled = subsystem
                .namespaces
                .iter()
                .filter(|one| one.pooled.is_some());
            pooled.map(|namespace| (subsystem.nqn, namespace.nsid))
        });
        let pooled: HashSet<Place> = all.collect();
        let mut refused = Refused::new();
        while let Err(error) = self.check_future(config, replaced, new) {
            let mut twins = error.twins().into_iter();
            let new_one = twins.find(|place| pooled.contains(place) && new.contains_key(place));
            let Some(place) = new_one else {
                return Err(error);
            };
            new.remove(&place);
            refused.push((place, error));
        }
        Ok(refused)
    }

    fn check_future(
        &self,
        config: &Config,
        replaced: &Replaced,
        new: &HashMap<Place, Arc<Namespace>>,
    ) -> Result<(), StartError> {
        let all = config.subsystems.iter().flat_map(|subsystem| {
            let nqn = &subsystem.nqn;
            let old = self.all.get(nqn);
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
        check_identities(all)
    }

    pub(crate) fn check_newcomers(
        &self,
        new: &HashMap<Place, Arc<Namespace>>,
    ) -> Result<(), StartError> {
        let uuids: HashSet<_> = new.values().map(|one| one.uuid).collect();
        let places: HashSet<_> = new.values().filter_map(|one| one.backend.place()).collect();
        let is_alike = |one: &Namespace| {
            let place = one.backend.place();
            uuids.contains(&one.uuid) || place.is_some_and(|place| places.contains(&place))
        };
        let alike = self.namespaces().filter(|(_, one)| is_alike(one));
        check_identities(alike.chain(new.iter().map(|((nqn, _), one)| (nqn, one))))
    }

    pub(crate) fn remove_subsystems(&mut self, config: &Config) {
        let stays = |nqn: &Nqn| of_nqn(config, nqn).is_some();
        let gone = self.all.keys().filter(|nqn| !stays(nqn)).copied();
        for nqn in gone.collect::<Vec<Nqn>>() {
            self.registry.remove(&nqn);
            let Some(mut export) = self.all.remove(&nqn) else {
                continue;
            };
            export.subsystem.remove();
            for namespace in std::mem::take(&mut export.namespaces).into_values() {
                namespace.backend.let_go();
            }
            export.publish();
            // Logged after a reload.
            tracing::info!(subsystem = %nqn, "subsystem removed");
        }
    }

    pub(crate) fn remove_namespaces(&mut self, config: &Config, replaced: &Replaced) -> Former {
        let mut former = HashMap::new();
        for (nqn, export) in &mut self.all {
            let there = export.namespaces.keys().map(|nsid| (*nqn, *nsid));
            let goes =
                |place: &Place| replaced.contains(place) || at_place(config, place).is_none();
            let gone: Vec<u32> = there.filter(goes).map(|(_, nsid)| nsid).collect();
            let of = |nsid| {
                let one: &Arc<Namespace> = export.namespaces.get(nsid)?;
                Some((file_of(one), Arc::clone(one.reserving())))
            };
            let kept: Vec<_> = gone.iter().filter_map(of).collect();
            for (seen, (file, reserving)) in export.remove(&gone).into_iter().zip(kept) {
                let place = (*nqn, seen.nsid);
                let one = FormerNamespace {
                    seen,
                    file,
                    reserving,
                };
                former.insert(place, one);
            }
        }
        former
    }

    pub(crate) fn change(
        &mut self,
        old: &Config,
        new: &Config,
        mut opened: HashMap<Place, Arc<Namespace>>,
        former: &Former,
        keys: &HashMap<Nqn, HostKeys>,
    ) {
        for subsystem in &new.subsystems {
            let nqn = subsystem.nqn;
            let export = if self.all.contains_key(&nqn) {
                self.all.get_mut(&nqn).expect("it is there")
            } else {
                self.add_subsystem(subsystem, keys.get(&nqn).cloned().unwrap_or_default())
            };
            let old = of_nqn(old, &nqn);
            let opened = |nsid| opened.remove(&(nqn, nsid));
            export.change(old, subsystem, opened, |nsid| former.get(&(nqn, nsid)));
        }
    }

    pub(crate) fn resize_null_disks(&self, config: &Config) {
        for subsystem in &config.subsystems {
            let Some(export) = self.all.get(&subsystem.nqn) else {
                continue;
            };
            for namespace in &subsystem.namespaces {
                if let Backing::Null { bytes } = namespace.backing {
                    export.resize(namespace.nsid, bytes);
                }
            }
        }
    }

    pub(crate) fn see_changes(&self) {
        for export in self.all.values() {
            export.see_changes();
        }
    }

    pub(crate) fn recover(&self) -> impl Iterator<Item = Job> {
        self.all.values().filter_map(Export::recover)
    }

    pub(crate) fn keep_sizes(&self) -> Option<Job> {
        let all = self.namespaces().map(|(_, namespace)| namespace);
        let all: Vec<_> = all.filter(|one| one.keeps_size()).cloned().collect();
        (!all.is_empty())
            .then(|| -> Job { Box::new(move || all.iter().for_each(|one| one.keep_size())) })
    }

    pub(crate) fn messages(&self) -> UnboundedSender<ControlMessage> {
        self.parts.control.clone()
    }

    pub(crate) fn set_keys(&self, keys: &HashMap<Nqn, HostKeys>) {
        for (nqn, export) in &self.all {
            let keys = keys.get(nqn).cloned();
            export.subsystem.set_keys(keys.unwrap_or_default());
        }
    }

    pub(crate) fn update_ana(&self, listener: &ListenerShared) {
        for export in self.all.values() {
            export.subsystem.update_ana(listener);
        }
    }

    pub(crate) fn activity(&self, listener: u64) -> Activity {
        let subsystems = self.registry.all();
        let all = subsystems.iter().map(|all| all.activity_by(listener));
        all.fold(Activity::default(), |one, other| one + other)
    }

    pub(crate) fn disconnect_port(&self, listener: u64) {
        for subsystem in self.registry.all() {
            subsystem.administer(|subsystem, actions| {
                subsystem.terminate_port(listener, Termination::PortRemoved, actions);
            });
        }
    }
}
