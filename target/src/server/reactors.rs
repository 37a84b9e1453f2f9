//! Reactors: one thread each, or all on the caller's thread in a simulation.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_base::Clock;
use cairn_config::Config;
use cairn_rdma::AckTimeout;
use tokio::sync::mpsc::UnboundedSender;

use super::error::StartError;
use crate::panics::Panics;
use crate::placement;
use cairn_data_path::audit::Audit;
use cairn_data_path::metrics::ReactorCounters;
use cairn_data_path::reactor::{self, Reactor, ReactorHandle, Rest, Sizes, Start};
use cairn_data_path::registry::{ControlMessage, Mailbox, Message, Registry};

/// Time limit to close queues after [`Message::Stop`].
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum queue pairs per reactor and device.
pub(super) const QUEUE_PAIRS_MAX: u16 = 1024;
/// Part of [`QUEUE_PAIRS_MAX`] reserved for addresses with a present or recent association.
pub(super) const QUEUE_PAIRS_RESERVED: u16 = 128;

pub(super) enum Reactors {
    Threads(Vec<ReactorHandle>),
    Stepped(Vec<Reactor>),
}

impl Reactors {
    pub(super) fn has_threads(&self) -> bool {
        matches!(self, Self::Threads(_))
    }

    pub(super) fn launch(&mut self, start: Start, panics: &Arc<Panics>) -> io::Result<()> {
        match self {
            Self::Threads(reactors) => {
                reactors.push(reactor::start(start, Arc::clone(panics))?);
            }
            // The caller's thread must not be pinned.
            Self::Stepped(reactors) => reactors.push(Reactor::new(Start {
                core: None,
                ..start
            })?),
        }
        Ok(())
    }

    pub(super) fn stop(&mut self, mailboxes: &[Mailbox], deadline: Instant) -> Result<(), String> {
        for reactor in mailboxes {
            reactor.send(Message::Stop);
        }
        let Self::Threads(reactors) = self else {
            return Ok(());
        };
        let join = |reactor: ReactorHandle| reactor.join_until(deadline);
        let ends: Vec<_> = reactors.drain(..).map(join).collect();
        ends.into_iter().collect()
    }

    pub(super) fn step(&mut self, now: Instant, paused: &[usize]) -> Rest {
        let Self::Stepped(reactors) = self else {
            return Rest::Until(None);
        };
        let mut all = Rest::Until(None);
        let reactors = reactors.iter_mut().enumerate();
        for (_, reactor) in reactors.filter(|(index, _)| !paused.contains(index)) {
            all = match (all, reactor.step_settled(now)) {
                (Rest::Until(one), Rest::Until(other)) => {
                    Rest::Until([one, other].into_iter().flatten().min())
                }
                (Rest::None, _) | (_, Rest::None) => Rest::None,
                _ => Rest::Spin,
            };
        }
        all
    }

    pub(super) fn round(&mut self, now: Instant) {
        if let Self::Stepped(reactors) = self {
            for reactor in reactors {
                reactor.step(now);
            }
        }
    }

    pub(super) fn replace_workers(&mut self) {
        if let Self::Stepped(reactors) = self {
            reactors.iter_mut().for_each(Reactor::replace_workers);
        }
    }

    pub(super) fn step_workers(&mut self, loses: bool) -> bool {
        let Self::Stepped(reactors) = self else {
            return false;
        };
        reactors
            .iter_mut()
            .fold(false, |moved, reactor| reactor.step_workers(loses) | moved)
    }

    pub(super) fn kill(&mut self) {
        if let Self::Stepped(reactors) = self {
            reactors.iter_mut().for_each(Reactor::abandon_all);
        }
    }

    pub(super) fn stepped(&self) -> &[Reactor] {
        match self {
            Self::Threads(_) => &[],
            Self::Stepped(reactors) => reactors,
        }
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
        send_with_invalidate: config.target.send_with_invalidate,
        ack_timeout: config.target.ack_timeout.map(AckTimeout::at_least),
        io_timeout: config.target.io_timeout,
    }
}

type Counters = Vec<Arc<ReactorCounters>>;

pub(super) struct Launch<'a> {
    pub(super) config: &'a Config,
    pub(super) registry: &'a Arc<Registry>,
    pub(super) control: &'a UnboundedSender<ControlMessage>,
    pub(super) audit: &'a Audit,
    pub(super) clock: &'a Clock,
    pub(super) started: Instant,
    pub(super) panics: &'a Arc<Panics>,
}

impl Launch<'_> {
    pub(super) fn all(
        &self,
        reactors: &mut Reactors,
    ) -> Result<(Arc<[Mailbox]>, Counters), StartError> {
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
        let (mailbox, inbox) = Mailbox::new()
            .map_err(|error| io::Error::new(error.kind(), format!("eventfd: {error}")))?;
        let counters = Arc::new(ReactorCounters::default());
        let start = Start {
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
