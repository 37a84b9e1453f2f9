//! Target side of an association: a state machine without I/O.
//!
//! A [`Controller`] receives commands ([`AdminCommand`]), events and the time. It returns an
//! [`Outcome`] and [`Action`]s.
//!
//! The target processes an admin command in these steps:
//!
//! 1. [`AdminCommand::parse`] checks the SQE. [`crate::subsystem::Subsystem::refuse`] returns the
//!    completion of an error.
//! 2. [`AdminCommand::transfer`] and [`AdminCommand::locate`] describe the data. The target fetches
//!    it from the host, or allocates a buffer for data to the host.
//! 3. [`crate::subsystem::Subsystem::execute`] executes the command and returns an [`Outcome`].
//!
//! The target carries out the actions in order, before it sends the outcome.

pub mod abort;
mod arrival;
pub mod async_event;
mod authentication;
mod changed;
pub mod command;
pub mod connect;
mod cross_reset;
pub mod error_log;
mod features;
pub(crate) mod identify;
pub mod keep_alive;
mod log_page;
pub mod properties;
mod protection;
pub mod refusal;
mod reservation;
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
use cross_reset::{CrossResets, Identity};
use error_log::{ErrorLog, Failure};
use features::Features;
use keep_alive::KeepAlive;
use properties::{Properties, Transition};
use protection::Protecting;
use reservation::ReservationNotices;
use withheld::Withheld;

pub use crate::access::Host;
pub use arrival::{Arrival, Peer};
pub use authentication::{AUTHENTICATION_BYTES_MAX, AuthenticationRequest};
pub use command::{AdminCommand, Transfer};
pub use connect::ConnectRequest;
pub(crate) use cross_reset::Fate;
pub use log_page::SmartCounters;
pub use refusal::Refusal;

/// Completion of a command, to which the target adds SQHD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Command identifier.
    pub cid: u16,
    /// Status without phase tag.
    pub status: Status,
    /// Result (DW0 and DW1).
    pub result: u64,
}

impl Completion {
    /// Creates a completion with status Success; `result` is DW0 and DW1.
    #[must_use]
    pub const fn success(cid: u16, result: u64) -> Self {
        Self {
            cid,
            status: Status::SUCCESS,
            result,
        }
    }

    /// Returns the CQE; `sqhd` is the submission queue head.
    #[must_use]
    pub fn cqe(&self, sqhd: u16) -> Cqe {
        Cqe::new(self.cid, sqhd, self.status, self.result)
    }
}

/// Outcome of an admin command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command is complete. After success, send the data before the completion.
    Complete(Completion),
    /// The command stays in flight until [`Action::Complete`] or a reset.
    Parked,
}

/// Request of a controller to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sends a completion on the admin queue.
    Complete {
        /// Controller identifier.
        cntlid: u16,
        /// Completion to send.
        completion: Completion,
    },
    /// Stops I/O and disconnects all I/O queues.
    ///
    /// Call [`crate::subsystem::Subsystem::queue_disconnected`] for each closed queue.
    DisconnectIoQueues {
        /// Controller identifier.
        cntlid: u16,
    },
    /// Disconnects all queues, the admin queue last.
    ///
    /// Call [`crate::subsystem::Subsystem::queue_disconnected`] for each closed queue.
    Terminate {
        /// Controller identifier.
        cntlid: u16,
        /// Reason, for logs.
        reason: Termination,
    },
    /// Flushes the volatile caches of all namespaces; then call
    /// [`crate::subsystem::Subsystem::flushed`].
    FlushAll {
        /// CNTLID of the controller that shuts down.
        cntlid: u16,
    },
    /// Aborts a command of an I/O queue if possible; then call
    /// [`crate::subsystem::Subsystem::abort_done`].
    Abort {
        /// Controller identifier.
        cntlid: u16,
        /// CID of the Abort command.
        abort_cid: u16,
        /// SQID of the command to abort.
        sqid: u16,
        /// CID of the command to abort.
        cid: u16,
    },
    /// Enables or disables the volatile write cache for this controller.
    ///
    /// While disabled, writes of this controller complete only when durable.
    SetWriteCache {
        /// Controller identifier.
        cntlid: u16,
        /// True if writes may complete from the cache.
        enabled: bool,
    },
    /// Changes the write protection of a namespace; then call
    /// [`crate::subsystem::Subsystem::protection_done`].
    ///
    /// To protect, the target rejects new writes, makes completed writes durable, and saves the
    /// state if [`Namespace::keeps_protection`](crate::namespace::Namespace::keeps_protection) is
    /// true. On failure, the former state stays.
    SetProtection {
        /// CNTLID of the requesting controller.
        cntlid: u16,
        /// NSID of the namespace.
        nsid: u32,
        /// New state; all except `NONE` reject writes.
        state: WriteProtectionState,
        /// Number of the change, for `protection_done`.
        change: u64,
    },
    /// Changes the PTPL state of a namespace's reservations; then call
    /// [`crate::subsystem::Subsystem::persistence_done`].
    PersistReservations {
        /// CNTLID of the requesting controller.
        cntlid: u16,
        /// NSID of the namespace.
        nsid: u32,
        /// Number of the change, for `persistence_done`.
        change: u64,
        /// New state: true if reservations persist through power loss.
        persistent: bool,
    },
    /// Restricts I/O of this controller to the namespaces in [`Controller::seen`].
    SetSeen {
        /// Controller identifier.
        cntlid: u16,
    },
}

/// Reason why an association ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Termination {
    /// No command arrived within KATO.
    KeepAliveExpired,
    /// The host may no longer connect.
    HostNotAllowed,
    /// The subsystem was removed.
    SubsystemRemoved,
    /// The port of the connection was removed.
    PortRemoved,
    /// The port no longer exports the subsystem.
    PortNotAllowed,
    /// An administrator disconnected the host, which may reconnect.
    Disconnected,
    /// The association lost state through a fault of the target.
    TargetFault,
    /// The host reset the controller through another controller.
    CrossControllerReset,
}

/// Inputs and data buffers of an admin command.
#[derive(Debug)]
pub struct Exchange<'a> {
    /// Time since a fixed origin.
    pub now: Duration,
    /// Counters for log page 02h.
    pub smart: &'a SmartCounters,
    /// Data from the host; length as in [`AdminCommand::transfer`].
    pub data_in: &'a [u8],
    /// Buffer for data to the host; length as in [`AdminCommand::transfer`].
    pub data_out: &'a mut [u8],
}

/// Controller; exists while its admin queue is connected.
#[derive(Debug)]
pub struct Controller {
    cntlid: u16,
    host: Host,
    local: Option<LocalEnd>,
    peer: Option<IpAddr>,
    port: u64,
    seen: NsidSet,
    withheld: Vec<Withheld>,
    ana: AnaView,
    properties: Properties,
    /// True once `Action::Terminate` was issued.
    condemned: bool,
    keep_alive: KeepAlive,
    queues_granted: u16,
    queues: BTreeSet<u16>,
    features: Features,
    events: AsyncEvents,
    aborts: Aborts,
    protecting: Protecting,
    reservation_notices: ReservationNotices,
    errors: ErrorLog,
    changed_namespaces: ChangedNamespaces,
    identity: Identity,
    cross_resets: CrossResets,
}

impl Controller {
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
            reservation_notices: ReservationNotices::default(),
            errors: ErrorLog::default(),
            changed_namespaces: ChangedNamespaces::default(),
            identity: Identity::new(cntlid, arrival.random),
            cross_resets: CrossResets::default(),
        }
    }

    pub(crate) fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// CNTLID, unique in the subsystem.
    #[must_use]
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }

    /// HOSTNQN and HOSTID of the host.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// QIDs of connected I/O queues.
    pub fn io_queues(&self) -> impl Iterator<Item = u16> {
        self.queues.iter().copied()
    }

    /// True if commands are accepted: enabled, not shut down, not failed, not ending.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.properties.is_ready() && !self.condemned
    }

    /// KATO in milliseconds; 0 if disabled.
    #[must_use]
    pub fn kato_ms(&self) -> u32 {
        self.keep_alive.kato_ms()
    }

    /// True if writes may complete from a volatile cache (feature 06h).
    #[must_use]
    pub fn write_cache_enabled(&self) -> bool {
        self.features.write_cache
    }

    /// Number of failed commands of the association.
    #[must_use]
    pub fn error_count(&self) -> u64 {
        self.errors.count()
    }

    pub(crate) fn condemn(&mut self) -> bool {
        self.properties.set_fatal();
        !core::mem::replace(&mut self.condemned, true)
    }

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

    pub(crate) fn raise(&mut self, event: AsyncEvent, actions: &mut Vec<Action>) {
        if self.is_ready() && self.features.is_enabled(event) {
            self.events.raise(event);
            self.deliver_events(actions);
        }
    }

    pub(crate) fn port(&self) -> u64 {
        self.port
    }

    pub(crate) fn add_io_queue(&mut self, qid: u16, now: Duration) {
        self.keep_alive.restart(now);
        let new = self.queues.insert(qid);
        assert!(
            new,
            "queue {qid} of controller {} was connected twice",
            self.cntlid
        );
    }

    pub(crate) fn is_condemned(&self) -> bool {
        self.condemned
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

    /// Removes a closed I/O queue. The last queue continues a pending reset or shutdown.
    pub(crate) fn remove_io_queue(
        &mut self,
        common: &mut Common,
        qid: u16,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        if !self.queues.remove(&qid) {
            return;
        }
        // A reset discards pending Aborts without completion.
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
        common: &mut Common,
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
        // Before CSTS.RDY and after shutdown, only Fabrics commands are allowed (Base, 3.5.2).
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
                if set.fid == Feature::RESERVATION_PERSISTENCE && common.kind() == Kind::Nvm {
                    return self.set_persistence(common, cid, set, actions);
                }
                self.set_features(common, set, exchange, actions)?.into()
            }
            AdminCommand::KeepAlive => 0,
            AdminCommand::PropertyGet { ofst, size } => self.properties.get(*ofst, *size)?,
            AdminCommand::PropertySet { ofst, size, value } => {
                let io_queues = !self.queues.is_empty();
                let transition = self.properties.set(*ofst, *size, *value, io_queues)?;
                self.apply(common, transition, now, actions);
                0
            }
            AdminCommand::CrossControllerReset(_) => unreachable!("the subsystem executes it"),
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

    fn apply(
        &mut self,
        common: &mut Common,
        transition: Transition,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        match transition {
            Transition::None => {}
            Transition::Enabled => {
                self.keep_alive.set_running(true, now);
                if let Some(former) = self.identity.enabled() {
                    common.departed.add(former);
                }
            }
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

    /// Resets features and notifications, and discards admin commands in flight (Base, 3.7.2).
    fn reset(&mut self, common: &Common, now: Duration, actions: &mut Vec<Action>) {
        self.keep_alive.set_running(false, now);
        self.features = Features::new(common.has_write_cache(), now);
        self.queues_granted = common.limits().io_queues;
        self.events.reset();
        self.aborts.reset();
        self.protecting.clear();
        self.reservation_notices.reset();
        self.changed_namespaces.clear();
        self.cross_resets = CrossResets::default();
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
