//! Subsystem: the protocol's state machine and the addresses of its queues, under one lock.

mod actions;
mod ana;
mod connects;
mod leases;
mod reserving;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use cairn_base::{Clock, Trid};
use cairn_config::{AnaOverride, Limits};
use nvme_proto::controller::{Action, AdminCommand, Completion, Exchange, Outcome, Refusal};
use nvme_proto::io::IoLimits;
use nvme_proto::subsystem::{Health, Kind, Subsystem};
use nvme_proto::wire::Nqn;

use super::authenticator::{Authenticator, HostKeys};
use super::controller::ControllerShared;
use super::counters::{self, IoCounters};
use super::view::{Activity, ControllerView, SubsystemView};
use super::{ControlMessage, Mailbox, Message, QueueAddress, QueueShared};
use crate::ids::QpairId;
use crate::limits::Limiter;
use crate::metrics::HostTotals;
use crate::namespace::NamespaceTable;
use crate::order::{DiskOrder, Waiter};
use cairn_base::panics;

pub(crate) use connects::{Entry, Joined, Origin};
pub(crate) use leases::KEEP_ALIVE_EXPIRED;

struct Controller {
    shared: Arc<ControllerShared>,
    queues: BTreeMap<u16, QueueAddress>,
    shown: BTreeMap<u16, Arc<QueueShared>>,
    past: HostTotals,
}

pub(super) struct SubsystemState {
    subsystem: Subsystem,
    controllers: HashMap<u16, Controller>,
    namespaces: Arc<NamespaceTable>,
    limits_per_host: Limits,
    limits_of_hosts: BTreeMap<Nqn, Limits>,
    pub(super) keys: HostKeys,
    /// Listeners at which hosts find the subsystem; all if `None`.
    listeners: Option<Box<[Trid]>>,
    ana: BTreeMap<Trid, AnaOverride>,
    armed: Option<Duration>,
    /// Next CNTLID to try. Claims advance it but reserve no CNTLID.
    next_cntlid: u32,
    /// A Connect in progress may still refer to a removed subsystem.
    removed: bool,
}

pub struct SubsystemShared {
    pub id: u32,
    nqn: String,
    is_discovery: bool,
    io_limits: IoLimits,
    pub(crate) limiter: Limiter,
    clock: Clock,
    started: Instant,
    pub(super) reactors: Arc<[Mailbox]>,
    pub(super) authenticator: Authenticator,
    control: tokio::sync::mpsc::UnboundedSender<ControlMessage>,
    counters: Box<[Arc<IoCounters>]>,
    state: Mutex<SubsystemState>,
}

impl fmt::Debug for SubsystemShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SubsystemShared({})", self.nqn)
    }
}

impl SubsystemState {
    fn of_host(&self, host: &Nqn) -> impl Iterator<Item = &Controller> {
        let controllers = self.controllers.values();
        controllers.filter(move |own| own.shared.host == *host)
    }

    fn limiter_of(&self, host: &Nqn) -> Arc<Limiter> {
        let other = self.of_host(host).next();
        let other = other.map(|own| Arc::clone(&own.shared.limiter));
        other.unwrap_or_else(|| Arc::new(Limiter::new(self.limits_of(host))))
    }

    fn limits_of(&self, host: &Nqn) -> &Limits {
        let own = self.limits_of_hosts.get(host);
        own.unwrap_or(&self.limits_per_host)
    }

    fn is_behind(&self, listener: Trid) -> bool {
        let own = self.listeners.as_ref();
        own.is_none_or(|own| own.contains(&listener))
    }

    pub(super) fn subsystem_nqn(&self) -> &Nqn {
        &self.subsystem.settings().nqn
    }

    fn log_failures(&mut self, cntlid: u16) {
        if let Some(controller) = self.controllers.get(&cntlid) {
            let failures = &controller.shared.failures;
            let left_out = failures.take_left_out();
            self.subsystem
                .record_failures(cntlid, left_out, failures.take());
        }
    }
}

impl SubsystemShared {
    pub fn new(
        id: u32,
        subsystem: Subsystem,
        clock: Clock,
        started: Instant,
        reactors: Arc<[Mailbox]>,
        authenticator: Authenticator,
        control: tokio::sync::mpsc::UnboundedSender<ControlMessage>,
    ) -> Self {
        let next_cntlid = u32::from(*subsystem.settings().cntlids.start());
        Self {
            id,
            nqn: subsystem.settings().nqn.to_string(),
            is_discovery: subsystem.kind() == Kind::Discovery,
            io_limits: subsystem.io_limits(),
            limiter: Limiter::default(),
            clock,
            started,
            counters: reactors.iter().map(|_| Arc::default()).collect(),
            reactors,
            authenticator,
            control,
            state: Mutex::new(SubsystemState {
                subsystem,
                controllers: HashMap::new(),
                namespaces: Arc::default(),
                limits_per_host: Limits::default(),
                limits_of_hosts: BTreeMap::new(),
                keys: HostKeys::default(),
                listeners: None,
                ana: BTreeMap::new(),
                armed: None,
                next_cntlid,
                removed: false,
            }),
        }
    }

    pub fn nqn(&self) -> &str {
        &self.nqn
    }

    pub(crate) fn is_discovery(&self) -> bool {
        self.is_discovery
    }

    pub(crate) fn io_limits(&self) -> &IoLimits {
        &self.io_limits
    }

    pub(crate) fn counters(&self, reactor: usize) -> &IoCounters {
        &self.counters[reactor]
    }

    pub fn all_counters(&self) -> &[Arc<IoCounters>] {
        &self.counters
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SubsystemState> {
        panics::intact(self.state.lock(), "the state of a subsystem")
    }

    fn now(&self) -> Duration {
        self.clock.now().duration_since(self.started)
    }

    fn with<T>(&self, job: impl FnOnce(&mut SubsystemState, Duration, &mut Vec<Action>) -> T) -> T {
        let mut state = self.lock();
        let mut actions = Vec::new();
        let result = job(&mut state, self.now(), &mut actions);
        for action in actions {
            self.carry_out(&state, action);
        }
        result
    }

    pub(crate) fn wake(&self, waiter: Waiter) {
        let work = waiter.work;
        self.reactors[waiter.reactor].send(Message::OlderEnded { work });
    }

    pub(crate) fn exclude(self: &Arc<Self>, order: &Arc<DiskOrder>) {
        if !order.exclude(self.reactors.len()) {
            return;
        }
        for reactor in self.reactors.iter() {
            reactor.send(Message::Exclude {
                order: Arc::clone(order),
                subsystem: Arc::clone(self),
            });
        }
    }

    pub fn set_limits(&self, config: &cairn_config::Subsystem) {
        self.limiter.set(&config.limits);
        let mut state = self.lock();
        state.limits_per_host = config.limits_per_host;
        state.limits_of_hosts.clone_from(&config.limits_of_hosts);
        for controller in state.controllers.values() {
            let own = &controller.shared;
            own.limiter.set(state.limits_of(&own.host));
        }
    }

    pub fn set_listeners(&self, listeners: Option<&[Trid]>) {
        self.lock().listeners = listeners.map(Box::from);
    }

    pub(crate) fn show(&self, cntlid: u16, qid: u16, queue: Arc<QueueShared>) {
        if let Some(controller) = self.lock().controllers.get_mut(&cntlid) {
            controller.shown.insert(qid, queue);
        }
    }

    pub fn view(&self) -> SubsystemView {
        let state = self.lock();
        let view = |(&cntlid, controller): (&u16, &Controller)| ControllerView {
            cntlid,
            host_nqn: controller.shared.host_nqn.clone(),
            hostid: controller.shared.hostid,
            past: controller.past.clone(),
            queues: controller
                .shown
                .iter()
                .map(|(&qid, queue)| (qid, Arc::clone(queue)))
                .collect(),
        };
        let mut controllers: Vec<_> = state.controllers.iter().map(view).collect();
        controllers.sort_unstable_by_key(|controller| controller.cntlid);
        SubsystemView {
            namespaces: Arc::clone(&state.namespaces),
            controllers,
        }
    }

    pub fn namespaces(&self) -> Arc<NamespaceTable> {
        Arc::clone(&self.lock().namespaces)
    }

    pub fn activity_by(&self, listener: u64) -> Activity {
        let state = self.lock();
        let mut activity = Activity::default();
        let by_it = |controller: &&Controller| controller.shared.listener.id == listener;
        for controller in state.controllers.values().filter(by_it) {
            activity.associations += 1;
            for (_, queue) in controller.shown.iter().filter(|(qid, _)| **qid != 0) {
                activity.add_queue(&queue.counters);
            }
        }
        activity
    }

    pub fn host_of(&self, cntlid: u16, peer: IpAddr) -> Option<Nqn> {
        let state = self.lock();
        let controller = &state.controllers.get(&cntlid)?.shared;
        (controller.peer == peer).then_some(controller.host)
    }

    pub(crate) fn disconnected(&self, cntlid: u16, qid: u16) {
        self.with_controller(cntlid, |state, now, actions| {
            state
                .subsystem
                .queue_disconnected(cntlid, qid, now, actions);
            let Some(controller) = state.controllers.get_mut(&cntlid) else {
                return;
            };
            controller.queues.remove(&qid);
            if let Some(queue) = controller.shown.remove(&qid) {
                controller.past.add(&queue.counters);
            }
            // The controller stays until its last queue has ended, because messages to disconnect
            // the queues need it. The lock prevents reuse of its CNTLID.
            if controller.queues.is_empty()
                && let Some(gone) = state.controllers.remove(&cntlid)
            {
                let own = &gone.shared;
                own.limiter
                    .set_ordered(state.of_host(&own.host).nth(1).is_some());
            }
        });
    }

    pub(crate) fn execute(
        &self,
        cntlid: u16,
        cid: u16,
        command: &AdminCommand,
        data_in: &[u8],
        data_out: &mut [u8],
    ) -> Outcome {
        let smart = counters::smart(&self.counters, self.now());
        self.with_controller(cntlid, |state, now, actions| {
            state.log_failures(cntlid);
            let exchange = Exchange {
                now,
                smart: &smart,
                data_in,
                data_out,
            };
            let executed = state
                .subsystem
                .execute(cntlid, cid, command, exchange, actions);
            self.park_write_through(state, cntlid, actions, executed)
        })
    }

    pub(crate) fn refuse(&self, cntlid: u16, cid: u16, refusal: Refusal) -> Completion {
        let mut state = self.lock();
        state.log_failures(cntlid);
        state.subsystem.refuse(cntlid, cid, refusal)
    }

    pub(crate) fn abort_done(&self, cntlid: u16, abort_cid: u16, aborted: bool) {
        self.with(|state, _, actions| {
            state
                .subsystem
                .abort_done(cntlid, abort_cid, aborted, actions);
        });
    }

    pub fn flushed(&self, cntlid: u16, intact: bool) {
        self.with_controller(cntlid, |state, now, actions| {
            state.subsystem.flushed(cntlid, intact, now, actions);
        });
    }

    pub fn administer(&self, change: impl FnOnce(&mut Subsystem, &mut Vec<Action>)) {
        self.with(|state, _, actions| change(&mut state.subsystem, actions));
    }

    pub fn shows_losses(&self) -> bool {
        self.lock().subsystem.health().critical_warning != 0
    }

    pub fn show_losses(&self) {
        self.with(|state, _, actions| {
            let mut entries = state.namespaces.namespaces.iter();
            let lost = entries.any(|entry| entry.namespace.backend.is_failed());
            let health = Health {
                critical_warning: if lost {
                    Health::RELIABILITY_DEGRADED
                } else {
                    0
                },
                ..*state.subsystem.health()
            };
            if health != *state.subsystem.health() {
                state.subsystem.set_health(health, actions);
            }
        });
    }

    pub fn remove(&self) {
        self.with(|state, _, actions| {
            state.removed = true;
            state.subsystem.terminate_all(actions);
        });
    }

    pub(crate) fn queues_on(&self, reactor: usize) -> Vec<(u16, u16, QpairId)> {
        let state = self.lock();
        let controllers = state.controllers.iter();
        let queues = controllers.flat_map(|(&cntlid, controller)| {
            let queues = controller.queues.iter();
            queues.map(move |(&qid, queue)| (cntlid, qid, *queue))
        });
        let on_it = queues.filter(|(.., queue)| queue.reactor == reactor);
        on_it
            .map(|(cntlid, qid, queue)| (cntlid, qid, queue.qpair))
            .collect()
    }

    /// Ends a controller with a queue on a panicked reactor. [`Self::disconnected`] must follow for
    /// that queue.
    pub(crate) fn lose(&self, cntlid: u16) {
        self.administer(|subsystem, actions| subsystem.terminate_faulty(cntlid, actions));
    }

    /// Hosts must find no namespace whose I/O fails. The caller must therefore call
    /// [`Self::administer`] after this function for a new namespace, and before it for a removed
    /// namespace.
    pub fn set_namespaces(&self, table: NamespaceTable) {
        let table = Arc::new(table);
        for (reactor, counters) in self.reactors.iter().zip(&self.counters) {
            reactor.send(Message::Namespaces {
                subsystem: self.id,
                counters: Arc::clone(counters),
                table: Arc::clone(&table),
            });
        }
        self.lock().namespaces = table;
    }
}

#[cfg(test)]
mod tests;
