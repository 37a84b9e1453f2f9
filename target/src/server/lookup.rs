use std::collections::HashMap;

use cairn_config::{Config, Nqn};

use super::error::StartError;
use crate::health::{Place, Thing};

pub(super) fn of_nqn<'a>(config: &'a Config, nqn: &Nqn) -> Option<&'a cairn_config::Subsystem> {
    config.subsystems.iter().find(|one| one.nqn == *nqn)
}

pub(super) fn at_place<'a>(
    config: &'a Config,
    (nqn, nsid): &Place,
) -> Option<(&'a cairn_config::Subsystem, &'a cairn_config::Namespace)> {
    let subsystem = of_nqn(config, nqn)?;
    let all = &subsystem.namespaces;
    let at = all.binary_search_by_key(nsid, |one| one.nsid).ok()?;
    Some((subsystem, all.get(at)?))
}

pub(super) fn by_nsid(
    subsystem: Option<&cairn_config::Subsystem>,
) -> HashMap<u32, &cairn_config::Namespace> {
    let all = subsystem.into_iter().flat_map(|one| &one.namespaces);
    all.map(|namespace| (namespace.nsid, namespace)).collect()
}

pub(super) fn missing_pools(config: &Config) -> Vec<(Thing, StartError)> {
    let mut missing = Vec::new();
    for subsystem in &config.subsystems {
        for pool in &subsystem.pools {
            if let Some(problem) = &pool.problem {
                let place = (subsystem.nqn, pool.like.nsid);
                let error = StartError::Pool(problem.clone());
                missing.push((Thing::Directory(place), error));
            }
        }
    }
    missing
}
