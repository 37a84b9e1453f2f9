//! The controller: what a host talks to once its admin queue is connected.
//!
//! A state machine without I/O. It is handed commands ([`AdminCommand`]), events
//! and the time, answers at once ([`Outcome`]) and asks for what it cannot do
//! itself ([`Action`]): to end a command that waited, to disconnect queues, to
//! flush, to abort. It lives in a [`crate::subsystem::Subsystem`], through which
//! all calls go.
//!
//! The life of an admin command:
//!
//! 1. [`AdminCommand::parse`] checks the SQE; a refusal goes to
//!    [`crate::subsystem::Subsystem::refuse`], which logs it and makes the completion.
//! 2. [`AdminCommand::transfer`] says which data it moves and
//!    [`AdminCommand::locate`] where that is in the host. The target fetches the
//!    data, or prepares a buffer of that length.
//! 3. [`crate::subsystem::Subsystem::execute`] carries it out. [`Outcome::Complete`]
//!    is sent, after the buffer if there was success; [`Outcome::Parked`] ends
//!    later, by [`Action::Complete`].
//!
//! Actions are carried out in their order, and before the outcome is sent.

pub mod abort;
mod arrival;
pub mod async_event;
mod authentication;
mod changed;
pub mod command;
pub mod connect;
pub mod error_log;
mod features;
pub(crate) mod identify;
pub mod keep_alive;
mod log_page;
pub mod properties;
mod protection;
pub mod refusal;
mod seen;
mod withheld;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use crate::ana::AnaView;
use crate::common::{Common, Kind};
use crate::discovery::LocalEnd;
use crate::namespace::NsidSet;
use crate::wire::aen::AsyncEvent;
use crate::wire::feature::{Feature, WriteProtectionState};
use crate::wire::{Cqe, Status};

use abort::Aborts;
use async_event::AsyncEvents;
use changed::ChangedNamespaces;
use error_log::{ErrorLog, Failure};
use features::Features;
use keep_alive::{KeepAlive, Verdict};
use properties::{Properties, Transition};
use protection::Protecting;
use withheld::Withheld;

pub use crate::access::Host;
pub use arrival::{Arrival, Peer};
pub use authentication::{AUTHENTICATION_BYTES_MAX, AuthenticationRequest};
pub use command::{AdminCommand, Transfer};
pub use connect::ConnectRequest;
pub use log_page::SmartCounters;
pub use refusal::Refusal;

/// How a command ends. SQHD is the queue's matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// CID of the command.
    pub cid: u16,
    /// Its status.
    pub status: Status,
    /// DW0 and DW1.
    pub result: u64,
}

impl Completion {
    /// Success.
    #[must_use]
    pub const fn success(cid: u16, result: u64) -> Self {
        Self {
            cid,
            status: Status::SUCCESS,
            result,
        }
    }

    /// The completion queue entry, on a queue whose head is at `sqhd`.
    #[must_use]
    pub fn cqe(&self, sqhd: u16) -> Cqe {
        Cqe::new(self.cid, sqhd, self.status, self.result)
    }
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done. After success the whole buffer goes to the host first.
    Complete(Completion),
    /// It is not: [`Action::Complete`] ends it, unless a reset forgets it.
    Parked,
}

/// What the controller asks of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this completion on the admin queue.
    Complete {
        /// The controller.
        cntlid: u16,
        /// What to send.
        completion: Completion,
    },
    /// Let no I/O command begin any more, and disconnect all I/O queues; report
    /// each by [`crate::subsystem::Subsystem::queue_disconnected`].
    DisconnectIoQueues {
        /// The controller.
        cntlid: u16,
    },
    /// Disconnect all queues, the admin queue last; report each.
    Terminate {
        /// The controller.
        cntlid: u16,
        /// Why, for the log.
        reason: Termination,
    },
    /// Make what every namespace's write cache holds durable; then report by
    /// [`crate::subsystem::Subsystem::flushed`].
    FlushAll {
        /// The controller that shuts down.
        cntlid: u16,
    },
    /// Abort a command if it is still possible; then report by
    /// [`crate::subsystem::Subsystem::abort_done`].
    Abort {
        /// The controller.
        cntlid: u16,
        /// CID of the Abort command itself.
        abort_cid: u16,
        /// The queue of the command to abort.
        sqid: u16,
        /// The command to abort.
        cid: u16,
    },
    /// The host switched the volatile write cache: while it is off, a write of
    /// this controller completes once it is durable.
    SetWriteCache {
        /// The controller.
        cntlid: u16,
        /// Whether the cache may be used.
        enabled: bool,
    },
    /// Refuse writes to a namespace and make what was written durable, or accept writes again, and
    /// keep that where the namespace says so; then report by
    /// [`crate::subsystem::Subsystem::protection_done`]. If it cannot be done, the namespace is as
    /// it was before.
    SetProtection {
        /// The controller whose host asks for it.
        cntlid: u16,
        /// The namespace.
        nsid: u32,
        /// What its protection is to be: writes are refused but for `NONE`.
        state: WriteProtectionState,
        /// Which change it is.
        change: u64,
    },
    /// The host sees other namespaces: [`Controller::seen`]. Its I/O works with these alone.
    SetSeen {
        /// The controller.
        cntlid: u16,
    },
}

/// Why an association ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Termination {
    /// No command came in for KATO.
    KeepAliveExpired,
    /// The host may no longer use the subsystem.
    HostNotAllowed,
    /// The subsystem is taken away.
    SubsystemRemoved,
    /// The port that the host came by is taken away.
    PortRemoved,
    /// The port that the host came by no longer leads to the subsystem.
    PortNotAllowed,
    /// An administrator ends the association; the host may make another.
    Disconnected,
    /// The target lost a part of the association's state by a fault of its own.
    TargetFault,
}

/// What a command needs besides itself.
#[derive(Debug)]
pub struct Exchange<'a> {
    /// Time since any fixed origin.
    pub now: Duration,
    /// The counters that log page 02h reports.
    pub smart: &'a SmartCounters,
    /// The data from the host: as long as [`AdminCommand::transfer`] said.
    pub data_in: &'a [u8],
    /// The buffer for the host: as long as [`AdminCommand::transfer`] said.
    pub data_out: &'a mut [u8],
}

/// A controller, from the Connect of its admin queue to the end of that queue.
#[derive(Debug)]
pub struct Controller {
    cntlid: u16,
    host: Host,
    local: Option<LocalEnd>,
    peer: Option<IpAddr>,
    port: u64,
    /// The namespaces that the host sees; to it no others are active.
    seen: NsidSet,
    /// Those that it sees once it has noticed that others were there.
    withheld: Vec<Withheld>,
    ana: AnaView,
    properties: Properties,
    /// The association is about to end, and the target has that action.
    condemned: bool,
    keep_alive: KeepAlive,
    /// I/O queues the host may create.
    queues_granted: u16,
    /// QIDs of the I/O queues there are.
    queues: BTreeSet<u16>,
    features: Features,
    events: AsyncEvents,
    aborts: Aborts,
    protecting: Protecting,
    errors: ErrorLog,
    /// For log page 04h.
    changed_namespaces: ChangedNamespaces,
}

impl Controller {
    /// The controller that an admin Connect makes.
    pub(crate) fn new(
        cntlid: u16,
        request: &ConnectRequest,
        arrival: &Arrival<'_>,
        common: &Common,
    ) -> Self {
        let now = arrival.now;
        Self {
            cntlid,
            host: Host {
                nqn: request.hostnqn,
                id: request.hostid,
            },
            local: arrival.local,
            peer: arrival.peer.map(|peer| peer.address),
            port: arrival.port,
            seen: common.namespaces.seen_by(&request.hostnqn),
            withheld: Vec::new(),
            ana: AnaView::new(arrival.ana),
            properties: Properties::new(common.limits()),
            condemned: false,
            keep_alive: KeepAlive::new(request.kato_ms, common.kind() == Kind::Discovery, now),
            queues_granted: common.limits().io_queues,
            queues: BTreeSet::new(),
            features: Features::new(common.has_write_cache(), now),
            events: AsyncEvents::default(),
            aborts: Aborts::default(),
            protecting: Protecting::new(),
            errors: ErrorLog::default(),
            changed_namespaces: ChangedNamespaces::default(),
        }
    }

    /// Where its host connected from.
    pub(crate) fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// CNTLID.
    #[must_use]
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// QIDs of the I/O queues.
    pub fn io_queues(&self) -> impl Iterator<Item = u16> {
        self.queues.iter().copied()
    }

    /// Whether the controller is enabled, and neither shut down nor broken nor
    /// about to go.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.properties.is_ready() && !self.condemned
    }

    /// KATO in milliseconds, as granted; 0 if the host requests no timer.
    #[must_use]
    pub fn kato_ms(&self) -> u32 {
        self.keep_alive.kato_ms()
    }

    /// Whether writes may complete from a volatile cache (feature 06h).
    #[must_use]
    pub fn write_cache_enabled(&self) -> bool {
        self.features.write_cache
    }

    /// Failed commands since the association began.
    #[must_use]
    pub fn error_count(&self) -> u64 {
        self.errors.count()
    }

    /// When its time is over, as far as is known here: commands on I/O queues may
    /// have come in since. `None` if nothing but a lost connection ends it.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        if self.condemned {
            None
        } else {
            self.keep_alive.deadline()
        }
    }

    /// When its last command came in, as far as is known here, and how long it lives
    /// without another, if not for ever. `None` if it is about to go: nothing renews its lease.
    #[must_use]
    pub fn lease(&self) -> Option<(Duration, Option<Duration>)> {
        (!self.condemned).then(|| (self.keep_alive.last_command(), self.keep_alive.limit()))
    }

    /// Looks at the keep alive timer, and ends the association if that just ran out.
    pub(crate) fn end_if_over(
        &mut self,
        now: Duration,
        last: impl FnOnce() -> Duration,
        actions: &mut Vec<Action>,
    ) {
        if !self.condemned && self.keep_alive.check(now, last) == Verdict::Expired {
            self.condemn();
            let (cntlid, reason) = (self.cntlid, Termination::KeepAliveExpired);
            actions.push(Action::Terminate { cntlid, reason });
        }
    }

    /// The association is to end for a reason of ours; returns whether that is a change.
    pub(crate) fn condemn(&mut self) -> bool {
        self.properties.set_fatal();
        !core::mem::replace(&mut self.condemned, true)
    }

    /// Carries out an admin command.
    pub(crate) fn execute(
        &mut self,
        common: &mut Common,
        cid: u16,
        command: &AdminCommand,
        mut exchange: Exchange<'_>,
        actions: &mut Vec<Action>,
    ) -> Outcome {
        self.keep_alive.restart(exchange.now);
        let outcome = self.dispatch(common, cid, command, &mut exchange, actions);
        self.deliver_events(actions);
        outcome.unwrap_or_else(|refusal| Outcome::Complete(self.refuse(cid, refusal)))
    }

    /// Logs a refused admin command.
    pub(crate) fn refuse(&mut self, cid: u16, refusal: Refusal) -> Completion {
        self.errors.record(&Failure {
            sqid: 0,
            cid,
            status: refusal.status,
            byte: refusal.byte,
            lba: 0,
            nsid: 0,
        });
        let completion = refusal.completion(cid);
        Completion {
            status: completion.status.with_more(),
            ..completion
        }
    }

    pub(crate) fn record_failures(
        &mut self,
        left_out: u64,
        failures: impl IntoIterator<Item = Failure>,
    ) {
        self.errors.skip(left_out);
        for failure in failures {
            self.errors.record(&failure);
        }
    }

    /// The event happened; the host receives it if it enabled it ([`Features`], 0Bh).
    pub(crate) fn raise(&mut self, event: AsyncEvent, actions: &mut Vec<Action>) {
        if self.is_ready() && self.features.is_enabled(event) {
            self.events.raise(event);
            self.deliver_events(actions);
        }
    }

    /// The port that the host came by.
    pub(crate) fn port(&self) -> u64 {
        self.port
    }

    /// Connects an I/O queue whose Connect was found in order.
    pub(crate) fn add_io_queue(&mut self, qid: u16, now: Duration) {
        self.keep_alive.restart(now);
        let new = self.queues.insert(qid);
        assert!(
            new,
            "queue {qid} of controller {} was connected twice",
            self.cntlid
        );
    }

    pub(crate) fn takes_io_queues(&self) -> bool {
        self.is_ready() && self.properties.takes_io_queues()
    }

    pub(crate) fn queues_granted(&self) -> u16 {
        self.queues_granted
    }

    pub(crate) fn has_io_queue(&self, qid: u16) -> bool {
        self.queues.contains(&qid)
    }

    /// An I/O queue is gone. Only the last one moves a reset or shutdown on.
    pub(crate) fn remove_io_queue(
        &mut self,
        common: &Common,
        qid: u16,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        if !self.queues.remove(&qid) {
            return;
        }
        // A reset has forgotten them, or is about to.
        if !self.properties.is_resetting() {
            let cntlid = self.cntlid;
            let ended = self.aborts.end_of_queue(qid);
            actions.extend(ended.map(|completion| Action::Complete { cntlid, completion }));
        }
        if self.queues.is_empty() {
            let transition = self.properties.queues_gone();
            self.apply(common, transition, now, actions);
        }
    }

    pub(crate) fn flushed(
        &mut self,
        common: &Common,
        intact: bool,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        let transition = self.properties.flushed(intact);
        self.apply(common, transition, now, actions);
    }

    fn dispatch(
        &mut self,
        common: &mut Common,
        cid: u16,
        command: &AdminCommand,
        exchange: &mut Exchange<'_>,
        actions: &mut Vec<Action>,
    ) -> Result<Outcome, Refusal> {
        // Only Fabrics commands before CSTS.RDY and after shutdown (Base, 3.5.2).
        if !command.is_fabrics() && !self.is_ready() {
            return Err(Refusal::new(Status::COMMAND_SEQUENCE_ERROR).at(refusal::byte::OPC));
        }
        let now = exchange.now;
        let result = match command {
            AdminCommand::Identify(identify) => {
                self.show_missed(identify, actions);
                let answered = self.identify(common, identify, exchange.data_out);
                self.note_missed(identify, actions);
                answered?;
                0
            }
            AdminCommand::GetLogPage(log) => {
                self.get_log_page(common, log, exchange)?;
                0
            }
            AdminCommand::GetFeatures(get) => self.get_features(common, get, exchange)?.into(),
            AdminCommand::SetFeatures(set) => {
                if set.fid == Feature::NAMESPACE_WRITE_PROTECTION && common.kind() == Kind::Nvm {
                    return self.set_protection(common, cid, set, actions);
                }
                self.set_features(common, set, exchange, actions)?.into()
            }
            // As any command, it has restarted the timer.
            AdminCommand::KeepAlive => 0,
            AdminCommand::PropertyGet { ofst, size } => self.properties.get(*ofst, *size)?,
            AdminCommand::PropertySet { ofst, size, value } => {
                let io_queues = !self.queues.is_empty();
                let transition = self.properties.set(*ofst, *size, *value, io_queues)?;
                self.apply(common, transition, now, actions);
                0
            }
            AdminCommand::AsyncEventRequest => {
                self.events.park(cid)?;
                return Ok(Outcome::Parked);
            }
            AdminCommand::Abort { sqid, cid: victim } => {
                return self.abort(cid, *sqid, *victim, actions);
            }
        };
        Ok(Outcome::Complete(Completion::success(cid, result)))
    }

    /// Does what a change of CC, or its aftermath, brings.
    fn apply(
        &mut self,
        common: &Common,
        transition: Transition,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        match transition {
            Transition::None => {}
            Transition::Enabled => self.keep_alive.set_running(true, now),
            Transition::DrainQueues => {
                self.keep_alive.set_running(false, now);
                actions.push(Action::DisconnectIoQueues {
                    cntlid: self.cntlid,
                });
            }
            Transition::Reset => self.reset(common, now, actions),
            Transition::Flush => {
                self.keep_alive.set_running(false, now);
                if common.has_write_cache() {
                    actions.push(Action::FlushAll {
                        cntlid: self.cntlid,
                    });
                } else {
                    self.flushed(common, true, now, actions);
                }
            }
            Transition::ShutDown => self.keep_alive.set_running(false, now),
        }
    }

    /// Controller reset: everything but the admin queue, KATO and the error log
    /// begins anew (Base, 3.7.2). Commands that wait are forgotten.
    fn reset(&mut self, common: &Common, now: Duration, actions: &mut Vec<Action>) {
        self.keep_alive.set_running(false, now);
        self.features = Features::new(common.has_write_cache(), now);
        self.queues_granted = common.limits().io_queues;
        self.events.reset();
        self.aborts.reset();
        self.protecting.clear();
        self.changed_namespaces.clear();
        if common.has_write_cache() {
            actions.push(Action::SetWriteCache {
                cntlid: self.cntlid,
                enabled: true,
            });
        }
    }

    fn deliver_events(&mut self, actions: &mut Vec<Action>) {
        while let Some(completion) = self.events.next_completion() {
            actions.push(Action::Complete {
                cntlid: self.cntlid,
                completion,
            });
        }
    }
}
