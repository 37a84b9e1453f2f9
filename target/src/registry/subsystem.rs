//! A subsystem and who uses it: the protocol's state machine behind its one
//! lock, and where the queues of its controllers live.

mod actions;
mod ana;
mod connects;
mod leases;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use cairn_config::{AnaOverride, Limits};
use cairn_rdma::Clock;
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
use crate::order::Waiter;
use crate::panics;

pub(crate) use connects::{Entry, Joined, Origin};
pub(crate) use leases::KEEP_ALIVE_EXPIRED;

/// A controller's queues.
struct Controller {
    shared: Arc<ControllerShared>,
    /// By QID.
    queues: BTreeMap<u16, QueueAddress>,
    /// What its queues report of themselves, by QID: those whose Connect is over.
    shown: BTreeMap<u16, Arc<QueueShared>>,
    /// What queues did that are gone.
    past: HostTotals,
}

/// What the lock guards.
pub(super) struct State {
    subsystem: Subsystem,
    controllers: HashMap<u16, Controller>,
    namespaces: Arc<NamespaceTable>,
    /// How much each host may take.
    limits_per_host: Limits,
    /// How much these may take, in place of that.
    limits_of_hosts: BTreeMap<Nqn, Limits>,
    /// The keys by which hosts authenticate, from their next connect on.
    pub(super) keys: HostKeys,
    /// The listeners that lead here; all do if not given.
    listeners: Option<Box<[SocketAddr]>>,
    /// ANA states that are not the listeners', by the addresses of these.
    ana: BTreeMap<SocketAddr, AnaOverride>,
    /// When the control plane looks at the keep alive timers, as far as a message reported.
    armed: Option<Duration>,
    /// Where the search for a new controller's CNTLID begins. Claims move it, and keep no CNTLID.
    next_cntlid: u32,
    /// Taken away: a host that found it just before comes too late.
    removed: bool,
}

/// A subsystem, shared by the control plane and the reactors.
pub(crate) struct SubsystemShared {
    /// Its place in the reactors' tables; never used again.
    pub(crate) id: u32,
    nqn: String,
    is_discovery: bool,
    io_limits: IoLimits,
    /// How much all hosts together may take.
    pub(crate) limiter: Limiter,
    clock: Clock,
    started: Instant,
    pub(super) reactors: Arc<[Mailbox]>,
    pub(super) authenticator: Authenticator,
    control: tokio::sync::mpsc::UnboundedSender<ControlMessage>,
    /// By reactor.
    counters: Box<[Arc<IoCounters>]>,
    state: Mutex<State>,
}

impl fmt::Debug for SubsystemShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SubsystemShared({})", self.nqn)
    }
}

impl State {
    fn of_host(&self, host: &Nqn) -> impl Iterator<Item = &Controller> {
        let controllers = self.controllers.values();
        controllers.filter(move |own| own.shared.host == *host)
    }

    /// That of a host, which all of its controllers have.
    fn limiter_of(&self, host: &Nqn) -> Arc<Limiter> {
        let other = self.of_host(host).next();
        let other = other.map(|own| Arc::clone(&own.shared.limiter));
        other.unwrap_or_else(|| Arc::new(Limiter::new(self.limits_of(host))))
    }

    fn limits_of(&self, host: &Nqn) -> &Limits {
        let own = self.limits_of_hosts.get(host);
        own.unwrap_or(&self.limits_per_host)
    }

    /// Whether the listener of this address leads here.
    fn is_behind(&self, listener: SocketAddr) -> bool {
        let own = self.listeners.as_ref();
        own.is_none_or(|own| own.contains(&listener))
    }

    /// SUBNQN as hosts send it.
    pub(super) fn subsystem_nqn(&self) -> &Nqn {
        &self.subsystem.settings().nqn
    }

    /// Moves into the controller's log what reactors have recorded of it.
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
    /// A subsystem without namespaces and hosts.
    pub(crate) fn new(
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
            state: Mutex::new(State {
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

    /// SUBNQN as logs and metrics show it: escaped.
    pub(crate) fn nqn(&self) -> &str {
        &self.nqn
    }

    /// Whether hosts ask it for others.
    pub(crate) fn is_discovery(&self) -> bool {
        self.is_discovery
    }

    /// What parsing must know of its controllers.
    pub(crate) fn io_limits(&self) -> &IoLimits {
        &self.io_limits
    }

    /// What this reactor counts of it.
    pub(crate) fn counters(&self, reactor: usize) -> &IoCounters {
        &self.counters[reactor]
    }

    /// What each reactor counts of it.
    pub(crate) fn all_counters(&self) -> &[Arc<IoCounters>] {
        &self.counters
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        panics::intact(self.state.lock(), "the state of a subsystem")
    }

    fn now(&self) -> Duration {
        self.clock.now().duration_since(self.started)
    }

    /// Does something to the subsystem and carries out what it asks for.
    fn with<T>(&self, job: impl FnOnce(&mut State, Duration, &mut Vec<Action>) -> T) -> T {
        let mut state = self.lock();
        let mut actions = Vec::new();
        let result = job(&mut state, self.now(), &mut actions);
        for action in actions {
            self.carry_out(&state, action);
        }
        result
    }

    /// Makes a change ask again whether it may begin.
    pub(crate) fn wake(&self, waiter: Waiter) {
        let work = waiter.work;
        self.reactors[waiter.reactor].send(Message::OlderEnded { work });
    }

    /// How much all hosts together, each of them, and single ones may take from now on.
    pub(crate) fn set_limits(&self, config: &cairn_config::Subsystem) {
        self.limiter.set(&config.limits);
        let mut state = self.lock();
        state.limits_per_host = config.limits_per_host;
        state.limits_of_hosts.clone_from(&config.limits_of_hosts);
        for controller in state.controllers.values() {
            let own = &controller.shared;
            own.limiter.set(state.limits_of(&own.host));
        }
    }

    /// Sets which listeners lead here, for connects to come; all do if not given.
    pub(crate) fn set_listeners(&self, listeners: Option<&[SocketAddr]>) {
        self.lock().listeners = listeners.map(Box::from);
    }

    /// From now on reports have a queue that was connected.
    pub(crate) fn show(&self, cntlid: u16, qid: u16, queue: Arc<QueueShared>) {
        if let Some(controller) = self.lock().controllers.get_mut(&cntlid) {
            controller.shown.insert(qid, queue);
        }
    }

    /// How it is now.
    pub(crate) fn view(&self) -> SubsystemView {
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

    /// Its namespaces now.
    pub(crate) fn namespaces(&self) -> Arc<NamespaceTable> {
        Arc::clone(&self.lock().namespaces)
    }

    /// What hosts that came by this listener do.
    pub(crate) fn activity_by(&self, listener: u64) -> Activity {
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

    /// HOSTNQN of the host at that address that has this controller.
    pub(crate) fn host_of(&self, cntlid: u16, peer: IpAddr) -> Option<Nqn> {
        let state = self.lock();
        let controller = &state.controllers.get(&cntlid)?.shared;
        (controller.peer == peer).then_some(controller.host)
    }

    /// A queue that was connected is gone, and none of its commands is left.
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
            // The entry stays until its last queue is gone: the others are still to
            // receive a message to disconnect. It goes under the same lock, before another
            // controller can have its CNTLID.
            if controller.queues.is_empty()
                && let Some(gone) = state.controllers.remove(&cntlid)
            {
                let own = &gone.shared;
                own.limiter
                    .set_ordered(state.of_host(&own.host).nth(1).is_some());
            }
        });
    }

    /// Carries out an admin command.
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

    /// Refuses an admin command, and logs that for the host.
    pub(crate) fn refuse(&self, cntlid: u16, cid: u16, refusal: Refusal) -> Completion {
        let mut state = self.lock();
        state.log_failures(cntlid);
        state.subsystem.refuse(cntlid, cid, refusal)
    }

    /// The answer to [`Message::Abort`].
    pub(crate) fn abort_done(&self, cntlid: u16, abort_cid: u16, aborted: bool) {
        self.with(|state, _, actions| {
            state
                .subsystem
                .abort_done(cntlid, abort_cid, aborted, actions);
        });
    }

    /// The answer to [`ControlMessage::FlushAll`].
    pub(crate) fn flushed(&self, cntlid: u16, intact: bool) {
        self.with_controller(cntlid, |state, now, actions| {
            state.subsystem.flushed(cntlid, intact, now, actions);
        });
    }

    /// What an administrator changes.
    pub(crate) fn administer(&self, change: impl FnOnce(&mut Subsystem, &mut Vec<Action>)) {
        self.with(|state, _, actions| change(&mut state.subsystem, actions));
    }

    /// Whether SMART says that a disk has lost data.
    pub(crate) fn shows_losses(&self) -> bool {
        self.lock().subsystem.health().critical_warning != 0
    }

    /// Has SMART say whether a disk has lost data. Hosts that asked for it receive a change.
    pub(crate) fn show_losses(&self) {
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

    /// Ends all associations, and takes no new ones.
    pub(crate) fn remove(&self) {
        self.with(|state, _, actions| {
            state.removed = true;
            state.subsystem.terminate_all(actions);
        });
    }

    /// The queues on a reactor: (CNTLID, QID, queue pair).
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

    /// Ends an association that had a queue on a reactor that panicked. What is left of it
    /// there is reported by [`Self::disconnected`], as ever.
    pub(crate) fn lose(&self, cntlid: u16) {
        self.administer(|subsystem, actions| subsystem.terminate_faulty(cntlid, actions));
    }

    /// Sets the namespaces that I/O goes to. The protocol's own list is changed
    /// by [`Self::administer`]: after this for new ones, before it for old ones,
    /// so that no host receives a namespace whose I/O would fail.
    pub(crate) fn set_namespaces(&self, table: NamespaceTable) {
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
