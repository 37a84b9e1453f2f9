//! Waits until disks have no commands from before a change.
//!
//! A disk that hangs keeps a command indefinitely. Therefore each wait has a deadline, and its
//! continuation receives whether the change is settled.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_config::{Access, Config};
use nvme_proto::io::NamespaceView;
use tokio::sync::oneshot;

use super::control::Control;
use super::extent::Extent;
use super::opening::Place;
use super::reload::{ReloadError, at_place};
use crate::namespace::Namespace;
use crate::registry::{Message, Scope, Settling};

/// Time for disks to complete commands from before a change.
pub(super) const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Continuation of a change; receives whether it is settled.
type Then = Box<dyn FnOnce(&mut Control, bool) + Send>;

/// Change that reactors have not confirmed.
struct Waiting {
    id: u64,
    deadline: Instant,
    then: Then,
}

/// Waits in progress, by ID.
#[derive(Default)]
pub(super) struct Unsettled {
    next_id: u64,
    waiting: Vec<Waiting>,
}

impl Unsettled {
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.iter().map(|waiting| waiting.deadline).min()
    }

    /// True if the wait `id` is in progress.
    pub(super) fn has(&self, id: u64) -> bool {
        self.waiting.iter().any(|waiting| waiting.id == id)
    }
}

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
        self.settle(Scope::Namespaces(ids), move |_, settled| {
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

    /// Time of the next necessary [`Self::step`].
    pub(super) fn next_step(&self) -> Option<Instant> {
        let deadlines = [self.next_deadline, self.unsettled.next_deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// Registers a continuation that runs at [`Self::settled`] or after [`SETTLE_TIMEOUT`]; returns
    /// the wait's ID.
    pub(super) fn wait(&mut self, then: impl FnOnce(&mut Self, bool) + Send + 'static) -> u64 {
        let id = self.unsettled.next_id;
        self.unsettled.next_id += 1;
        self.unsettled.waiting.push(Waiting {
            id,
            deadline: self.clock.now() + SETTLE_TIMEOUT,
            then: Box::new(then),
        });
        id
    }

    /// Runs `then` once no disk has an earlier command of the scope, or after [`SETTLE_TIMEOUT`].
    ///
    /// The change must be in force, or in the mailboxes, before this call.
    pub(super) fn settle(
        &mut self,
        scope: Scope,
        then: impl FnOnce(&mut Self, bool) + Send + 'static,
    ) {
        let id = self.wait(then);
        let (count, control) = (self.mailboxes.len(), self.messages_out.clone());
        let settling = Arc::new(Settling::new(id, scope, count, control));
        for reactor in self.mailboxes.iter() {
            let settling = Arc::clone(&settling);
            reactor.send(Message::Settle { settling });
        }
    }

    /// Ends a wait, unless its deadline has passed.
    pub(super) fn settled(&mut self, id: u64, well: bool) {
        let mut waiting = self.unsettled.waiting.iter();
        if let Some(at) = waiting.position(|waiting| waiting.id == id) {
            let waiting = self.unsettled.waiting.swap_remove(at);
            (waiting.then)(self, well);
        }
    }

    /// Ends the waits whose deadlines have passed.
    pub(super) fn give_up_settling(&mut self) {
        let now = self.clock.now();
        let late = |waiting: &mut Waiting| waiting.deadline <= now;
        let late: Vec<Waiting> = self.unsettled.waiting.extract_if(.., late).collect();
        for waiting in late {
            (waiting.then)(self, false);
        }
    }
}
