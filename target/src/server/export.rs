//! Builds subsystems and namespaces from the configuration.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use cairn_config::{Access, Backing};
use cairn_disk::{Backend, Claim, Formers, Names, OpenError, disks_max};
use cairn_rdma::Clock;
use nvme_proto::limits::Limits;
use nvme_proto::namespace::{Atomic, Preferred};
use nvme_proto::subsystem::{CNTLIDS_ALL, HostAccess, Settings, Subsystem};
use nvme_proto::wire::Nqn;
use tokio::sync::mpsc::UnboundedSender;

use super::control::Control;
use super::error::StartError;
use super::identities::check_identities;
use super::jobs::Job;
use super::replacing::FormerNamespace;
use crate::namespace::{Namespace, NamespaceTable, is_restricted};
use crate::outlook::{Place, Thing};
use crate::registry::{Authenticator, ControlMessage, Mailbox, SubsystemShared};

/// Firmware revision (FR): at most 8 ASCII characters.
const FIRMWARE: &str = env!("CARGO_PKG_VERSION");

/// Exported subsystem with its namespaces by NSID.
#[derive(Debug)]
pub(super) struct Export {
    pub(super) subsystem: Arc<SubsystemShared>,
    pub(super) namespaces: BTreeMap<u32, Arc<Namespace>>,
    /// Shared with the recovery job; a second reference means that one runs.
    recovering: Arc<()>,
}

impl Export {
    /// Publishes the current namespaces to the reactors.
    pub(super) fn publish(&self) {
        let namespaces = self.namespaces.values().map(Namespace::entry).collect();
        self.subsystem.set_namespaces(NamespaceTable { namespaces });
    }
}

/// Values from which every subsystem is built.
pub(super) struct Parts {
    pub(super) limits: Limits,
    pub(super) clock: Clock,
    pub(super) started: Instant,
    pub(super) reactors: Arc<[Mailbox]>,
    pub(super) authenticator: Authenticator,
    pub(super) control: UnboundedSender<ControlMessage>,
}

impl Parts {
    pub(super) fn discovery(&self, id: u32, nqn: Nqn) -> SubsystemShared {
        let settings = Settings {
            nqn,
            serial: "0".to_owned(),
            model: "Cairn discovery".to_owned(),
            firmware: FIRMWARE.to_owned(),
            hosts: HostAccess::Any,
            volatile_write_cache: false,
            cntlids: CNTLIDS_ALL,
            limits: self.limits,
        };
        self.share(id, Subsystem::discovery_named(settings))
    }

    fn nvm(&self, id: u32, config: &cairn_config::Subsystem) -> SubsystemShared {
        let settings = Settings {
            nqn: config.nqn,
            serial: config.serial.clone(),
            model: config.model.clone(),
            firmware: FIRMWARE.to_owned(),
            hosts: allowed(config),
            // Always reports a write cache: this cannot change later, and a disk with one may be
            // added. An unnecessary Flush costs nothing.
            volatile_write_cache: true,
            cntlids: config.controller_ids.clone(),
            limits: self.limits,
        };
        self.share(id, Subsystem::new(settings))
    }

    fn share(&self, id: u32, subsystem: Subsystem) -> SubsystemShared {
        SubsystemShared::new(
            id,
            subsystem,
            self.clock.clone(),
            self.started,
            Arc::clone(&self.reactors),
            self.authenticator.clone(),
            self.control.clone(),
        )
    }
}

impl Control {
    /// Exports a subsystem whose disks are open.
    pub(super) fn export(
        &mut self,
        config: &cairn_config::Subsystem,
        disks: &mut HashMap<Place, Arc<Namespace>>,
    ) -> Result<(), StartError> {
        let mut opened = Vec::new();
        for namespace in &config.namespaces {
            let place = (config.nqn, namespace.nsid);
            if self.missing.has(&place) {
                continue;
            }
            let disk = disks.remove(&place);
            opened.push((namespace, self.introduce(config, namespace, disk)?));
        }
        let new = opened.iter().map(|(_, namespace)| (&config.nqn, namespace));
        let checked = check_identities(self.exported().chain(new));
        if !self.is_patient {
            checked?;
            self.add_subsystem(config).add(opened);
            return Ok(());
        }
        let is_checked = checked.is_ok();
        self.add_subsystem(config);
        self.add_namespaces(config.nqn, opened, is_checked);
        Ok(())
    }

    pub(super) fn exported(&self) -> impl Iterator<Item = (&Nqn, &Arc<Namespace>)> {
        self.exports.iter().flat_map(|(nqn, export)| {
            let namespaces = export.namespaces.values();
            namespaces.map(move |namespace| (nqn, namespace))
        })
    }

    /// Exports opened disks and records why others must not be exported. Returns the exported
    /// NSIDs.
    pub(super) fn add_namespaces(
        &mut self,
        nqn: Nqn,
        disks: Vec<(&cairn_config::Namespace, Arc<Namespace>)>,
        is_checked: bool,
    ) -> Vec<u32> {
        let mut accepted = Vec::new();
        for (config, disk) in disks {
            if !is_checked {
                let before = accepted.iter().map(|(_, disk)| (&nqn, disk));
                let new = before.chain(std::iter::once((&nqn, &disk)));
                if let Err(error) = check_identities(self.exported().chain(new)) {
                    let thing = Thing::Namespace((nqn, config.nsid));
                    self.note_missing(thing, &error);
                    continue;
                }
            }
            accepted.push((config, disk));
        }
        let nsids = accepted.iter().map(|(config, _)| config.nsid).collect();
        if let Some(export) = self.exports.get_mut(&nqn) {
            export.add(accepted);
        }
        nsids
    }

    /// Exports a subsystem without namespaces.
    pub(super) fn add_subsystem(&mut self, config: &cairn_config::Subsystem) -> &mut Export {
        let id = self.next_subsystem_id;
        self.next_subsystem_id += 1;
        let subsystem = Arc::new(self.parts().nvm(id, config));
        // Must precede registration, after which hosts find the subsystem.
        subsystem.set_limits(config);
        subsystem.set_listeners(config.listeners.as_deref());
        subsystem.set_ana(&config.ana);
        subsystem.set_keys(self.keys.get(&config.nqn).cloned().unwrap_or_default());
        let export = Export {
            subsystem,
            namespaces: BTreeMap::new(),
            recovering: Arc::default(),
        };
        // Reactors must have the table before a host connects.
        export.publish();
        self.registry.add(config.nqn, Arc::clone(&export.subsystem));
        self.exports
            .entry(config.nqn)
            .insert_entry(export)
            .into_mut()
    }

    /// Job that opens a namespace on any thread; its disk may be one of `formers`.
    pub(super) fn opener(
        &self,
        config: &cairn_config::Namespace,
        formers: &Arc<Formers>,
    ) -> impl FnOnce() -> Result<Arc<Namespace>, OpenError> + Send + 'static {
        let (config, reactors) = (config.clone(), self.mailboxes.len());
        let transfer_bytes = self.limits.transfer_bytes();
        let (control, formers) = (self.messages_out.clone(), Arc::clone(formers));
        let orders = Arc::clone(self.registry.orders());
        move || {
            let backend = open_backend(&config, transfer_bytes, control, &formers)?;
            let backing = describe(&config.backing);
            Namespace::new(&config, backend, backing, reactors, &orders).map(Arc::new)
        }
    }

    /// Registers a namespace with the devices in use. Without `disk`, opens a backing that takes no
    /// time.
    pub(super) fn introduce(
        &self,
        subsystem: &cairn_config::Subsystem,
        config: &cairn_config::Namespace,
        disk: Option<Arc<Namespace>>,
    ) -> Result<Arc<Namespace>, StartError> {
        let opened = disk.map_or_else(self.opener(config, &Arc::default()), Ok);
        let namespace = opened.map_err(|source| StartError::Export {
            nqn: subsystem.nqn.to_string(),
            nsid: config.nsid,
            source,
        })?;
        if self.config.target.poll_drives {
            namespace.warn_unless_polled();
        }
        for device in &self.devices {
            // A failure is not final: a reactor tries again and logs it.
            let _ = namespace.region(device);
        }
        Ok(namespace)
    }
}

impl Export {
    /// Adds namespaces; their I/O works before hosts are notified.
    pub(super) fn add(&mut self, added: Vec<(&cairn_config::Namespace, Arc<Namespace>)>) {
        self.add_after(added, |_| None);
    }

    /// Adds namespaces, which may replace ones removed just before.
    pub(super) fn add_after<'a>(
        &mut self,
        added: Vec<(&cairn_config::Namespace, Arc<Namespace>)>,
        former: impl Fn(u32) -> Option<&'a FormerNamespace>,
    ) {
        if added.is_empty() {
            return;
        }
        let mut identities = Vec::new();
        for (config, namespace) in &added {
            let former = former(config.nsid);
            if let Some(former) = former {
                former.hand_on(config, namespace);
            }
            let identity = self.identity(config, namespace);
            identities.push((identity, hosts(&config.hosts), former));
        }
        for (config, namespace) in added {
            self.namespaces.insert(config.nsid, namespace);
        }
        self.publish();
        self.subsystem.administer(|subsystem, actions| {
            for (identity, hosts, former) in identities {
                let added = match former {
                    None => subsystem.add_namespace_for(identity, &hosts, actions),
                    Some(former) => {
                        subsystem.add_namespace_after(&former.seen, identity, &hosts, actions)
                    }
                };
                added.expect("the configuration was checked: the NSID is free and in range");
            }
        });
    }

    /// Identity of a namespace as shown to hosts; logs it.
    fn identity(
        &self,
        config: &cairn_config::Namespace,
        namespace: &Namespace,
    ) -> nvme_proto::namespace::Namespace {
        let view = namespace.view();
        // A configured UUID or NGUID marks a different disk for hosts.
        let names = if namespace.is_named {
            Names::default()
        } else {
            namespace.backend.names()
        };
        let geometry = namespace.backend.geometry();
        // Cause: the configuration, or a disk that changed.
        tracing::info!(
            subsystem = self.subsystem.nqn(),
            nsid = config.nsid,
            blocks = geometry.blocks,
            block_bytes = geometry.block_bytes,
            backing = namespace.backing,
            uuid = %namespace.uuid,
            "namespace exported"
        );
        nvme_proto::namespace::Namespace {
            nsid: config.nsid,
            uuid: namespace.uuid.into_bytes(),
            nguid: config.nguid.or(names.nguid).unwrap_or_default(),
            eui64: names.eui64.unwrap_or_default(),
            anagrpid: config.ana_group,
            blocks: view.nsze,
            block_shift: view.lbads,
            read_only: config.read_only,
            protectable: config.write_protection,
            keeps_protection: namespace.kept.is_some(),
            protection: namespace.protection(),
            deallocates: namespace.backend.deallocates_to_zeroes(),
            write_uncorrectable: view.write_uncorrectable,
            preferred: namespace.backend.preferred().map(preferred),
            atomic: atomic(namespace.backend.atomic()),
            boundary: geometry.boundary,
        }
    }

    /// Removes namespaces and returns their protocol state; hosts are notified before I/O fails.
    pub(super) fn remove(&mut self, nsids: &[u32]) -> Vec<nvme_proto::namespace::Namespace> {
        let mut gone = Vec::new();
        if nsids.is_empty() {
            return gone;
        }
        self.subsystem.administer(|subsystem, actions| {
            for nsid in nsids {
                let removed = subsystem.remove_namespace(*nsid, actions);
                gone.push(removed.expect("a namespace that was added"));
            }
        });
        for nsid in nsids {
            if let Some(namespace) = self.namespaces.remove(nsid) {
                namespace.backend.let_go();
            }
            // Cause: the configuration, or a disk that changed.
            tracing::info!(subsystem = self.subsystem.nqn(), nsid, "namespace removed");
        }
        self.publish();
        gone
    }

    pub(super) fn set_ana_group(&self, config: &cairn_config::Namespace) {
        let (nsid, anagrpid) = (config.nsid, config.ana_group);
        // A namespace whose disk is missing gets its group when added.
        let Some(namespace) = self.namespaces.get(&nsid) else {
            return;
        };
        namespace.set_anagrpid(anagrpid);
        self.subsystem.administer(|subsystem, actions| {
            let moved = subsystem.set_ana_group(nsid, anagrpid, actions);
            moved.expect("the configuration was checked, and the namespace is there");
        });
    }

    /// Sets whether hosts may write-protect a namespace; if not, ends existing protection.
    pub(super) fn set_write_protection(&self, config: &cairn_config::Namespace) {
        // A namespace whose disk is missing gets this setting when added.
        let Some(namespace) = self.namespaces.get(&config.nsid) else {
            return;
        };
        self.subsystem.administer(|subsystem, actions| {
            if !config.write_protection {
                namespace.set_protected(false);
            }
            let set = subsystem.set_protectable(config.nsid, config.write_protection, actions);
            set.expect("the namespace is there");
        });
        // Cause: the configuration.
        tracing::info!(
            subsystem = self.subsystem.nqn(),
            nsid = config.nsid,
            allowed = config.write_protection,
            "whether hosts may protect a namespace from writes has changed"
        );
    }

    /// Sets the hosts that see a namespace.
    ///
    /// I/O of a host that loses access fails after the host is notified; I/O of a host that gains
    /// access works before.
    pub(super) fn set_hosts(&self, config: &cairn_config::Namespace) {
        // A namespace whose disk is missing gets its hosts when added.
        let Some(namespace) = self.namespaces.get(&config.nsid) else {
            return;
        };
        self.subsystem.administer(|subsystem, actions| {
            let set = subsystem.set_namespace_hosts(config.nsid, &hosts(&config.hosts), actions);
            set.expect("the namespace is there");
        });
        namespace.set_restricted(is_restricted(config));
        self.publish();
        // Cause: the configuration.
        tracing::info!(
            subsystem = self.subsystem.nqn(),
            nsid = config.nsid,
            "the hosts that see a namespace are others"
        );
    }

    /// Sets the limits of a subsystem, effective from the next command.
    pub(super) fn set_subsystem_limits(&self, config: &cairn_config::Subsystem) {
        let (limits, per_host) = (&config.limits, &config.limits_per_host);
        self.subsystem.set_limits(config);
        // Makes reactors check queued commands.
        self.publish();
        // Cause: the configuration.
        tracing::info!(
            subsystem = self.subsystem.nqn(), %limits, %per_host,
            hosts = config.limits_of_hosts.len(),
            "the limits of a subsystem have changed"
        );
    }

    /// Sets the limits of a namespace, effective from the next command.
    pub(super) fn set_limits(&self, config: &cairn_config::Namespace) {
        // A namespace whose disk is missing gets its limits when added.
        let Some(namespace) = self.namespaces.get(&config.nsid) else {
            return;
        };
        namespace.limiter.set(&config.limits);
        namespace.depth.set(config.limits.outstanding);
        // Makes reactors check queued commands.
        self.publish();
        // Cause: the configuration.
        tracing::info!(
            subsystem = self.subsystem.nqn(),
            nsid = config.nsid,
            limits = %config.limits,
            "the limits of a namespace have changed"
        );
    }

    /// Job that tests whether failed disks work again, if there are any.
    pub(super) fn recover(&self) -> Option<Job> {
        let all = self.namespaces.values();
        let failed: Vec<_> = all.filter(|ns| ns.backend.is_failed()).cloned().collect();
        if failed.is_empty() && !self.subsystem.shows_losses() {
            return None;
        }
        if Arc::strong_count(&self.recovering) > 1 {
            // Cause: a reload.
            tracing::error!(
                subsystem = self.subsystem.nqn(),
                "a flush that looks whether a disk can be used again has not ended: look in the \
                 kernel's log for a disk that hangs, and reload when it does not"
            );
            return None;
        }
        let recovering = Arc::clone(&self.recovering);
        let subsystem = Arc::clone(&self.subsystem);
        Some(Box::new(move || {
            for namespace in failed {
                if let Err(error) = namespace.backend.recover() {
                    // Cause: a reload.
                    tracing::error!(
                        subsystem = subsystem.nqn(), nsid = namespace.nsid, %error,
                        "the disk fails still: replace it, or remove the namespace"
                    );
                }
            }
            subsystem.show_losses();
            drop(recovering);
        }))
    }

    /// Applies size changes and losses reported by disks.
    pub(super) fn see_changes(&self) {
        for (nsid, namespace) in &self.namespaces {
            if let Some(bytes) = namespace.backend.reported_bytes() {
                self.resize(*nsid, bytes);
            }
        }
        self.subsystem.show_losses();
    }

    /// Applies a new disk size in bytes.
    pub(super) fn resize(&self, nsid: u32, bytes: u64) {
        let Some(namespace) = self.namespaces.get(&nsid) else {
            return;
        };
        if !namespace.backend.accept_size(bytes) {
            return;
        }
        self.publish();
        let blocks = namespace.view().nsze;
        // Cause: the configuration, or a disk that changed.
        tracing::info!(subsystem = self.subsystem.nqn(), nsid, blocks, "resized");
        self.subsystem.administer(|subsystem, actions| {
            if let Err(error) = subsystem.resize_namespace(nsid, blocks, actions) {
                // Cause: the configuration, or a disk that changed.
                tracing::error!(nsid, %error, "cannot announce the new size to hosts");
            }
        });
    }
}

/// Refuses more disks than fit in a reactor's ring or the process may open.
pub(crate) fn check_count(config: &cairn_config::Config) -> Result<(), StartError> {
    let namespaces = config.subsystems.iter().flat_map(|s| &s.namespaces);
    let is_disk =
        |namespace: &&cairn_config::Namespace| matches!(namespace.backing, Backing::Disk(_));
    let (disks, most) = (namespaces.filter(is_disk).count(), disks_max());
    if disks > most {
        return Err(StartError::TooManyDisks { disks, most });
    }
    Ok(())
}

/// Hosts that may connect, as a protocol type.
pub(super) fn allowed(config: &cairn_config::Subsystem) -> HostAccess {
    match config.allow_any_host {
        true => HostAccess::Any,
        false => HostAccess::Only(Arc::clone(&config.allowed_hosts.hosts)),
    }
}

/// Hosts that see a namespace, as a protocol type.
fn hosts(access: &Access) -> HostAccess {
    match access {
        Access::AnyHost => HostAccess::Any,
        Access::Hosts(list) => HostAccess::Only(Arc::clone(&list.hosts)),
    }
}

/// Claim of a namespace on its disk.
fn claim_of(config: &cairn_config::Namespace) -> Claim {
    Claim {
        read_only: config.read_only,
        shared: config.shared,
        expected: config.pooled.map(|file| (file.id.device, file.id.inode)),
        is_trial: false,
    }
}

/// Opens the disk of a namespace as a running target does, but writes nothing. Does not open Ceph
/// images.
///
/// # Errors
/// Same as for a target that opens the disk.
pub(crate) fn try_backend(config: &cairn_config::Namespace) -> Result<Option<Backend>, OpenError> {
    let block_bytes = config.block_size.map(cairn_config::BlockSize::bytes);
    let claim = Claim {
        is_trial: true,
        ..claim_of(config)
    };
    match &config.backing {
        Backing::Disk(path) => Backend::open_file(path, block_bytes, claim).map(Some),
        Backing::Memory { bytes } => Backend::memory(*bytes, block_bytes).map(Some),
        Backing::Rbd(_) | Backing::Null { .. } => Ok(None),
    }
}

fn open_backend(
    config: &cairn_config::Namespace,
    transfer_bytes: u32,
    control: UnboundedSender<ControlMessage>,
    formers: &Formers,
) -> Result<Backend, OpenError> {
    let block_bytes = config.block_size.map(cairn_config::BlockSize::bytes);
    let claim = claim_of(config);
    match &config.backing {
        Backing::Disk(path) => Backend::open_after(path, block_bytes, claim, formers),
        Backing::Rbd(image) => {
            let on_change = Arc::new(move || {
                // Fails only if the control plane has ended.
                let _ = control.send(ControlMessage::DiskChanged);
            });
            Backend::open_image(image, block_bytes, claim, on_change)
        }
        Backing::Memory { bytes } => Backend::memory(*bytes, block_bytes),
        Backing::Null { bytes } => Backend::null(*bytes, block_bytes, transfer_bytes),
    }
}

/// Converts the disk's preferred sizes to protocol types.
fn preferred(of_disk: cairn_disk::Preferred) -> Preferred {
    Preferred {
        write: of_disk.write,
        write_alignment: of_disk.write_alignment,
        optimal_write: of_disk.optimal_write,
        deallocate: of_disk.deallocate,
        deallocate_alignment: of_disk.deallocate_alignment,
    }
}

/// Converts the disk's atomicity to protocol types.
fn atomic(of_disk: cairn_disk::Atomic) -> Atomic {
    Atomic {
        normal: of_disk.normal,
        power_fail: of_disk.power_fail,
        boundary: of_disk.boundary,
        boundary_offset: of_disk.boundary_offset,
        boundary_power_fail: of_disk.boundary_power_fail,
    }
}

fn describe(backing: &Backing) -> String {
    match backing {
        Backing::Disk(path) => path.display().to_string(),
        Backing::Rbd(image) => image.to_string(),
        Backing::Memory { .. } => "memory".to_owned(),
        Backing::Null { .. } => "null".to_owned(),
    }
}
