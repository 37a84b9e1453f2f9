//! Incremental changes: their cost depends on the change, not on the size of the configuration.

use std::collections::HashMap;
use std::sync::Arc;

use cairn_config::Config;

use super::control::Control;
use super::error::{ReloadError, StartError};
use super::lookup::at_place;
use crate::namespace::Namespace;
use crate::outlook::{Place, Thing};

/// Part of a configuration that a reload examines.
pub(crate) enum Extent {
    /// All of it, and the sizes of disks that stay open.
    Whole,
    /// All of it, except disks that stay open.
    Text,
    /// Only the step, if it starts at the configuration in force.
    Step(Step),
}

/// Difference of two configurations that consists of namespaces only.
#[derive(Clone)]
pub(crate) struct Step {
    /// Configuration before the step.
    pub(crate) from: Arc<Config>,
    pub(crate) added: Vec<Place>,
    pub(crate) removed: Vec<Place>,
}

impl Control {
    /// True if the step starts at the current configuration and nothing is missing.
    pub(super) fn may_take(&self, step: &Step) -> bool {
        Arc::ptr_eq(&step.from, &self.config) && self.missing.all().is_empty()
    }

    /// Adds and removes namespaces at a cost nearly independent of their total number.
    pub(super) fn take_step(
        &mut self,
        config: Arc<Config>,
        step: &Step,
        mut opened: HashMap<Place, Arc<Namespace>>,
        missing: Vec<(Thing, StartError)>,
    ) -> Result<(), ReloadError> {
        let is_absent = |place| {
            missing
                .iter()
                .any(|(thing, _)| thing.place() == Some(place))
        };
        let mut namespaces = HashMap::new();
        for place in step.added.iter().filter(|place| !is_absent(**place)) {
            let Some((subsystem, namespace)) = at_place(&config, place) else {
                continue;
            };
            let disk = opened.remove(place);
            namespaces.insert(*place, self.introduce(subsystem, namespace, disk)?);
        }
        if !namespaces.is_empty() {
            self.check_newcomers(&namespaces)?;
        }
        for (thing, error) in missing {
            self.note_missing(thing, &error);
        }
        for (nqn, nsid) in &step.removed {
            if let Some(export) = self.exports.get_mut(nqn) {
                export.remove(&[*nsid]);
            }
        }
        for place in &step.added {
            let added = at_place(&config, place).zip(namespaces.remove(place));
            if let (Some(((_, config), new)), Some(export)) =
                (added, self.exports.get_mut(&place.0))
            {
                export.add(vec![(config, new)]);
            }
        }
        self.config = config;
        self.publish_outlook();
        // Cause: a request of the control socket.
        tracing::info!("configuration reloaded");
        Ok(())
    }
}
