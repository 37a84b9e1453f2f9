//! Host side of an association with one controller, without I/O.
//!
//! [`Association`] is a state machine: its driver reports events (connections, responses, time) and
//! carries out [`Action`]s. An association brings its controller up in Linux's order, sends Keep
//! Alives, and reconnects after a loss ([`Recovery`]).
//!
//! The driver itself sends user commands while [`Association::state`] is
//! [`AssociationState::Live`].
//!
//! Invalid responses end the association with a [`Cause`].

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

/// Maximum commands of the association itself on the admin queue: one of the current step, a Keep
/// Alive, an Asynchronous Event Request, and the Aborts.
///
/// An I/O queue may have one Connect or authentication command in addition to [`QueueSpec::depth`].
pub const OWN_COMMANDS: u16 = 3 + duties::ABORTS_MAX as u16;

/// Request to the driver, which must carry out requests in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Connects a queue. Then call [`Association::queue_connected`] or [`Association::queue_lost`].
    Connect(QueueSpec),
    /// Sends a command. The driver fills in CID, PSDT and data pointer, and passes the response to
    /// [`Association::completed`].
    Send(OwnCommand),
    /// Closes the connection of a queue.
    ///
    /// Call [`Association::queue_closed`] when the controller can no longer access the memory of
    /// the queue's commands.
    Disconnect {
        /// Queue to disconnect.
        qid: u16,
    },
    /// Requests the queue's next authentication message, for [`Association::authenticate`].
    Authenticate {
        /// Queue to authenticate.
        qid: u16,
        /// Data of [`AuthenticationStep::Receive`], empty after a Send; `None` at the start.
        answer: Option<Box<[u8]>>,
    },
    /// Reports an event to the user.
    Report(Report),
}

/// Parameters of a queue connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSpec {
    /// QID; 0 for the admin queue.
    pub qid: u16,
    /// Maximum user commands in flight.
    ///
    /// Equals SQSIZE (0-based), because one entry is never used (Base, 3.3.1.5); one less with
    /// [`Settings::spare_entry`].
    pub depth: u16,
    /// Maximum command capsule in bytes.
    pub capsule_bytes: usize,
    /// Private data of the connection request.
    pub request: RequestData,
}

/// Command sent by the association itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnCommand {
    /// Queue for the command.
    pub qid: u16,
    /// Purpose, for [`Association::completed`].
    pub duty: Duty,
    /// SQE, completed by the driver.
    pub sqe: Sqe,
    /// Data, or length of the buffer.
    pub payload: Payload,
}

/// Data of an [`OwnCommand`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// No data.
    None,
    /// Number of bytes from the controller.
    ToHost(u32),
    /// Data to the controller.
    FromHost(Box<[u8]>),
}

/// Purpose of an [`OwnCommand`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Step of bring-up, reauthentication or teardown, with its serial number.
    Step(u32),
    /// Keep Alive, sent at intervals.
    KeepAlive,
    /// Asynchronous Event Request.
    EventRequest,
    /// Abort of a user command.
    Abort,
}

/// Event for the user of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// The controller accepts commands.
    Live {
        /// Attempts to reconnect; 0 for the first connection and after a reset.
        tries: u32,
    },
    /// The controller is lost. [`Recovery`] decides between reconnection and [`Report::Gone`].
    Lost(Cause),
    /// An attempt to reconnect failed.
    TryFailed {
        /// Attempts so far.
        tries: u32,
        /// Reason of the failure.
        cause: Cause,
    },
    /// `fast_io_fail_tmo` expired: commands must fail instead of waiting.
    FailFast,
    /// The association has ended; `None` if the user requested the end.
    Gone(Option<Cause>),
    /// The controller reported an asynchronous event.
    Notice(Notice),
    /// Every queue is reauthenticated.
    Reauthenticated,
    /// A command of the reauthentication failed; the association continues.
    NotReauthenticated(Cause),
}

/// State of an association, named as in Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssociationState {
    /// The first bring-up is in progress.
    Connecting,
    /// The controller accepts commands.
    Live,
    /// A requested reset, including the bring-up, is in progress.
    Resetting,
    /// The controller is lost; the host reconnects, or waits before the next attempt.
    Reconnecting {
        /// Attempts, including the current attempt.
        tries: u32,
    },
    /// A shutdown is in progress.
    ShuttingDown,
    /// The association has ended.
    Gone,
}

/// Association of a host with one controller ([module](self)).
///
/// `now` of all methods is the time since one fixed origin.
///
/// The first action connects the admin queue, the second sends Connect:
///
/// ```
/// use core::time::Duration;
/// use nvme_proto::host::{Action, Association, Settings};
/// use nvme_proto::wire::FabricsType;
///
/// let subnqn = "nqn.2026-01.org.example:disk".parse()?;
/// let hostnqn = "nqn.2026-01.org.example:host".parse()?;
/// let mut association = Association::new(Settings::new(subnqn, hostnqn, [7; 16]));
/// let now = Duration::ZERO;
/// association.begin(now);
/// let Some(Action::Connect(spec)) = association.next_action() else {
///     panic!("no connection is requested");
/// };
/// assert_eq!(spec.qid, 0);
///
/// association.queue_connected(0, now);
/// let Some(Action::Send(command)) = association.next_action() else {
///     panic!("no command is sent");
/// };
/// assert_eq!(command.sqe.fctype(), FabricsType::CONNECT);
///
/// // Without a response in time, the host gives up.
/// association.tick(association.deadline().unwrap());
/// assert_eq!(association.next_action(), Some(Action::Disconnect { qid: 0 }));
/// # Ok::<(), nvme_proto::wire::nqn::NqnError>(())
/// ```
#[derive(Debug)]
pub struct Association {
    settings: Settings,
    phase: Phase,
    going_up: AssociationState,
    /// QIDs of connections requested and not yet closed.
    open: BTreeSet<u16>,
    /// QIDs in `open` whose connection [`Self::release_queue`] closes.
    released: BTreeSet<u16>,
    serial: u32,
    step_due: Option<Duration>,
    /// Time of the next read of CSTS.
    look_at: Option<Duration>,
    /// Deadline for the expected CSTS value.
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
    cancels: bool,
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
    Closing(Next),
    Waiting { until: Duration },
    Gone,
}

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
            going_up: AssociationState::Connecting,
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
            cancels: false,
            authenticated: false,
            renewal: Renewal::default(),
            loss: None,
            actions: VecDeque::new(),
        }
    }

    /// Starts to connect; further calls have no effect.
    pub fn begin(&mut self, now: Duration) {
        if self.phase == Phase::New {
            self.start_bring_up(now);
        }
    }

    /// Removes and returns the oldest action.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Time of the next [`tick`](Self::tick).
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

    /// Continues after a queue was connected.
    ///
    /// CRQSIZE is ignored: the target must have a receive for each command within SQSIZE.
    pub fn queue_connected(&mut self, qid: u16, now: Duration) {
        if self.phase == Phase::BringUp(Step::Link(qid)) {
            self.step(Step::Connect(qid), now);
        }
    }

    /// Handles a connection that failed or ended.
    ///
    /// Call [`Self::queue_closed`] after the following [`Action::Disconnect`].
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
            // In a reset or shutdown, a controller may close its I/O queues first.
            Phase::TearingDown(_) if qid != 0 => {}
            _ => self.fail(cause, now),
        }
    }

    /// Handles a closed connection: the controller can no longer access memory through it.
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

    /// Handles the response to an [`OwnCommand`]; `data` has the length in [`Payload::ToHost`].
    pub fn completed(&mut self, duty: Duty, cqe: &Cqe, data: &[u8], now: Duration) {
        match duty {
            Duty::Step(serial) if serial == self.serial && self.step_due.is_some() => {
                self.step_due = None;
                self.step_answered(cqe, data, now);
            }
            // The response belongs to an abandoned step.
            Duty::Step(_) => {}
            Duty::KeepAlive => self.kept_alive(cqe, now),
            Duty::EventRequest => self.event_came(cqe),
            Duty::Abort => self.aborts.answered(),
        }
    }

    /// Closes an I/O queue permanently; the association continues.
    pub fn release_queue(&mut self, qid: u16) {
        if qid != 0 && self.open.contains(&qid) && self.released.insert(qid) {
            self.actions.push_back(Action::Disconnect { qid });
        }
    }

    /// Closes all connections without a controller shutdown.
    pub fn disconnect(&mut self, now: Duration) {
        match self.phase {
            Phase::Gone | Phase::Closing(Next::Gone(_)) => {}
            _ => self.close(Next::Gone(None), now),
        }
    }

    /// Ends the association after removal of the RDMA device, which ended all connections.
    pub fn device_removed(&mut self, now: Duration) {
        let qid = self.open.first().copied().unwrap_or(0);
        self.open.clear();
        if self.phase != Phase::Gone {
            self.proceed(Next::Gone(Some(Cause::QueueLost { qid })), now);
        }
    }

    /// Current state.
    #[must_use]
    pub fn state(&self) -> AssociationState {
        match self.phase {
            Phase::New | Phase::BringUp(_) | Phase::Waiting { .. } => self.going_up(),
            Phase::Live => AssociationState::Live,
            Phase::TearingDown(teardown) if teardown.is_reset() => AssociationState::Resetting,
            Phase::TearingDown(_) | Phase::Closing(Next::Gone(_)) => AssociationState::ShuttingDown,
            Phase::Closing(_) => self.going_up(),
            Phase::Gone => AssociationState::Gone,
        }
    }

    /// CNTLID, valid once the controller is connected.
    #[must_use]
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }

    /// CAP when the controller was enabled.
    #[must_use]
    pub fn cap(&self) -> Cap {
        self.cap
    }

    /// VS when the controller was enabled.
    #[must_use]
    pub fn vs(&self) -> Vs {
        self.vs
    }

    /// Identify Controller data from the last bring-up.
    #[must_use]
    pub fn identity(&self) -> Option<&IdentifyController> {
        self.identity.as_deref()
    }

    /// True if the live controller supports Cancel.
    #[must_use]
    pub fn cancels(&self) -> bool {
        self.cancels && self.phase == Phase::Live
    }

    /// I/O queues granted by the controller; QIDs start at 1.
    #[must_use]
    pub fn io_queues(&self) -> u16 {
        self.io_queues.count
    }

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
        // The loss is reported before connections close: the driver ends commands with this cause.
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
