use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use cairn_config::Config;

use super::super::error::StartError;
use super::super::exports::{DiskRules, Replaced};
use super::super::keys::Loaded;
use super::super::listeners::OpenListener;
use super::super::lookup::missing_pools;
use super::super::service::Service;
use crate::health::{Place, Thing};
use cairn_data_path::namespace::Namespace;

pub(super) struct Opened {
    pub(super) namespaces: HashMap<Place, Arc<Namespace>>,
    pub(super) sizes: Vec<(Place, u64)>,
    pub(super) missing: Vec<(Thing, StartError)>,
}

struct Prepared {
    listeners: Vec<OpenListener>,
    namespaces: HashMap<Place, Arc<Namespace>>,
}

pub(super) fn apply(
    service: &mut Service,
    (config, keys): (Arc<Config>, Option<Loaded>),
    replaced: &Replaced,
    opened: Opened,
) -> Result<(), StartError> {
    let Opened {
        namespaces,
        sizes,
        mut missing,
    } = opened;
    let complete = |loaded| service.keys.complete(loaded, &service.config, &config);
    let keys = keys.map(complete).transpose()?;
    if let Some((keys, _)) = &keys {
        service.keys.start_authenticator(Some(keys))?;
    }
    let prepared = prepare(service, &config, replaced, namespaces, &mut missing)?;
    service.apply_audit(&config)?;
    missing.extend(missing_pools(&config));
    if let Some((keys, unreadable)) = keys {
        service.keys.set(keys, &service.exports);
        service.missing.replace_keys(unreadable);
    }
    service.fixed.change(&config);
    service.missing.replace(missing);
    let listeners = &mut service.listeners;
    listeners.change(&config, prepared.listeners, &service.exports);
    if service.config.metrics != config.metrics || !service.metrics.is_open() {
        let metrics = config.metrics.listen;
        service.metrics.serve(metrics, &mut service.missing);
    }
    change_exports(service, &config, replaced, prepared.namespaces);
    for ((nqn, nsid), bytes) in sizes {
        if let Some(export) = service.exports.get(&nqn) {
            export.adopt_size(nsid, bytes);
        }
    }
    service.exports.resize_null_disks(&config);
    let exports = &service.exports;
    for job in exports.recover().chain(exports.keep_sizes()) {
        service.jobs.run(job);
    }
    let listeners = &mut service.listeners;
    listeners.change_ana(&service.config, &config, &service.exports);
    service.config = config;
    service.update_discovery();
    service.publish_health();
    Ok(())
}

fn change_exports(
    service: &mut Service,
    config: &Config,
    replaced: &Replaced,
    new: HashMap<Place, Arc<Namespace>>,
) {
    let (old, exports) = (&service.config, &mut service.exports);
    exports.remove_subsystems(config);
    let former = exports.remove_namespaces(config, replaced);
    exports.change(old, config, new, &former, service.keys.all());
    service.listeners.leave(old, config, exports);
}

fn prepare(
    service: &Service,
    config: &Config,
    replaced: &Replaced,
    mut opened: HashMap<Place, Arc<Namespace>>,
    missing: &mut Vec<(Thing, StartError)>,
) -> Result<Prepared, StartError> {
    let exports = &service.exports;
    let absent = missing.iter().filter_map(|(thing, _)| thing.place());
    let absent: HashSet<Place> = absent.collect();
    let mut namespaces = HashMap::new();
    let rules = DiskRules::of(config);
    for subsystem in &config.subsystems {
        for namespace in &subsystem.namespaces {
            let place = (subsystem.nqn, namespace.nsid);
            let stays = exports.namespace(&place).is_some() && !replaced.contains(&place);
            if stays || absent.contains(&place) {
                continue;
            }
            let disk = opened.remove(&place);
            if namespace.pooled.is_none()
                && let (Some(former), Some(disk)) = (exports.namespace(&place), &disk)
            {
                check_loss(&place, former, disk)?;
            }
            let namespace = exports.introduce(&rules, subsystem, namespace, disk)?;
            namespaces.insert(place, namespace);
        }
    }
    let twins = exports.leave_out_twins(config, replaced, &mut namespaces)?;
    let twins = twins.into_iter();
    missing.extend(twins.map(|(place, error)| (Thing::Namespace(place), error)));
    let mut listeners = Vec::new();
    for listener in &config.listeners {
        if service.listeners.serve(listener) {
            continue;
        }
        let thing = Thing::Listener(listener.trid());
        match service.listeners.listen(listener) {
            Ok(open) => listeners.push(open),
            Err(error) if service.missing.includes(&thing) => missing.push((thing, error)),
            Err(error) => return Err(error),
        }
    }
    Ok(Prepared {
        listeners,
        namespaces,
    })
}

/// Refuses to replace a namespace if its disk lost data, if its path leads to another file, or if
/// the new disk has the same UUID and is smaller. The replacement would accept the loss.
fn check_loss((nqn, nsid): &Place, former: &Namespace, disk: &Namespace) -> Result<(), StartError> {
    let (before, now) = (former.bytes(), disk.bytes());
    let block_bytes = u64::from(disk.backend.geometry().block_bytes);
    if former.backing != disk.backing && (former.uuid != disk.uuid || now + block_bytes > before) {
        return Ok(());
    }
    let is_file = disk.backend.file_system().is_some();
    let is_another = is_file && former.backend.place() != disk.backend.place();
    if now + block_bytes > before && !former.backend.is_cut() && !is_another {
        return Ok(());
    }
    Err(StartError::Loss {
        nqn: nqn.to_string(),
        nsid: *nsid,
        backing: disk.backing.clone(),
        before,
        now,
    })
}
