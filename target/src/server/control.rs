use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_base::Clock;
use cairn_config::Config;
use cairn_rdma::{ListenerEvent, Provider};
use nvme_proto::limits::{Limits, namespaces_within};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;

use super::admission::Admission;
use super::audit_log::AuditLog;
use super::discovery::Discovery;
use super::error::StartError;
use super::exports::{Exports, Parts, check_count};
use super::flushing::{Flushes, Protection};
use super::jobs::Jobs;
use super::keys::{InForce, wait_to_load};
use super::listeners::{FromListener, ListenerId, Listeners};
use super::lost_devices::LostDevices;
use super::metrics_port::MetricsPort;
use super::missing::MissingParts;
use super::opening::{Openings, Returned};
use super::reactors::{Launch, Reactors, STOP_TIMEOUT};
use super::reload::{Reloading, Reloads};
use super::restart::Fixed;
use super::runtime;
use super::service::Service;
use super::startup::open_all;
use super::watching::Watch;
use crate::exposition::Observed;
use crate::health::{Health, Thing};
use crate::panics::Part;
use cairn_data_path::audit::Audit;
use cairn_data_path::registry::{ControlMessage, Mailbox, Message, Registry};

/// Time limit, at a stop, for commands in flight to complete and hosts to be disconnected.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit of flushes after the reactors have ended. A slow disk may write its cache for many
/// seconds.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(20);

const FLUSH_INTERVAL: Duration = Duration::from_millis(10);

pub(super) type Beside = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(super) enum Order {
    Reload(Reloading),
    Do(Box<dyn FnOnce(&mut ControlPlane) + Send>),
    Stop,
}

enum Input {
    Listener(FromListener),
    Message(ControlMessage),
    Order(Order),
    Returned(Returned),
    Deadline,
    Arrived,
}

#[derive(Debug)]
pub(super) struct Started {
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) listening: Vec<(cairn_config::Listener, SocketAddr)>,
    pub(super) health: watch::Receiver<Arc<Health>>,
    pub(super) metrics: Option<SocketAddr>,
    pub(super) observed: Arc<Observed>,
}

pub(super) struct Start {
    pub(super) config: Config,
    pub(super) providers: Vec<Arc<dyn Provider>>,
    pub(super) orders: UnboundedReceiver<Order>,
    pub(super) reactors: Reactors,
    pub(super) clock: Clock,
    pub(super) is_patient: bool,
    pub(super) audit: Audit,
}

pub(super) struct ControlPlane {
    pub(super) service: Service,
    pub(super) observed: Arc<Observed>,
    pub(super) reactors: Reactors,
    pub(super) clock: Clock,
    pub(super) started: Instant,
    mailboxes: Arc<[Mailbox]>,
    reloads: Reloads,
    pub(super) lost_devices: LostDevices,
    admission: Admission,
    flushes: Flushes,
    next_deadline: Option<Instant>,
    messages: UnboundedReceiver<ControlMessage>,
    listener_events: UnboundedReceiver<FromListener>,
    orders: UnboundedReceiver<Order>,
}

impl ControlPlane {
    pub(super) fn start(mut start: Start) -> Result<Self, StartError> {
        let (config, clock, audit) = (start.config, start.clock, start.audit);
        check_count(&config)?;
        let (keys, unreadable) = InForce::new(wait_to_load(&config)?);
        let started = clock.now();
        let jobs = Arc::new(Jobs::new(start.reactors.has_threads()));
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
            panics: jobs.panics(),
        };
        let (mailboxes, counters) = launch.all(&mut start.reactors)?;
        let authenticator = keys.authenticator();
        let parts = Parts::new(
            limits,
            &clock,
            started,
            &mailboxes,
            authenticator,
            &messages_out,
        );
        let (missing, health) = MissingParts::new(clock.clone());
        let (providers, panics) = (&start.providers, jobs.panics());
        let observed = Arc::new(Observed::new(
            &registry, counters, providers, panics, health, &mailboxes, &audit,
        ));
        let exports = Exports::new(registry, parts, &config.target);
        let service = Service {
            fixed: Fixed::new(&config),
            discovery: Discovery::new(&exports, &config),
            exports,
            listeners: Listeners::new(start.providers, listener_events_out, clock.clone()),
            keys,
            openings: Openings::new(jobs.has_threads()),
            missing,
            metrics: MetricsPort::new(Arc::clone(&observed)),
            audit: AuditLog::new(audit.clone(), messages_out.clone()),
            jobs: Arc::clone(&jobs),
            clock: clock.clone(),
            config: Arc::new(config),
        };
        let admission = Admission::new(limits, &mailboxes, &observed, audit, &clock);
        let flushes = Flushes::new(&clock, &mailboxes, jobs, messages_out);
        let control = Self {
            service,
            observed,
            reactors: start.reactors,
            clock,
            started,
            mailboxes,
            reloads: Reloads::default(),
            lost_devices: LostDevices::default(),
            admission,
            flushes,
            next_deadline: None,
            messages,
            listener_events,
            orders: start.orders,
        };
        control.opened(unreadable, start.is_patient)
    }

    fn opened(
        mut self,
        unreadable: Vec<(Thing, StartError)>,
        is_patient: bool,
    ) -> Result<Self, StartError> {
        let (service, orders) = (&mut self.service, &mut self.orders);
        match open_all(service, orders, unreadable, is_patient) {
            Ok(()) => Ok(self),
            Err(error) => {
                self.service.listeners.close();
                let _ = self.stop_reactors(Instant::now() + STOP_TIMEOUT);
                Err(error)
            }
        }
    }

    pub(super) fn started(&self) -> Started {
        let listeners = &self.service.listeners;
        let listening = listeners.all().iter();
        Started {
            addresses: listeners.addresses(),
            listening: listening
                .map(|open| (open.config.clone(), open.local_addr()))
                .collect(),
            health: self.service.missing.health(),
            metrics: self.service.metrics.address(),
            observed: Arc::clone(&self.observed),
        }
    }

    pub(super) fn run(mut self, companion: Beside) -> Result<(), String> {
        let runtime = runtime::new().map_err(|error| format!("no runtime: {error}"))?;
        let messages = self.service.exports.messages();
        let watch = Watch::start(self.service.exports.registry(), messages)
            .map_err(|error| format!("cannot start the thread that looks at files: {error}"))?;
        let end = runtime.block_on(async {
            let companion = tokio::spawn(companion);
            let resizes = tokio::spawn(watch.resizes());
            while self.turn().await {}
            companion.abort();
            resizes.abort();
            drop(watch);
            self.shut_down().await
        });
        // The exit must not wait for a hung disk.
        runtime.shutdown_background();
        end
    }

    async fn turn(&mut self) -> bool {
        let deadlines = [
            self.next_deadline,
            self.service.openings.next_deadline(),
            self.service.listeners.next_look(),
            self.service.missing.next_try(),
            self.flushes.next_deadline(),
        ];
        let timer = runtime::timer(&self.clock, deadlines.into_iter().flatten().min());
        let input = tokio::select! {
            // The first three channels never close, because `self` holds senders.
            Some(event) = self.listener_events.recv() => Input::Listener(event),
            Some(message) = self.messages.recv() => Input::Message(message),
            Some(returned) = self.service.openings.returned.recv() => Input::Returned(returned),
            order = self.orders.recv() => Input::Order(order.unwrap_or(Order::Stop)),
            () = self.service.missing.arrival() => Input::Arrived,
            () = timer => Input::Deadline,
        };
        self.take(input)
    }

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

    pub(super) fn next_step(&self) -> Option<Instant> {
        let deadlines = [self.next_deadline, self.flushes.next_deadline()];
        deadlines.into_iter().flatten().min()
    }

    fn take(&mut self, input: Input) -> bool {
        match input {
            Input::Listener((listener, event)) => self.listener_event(listener, event),
            Input::Message(message) => self.message(message),
            Input::Order(Order::Reload(reloading)) => {
                let (service, flushes) = (&mut self.service, &mut self.flushes);
                self.reloads.reload(reloading, service, flushes);
            }
            Input::Order(Order::Do(action)) => {
                // A panic is harmless, because the action only reads, or changes a subsystem under
                // its lock.
                let panics = Arc::clone(self.service.jobs.panics());
                panics.confine(Part::Control, || action(self));
            }
            Input::Order(Order::Stop) => return false,
            Input::Returned(returned) => {
                self.service.openings.end(returned, self.clock.now());
                self.go_on_reloading();
            }
            Input::Deadline => {
                self.poll_timers();
                let service = &mut self.service;
                service.listeners.look_at_retiring(&service.exports);
                self.flushes.give_up_settling();
                self.service.openings.advance(self.clock.now());
                self.go_on_reloading();
                self.try_missing();
            }
            Input::Arrived => self.service.missing.try_soon(),
        }
        true
    }

    fn go_on_reloading(&mut self) {
        let (service, flushes) = (&mut self.service, &mut self.flushes);
        self.reloads.go_on(service, flushes);
    }

    fn try_missing(&mut self) {
        // Reloads and openings in progress retry all missing parts themselves.
        if self.service.missing.is_due()
            && !self.reloads.are_under_way()
            && !self.service.openings.is_busy()
        {
            self.service.try_missing();
            self.go_on_reloading();
        }
    }

    fn listener_event(&mut self, id: ListenerId, event: ListenerEvent) {
        let service = &mut self.service;
        let Some(listener) = service.listeners.find(id) else {
            // The listener was closed. Dropping its request refuses the request.
            return;
        };
        match event {
            ListenerEvent::Request(request) if listener.drained => {
                let provider = listener.shared.provider;
                self.admission.refuse_drained(*request, provider);
            }
            ListenerEvent::Request(request) => {
                let (config, exports) = (&service.config, &mut service.exports);
                let admission = &mut self.admission;
                let peer = request.peer.ip();
                let is_turned_away = !listener.config.allows(peer);
                // A panic drops the request, which refuses it.
                service.jobs.panics().confine(Part::Connect, || {
                    let shared = Arc::clone(&listener.shared);
                    admission.admit(config, exports, &listener.config, shared, *request);
                });
                if is_turned_away {
                    service.listeners.note_turned_away(id, peer);
                }
            }
            ListenerEvent::Down { reason } => {
                // Logged when a listener or its address changes.
                tracing::warn!(address = %listener.address(), reason, "listener down");
                service.listeners.note_down(id, Some(&reason));
            }
            ListenerEvent::Up => {
                // Logged when a listener or its address changes.
                tracing::info!(address = %listener.address(), "listener up again");
                service.listeners.note_down(id, None);
            }
        }
    }

    fn message(&mut self, message: ControlMessage) {
        match message {
            ControlMessage::TimersChanged => self.poll_timers(),
            ControlMessage::AuditChanged => self.service.audit_changed(),
            ControlMessage::FlushAll {
                subsystem,
                cntlid,
                namespaces,
            } => {
                let Some(subsystem) = self.service.exports.subsystem(subsystem) else {
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
                if let Some(subsystem) = self.service.exports.subsystem(subsystem) {
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
                if let Some(subsystem) = self.service.exports.subsystem(wish.subsystem) {
                    self.flushes.write_through(subsystem, wish);
                }
            }
            ControlMessage::Reservation {
                subsystem,
                namespace,
                step,
            } => match self.service.exports.subsystem(subsystem) {
                Some(subsystem) => self.flushes.reserve(subsystem, namespace, step),
                None => namespace.reserving().abandon(),
            },
            ControlMessage::Settled { id } => self.flushes.settled(id, true),
            ControlMessage::DiskChanged => {
                self.service.exports.see_changes();
                if let Some(job) = self.service.exports.keep_sizes() {
                    self.service.jobs.run(job);
                }
            }
            ControlMessage::DeviceRemoved { device } => {
                if let Some(name) = self.service.exports.forget_device(device) {
                    self.lost_devices.note(name, self.clock.now());
                }
            }
            ControlMessage::Drained => {}
        }
    }

    fn poll_timers(&mut self) {
        let subsystems = self.service.exports.registry().all();
        self.next_deadline = subsystems
            .iter()
            .filter_map(|subsystem| subsystem.poll())
            .min();
    }
    async fn shut_down(&mut self) -> Result<(), String> {
        // Logged when the target stops.
        tracing::info!("stopping: no new connections, finishing commands in progress");
        self.drain();
        if tokio::time::timeout(DRAIN_TIMEOUT, self.drained())
            .await
            .is_err()
        {
            // Logged when the target stops.
            tracing::warn!("commands are still in progress after {DRAIN_TIMEOUT:?}: closing");
        }
        let stopped = self.stop_reactors(Instant::now() + STOP_TIMEOUT);
        let flushed = self.finish_flushes(Instant::now() + FLUSH_TIMEOUT).await;
        self.service.audit.end();
        stopped.and(flushed)
    }

    async fn finish_flushes(&mut self, deadline: Instant) -> Result<(), String> {
        while self.has_flushes() {
            if Instant::now() >= deadline {
                return Err(format!(
                    "{} flushes have not ended: what hosts wrote last may not be durable; look \
                     for a disk that hangs in the kernel's log",
                    self.service.jobs.running()
                ));
            }
            tokio::time::sleep(FLUSH_INTERVAL).await;
        }
        Ok(())
    }

    fn has_flushes(&mut self) -> bool {
        while let Ok(message) = self.messages.try_recv() {
            self.message(message);
        }
        self.service.jobs.running() > 0 || !self.flushes.is_empty()
    }

    pub(super) fn drain(&mut self) {
        self.service.listeners.close();
        for reactor in self.mailboxes.iter() {
            reactor.send(Message::Drain);
        }
    }

    async fn drained(&mut self) {
        let mut left = self.mailboxes.len();
        while left > 0 {
            match self.messages.recv().await {
                Some(ControlMessage::Drained) => left -= 1,
                // Other messages are handled, too: a host that shuts down meanwhile needs its
                // flush.
                Some(message) => self.message(message),
                None => return,
            }
        }
    }

    fn stop_reactors(&mut self, deadline: Instant) -> Result<(), String> {
        self.reactors.stop(&self.mailboxes, deadline)
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
