//! NVM subsystem with its namespaces and controllers.
//!
//! No method blocks. A target's control plane calls the methods under a lock, which the I/O path
//! takes only for the Connect of a queue.
//!
//! A discovery subsystem ([`Subsystem::discovery`]) serves log page 70h, without namespaces and I/O
//! queues.

mod changes;

pub use crate::access::HostAccess;
pub use crate::common::{CNTLIDS_ALL, Health, Kind, Settings};
pub use crate::controller::{Arrival, Peer};

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use crate::common::{Common, Departed};
use crate::controller::error_log::Failure;
use crate::controller::refusal::byte;
use crate::controller::{
    Action, AdminCommand, Completion, ConnectRequest, Controller, Exchange, Fate, Host, Outcome,
    Refusal, identify,
};
use crate::discovery::DiscoveryLog;
use crate::io::IoLimits;
use crate::namespace::{Namespace, Namespaces};
use crate::wire::cross_reset::Instance;
use crate::wire::fabrics::{CNTLID_DYNAMIC, CNTLID_MAX, ConnectInvalidParameter as Parameter};
use crate::wire::{Nqn, Status};

/// Valid Connect of a queue, before authentication. [`Subsystem::join`] then creates the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    request: ConnectRequest,
    cntlid: u16,
}

impl Claim {
    /// Parameters of the Connect.
    #[must_use]
    pub fn request(&self) -> &ConnectRequest {
        &self.request
    }

    /// CNTLID for the response.
    ///
    /// For an admin queue, only [`Subsystem::join`] reserves the CNTLID.
    #[must_use]
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }
}

/// Connected queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connected {
    /// CNTLID of the controller.
    pub cntlid: u16,
    /// QID; 0 for the admin queue.
    pub qid: u16,
    /// Entries of the submission queue; SQHD counts modulo this number.
    pub sq_entries: u16,
    /// True if responses contain SQHD, not FFFFh.
    pub flow_control: bool,
    /// Response to the Connect.
    pub completion: Completion,
}

/// NVM subsystem or discovery subsystem.
///
/// The Connect of an admin queue creates a controller:
///
/// ```
/// use core::time::Duration;
/// use nvme_proto::ana::AnaStates;
/// use nvme_proto::controller::ConnectRequest;
/// use nvme_proto::subsystem::{Arrival, Settings, Subsystem};
/// use nvme_proto::wire::Nqn;
/// use nvme_proto::wire::fabrics::{CNTLID_DYNAMIC, ConnectCommand, ConnectData};
///
/// let subnqn: Nqn = "nqn.2026-01.org.example:disk".parse()?;
/// let hostnqn: Nqn = "nqn.2026-01.org.example:host".parse()?;
/// let mut subsystem = Subsystem::new(Settings::new(subnqn, "SN1"));
///
/// let command = ConnectCommand::new(1, 0, 31);
/// let data = ConnectData::new([7; 16], CNTLID_DYNAMIC, &subnqn, &hostnqn);
/// let request = ConnectRequest::parse(&command.into(), &data).unwrap();
/// let ana = AnaStates::default();
/// let connected = subsystem
///     .connect(&request, &Arrival::new(Duration::ZERO, None, &ana))
///     .unwrap();
///
/// let controller = subsystem.controller(connected.cntlid).unwrap();
/// assert_eq!(controller.host().nqn, hostnqn);
/// assert_eq!(connected.completion.result, u64::from(connected.cntlid));
/// # Ok::<(), nvme_proto::wire::nqn::NqnError>(())
/// ```
#[derive(Debug)]
pub struct Subsystem {
    common: Common,
    controllers: BTreeMap<u16, Controller>,
    /// Controllers without admin queue, by CNTLID; their CNTLIDs are still in use.
    closing: BTreeMap<u16, Closing>,
    last_cntlid: u16,
}

#[derive(Debug)]
struct Closing {
    queues: BTreeSet<u16>,
    host: Host,
    instance: Option<Instance>,
}

impl Subsystem {
    /// Creates an NVM subsystem without namespaces.
    ///
    /// # Panics
    /// If a setting is outside the protocol's range, or the NQN is the discovery NQN.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        assert!(
            !settings.nqn.is_discovery(),
            "the discovery NQN names no NVM subsystem"
        );
        Self::of_kind(Kind::Nvm, settings)
    }

    /// Creates a discovery subsystem with the well-known NQN; `settings.nqn` is ignored.
    #[must_use]
    pub fn discovery(settings: Settings) -> Self {
        let nqn = Nqn::discovery();
        Self::discovery_named(Settings { nqn, ..settings })
    }

    /// Creates a discovery subsystem with the unique NQN `settings.nqn`.
    ///
    /// Hosts may also use the well-known NQN (Base, 3.1.3.3).
    #[must_use]
    pub fn discovery_named(settings: Settings) -> Self {
        Self::of_kind(
            Kind::Discovery,
            Settings {
                volatile_write_cache: false,
                ..settings
            },
        )
    }

    fn of_kind(kind: Kind, settings: Settings) -> Self {
        settings.limits.assert_sane();
        let cntlids = &settings.cntlids;
        assert!(
            !cntlids.is_empty() && *cntlids.start() >= 1 && *cntlids.end() <= CNTLID_MAX,
            "CNTLIDs {cntlids:?}"
        );
        let last_cntlid = *cntlids.end();
        let discovery = DiscoveryLog::of(settings.nqn);
        let common = Common {
            kind,
            settings,
            namespaces: Namespaces::default(),
            health: Health::default(),
            discovery,
            departed: Departed::default(),
        };
        Self {
            common,
            controllers: BTreeMap::new(),
            closing: BTreeMap::new(),
            last_cntlid,
        }
    }

    /// Settings of the subsystem.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.common.settings
    }

    /// Type of the subsystem.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.common.kind
    }

    /// Controllers by CNTLID, ascending.
    pub fn controllers(&self) -> impl Iterator<Item = &Controller> {
        self.controllers.values()
    }

    /// Controller with this CNTLID, if its admin queue is connected.
    #[must_use]
    pub fn controller(&self, cntlid: u16) -> Option<&Controller> {
        self.controllers.get(&cntlid)
    }

    /// Limits of I/O commands, as in Identify.
    #[must_use]
    pub fn io_limits(&self) -> IoLimits {
        identify::io_limits(&self.common)
    }

    /// Namespaces by NSID, ascending.
    pub fn namespaces(&self) -> impl Iterator<Item = &Namespace> {
        self.common.namespaces.iter()
    }
}

impl Subsystem {
    /// Connects a queue without authentication (Base, 6.3).
    ///
    /// # Errors
    /// Response to send before closing the connection.
    pub fn connect(
        &mut self,
        request: &ConnectRequest,
        arrival: &Arrival<'_>,
    ) -> Result<Connected, Refusal> {
        let claim = self.claim(request, arrival, u32::from(self.last_cntlid) + 1)?;
        self.join(&claim, arrival)
    }

    /// Validates a Connect before authentication, without side effects.
    ///
    /// A new controller gets the first free CNTLID from `first_cntlid`, with wraparound.
    pub fn claim(
        &self,
        request: &ConnectRequest,
        arrival: &Arrival<'_>,
        first_cntlid: u32,
    ) -> Result<Claim, Refusal> {
        self.check(request, arrival)?;
        let cntlid = match request.qid {
            0 => self.free_cntlid(first_cntlid),
            _ => request.cntlid,
        };
        Ok(Claim {
            request: *request,
            cntlid,
        })
    }

    /// Creates the queue of a claim, after any authentication.
    ///
    /// Checks the Connect again, because another queue may have taken the CNTLID or QID.
    pub fn join(&mut self, claim: &Claim, arrival: &Arrival<'_>) -> Result<Connected, Refusal> {
        let Claim { request, cntlid } = claim;
        let cntlid = *cntlid;
        self.check(request, arrival)?;
        if request.qid == 0 {
            if !self.is_free(cntlid) {
                return Err(Refusal::transient(Status::CONNECT_CONTROLLER_BUSY));
            }
            let controller = Controller::new(cntlid, request, arrival, &self.common);
            self.controllers.insert(cntlid, controller);
            self.last_cntlid = cntlid;
        } else {
            let controller = self.controllers.get_mut(&cntlid);
            let controller = controller.expect("the controller was just checked");
            controller.add_io_queue(request.qid, arrival.now);
        }
        Ok(Connected {
            cntlid,
            qid: request.qid,
            sq_entries: request.sqsize + 1,
            flow_control: request.flow_control,
            // AUTHREQ is 0: no authentication follows.
            completion: Completion::success(request.cid, u64::from(cntlid)),
        })
    }

    fn check(&self, request: &ConnectRequest, arrival: &Arrival<'_>) -> Result<(), Refusal> {
        if let Some(cm) = arrival.cm {
            request.check_against(cm)?;
        }
        let entries = self.common.limits().queue_entries(request.qid);
        if request.sqsize >= entries {
            return Err(Refusal::connect(Parameter::SQSIZE));
        }
        if !self.has_name(&request.subnqn) {
            return Err(Refusal::connect(Parameter::SUBNQN));
        }
        if !self.common.settings.hosts.allows(&request.hostnqn) {
            return Err(Refusal::new(Status::CONNECT_INVALID_HOST));
        }
        match request.qid {
            0 => self.check_admin(request, arrival),
            _ => self.check_io(request),
        }
    }

    fn has_name(&self, nqn: &Nqn) -> bool {
        let is_discovery = self.common.kind == Kind::Discovery && nqn.is_discovery();
        is_discovery || *nqn == self.common.settings.nqn
    }

    fn check_admin(&self, request: &ConnectRequest, arrival: &Arrival<'_>) -> Result<(), Refusal> {
        if request.cntlid != CNTLID_DYNAMIC {
            return Err(Refusal::connect(Parameter::CNTLID));
        }
        let limits = self.common.limits();
        // Controllers are counted by address, because a host can use another host's NQN.
        let counts = |controller: &&Controller| match (arrival.peer, controller.peer()) {
            (Some(peer), Some(address)) => peer.counts(address),
            (peer, address) => peer.is_none() && address.is_none(),
        };
        let of_host = |controller: &&Controller| {
            controller.host().nqn == request.hostnqn && counts(controller)
        };
        let cntlids = &self.common.settings.cntlids;
        if self.controllers.len() >= usize::from(limits.controllers)
            || self.controllers.len() + self.closing.len() >= cntlids.len()
            || self.controllers().filter(of_host).count()
                >= usize::from(limits.controllers_per_host)
            || self.controllers().filter(counts).count()
                >= usize::from(limits.controllers_per_address.min(limits.controllers))
        {
            return Err(Refusal::transient(Status::CONNECT_CONTROLLER_BUSY));
        }
        Ok(())
    }

    fn check_io(&self, request: &ConnectRequest) -> Result<(), Refusal> {
        if self.common.kind == Kind::Discovery {
            return Err(Refusal::connect(Parameter::QID));
        }
        let controller = self
            .controllers
            .get(&request.cntlid)
            .ok_or(Refusal::of_departed(Parameter::CNTLID))?;
        if controller.host().nqn != request.hostnqn {
            return Err(Refusal::of_departed(Parameter::HOSTNQN));
        }
        if controller.host().id != request.hostid {
            return Err(Refusal::of_departed(Parameter::HOSTID));
        }
        if controller.is_condemned() {
            return Err(Refusal::of_departed(Parameter::CNTLID));
        }
        if !controller.takes_io_queues() {
            return Err(Refusal::new(Status::COMMAND_SEQUENCE_ERROR));
        }
        if request.qid > controller.queues_granted() {
            return Err(Refusal::connect(Parameter::QID));
        }
        if controller.has_io_queue(request.qid) {
            let refusal = Refusal::new(Status::COMMAND_SEQUENCE_ERROR);
            return Err(refusal.at(Parameter::QID.ipo() as u8));
        }
        Ok(())
    }

    /// Returns the first free CNTLID from `from` on; at least one must be free.
    ///
    /// Callers pass the last assigned CNTLID plus one: with late reuse, messages of an old
    /// association do not reach a new one.
    fn free_cntlid(&self, from: u32) -> u16 {
        let (first, last) = self.common.settings.cntlids.clone().into_inner();
        let count = u32::from(last - first) + 1;
        let from = from.wrapping_sub(u32::from(first)) % count;
        let all = (0..count).map(|step| first + ((from + step) % count) as u16);
        let free = all.into_iter().find(|&cntlid| self.is_free(cntlid));
        free.expect("fewer controllers than CNTLIDs")
    }

    fn is_free(&self, cntlid: u16) -> bool {
        !self.controllers.contains_key(&cntlid) && !self.closing.contains_key(&cntlid)
    }

    /// Handles a closed queue.
    ///
    /// Only the admin queue's close ends the association: a host may close I/O queues before a
    /// shutdown.
    pub fn queue_disconnected(
        &mut self,
        cntlid: u16,
        qid: u16,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        let departed = if qid == 0 {
            self.admin_disconnected(cntlid, actions)
        } else if let Some(controller) = self.controllers.get_mut(&cntlid) {
            controller.remove_io_queue(&mut self.common, qid, now, actions);
            None
        } else if let Some(closing) = self.closing.get_mut(&cntlid) {
            closing.queues.remove(&qid);
            let is_last = closing.queues.is_empty();
            let gone = is_last.then(|| self.closing.remove(&cntlid)).flatten();
            gone.and_then(|gone| gone.instance)
        } else {
            None
        };
        if let Some(instance) = departed {
            self.common.departed.add(instance);
        }
        self.report_departed(actions);
    }

    fn report_departed(&mut self, actions: &mut Vec<Action>) {
        for instance in self.common.departed.take_unreported() {
            for controller in self.controllers.values_mut() {
                controller.instance_departed(&instance, actions);
            }
        }
    }

    fn admin_disconnected(&mut self, cntlid: u16, actions: &mut Vec<Action>) -> Option<Instance> {
        let controller = self.controllers.remove(&cntlid)?;
        let closing = Closing {
            queues: controller.io_queues().collect(),
            host: *controller.host(),
            instance: controller.instance(),
        };
        if closing.queues.is_empty() {
            return closing.instance;
        }
        self.closing.insert(cntlid, closing);
        actions.push(Action::DisconnectIoQueues { cntlid });
        None
    }
}

impl Subsystem {
    /// Executes an admin command. Without controller `cntlid`, the command fails with Command
    /// Sequence Error.
    ///
    /// # Panics
    /// If a buffer's length differs from [`AdminCommand::transfer`].
    pub fn execute(
        &mut self,
        cntlid: u16,
        cid: u16,
        command: &AdminCommand,
        exchange: Exchange<'_>,
        actions: &mut Vec<Action>,
    ) -> Outcome {
        command
            .transfer()
            .assert_matches(exchange.data_in, exchange.data_out);
        if let AdminCommand::CrossControllerReset(instance) = command {
            return self.cross_reset(cntlid, cid, *instance, exchange.now, actions);
        }
        let Some(controller) = self.controllers.get_mut(&cntlid) else {
            return ended(cid);
        };
        let outcome = controller.execute(&mut self.common, cid, command, exchange, actions);
        self.report_departed(actions);
        outcome
    }

    fn cross_reset(
        &mut self,
        cntlid: u16,
        cid: u16,
        instance: Instance,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> Outcome {
        let fate = self.fate(cntlid, &instance);
        let Some(controller) = self.controllers.get_mut(&cntlid) else {
            return ended(cid);
        };
        let outcome = controller.cross_reset(cid, instance, fate, now);
        if outcome == Outcome::Parked {
            self.reset_instance(&instance, actions);
        }
        outcome
    }

    fn fate(&self, source: u16, instance: &Instance) -> Result<Fate, Refusal> {
        let is_it = |of: Option<Instance>| of == Some(*instance);
        let live = self.controllers.get(&instance.cntlid);
        let live = live.filter(|controller| is_it(controller.instance()));
        let closing = self.closing.get(&instance.cntlid);
        let closing = closing.filter(|closing| is_it(closing.instance));
        let host = live.map(Controller::host).or(closing.map(|of| &of.host));
        let own = self.controllers.get(&source).map(Controller::host);
        let is_self = live.is_some_and(|controller| controller.cntlid() == source);
        match host {
            Some(_) if host == own && !is_self => Ok(Fate::Present),
            None if self.common.departed.has(instance) => Ok(Fate::Departed),
            _ => Err(Refusal::field(byte::CDW10)),
        }
    }

    /// Records an error of an admin command if the controller exists, and returns the completion.
    pub fn refuse(&mut self, cntlid: u16, cid: u16, refusal: Refusal) -> Completion {
        match self.controllers.get_mut(&cntlid) {
            Some(controller) => controller.refuse(cid, refusal),
            None => refusal.completion(cid),
        }
    }

    /// Adds failed I/O commands to the error log, oldest first.
    ///
    /// `left_out` counts earlier failures without an entry.
    pub fn record_failures(
        &mut self,
        cntlid: u16,
        left_out: u64,
        failures: impl IntoIterator<Item = Failure>,
    ) {
        if let Some(controller) = self.controllers.get_mut(&cntlid) {
            controller.record_failures(left_out, failures);
        }
    }

    /// Handles the result of [`Action::Abort`].
    pub fn abort_done(
        &mut self,
        cntlid: u16,
        abort_cid: u16,
        aborted: bool,
        actions: &mut Vec<Action>,
    ) {
        if let Some(controller) = self.controllers.get_mut(&cntlid) {
            controller.abort_done(abort_cid, aborted, actions);
        }
    }

    /// Handles the result of [`Action::FlushAll`]; `intact` is false after data loss.
    pub fn flushed(&mut self, cntlid: u16, intact: bool, now: Duration, actions: &mut Vec<Action>) {
        if let Some(controller) = self.controllers.get_mut(&cntlid) {
            controller.flushed(&mut self.common, intact, now, actions);
        }
    }
}

impl Subsystem {
    /// Time of the next [`Self::poll`].
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.controllers().filter_map(Controller::poll_at).min()
    }

    /// Checks all timers; `last` returns the time of a controller's last command on any queue.
    pub fn poll(
        &mut self,
        now: Duration,
        mut last: impl FnMut(u16) -> Duration,
        actions: &mut Vec<Action>,
    ) {
        for (&cntlid, controller) in &mut self.controllers {
            controller.end_if_over(now, || last(cntlid), actions);
            controller.answer_late_resets(now, actions);
        }
    }

    /// Checks the keep alive timer of one controller.
    ///
    /// Call this before a restart of the timer at `now`, which would hide the expiry.
    pub fn poll_one(
        &mut self,
        cntlid: u16,
        now: Duration,
        last: impl FnOnce() -> Duration,
        actions: &mut Vec<Action>,
    ) {
        if let Some(controller) = self.controllers.get_mut(&cntlid) {
            controller.end_if_over(now, last, actions);
        }
    }
}

fn ended(cid: u16) -> Outcome {
    let refusal = Refusal::new(Status::COMMAND_SEQUENCE_ERROR);
    Outcome::Complete(refusal.completion(cid))
}
