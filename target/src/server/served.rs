//! Namespaces served before a reload, whose disks may still have commands after it.

use std::sync::Arc;

use cairn_config::{Access, Config};
use nvme_proto::io::NamespaceView;
use tokio::sync::oneshot;

use super::control::Control;
use super::error::ReloadError;
use super::extent::Extent;
use super::lookup::at_place;
use crate::namespace::Namespace;
use crate::outlook::Place;
use crate::registry::Scope;

/// Namespace as served before a reload.
pub(super) struct Served {
    place: Place,
    namespace: Arc<Namespace>,
    view: NamespaceView,
    hosts: Option<Access>,
}

fn hosts(config: &Config, place: &Place) -> Option<Access> {
    at_place(config, place).map(|(_, namespace)| namespace.hosts.clone())
}

impl Control {
    /// Namespaces that a reload may remove, resize or hide.
    pub(super) fn served(&self, extent: &Extent) -> Vec<Served> {
        let served = |place: Place, namespace: &Arc<Namespace>| Served {
            view: namespace.view(),
            hosts: hosts(&self.config, &place),
            namespace: Arc::clone(namespace),
            place,
        };
        if let Extent::Step(step) = extent {
            let removed = step.removed.iter().filter_map(|place| {
                let namespace = self.exports.get(&place.0)?.namespaces.get(&place.1)?;
                Some(served(*place, namespace))
            });
            return removed.collect();
        }
        let exports = self.exports.iter();
        let all = exports.flat_map(|(nqn, export)| {
            let namespaces = export.namespaces.iter();
            namespaces.map(move |(nsid, namespace)| ((*nqn, *nsid), namespace))
        });
        all.map(|(place, namespace)| served(place, namespace))
            .collect()
    }

    /// True if the reload does not affect commands of a namespace.
    fn is_as_before(&self, before: &Served) -> bool {
        let (nqn, nsid) = &before.place;
        let export = self.exports.get(nqn);
        let now = export.and_then(|export| export.namespaces.get(nsid));
        now.is_some_and(|now| Arc::ptr_eq(now, &before.namespace) && now.view() == before.view)
            && hosts(&self.config, &before.place) == before.hosts
    }

    /// Answers a reload once disks that it removed, resized or hid have no earlier commands.
    pub(super) fn answer_settled(
        &mut self,
        mut before: Vec<Served>,
        answer: oneshot::Sender<Result<(), ReloadError>>,
    ) {
        before.retain(|served| !self.is_as_before(served));
        if before.is_empty() {
            let _ = answer.send(Ok(()));
            return;
        }
        let ids = before.iter().map(|served| served.namespace.id).collect();
        let disks: Vec<String> = before
            .iter()
            .map(|Served { place, .. }| format!("namespace {} of {}", place.1, place.0))
            .collect();
        drop(before);
        self.flushes
            .settle(Scope::Namespaces(ids), move |_, settled| {
                let disks = disks.join(", ");
                let settled = settled
                    .then_some(())
                    .ok_or(ReloadError::Unsettled { disks });
                if let Err(error) = &settled {
                    // Cause: a reload, and a disk that hangs.
                    tracing::warn!(%error, "reload");
                }
                let _ = answer.send(settled);
            });
    }
}
