//! Host side of one association with a controller, without I/O.
//!
//! An [`Association`] receives events (queues connected or lost, responses to its own commands,
//! time) and returns [`Action`]s for its driver. It follows the order of a Linux host: admin queue,
//! properties, Identify, I/O queues, asynchronous events. A live association keeps the controller
//! alive; after a loss it reconnects according to [`Recovery`].
//!
//! User commands do not pass through this module. Their driver calls [`Association::state`] to learn when they
//! may be sent, [`Association::command_timed_out`] for overdue ones, and [`requeue::is_safe`] for
//! those that may be sent again.
//!
//! An invalid response of a controller never panics; it ends the association with a [`Cause`].

mod authentication;
mod bring_up;
mod cause;
mod duties;
pub mod multipath;
mod notice;
mod recovering;
mod renewal;
pub mod requeue;
mod settings;
mod teardown;

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use core::time::Duration;

use crate::wire::cm::RequestData;
use crate::wire::identify::IdentifyController;
use crate::wire::property::{Cap, Cc, Vs};
use crate::wire::{Cqe, Sqe};

use bring_up::{IoQueues, Step};
use duties::{Aborts, KeepAlive};
use recovering::Loss;
use renewal::Renewal;
use teardown::Teardown;

pub use authentication::AuthenticationStep;
pub use bring_up::{ADMIN_ENTRIES, IN_CAPSULE_BYTES_MAX};
pub use cause::Cause;
pub use notice::{Notice, all_notices};
pub use settings::{Recovery, Settings};

/// Maximum of outstanding commands of the association itself.
///
/// One step, one Keep Alive, one Asynchronous Event Request and the Aborts, all on the admin queue
/// except Connect and authentication of an I/O queue, where one command is outstanding in addition
/// to the depth.
pub const OWN_COMMANDS: u16 = 3 + duties::ABORTS_MAX as u16;

/// Request to the driver. Actions are carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Connect a queue. [`Association::queue_connected`] or [`Association::queue_lost`] follows.
    Connect(QueueSpec),
    /// Send a command; the driver sets CID, PSDT and the data pointer.
    ///
    /// [`Association::completed`] follows unless the queue is lost.
    Send(OwnCommand),
    /// Close the connection of this queue.
    ///
    /// [`Association::queue_closed`] follows once no peer can access the memory of its commands.
    Disconnect {
        /// QID.
        qid: u16,
    },
    /// Produce the next authentication message of a queue.
    ///
    /// The driver calls [`Association::authenticate`].
    Authenticate {
        /// QID.
        qid: u16,
        /// Data of the last [`AuthenticationStep::Receive`].
        ///
        /// `None` starts an authentication, and discards one of another queue.
        answer: Option<Box<[u8]>>,
    },
    /// Report to the user.
    Report(Report),
}

/// Parameters of a queue connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSpec {
    /// QID.
    pub qid: u16,
    /// Maximum of outstanding user commands.
    ///
    /// SQSIZE (one less than the entries; Base, 3.3.1.5), or one less with
    /// [`Settings::spare_entry`].
    pub depth: u16,
    /// Maximum size of a command capsule in bytes.
    pub capsule_bytes: usize,
    /// Private data of the connection request.
    pub request: RequestData,
}

/// Command of the association itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnCommand {
    /// QID.
    pub qid: u16,
    /// Purpose, returned to [`Association::completed`].
    pub duty: Duty,
    /// Submission queue entry.
    pub sqe: Sqe,
    /// Command data.
    pub payload: Payload,
}

/// Data of an [`OwnCommand`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// No data.
    None,
    /// This many bytes from the controller.
    ToHost(u32),
    /// Bytes to the controller.
    FromHost(Box<[u8]>),
}

/// Purpose of an [`OwnCommand`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Step of bring-up, reauthentication or teardown with this serial number.
    Step(u32),
    /// Keep Alive.
    KeepAlive,
    /// Asynchronous Event Request.
    EventRequest,
    /// Abort.
    Abort,
}

/// Report to the user of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// The controller accepts commands.
    Live {
        /// Reconnection attempts; 0 the first time.
        tries: u32,
    },
    /// The controller is lost. Reconnection follows if [`Recovery`] allows, else [`Report::Gone`].
    Lost(Cause),
    /// A reconnection attempt failed.
    TryFailed {
        /// Attempts.
        tries: u32,
        /// Reason.
        cause: Cause,
    },
    /// `fast_io_fail_tmo` expired: commands no longer wait for the controller.
    FailFast,
    /// The association ended; `None` on the user's request.
    Gone(Option<Cause>),
    /// The controller reported an event.
    Notice(Notice),
    /// Every queue reauthenticated.
    Reauthenticated,
    /// The controller does not support reauthentication; the association continues.
    NotReauthenticated(Cause),
}

/// State of an association, named as in Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// First bring-up.
    Connecting,
    /// Accepts commands.
    Live,
    /// A requested reset is in progress, including the bring-up.
    Resetting,
    /// The host waits for, or makes, an attempt to reconnect.
    Reconnecting {
        /// Attempts so far, including the current attempt.
        tries: u32,
    },
    /// A shutdown is in progress.
    ShuttingDown,
    /// The association has ended.
    Gone,
}

/// Association of a host with one controller; see the [module](self).
///
/// `now` is the time since a fixed origin, which is the same in every call.
#[derive(Debug)]
pub struct Association {
    settings: Settings,
    phase: Phase,
    going_up: State,
    /// QIDs of the requested connections not yet closed.
    open: BTreeSet<u16>,
    /// Subset of `open` released by [`Self::release_queue`].
    released: BTreeSet<u16>,
    /// Serial number of the last step, and deadline of its response.
    serial: u32,
    step_due: Option<Duration>,
    /// Time of the next read of CSTS, and deadline for its expected value.
    look_at: Option<Duration>,
    reached_by: Duration,
    cntlid: u16,
    cap: Cap,
    crwmt: u16,
    cc: Cc,
    vs: Vs,
    identity: Option<Box<IdentifyController>>,
    io_queues: IoQueues,
    keep_alive: KeepAlive,
    aborts: Aborts,
    /// True if the admin queue authenticated.
    authenticated: bool,
    renewal: Renewal,
    loss: Option<Loss>,
    actions: VecDeque<Action>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    New,
    BringUp(Step),
    Live,
    TearingDown(Teardown),
    /// The host waits until all connections are closed.
    Closing(Next),
    Waiting {
        until: Duration,
    },
    Gone,
}

/// Continuation after all connections are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    BringUp,
    Recover(Cause),
    Gone(Option<Cause>),
}

impl Association {
    /// Creates an association; [`begin`](Self::begin) starts it.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            phase: Phase::New,
            going_up: State::Connecting,
            open: BTreeSet::new(),
            released: BTreeSet::new(),
            serial: 0,
            step_due: None,
            look_at: None,
            reached_by: Duration::ZERO,
            cntlid: 0,
            cap: Cap(0),
            crwmt: 0,
            cc: Cc(0),
            vs: Vs(0),
            identity: None,
            io_queues: IoQueues::default(),
            keep_alive: KeepAlive::default(),
            aborts: Aborts::default(),
            authenticated: false,
            renewal: Renewal::default(),
            loss: None,
            actions: VecDeque::new(),
        }
    }

    /// Starts to connect. Repeated calls have no effect.
    pub fn begin(&mut self, now: Duration) {
        if self.phase == Phase::New {
            self.start_bring_up(now);
        }
    }

    /// Returns the oldest pending action.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Time of the next [`tick`](Self::tick) without another event.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let phase = match self.phase {
            Phase::Waiting { until } => Some(until),
            Phase::Live => self.keep_alive.deadline(),
            _ => self.look_at,
        };
        [
            phase,
            self.step_due,
            self.renewal.due(),
            self.fail_fast_at(),
            self.try_ends_at(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Performs the work due at `now`.
    pub fn tick(&mut self, now: Duration) {
        self.check_fail_fast(now);
        self.check_loss(now);
        if self.step_due.is_some_and(|due| now >= due) {
            self.fail(self.overdue(), now);
        }
        match self.phase {
            Phase::Waiting { until } if now >= until => self.try_again(now),
            Phase::Live => {
                self.renew(now);
                self.stay_alive(now);
            }
            _ if self.look_at.is_some_and(|at| now >= at) => self.look(now),
            _ => {}
        }
    }

    /// Continues after a connection was established.
    ///
    /// CRQSIZE in the target's reply is ignored: the target must provide one receive for each
    /// command within SQSIZE.
    pub fn queue_connected(&mut self, qid: u16, now: Duration) {
        if self.phase == Phase::BringUp(Step::Link(qid)) {
            self.step(Step::Connect(qid), now);
        }
    }

    /// Handles a connection that failed or ended.
    ///
    /// [`Self::queue_closed`] follows after [`Action::Disconnect`].
    pub fn queue_lost(&mut self, qid: u16, now: Duration) {
        if self.open.contains(&qid) && !self.released.contains(&qid) {
            self.lost(qid, now);
        }
    }

    fn lost(&mut self, qid: u16, now: Duration) {
        let cause = match self.phase {
            Phase::BringUp(Step::Link(linking)) if linking == qid => Cause::NotConnected { qid },
            Phase::BringUp(Step::Authenticate(of)) if of == qid => {
                Cause::LostAuthenticating { qid }
            }
            Phase::Live if self.renewal.qid() == Some(qid) => Cause::LostAuthenticating { qid },
            _ => Cause::QueueLost { qid },
        };
        match self.phase {
            // A controller may close its I/O queues first during a reset or shutdown.
            Phase::TearingDown(_) if qid != 0 => {}
            _ => self.fail(cause, now),
        }
    }

    /// Handles a closed connection, through which no peer can access memory any more.
    pub fn queue_closed(&mut self, qid: u16, now: Duration) {
        if !self.open.remove(&qid) {
            return;
        }
        let released = self.released.remove(&qid);
        match self.phase {
            Phase::Closing(next) if self.open.is_empty() => self.proceed(next, now),
            Phase::TearingDown(teardown) if qid != 0 => self.continue_teardown(teardown, now),
            _ if !released => self.lost(qid, now),
            _ => self.leave_out_of_renewal(qid, now),
        }
    }

    /// Handles the response to a command of the association.
    ///
    /// `data` has the length requested by [`Payload::ToHost`].
    pub fn completed(&mut self, duty: Duty, cqe: &Cqe, data: &[u8], now: Duration) {
        match duty {
            Duty::Step(serial) if serial == self.serial && self.step_due.is_some() => {
                self.step_due = None;
                self.step_answered(cqe, data, now);
            }
            // Late response to an abandoned step.
            Duty::Step(_) => {}
            Duty::KeepAlive => self.kept_alive(cqe, now),
            Duty::EventRequest => self.event_came(cqe),
            Duty::Abort => self.aborts.answered(),
        }
    }

    /// Closes one I/O queue; the association continues without it.
    pub fn release_queue(&mut self, qid: u16) {
        if qid != 0 && self.open.contains(&qid) && self.released.insert(qid) {
            self.actions.push_back(Action::Disconnect { qid });
        }
    }

    /// Closes all connections without notice to the controller.
    pub fn disconnect(&mut self, now: Duration) {
        match self.phase {
            Phase::Gone | Phase::Closing(Next::Gone(_)) => {}
            _ => self.close(Next::Gone(None), now),
        }
    }

    /// Ends the association after its adapter was removed with all connections.
    pub fn device_removed(&mut self, now: Duration) {
        let qid = self.open.first().copied().unwrap_or(0);
        self.open.clear();
        if self.phase != Phase::Gone {
            self.proceed(Next::Gone(Some(Cause::QueueLost { qid })), now);
        }
    }

    /// Current state.
    #[must_use]
    pub fn state(&self) -> State {
        match self.phase {
            Phase::New | Phase::BringUp(_) | Phase::Waiting { .. } => self.going_up(),
            Phase::Live => State::Live,
            Phase::TearingDown(teardown) if teardown.is_reset() => State::Resetting,
            Phase::TearingDown(_) | Phase::Closing(Next::Gone(_)) => State::ShuttingDown,
            Phase::Closing(_) => self.going_up(),
            Phase::Gone => State::Gone,
        }
    }

    /// CNTLID, valid once connected.
    #[must_use]
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }

    /// CAP, read when the controller was enabled.
    #[must_use]
    pub fn cap(&self) -> Cap {
        self.cap
    }

    /// VS, read when the controller was enabled.
    #[must_use]
    pub fn vs(&self) -> Vs {
        self.vs
    }

    /// Identify Controller, read when the controller was enabled.
    #[must_use]
    pub fn identity(&self) -> Option<&IdentifyController> {
        self.identity.as_deref()
    }

    /// Number of I/O queues granted by the controller, with QIDs from 1.
    #[must_use]
    pub fn io_queues(&self) -> u16 {
        self.io_queues.count
    }

    /// Closes all connections after a failure, then recovers according to [`Recovery`].
    pub(crate) fn fail(&mut self, cause: Cause, now: Duration) {
        match self.phase {
            Phase::BringUp(_) | Phase::Live => self.close(Next::Recover(cause), now),
            Phase::TearingDown(teardown) if teardown.is_reset() => {
                self.close(Next::Recover(cause), now);
            }
            Phase::TearingDown(_) => self.close(Next::Gone(Some(cause)), now),
            Phase::New | Phase::Closing(_) | Phase::Waiting { .. } | Phase::Gone => {}
        }
    }

    fn close(&mut self, next: Next, now: Duration) {
        self.phase = Phase::Closing(next);
        self.step_due = None;
        self.look_at = None;
        self.keep_alive = KeepAlive::default();
        self.aborts = Aborts::default();
        self.renewal = Renewal::default();
        // Reported first, because outstanding commands end with this reason.
        if let Next::Recover(cause) = next {
            self.note_loss(cause, now);
        }
        let open = self.open.iter().filter(|qid| !self.released.contains(qid));
        self.actions
            .extend(open.map(|&qid| Action::Disconnect { qid }));
        if self.open.is_empty() {
            self.proceed(next, now);
        }
    }

    fn proceed(&mut self, next: Next, now: Duration) {
        match next {
            Next::BringUp => self.start_bring_up(now),
            Next::Recover(cause) => self.recover(cause, now),
            Next::Gone(cause) => {
                self.phase = Phase::Gone;
                self.step_due = None;
                self.look_at = None;
                self.loss = None;
                self.report(Report::Gone(cause));
            }
        }
    }

    fn send_step(&mut self, qid: u16, sqe: Sqe, payload: Payload, now: Duration) {
        self.serial = self.serial.wrapping_add(1);
        self.step_due = Some(now + self.settings.step_timeout);
        self.actions.push_back(Action::Send(OwnCommand {
            qid,
            duty: Duty::Step(self.serial),
            sqe,
            payload,
        }));
    }

    fn report(&mut self, report: Report) {
        self.actions.push_back(Action::Report(report));
    }
}
