//! The host: one association with a controller, from the first connection to
//! the last, without I/O.
//!
//! An [`Association`] takes what happened (a queue was connected or lost, a
//! command of its own was answered, time went by) and says what to do next
//! ([`Action`]): connect a queue, send a command, let a queue go, report. It does
//! what a Linux host does, in that order: the admin queue, the properties that
//! enable the controller, Identify, the I/O queues, the events; then it keeps the
//! controller alive, takes its events, and, if the controller is lost, connects
//! again as [`Recovery`] says.
//!
//! The commands of the host's users do not pass through here. Their driver needs
//! to know three things of it: [`Association::state`] says when they may be sent,
//! [`Association::command_timed_out`] is where it reports one without an
//! answer, and [`requeue::is_safe`] says which may be sent again.
//!
//! Whatever a controller answers, nothing here panics: what makes no sense ends
//! the association with a [`Cause`].

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

/// Commands of the association's own that can be outstanding at a time: a step, a Keep Alive,
/// a request for events and the Aborts. All are on the admin queue but for a Connect and those of an
/// authentication, one of which an I/O queue holds beside its depth.
pub const OWN_COMMANDS: u16 = 3 + duties::ABORTS_MAX as u16;

/// What an association asks of its driver, to be done in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask for a connection. [`Association::queue_connected`] or
    /// [`Association::queue_lost`] follows.
    Connect(QueueSpec),
    /// Send this command: CID, PSDT and data pointer are the driver's to fill in.
    /// [`Association::completed`] follows, unless its queue is lost.
    Send(OwnCommand),
    /// Let go of this queue's connection; [`Association::queue_closed`] follows
    /// when nothing can touch its commands' memory any more.
    Disconnect {
        /// QID.
        qid: u16,
    },
    /// This queue is to authenticate, or the controller answered a step of that.
    /// [`Association::authenticate`] says what is next.
    Authenticate {
        /// QID.
        qid: u16,
        /// What the last [`AuthenticationStep::Receive`] brought. `None`: it begins, and what
        /// another queue had begun is over.
        answer: Option<Box<[u8]>>,
    },
    /// Report to the host's user.
    Report(Report),
}

/// A queue that is to be connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSpec {
    /// QID.
    pub qid: u16,
    /// Commands of the host's users that it holds: SQSIZE, which is one less than its entries
    /// (Base, 3.3.1.5), or one less again ([`Settings::spare_entry`]).
    pub depth: u16,
    /// Bytes of the largest command capsule.
    pub capsule_bytes: usize,
    /// Private data of the connection request.
    pub request: RequestData,
}

/// A command of the association's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnCommand {
    /// The queue to send it on.
    pub qid: u16,
    /// Comes back with the answer.
    pub duty: Duty,
    /// The command.
    pub sqe: Sqe,
    /// Its data.
    pub payload: Payload,
}

/// The data of a command of the association's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// None.
    None,
    /// As many bytes from the controller.
    ToHost(u32),
    /// These, to the controller.
    FromHost(Box<[u8]>),
}

/// Which command of the association's own it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// A step on its way to being live, or back.
    Step(u32),
    /// Keep Alive.
    KeepAlive,
    /// Asynchronous Event Request.
    EventRequest,
    /// Abort.
    Abort,
}

/// Reports to an association's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// The controller takes commands: for the first time, or again.
    Live {
        /// Tries that it took to get it back; 0 the first time.
        tries: u32,
    },
    /// The controller is lost. It will be connected to again if [`Recovery`] says
    /// so; else [`Report::Gone`] follows.
    Lost(Cause),
    /// A try to connect again failed; there will be another.
    TryFailed {
        /// How many that were.
        tries: u32,
        /// Why.
        cause: Cause,
    },
    /// `fast_io_fail_tmo` is over: commands wait no longer.
    FailFast,
    /// The end: nothing more will happen. `None`: as was asked for.
    Gone(Option<Cause>),
    /// The controller reported an event.
    Notice(Notice),
    /// Each queue has authenticated again.
    Reauthenticated,
    /// The controller does not let this host authenticate again; all goes on as before.
    NotReauthenticated(Cause),
}

/// How an association is doing, in Linux's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// On its way up for the first time.
    Connecting,
    /// Takes commands.
    Live,
    /// Down for a reset that was asked for, or on its way up after that.
    Resetting,
    /// Lost; waits to try again, or tries.
    Reconnecting {
        /// Tries so far, with the one that is under way.
        tries: u32,
    },
    /// On its way down.
    ShuttingDown,
    /// At the end.
    Gone,
}

/// One association of a host with a controller. See the [module](self).
///
/// `now` is the time since any fixed origin, the same in every call.
#[derive(Debug)]
pub struct Association {
    settings: Settings,
    phase: Phase,
    /// What to answer to [`Self::state`] while on the way up.
    going_up: State,
    /// QIDs of the connections that were asked for and are not closed.
    open: BTreeSet<u16>,
    /// Those of them that were let go one by one.
    released: BTreeSet<u16>,
    /// Number of the last step's command, and when its answer is overdue.
    serial: u32,
    step_due: Option<Duration>,
    /// When to read CSTS again, and when its expected value is overdue.
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
    /// The admin queue authenticated when it was connected.
    authenticated: bool,
    renewal: Renewal,
    loss: Option<Loss>,
    actions: VecDeque<Action>,
}

/// Where an association is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    New,
    BringUp(Step),
    Live,
    TearingDown(Teardown),
    /// Waits until all connections are closed.
    Closing(Next),
    /// Waits to connect again.
    Waiting {
        until: Duration,
    },
    Gone,
}

/// What follows once all connections are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    BringUp,
    /// Connect again, if that may be.
    Recover(Cause),
    Gone(Option<Cause>),
}

impl Association {
    /// One that has yet to [`begin`](Self::begin).
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

    /// Starts to connect. Once.
    pub fn begin(&mut self, now: Duration) {
        if self.phase == Phase::New {
            self.start_bring_up(now);
        }
    }

    /// The next thing to do.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`tick`](Self::tick) has something to do though nothing happens.
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

    /// Does what is due.
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

    /// A connection that was asked for is there. What the target's reply says of
    /// its receives (CRQSIZE) is not looked at: it owes us one for each command
    /// that SQSIZE allows, whatever it says.
    pub fn queue_connected(&mut self, qid: u16, now: Duration) {
        if self.phase == Phase::BringUp(Step::Link(qid)) {
            self.step(Step::Connect(qid), now);
        }
    }

    /// A connection did not come about, or ended. [`Self::queue_closed`] follows
    /// after [`Action::Disconnect`].
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
            // A controller that receives a request to reset or shut down may let go of its
            // I/O queues by itself.
            Phase::TearingDown(_) if qid != 0 => {}
            _ => self.fail(cause, now),
        }
    }

    /// A connection is closed: nothing can touch its commands' memory any more.
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

    /// A command of the association's own was answered; `data` is what came with
    /// it, as long as [`Payload::ToHost`] asked for.
    pub fn completed(&mut self, duty: Duty, cqe: &Cqe, data: &[u8], now: Duration) {
        match duty {
            Duty::Step(serial) if serial == self.serial && self.step_due.is_some() => {
                self.step_due = None;
                self.step_answered(cqe, data, now);
            }
            // Of a step that was given up.
            Duty::Step(_) => {}
            Duty::KeepAlive => self.kept_alive(cqe, now),
            Duty::EventRequest => self.event_came(cqe),
            Duty::Abort => self.aborts.answered(),
        }
    }

    /// Lets go of one I/O queue, which the association can do without.
    pub fn release_queue(&mut self, qid: u16) {
        if qid != 0 && self.open.contains(&qid) && self.released.insert(qid) {
            self.actions.push_back(Action::Disconnect { qid });
        }
    }

    /// Ends all connections at once, without a word to the controller.
    pub fn disconnect(&mut self, now: Duration) {
        match self.phase {
            Phase::Gone | Phase::Closing(Next::Gone(_)) => {}
            _ => self.close(Next::Gone(None), now),
        }
    }

    /// The adapter is gone, and every connection with it: that is the end.
    pub fn device_removed(&mut self, now: Duration) {
        let qid = self.open.first().copied().unwrap_or(0);
        self.open.clear();
        if self.phase != Phase::Gone {
            self.proceed(Next::Gone(Some(Cause::QueueLost { qid })), now);
        }
    }

    /// How it is doing.
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

    /// CNTLID: which controller it is, once connected.
    #[must_use]
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }

    /// CAP, as read when the controller was enabled.
    #[must_use]
    pub fn cap(&self) -> Cap {
        self.cap
    }

    /// VS, as read when the controller was enabled.
    #[must_use]
    pub fn vs(&self) -> Vs {
        self.vs
    }

    /// Identify Controller, as read when the controller was enabled.
    #[must_use]
    pub fn identity(&self) -> Option<&IdentifyController> {
        self.identity.as_deref()
    }

    /// I/O queues that the controller granted; their QIDs are 1 up to this.
    #[must_use]
    pub fn io_queues(&self) -> u16 {
        self.io_queues.count
    }

    /// Something went wrong: all connections go, and then what [`Recovery`] says.
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

    /// Closes all connections; then `next`.
    fn close(&mut self, next: Next, now: Duration) {
        self.phase = Phase::Closing(next);
        self.step_due = None;
        self.look_at = None;
        self.keep_alive = KeepAlive::default();
        self.aborts = Aborts::default();
        self.renewal = Renewal::default();
        // The report first: it says what the commands of the queues end with.
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

    /// Sends the command of a step.
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
