//! Changes that are small beside the configuration: they look at what they change alone.

use std::collections::HashMap;
use std::sync::Arc;

use cairn_config::Config;

use super::StartError;
use super::control::Control;
use super::opening::Place;
use super::reload::{ReloadError, at_place};
use crate::namespace::Namespace;
use crate::outlook::Thing;

/// How much of a configuration is looked at.
pub(crate) enum Extent {
    /// All of it, and the sizes of disks that stay.
    Whole,
    /// All of it, but no disk that stays.
    Text,
    /// What a step changes, if it begins at the configuration in force.
    Step(Step),
}

/// All that differs from another configuration: namespaces.
#[derive(Clone)]
pub(crate) struct Step {
    /// The other one.
    pub(crate) from: Arc<Config>,
    /// Those that are new.
    pub(crate) added: Vec<Place>,
    /// Those that are not there any more.
    pub(crate) removed: Vec<Place>,
}

impl Control {
    /// Whether a step leads from here, and all else is as configured.
    pub(super) fn may_take(&self, step: &Step) -> bool {
        Arc::ptr_eq(&step.from, &self.config) && self.missing.all().is_empty()
    }

    /// Adds and removes namespaces, at a cost that hardly depends on how many there are.
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
