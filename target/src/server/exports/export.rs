use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_config::Access;
use cairn_disk::Names;
use nvme_proto::namespace::{Atomic, Preferred};
use nvme_proto::subsystem::HostAccess;

use super::super::jobs::Job;
use super::super::lookup::by_nsid;
use super::replacing::FormerNamespace;
use super::subsystem::allowed;
use cairn_data_path::namespace::{Namespace, NamespaceTable, is_restricted};
use cairn_data_path::registry::SubsystemShared;

#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) subsystem: Arc<SubsystemShared>,
    pub(crate) namespaces: BTreeMap<u32, Arc<Namespace>>,
    /// Cloned by a running recovery job, so that no second job starts.
    recovering: Arc<()>,
}

impl Export {
    pub(crate) fn new(subsystem: Arc<SubsystemShared>) -> Self {
        Self {
            subsystem,
            namespaces: BTreeMap::new(),
            recovering: Arc::default(),
        }
    }

    pub(crate) fn publish(&self) {
        let namespaces = self.namespaces.values().map(Namespace::entry).collect();
        self.subsystem.set_namespaces(NamespaceTable { namespaces });
    }
}

impl Export {
    /// Adds namespaces. Their I/O works before hosts are notified.
    pub(crate) fn add(&mut self, added: Vec<(&cairn_config::Namespace, Arc<Namespace>)>) {
        self.add_after(added, |_| None);
    }

    pub(crate) fn add_after<'a>(
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

    fn identity(
        &self,
        config: &cairn_config::Namespace,
        namespace: &Namespace,
    ) -> nvme_proto::namespace::Namespace {
        let view = namespace.view();
        // A configured UUID makes a namespace a separate disk, without the drive's NGUID and EUI64.
        let names = if namespace.is_named {
            Names::default()
        } else {
            namespace.backend.names()
        };
        let geometry = namespace.backend.geometry();
        // Logged after a change of the configuration or of a disk.
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
            nguid: namespace.nguid.unwrap_or_default(),
            eui64: names.eui64.unwrap_or_default(),
            anagrpid: config.ana_group,
            blocks: view.nsze,
            block_shift: view.lbads,
            read_only: config.read_only,
            protectable: config.write_protection,
            keeps_protection: namespace.protection_file.is_some(),
            protection: namespace.protection(),
            deallocates: namespace.backend.deallocates_to_zeroes(),
            write_uncorrectable: view.write_uncorrectable,
            reservable: namespace.is_reservable(),
            keeps_reservations: namespace.reserving().can_persist(),
            reservations_persist: namespace.reserving().answered().is_persistent(),
            preferred: namespace.backend.preferred().map(preferred),
            atomic: atomic(namespace.backend.atomic()),
            boundary: geometry.boundary,
        }
    }

    /// Removes namespaces. Hosts are notified before I/O fails.
    pub(crate) fn remove(&mut self, nsids: &[u32]) -> Vec<nvme_proto::namespace::Namespace> {
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
            // Logged after a change of the configuration or of a disk.
            tracing::info!(subsystem = self.subsystem.nqn(), nsid, "namespace removed");
        }
        self.publish();
        gone
    }

    pub(crate) fn set_ana_group(&self, config: &cairn_config::Namespace) {
        let (nsid, anagrpid) = (config.nsid, config.ana_group);
        // A namespace whose disk is missing gets the group when it is added.
        let Some(namespace) = self.namespaces.get(&nsid) else {
            return;
        };
        namespace.set_anagrpid(anagrpid);
        self.subsystem.administer(|subsystem, actions| {
            let moved = subsystem.set_ana_group(nsid, anagrpid, actions);
            moved.expect("the configuration was checked, and the namespace is there");
        });
    }

    pub(crate) fn set_write_protection(&self, config: &cairn_config::Namespace) {
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
        // Logged when the configuration is applied.
        tracing::info!(
            subsystem = self.subsystem.nqn(),
            nsid = config.nsid,
            allowed = config.write_protection,
            "write protection of a namespace permitted or forbidden"
        );
    }

    /// A host is notified before it loses access, or after it gains access.
    pub(crate) fn set_hosts(&self, config: &cairn_config::Namespace) {
        let Some(namespace) = self.namespaces.get(&config.nsid) else {
            return;
        };
        self.subsystem.administer(|subsystem, actions| {
            let set = subsystem.set_namespace_hosts(config.nsid, &hosts(&config.hosts), actions);
            set.expect("the namespace is there");
        });
        namespace.set_restricted(is_restricted(config));
        self.publish();
        // Logged when the configuration is applied.
        tracing::info!(
            subsystem = self.subsystem.nqn(),
            nsid = config.nsid,
            "namespace host list changed"
        );
    }

    pub(crate) fn set_subsystem_limits(&self, config: &cairn_config::Subsystem) {
        let (limits, per_host) = (&config.limits, &config.limits_per_host);
        self.subsystem.set_limits(config);
        // Publication makes reactors check queued commands against the new limits.
        self.publish();
        // Logged when the configuration is applied.
        tracing::info!(
            subsystem = self.subsystem.nqn(), %limits, %per_host,
            hosts = config.limits_of_hosts.len(),
            "limits of a subsystem changed"
        );
    }

    pub(crate) fn set_limits(&self, config: &cairn_config::Namespace) {
        let Some(namespace) = self.namespaces.get(&config.nsid) else {
            return;
        };
        namespace.limiter.set(&config.limits);
        namespace.depth.set(config.limits.outstanding);
        self.publish();
        // Logged when the configuration is applied.
        tracing::info!(
            subsystem = self.subsystem.nqn(),
            nsid = config.nsid,
            limits = %config.limits,
            "limits of a namespace changed"
        );
    }

    /// Applies a subsystem's new configuration. Adds the namespaces that `opened` returns, some in
    /// place of namespaces in `former`, and changes the existing namespaces.
    pub(super) fn change<'a>(
        &mut self,
        old: Option<&cairn_config::Subsystem>,
        new: &cairn_config::Subsystem,
        mut opened: impl FnMut(u32) -> Option<Arc<Namespace>>,
        former: impl Fn(u32) -> Option<&'a FormerNamespace>,
    ) {
        let before = by_nsid(old);
        let mut added = Vec::new();
        for namespace in &new.namespaces {
            match opened(namespace.nsid) {
                Some(opened) => added.push((namespace, opened)),
                None => self.change_namespace(before.get(&namespace.nsid).copied(), namespace),
            }
        }
        self.add_after(added, former);
        let limits = |of: &cairn_config::Subsystem| (of.limits, of.limits_per_host);
        let differ = |old: &cairn_config::Subsystem| {
            limits(old) != limits(new) || old.limits_of_hosts != new.limits_of_hosts
        };
        if old.is_some_and(differ) {
            self.set_subsystem_limits(new);
        }
        let hosts = allowed(new);
        self.subsystem
            .administer(|subsystem, actions| subsystem.set_hosts(hosts, actions));
    }

    fn change_namespace(
        &self,
        old: Option<&cairn_config::Namespace>,
        new: &cairn_config::Namespace,
    ) {
        self.set_ana_group(new);
        if old.map(|old| old.write_protection) != Some(new.write_protection) {
            self.set_write_protection(new);
        }
        if old.is_none_or(|old| old.hosts != new.hosts) {
            self.set_hosts(new);
        }
        if old.is_none_or(|old| old.limits != new.limits) {
            self.set_limits(new);
        }
    }

    pub(crate) fn recover(&self) -> Option<Job> {
        let all = self.namespaces.values();
        let failed: Vec<_> = all.filter(|ns| ns.backend.is_failed()).cloned().collect();
        if failed.is_empty() && !self.subsystem.shows_losses() {
            return None;
        }
        if Arc::strong_count(&self.recovering) > 1 {
            // Logged after a reload.
            tracing::error!(
                subsystem = self.subsystem.nqn(),
                "the flush that tests a failed disk has not completed: look in the kernel's log \
                 for a disk that hangs, and reload once it responds"
            );
            return None;
        }
        let recovering = Arc::clone(&self.recovering);
        let subsystem = Arc::clone(&self.subsystem);
        Some(Box::new(move || {
            for namespace in failed {
                if let Err(error) = namespace.backend.recover() {
                    // Logged after a reload.
                    tracing::error!(
                        subsystem = subsystem.nqn(), nsid = namespace.nsid, %error,
                        "the disk still fails: replace it, or remove the namespace"
                    );
                }
            }
            subsystem.show_losses();
            drop(recovering);
        }))
    }

    pub(crate) fn see_changes(&self) {
        for (nsid, namespace) in &self.namespaces {
            let backend = &namespace.backend;
            if let Some(bytes) = backend.reported_bytes().or_else(|| backend.grown_bytes()) {
                self.resize(*nsid, bytes);
            }
        }
        self.subsystem.show_losses();
    }

    /// Adopts the size that a reload found, unless the disk lost data. Only adding the namespace
    /// again accepts a loss.
    pub(crate) fn adopt_size(&self, nsid: u32, bytes: u64) {
        let Some(namespace) = self.namespaces.get(&nsid) else {
            return;
        };
        // A Ceph image reports each new size, which `see_changes` adopts.
        if namespace.backend.reported_bytes().is_some() || !namespace.finds_loss(bytes) {
            return self.resize(nsid, bytes);
        }
        // Logged after a reload.
        tracing::warn!(
            subsystem = self.subsystem.nqn(),
            nsid,
            backing = namespace.backing,
            before = namespace.bytes(),
            bytes,
            "the disk lost data and is not resized: to use it as it is, remove the namespace and \
             add it again"
        );
    }

    pub(crate) fn resize(&self, nsid: u32, bytes: u64) {
        let Some(namespace) = self.namespaces.get(&nsid) else {
            return;
        };
        if !namespace.backend.accept_size(bytes) {
            return;
        }
        self.publish();
        let blocks = namespace.view().nsze;
        // Logged after a change of the configuration or of a disk.
        tracing::info!(subsystem = self.subsystem.nqn(), nsid, blocks, "resized");
        self.subsystem.administer(|subsystem, actions| {
            if let Err(error) = subsystem.resize_namespace(nsid, blocks, actions) {
                // Logged after a change of the configuration or of a disk.
                tracing::error!(nsid, %error, "cannot report the new size to hosts");
            }
        });
    }
}

fn hosts(access: &Access) -> HostAccess {
    match access {
        Access::AnyHost => HostAccess::Any,
        Access::Hosts(list) => HostAccess::Only(Arc::clone(&list.hosts)),
    }
}

fn preferred(of_disk: cairn_disk::Preferred) -> Preferred {
    Preferred {
        write: of_disk.write,
        write_alignment: of_disk.write_alignment,
        optimal_write: of_disk.optimal_write,
        deallocate: of_disk.deallocate,
        deallocate_alignment: of_disk.deallocate_alignment,
    }
}

fn atomic(of_disk: cairn_disk::Atomic) -> Atomic {
    Atomic {
        normal: of_disk.normal,
        power_fail: of_disk.power_fail,
        boundary: of_disk.boundary,
        boundary_offset: of_disk.boundary_offset,
        boundary_power_fail: of_disk.boundary_power_fail,
    }
}
