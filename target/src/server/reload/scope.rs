//! Scope of a reload: `Whole` measures disks, `Text` does not; `Step` only adds or removes
//! namespaces.

use std::collections::HashMap;
use std::sync::Arc;

use cairn_config::Config;

use super::super::error::{ReloadError, StartError};
use super::super::exports::DiskRules;
use super::super::lookup::at_place;
use super::super::service::Service;
use crate::health::{Place, Thing};
use cairn_data_path::namespace::Namespace;

pub(crate) enum ReloadScope {
    Whole,
    Text,
    Step(Step),
}

#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) from: Arc<Config>,
    pub(crate) added: Vec<Place>,
    pub(crate) removed: Vec<Place>,
}

impl Step {
    pub(super) fn fits(&self, service: &Service) -> bool {
        Arc::ptr_eq(&self.from, &service.config) && service.missing.all().is_empty()
    }

    pub(super) fn take(
        &self,
        service: &mut Service,
        config: Arc<Config>,
        mut opened: HashMap<Place, Arc<Namespace>>,
        missing: Vec<(Thing, StartError)>,
    ) -> Result<(), ReloadError> {
        let is_absent = |place| {
            missing
                .iter()
                .any(|(thing, _)| thing.place() == Some(place))
        };
        let exports = &mut service.exports;
        let mut namespaces = HashMap::new();
        let rules = DiskRules::of(&config);
        for place in self.added.iter().filter(|place| !is_absent(**place)) {
            let Some((subsystem, namespace)) = at_place(&config, place) else {
                continue;
            };
            let disk = opened.remove(place);
            namespaces.insert(
                *place,
                exports.introduce(&rules, subsystem, namespace, disk)?,
            );
        }
        if !namespaces.is_empty() {
            exports.check_newcomers(&namespaces)?;
        }
        for (thing, error) in missing {
            service.missing.note(thing, &error);
        }
        for (nqn, nsid) in &self.removed {
            if let Some(export) = exports.get_mut(nqn) {
                export.remove(&[*nsid]);
            }
        }
        for place in &self.added {
            let added = at_place(&config, place).zip(namespaces.remove(place));
            if let (Some(((_, config), new)), Some(export)) = (added, exports.get_mut(&place.0)) {
                export.add(vec![(config, new)]);
            }
        }
        service.config = config;
        service.publish_health();
        Ok(())
    }
}
