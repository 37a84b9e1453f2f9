//! Namespaces served before a reload, whose disks may still execute commands.

use std::sync::Arc;

use cairn_config::{Access, Config};
use nvme_proto::io::NamespaceView;
use tokio::sync::oneshot;

use super::super::error::ReloadError;
use super::super::flushing::Flushes;
use super::super::lookup::at_place;
use super::super::service::Service;
use super::scope::ReloadScope;
use crate::health::Place;
use cairn_data_path::namespace::Namespace;
use cairn_data_path::registry::Scope;

pub(super) struct Served {
    place: Place,
    namespace: Arc<Namespace>,
    view: NamespaceView,
    hosts: Option<Access>,
}

fn hosts(config: &Config, place: &Place) -> Option<Access> {
    at_place(config, place).map(|(_, namespace)| namespace.hosts.clone())
}

pub(super) fn namespaces(service: &Service, scope: &ReloadScope) -> Vec<Served> {
    let served = |place: Place, namespace: &Arc<Namespace>| Served {
        view: namespace.view(),
        hosts: hosts(&service.config, &place),
        namespace: Arc::clone(namespace),
        place,
    };
    let exports = &service.exports;
    if let ReloadScope::Step(step) = scope {
        let removed = step.removed.iter().filter_map(|place| {
            let namespace = exports.namespace(place)?;
            Some(served(*place, namespace))
        });
        return removed.collect();
    }
    let all = exports.namespaces();
    all.map(|(nqn, namespace)| served((*nqn, namespace.nsid), namespace))
        .collect()
}

impl Served {
    fn is_as_before(&self, service: &Service) -> bool {
        let now = service.exports.namespace(&self.place);
        now.is_some_and(|now| Arc::ptr_eq(now, &self.namespace) && now.view() == self.view)
            && hosts(&service.config, &self.place) == self.hosts
    }
}

pub(super) fn answer_settled(
    service: &Service,
    flushes: &mut Flushes,
    mut before: Vec<Served>,
    answer: oneshot::Sender<Result<(), ReloadError>>,
) {
    before.retain(|served| !served.is_as_before(service));
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
    flushes.settle(Scope::Namespaces(ids), move |_, settled| {
        let disks = disks.join(", ");
        let settled = settled
            .then_some(())
            .ok_or(ReloadError::Unsettled { disks });
        if let Err(error) = &settled {
            // Logged at most once for each reload.
            tracing::warn!(%error, "reload");
        }
        let _ = answer.send(settled);
    });
}
