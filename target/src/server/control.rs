//! Thread of the control plane.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use cairn_config::{Config, Nqn};
use cairn_rdma::{Clock, Device, ListenerEvent, PeerLimit, Provider};
use nvme_proto::limits::{Limits, namespaces_within};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Started;
use super::arrivals::Arrivals;
use super::error::StartError;
use super::export::Export;
use super::flushing::{Flushes, Protection};
use super::jobs::Jobs;
use super::listeners::{ListenerId, OpenListener};
use super::lookup::missing_pools;
use super::missing::MissingParts;
use super::opening::{Found, Openings, Returned};
use super::reactors::Reactors;
use super::reload::Reloading;
use super::replacing::{Replaced, UnderWay};
use super::restart::Fixed;
use super::retiring::Retiring;
use super::settling::Waits;
use super::shutdown::STOP_TIMEOUT;
use super::steered::Beside;
use super::watching::Watch;
use crate::audit::Audit;
use crate::exposition::{MetricsServer, Observed};
use crate::metrics::ReactorCounters;
use crate::namespace::Namespace;
use crate::outlook::{Place, Thing};
use crate::panics::{Panics, Part};
use crate::placement;
use crate::reactor::{self, Sizes};
use crate::registry::{
    Authenticator, ControlMessage, HostKeys, Mailbox, Places, Registry, SubsystemShared,
};

/// Maximum queue pairs per reactor and device.
pub(super) const QUEUE_PAIRS_MAX: u16 = 1024;
/// Share of [`QUEUE_PAIRS_MAX`] reserved for addresses that have or recently had an association.
pub(super) const QUEUE_PAIRS_RESERVED: u16 = 128;

/// Order from another thread.
pub(super) enum Order {
    /// Applies another configuration.
    Reload(Reloading),
    /// Run a short action on the control plane.
    Do(Box<dyn FnOnce(&mut Control) + Send>),
    /// Stop the target.
    Stop,
}

pub(super) type FromListener = (ListenerId, ListenerEvent);

enum Input {
    Listener(FromListener),
    Message(ControlMessage),
    Order(Order),
    Returned(Returned),
    /// [`Control::next_deadline`], a deadline of an opening disk, or one of a listener has passed.
    Deadline,
    /// The kernel reported a change, so a missing part may now be available.
    Arrived,
}

pub(super) struct Control {
    pub(super) config: Arc<Config>,
    /// Settings that take effect only at the next start.
    pub(super) fixed: Fixed,
    pub(super) limits: Limits,
    pub(super) clock: Clock,
    pub(super) started: Instant,
    pub(super) providers: Vec<Arc<dyn Provider>>,
    pub(super) registry: Arc<Registry>,
    pub(super) mailboxes: Arc<[Mailbox]>,
    pub(super) audit: Audit,
    /// Values reported as metrics.
    pub(super) observed: Arc<Observed>,
    /// Server of the metrics page, if configured.
    pub(super) metrics: Option<MetricsServer>,
    pub(super) reactors: Reactors,
    pub(super) authenticator: Authenticator,
    pub(super) keys: HashMap<Nqn, HostKeys>,
    pub(super) discovery: Arc<SubsystemShared>,
    pub(super) exports: HashMap<Nqn, Export>,
    pub(super) next_subsystem_id: u32,
    pub(super) listeners: Vec<OpenListener>,
    /// Devices used by connections; they have the memory of namespaces registered.
    pub(super) devices: Vec<Arc<dyn Device>>,
    pub(super) messages_out: UnboundedSender<ControlMessage>,
    pub(super) messages: UnboundedReceiver<ControlMessage>,
    pub(super) listener_events_out: UnboundedSender<FromListener>,
    pub(super) listener_events: UnboundedReceiver<FromListener>,
    pub(super) orders: UnboundedReceiver<Order>,
    pub(super) openings: Openings,
    /// Reload whose disks are being opened.
    pub(super) reloading: Option<UnderWay>,
    /// Reload to run after the current one.
    pub(super) next_reload: Option<Reloading>,
    pub(super) retiring: Vec<Retiring>,
    pub(super) flushes: Flushes,
    pub(super) jobs: Arc<Jobs>,
    pub(super) next_deadline: Option<Instant>,
    pub(super) peer_limit: PeerLimit,
    /// Connections without an association, and addresses that had one.
    pub(super) places: Arc<Places>,
    /// True if the target starts without missing parts.
    pub(super) is_patient: bool,
    pub(super) missing: MissingParts,
    pub(super) arrivals: Arrivals,
}

impl Control {
    /// Starts reactors, exports and listeners, in this order.
    pub(super) fn start(
        config: Config,
        providers: Vec<Arc<dyn Provider>>,
        orders: UnboundedReceiver<Order>,
        mut reactors: Reactors,
        clock: Clock,
        is_patient: bool,
        audit: Audit,
    ) -> Result<Self, StartError> {
        super::export::check_count(&config)?;
        let authenticator = Authenticator::default();
        let keys = super::keys::wait_to_load(&config)?;
        let started = clock.now();
        let has_threads = reactors.has_threads();
        // In a simulation panics are not confined.
        let panics = Arc::new(Panics::new(has_threads));
        let (limits, registry) = (limits(&config), Arc::new(Registry::default()));
        let (messages_out, messages) = unbounded_channel();
        let (listener_events_out, listener_events) = unbounded_channel();
        let launch = Launch {
            config: &config,
            registry: &registry,
            control: &messages_out,
            audit: &audit,
            clock: &clock,
            started,
            panics: &panics,
        };
        let (mailboxes, counters) = launch.all(&mut reactors)?;
        let parts = super::export::Parts {
            limits,
            clock: clock.clone(),
            started,
            reactors: Arc::clone(&mailboxes),
            authenticator: authenticator.clone(),
            control: messages_out.clone(),
        };
        let discovery = Arc::new(parts.discovery(0, config.target.discovery_nqn));
        let jobs = Arc::new(Jobs::new(has_threads, Arc::clone(&panics)));
        let waits = Waits::new(clock.clone(), Arc::clone(&mailboxes), messages_out.clone());
        let flushes = Flushes::new(waits, Arc::clone(&jobs), messages_out.clone());
        let (missing, outlook) = MissingParts::new();
        let observed = Observed::new(
            &registry, counters, &providers, &panics, outlook, &mailboxes, &audit,
        );
        let control = Self {
            openings: Openings::new(has_threads),
            limits,
            places: Arc::new(Places::new(clock.clone())),
            clock,
            started,
            providers,
            audit,
            observed: Arc::new(observed),
            metrics: None,
            registry,
            mailboxes,
            reactors,
            authenticator,
            keys,
            discovery,
            exports: HashMap::new(),
            next_subsystem_id: 1,
            listeners: Vec::new(),
            devices: Vec::new(),
            messages_out,
            messages,
            listener_events_out,
            listener_events,
            orders,
            reloading: None,
            next_reload: None,
            retiring: Vec::new(),
            flushes,
            jobs,
            next_deadline: None,
            peer_limit: PeerLimit::default(),
            is_patient,
            missing,
            arrivals: Arrivals::default(),
            fixed: Fixed::new(&config),
            config: Arc::new(config),
        };
        control.opened()
    }

    /// Opens everything configured, or stops the reactors on failure.
    fn opened(mut self) -> Result<Self, StartError> {
        match self.open_all() {
            Ok(()) => Ok(self),
            Err(error) => {
                self.listeners.clear();
                let _ = self.stop_reactors(Instant::now() + STOP_TIMEOUT);
                Err(error)
            }
        }
    }

    /// Starts the authenticator thread if there are keys.
    pub(super) fn start_authenticator(&self) -> Result<(), StartError> {
        if self.keys.is_empty() {
            return Ok(());
        }
        let started = self.authenticator.start();
        started.map_err(StartError::Authenticator)
    }

    fn open_all(&mut self) -> Result<(), StartError> {
        let nqn = self.config.target.discovery_nqn;
        self.registry
            .add_discovery(nqn, Arc::clone(&self.discovery));
        self.start_authenticator()?;
        let config = self.config.clone();
        let is_patient = self.is_patient;
        self.begin_opening(&config, false, &Replaced::default(), |_| is_patient);
        let mut disks = self.wait_for_disks()?;
        for subsystem in &config.subsystems {
            self.export(subsystem, &mut disks)?;
        }
        for (thing, error) in missing_pools(&config) {
            self.note_missing(thing, &error);
        }
        for listener in &config.listeners {
            match self.listen(listener) {
                Ok(listener) => self.listeners.push(listener),
                Err(error) if is_patient => {
                    let thing = Thing::Listener(listener.socket_address());
                    self.note_missing(thing, &error);
                }
                Err(error) => return Err(error),
            }
        }
        self.metrics = self.serve_metrics(config.metrics.listen);
        self.begin_audit(&config)?;
        self.update_discovery();
        self.publish_outlook();
        Ok(())
    }

    /// Waits for the disks; the start has nothing else to do.
    fn wait_for_disks(&mut self) -> Result<HashMap<Place, Arc<Namespace>>, StartError> {
        while let Ok(returned) = self.openings.returned.try_recv() {
            self.openings.end(returned, self.clock.now());
        }
        let found = match self.openings.take_found() {
            Some(found) => found,
            None => self.wait_for_threads()?,
        };
        match (found.failure, found.late.first()) {
            (Some(error), _) => return Err(error),
            (None, Some(late)) if !self.is_patient => return Err(late.error()),
            (None, _) => {}
        }
        for late in &found.late {
            self.note_missing(Thing::Namespace(late.place), &late.error());
        }
        for (place, error) in found.missing {
            self.note_missing(Thing::Namespace(place), &error);
        }
        Ok(found.opened)
    }

    fn wait_for_threads(&mut self) -> Result<Found, StartError> {
        let runtime = runtime().map_err(StartError::Control)?;
        loop {
            match runtime.block_on(self.next_of_disks()) {
                Input::Returned(returned) => self.openings.end(returned, self.clock.now()),
                Input::Order(_) => return Err(StartError::Stopped),
                _ => self.openings.advance(self.clock.now()),
            }
            if let Some(found) = self.openings.take_found() {
                return Ok(found);
            }
        }
    }

    async fn next_of_disks(&mut self) -> Input {
        let timer = timer(&self.clock, self.openings.next_deadline());
        tokio::select! {
            Some(returned) = self.openings.returned.recv() => Input::Returned(returned),
            order = self.orders.recv() => Input::Order(order.unwrap_or(Order::Stop)),
            () = timer => Input::Deadline,
        }
    }

    /// Values from which subsystems are built.
    pub(super) fn parts(&self) -> super::export::Parts {
        super::export::Parts {
            limits: self.limits,
            clock: self.clock.clone(),
            started: self.started,
            reactors: Arc::clone(&self.mailboxes),
            authenticator: self.authenticator.clone(),
            control: self.messages_out.clone(),
        }
    }

    /// Information for the caller once the target runs.
    pub(super) fn started(&self) -> Started {
        Started {
            addresses: self.addresses(),
            listening: self.listening(),
            outlook: self.missing.outlook(),
            metrics: self.metrics.as_ref().map(MetricsServer::address),
            observed: Arc::clone(&self.observed),
        }
    }

    fn listening(&self) -> Vec<(cairn_config::Listener, SocketAddr)> {
        let listeners = self.listeners.iter();
        listeners
            .map(|open| (open.config.clone(), open.address()))
            .collect()
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(OpenListener::address).collect()
    }

    /// Runs the control plane until it is ordered to stop.
    pub(super) fn run(mut self, companion: Beside) -> Result<(), String> {
        let runtime = runtime().map_err(|error| format!("no runtime: {error}"))?;
        let watch = Watch::start(&self.registry)
            .map_err(|error| format!("cannot start the thread that looks at files: {error}"))?;
        let end = runtime.block_on(async {
            let companion = tokio::spawn(companion);
            while self.turn().await {}
            companion.abort();
            drop(watch);
            self.shut_down().await
        });
        // Does not wait for tasks: a disk that hangs must not block the exit.
        runtime.shutdown_background();
        end
    }

    /// Waits for one input and handles it; returns false at the end.
    async fn turn(&mut self) -> bool {
        let looks = self.retiring.iter().map(Retiring::next_look);
        let deadlines = [
            self.next_deadline,
            self.openings.next_deadline(),
            looks.min(),
            self.missing.next_try(),
            self.flushes.next_deadline(),
        ];
        let timer = timer(&self.clock, deadlines.into_iter().flatten().min());
        let input = tokio::select! {
            // `self` holds a sender of the first three channels, so they never close.
            Some(event) = self.listener_events.recv() => Input::Listener(event),
            Some(message) = self.messages.recv() => Input::Message(message),
            Some(returned) = self.openings.returned.recv() => Input::Returned(returned),
            order = self.orders.recv() => Input::Order(order.unwrap_or(Order::Stop)),
            () = self.arrivals.next() => Input::Arrived,
            () = timer => Input::Deadline,
        };
        self.take(input)
    }

    /// Handles all pending inputs without waiting; returns whether there were any.
    pub(super) fn step(&mut self) -> bool {
        let mut worked = false;
        loop {
            let now = self.clock.now();
            let input = if let Ok(event) = self.listener_events.try_recv() {
                Input::Listener(event)
            } else if let Ok(message) = self.messages.try_recv() {
                Input::Message(message)
            } else if self.next_step().is_some_and(|at| at <= now) {
                Input::Deadline
            } else {
                return worked;
            };
            worked = true;
            self.take(input);
        }
    }

    /// Time of the next necessary [`Self::step`].
    pub(super) fn next_step(&self) -> Option<Instant> {
        let deadlines = [self.next_deadline, self.flushes.next_deadline()];
        deadlines.into_iter().flatten().min()
    }

    fn take(&mut self, input: Input) -> bool {
        match input {
            Input::Listener((listener, event)) => self.listener_event(listener, event),
            Input::Message(message) => self.message(message),
            Input::Order(Order::Reload(reloading)) => self.reload(reloading),
            Input::Order(Order::Do(action)) => {
                // The action only reads, or changes a subsystem under its lock.
                let panics = Arc::clone(self.jobs.panics());
                panics.confine(Part::Control, || action(self));
            }
            Input::Order(Order::Stop) => return false,
            Input::Returned(returned) => {
                self.openings.end(returned, self.clock.now());
                self.go_on_reloading();
            }
            Input::Deadline => {
                self.poll_timers();
                self.look_at_retiring();
                self.flushes.give_up_settling();
                self.openings.advance(self.clock.now());
                self.go_on_reloading();
                self.try_missing();
            }
            Input::Arrived => {
                let now = self.clock.now();
                self.missing.try_soon(now);
            }
        }
        true
    }

    pub(super) fn message(&mut self, message: ControlMessage) {
        match message {
            ControlMessage::TimersChanged => self.poll_timers(),
            ControlMessage::AuditChanged => self.audit_changed(),
            ControlMessage::FlushAll {
                subsystem,
                cntlid,
                namespaces,
            } => {
                let Some(subsystem) = self.subsystem(subsystem) else {
                    return;
                };
                self.flushes.flush_for(cntlid, subsystem, namespaces);
            }
            ControlMessage::Flushed { namespaces, intact } => {
                self.flushes.flush_ended(&namespaces, intact);
            }
            ControlMessage::Protect {
                subsystem,
                namespace,
                state,
                was_protected,
                change,
            } => {
                if let Some(subsystem) = self.subsystem(subsystem) {
                    let wish = Protection {
                        namespace,
                        state,
                        was_protected,
                        change,
                    };
                    self.flushes.protect(subsystem, wish);
                }
            }
            ControlMessage::WriteThrough(wish) => {
                if let Some(subsystem) = self.subsystem(wish.subsystem) {
                    self.flushes.write_through(subsystem, wish);
                }
            }
            ControlMessage::Settled { id } => self.flushes.settled(id, true),
            ControlMessage::DiskChanged => {
                for export in self.exports.values() {
                    export.see_changes();
                }
            }
            ControlMessage::DeviceRemoved { device } => {
                self.devices.retain(|known| known.id() != device);
                for export in self.exports.values() {
                    for namespace in export.namespaces.values() {
                        namespace.forget_device(device);
                    }
                }
            }
            // Matters only during shutdown.
            ControlMessage::Drained => {}
        }
    }

    pub(super) fn subsystem(&self, id: u32) -> Option<Arc<SubsystemShared>> {
        self.registry
            .all()
            .into_iter()
            .find(|subsystem| subsystem.id == id)
    }

    /// Checks the Keep Alive timers of all subsystems.
    fn poll_timers(&mut self) {
        let subsystems = self.registry.all();
        self.next_deadline = subsystems
            .iter()
            .filter_map(|subsystem| subsystem.poll())
            .min();
    }
}

/// Timer by the target's clock. The runtime's clock stops during system suspend; `clock` does not.
fn timer(clock: &Clock, deadline: Option<Instant>) -> impl Future<Output = ()> + use<> {
    let wait = deadline.map(|deadline| deadline.saturating_duration_since(clock.now()));
    async move {
        match wait {
            Some(wait) => tokio::time::sleep(wait).await,
            None => std::future::pending().await,
        }
    }
}

fn limits(config: &Config) -> Limits {
    Limits {
        mdts: config.target.mdts(),
        io_queue_entries: config.target.queue_depth,
        io_queues: config.target.io_queues,
        in_capsule_bytes: config.target.in_capsule_data_bytes,
        namespaces: namespaces_within(config.target.max_transfer_bytes),
        ..Limits::default()
    }
}

fn sizes(config: &Config) -> Sizes {
    Sizes {
        receives: config.target.receives,
        in_capsule_bytes: config.target.in_capsule_data_bytes,
        data_bytes: config.target.data_buffers_bytes as usize,
        transfer_bytes: config.target.max_transfer_bytes as usize,
        queue_pairs: QUEUE_PAIRS_MAX,
        poll_idle: config.target.poll_idle,
        poll_drives: config.target.poll_drives,
        io_timeout: config.target.io_timeout,
    }
}

type Counters = Vec<Arc<ReactorCounters>>;

/// Values that every reactor starts with.
struct Launch<'a> {
    config: &'a Config,
    registry: &'a Arc<Registry>,
    control: &'a UnboundedSender<ControlMessage>,
    audit: &'a Audit,
    clock: &'a Clock,
    started: Instant,
    panics: &'a Arc<Panics>,
}

impl Launch<'_> {
    /// Starts every reactor; stops the started ones after a failure.
    fn all(&self, reactors: &mut Reactors) -> Result<(Arc<[Mailbox]>, Counters), StartError> {
        let (mut mailboxes, mut counters) = (Vec::new(), Vec::new());
        for (index, core) in placement::cores(self.config).into_iter().enumerate() {
            match self.one(reactors, index, core) {
                Ok((mailbox, own)) => {
                    mailboxes.push(mailbox);
                    counters.push(own);
                }
                Err(error) => {
                    let _ = reactors.stop(&mailboxes, Instant::now() + STOP_TIMEOUT);
                    return Err(StartError::Reactor(error));
                }
            }
        }
        Ok((mailboxes.into(), counters))
    }

    fn one(
        &self,
        reactors: &mut Reactors,
        index: usize,
        core: Option<usize>,
    ) -> io::Result<(Mailbox, Arc<ReactorCounters>)> {
        let (mailbox, inbox) = Mailbox::new().map_err(io::Error::other)?;
        let counters = Arc::new(ReactorCounters::default());
        let start = reactor::Start {
            index,
            core,
            sizes: sizes(self.config),
            registry: Arc::clone(self.registry),
            inbox,
            control: self.control.clone(),
            audit: self.audit.clone(),
            clock: self.clock.clone(),
            started: self.started,
            counters: Arc::clone(&counters),
        };
        reactors.launch(start, self.panics)?;
        Ok((mailbox, counters))
    }
}

fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}
