//! Two nodes and the connection between them: a host that connects and a
//! target that accepts, both driven by the calling thread.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use cairn_rdma::{
    Completion, ConnRequest, ConnectOptions, DisconnectReason, Event, ListenOptions, Listener,
    ListenerEvent, PKey, PrivateData, QpId, QpOptions,
};
use crossbeam_channel::Receiver;

use super::Setting;
use crate::node::Node;

/// How long anything may take. Generous: the suite also runs under emulation.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// How long to watch for something that must not happen.
pub(super) const QUIET: Duration = Duration::from_millis(30);

/// A listener and its events.
pub(super) struct Door {
    listener: Box<dyn Listener>,
    events: Receiver<ListenerEvent>,
}

impl Door {
    /// Listens on a port of the provider's choice.
    pub(super) fn open(setting: &Setting) -> Result<Self> {
        Self::open_in(setting, PKey::DEFAULT)
    }

    /// The same, for members of a partition.
    pub(super) fn open_in(setting: &Setting, pkey: PKey) -> Result<Self> {
        let (sender, events) = crossbeam_channel::unbounded();
        let options = ListenOptions {
            address: SocketAddr::new(setting.ip, 0),
            backlog: 64,
            pkey,
            roce: None,
        };
        let sink = Box::new(move |event| {
            // The door may have been dropped: then no receiver is left.
            let _ = sender.send(event);
        });
        let listener = setting.provider.listen(&options, sink)?;
        ensure!(
            listener.local_addr().port() != 0,
            "a listener does not know its port"
        );
        Ok(Self { listener, events })
    }

    /// Where to connect to.
    pub(super) fn address(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// The next request that has come in.
    pub(super) fn try_request(&self) -> Option<ConnRequest> {
        self.events.try_iter().find_map(|event| match event {
            ListenerEvent::Request(request) => Some(*request),
            ListenerEvent::Down { .. } | ListenerEvent::Up => None,
        })
    }
}

/// Two nodes on the device that owns the setting's address.
pub(super) struct Pair {
    pub(super) host: Node,
    pub(super) target: Node,
    pub(super) door: Door,
}

/// The two ids of one connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    pub(super) host: QpId,
    pub(super) target: QpId,
}

impl Pair {
    /// A listener and two nodes, not connected.
    pub(super) fn open(setting: &Setting) -> Result<Self> {
        let door = Door::open(setting)?;
        let device = setting.provider.device_for(door.address(), None)?;
        Ok(Self {
            host: Node::open(&device)?,
            target: Node::open(&device)?,
            door,
        })
    }

    /// As [`open`](Self::open), with one connection.
    pub(super) fn connected(setting: &Setting) -> Result<(Self, Link)> {
        Self::connected_with(setting, &QpOptions::default())
    }

    /// As [`connected`](Self::connected), with options for both ends.
    pub(super) fn connected_with(setting: &Setting, options: &QpOptions) -> Result<(Self, Link)> {
        let mut pair = Self::open(setting)?;
        let link = pair.link(options)?;
        Ok((pair, link))
    }

    /// Makes one more connection.
    pub(super) fn link(&mut self, options: &QpOptions) -> Result<Link> {
        let host = self.begin_connect(options, &[])?;
        let request = self.request()?;
        let target = self
            .target
            .endpoint
            .accept(request, options, &[])
            .context("accepting")?;
        let link = Link { host, target };
        self.established(link)?;
        Ok(link)
    }

    /// Has the host ask for a connection.
    pub(super) fn begin_connect(&mut self, qp: &QpOptions, private_data: &[u8]) -> Result<QpId> {
        let options = connect_options(self.door.address(), qp);
        Ok(self.host.endpoint.connect(&options, private_data)?)
    }

    /// The request that reaches the listener.
    pub(super) fn request(&mut self) -> Result<ConnRequest> {
        self.wait("a connection request", |pair| pair.door.try_request())
    }

    /// Waits until both ends say Established; returns the REP's private data.
    pub(super) fn established(&mut self, link: Link) -> Result<PrivateData> {
        let event = self.host_event(link.host)?;
        let Event::Established { private_data, .. } = event else {
            bail!("the host's connect ended in {event:?}");
        };
        let event = self.target_event(link.target)?;
        ensure!(
            matches!(event, Event::Established { .. }),
            "the target's accept ended in {event:?}"
        );
        Ok(private_data)
    }

    /// The next event of one of the host's queue pairs.
    pub(super) fn host_event(&mut self, qp: QpId) -> Result<Event> {
        self.wait("an event at the host", |pair| {
            pair.host.take_event(about(qp))
        })
    }

    /// The next event of one of the target's queue pairs.
    pub(super) fn target_event(&mut self, qp: QpId) -> Result<Event> {
        self.wait("an event at the target", |pair| {
            pair.target.take_event(about(qp))
        })
    }

    /// The completion with this id, at the host.
    pub(super) fn host_completion(&mut self, id: u64) -> Result<Completion> {
        self.wait(&format!("completion {id:#x} at the host"), |pair| {
            pair.host.take_completion(id)
        })
    }

    /// The completion with this id, at the target.
    pub(super) fn target_completion(&mut self, id: u64) -> Result<Completion> {
        self.wait(&format!("completion {id:#x} at the target"), |pair| {
            pair.target.take_completion(id)
        })
    }

    /// The next message that lands at the target.
    pub(super) fn target_receive(&mut self) -> Result<Completion> {
        self.wait("a message at the target", |pair| pair.target.take_receive())
    }

    /// The next message that lands at the host.
    pub(super) fn host_receive(&mut self) -> Result<Completion> {
        self.wait("a message at the host", |pair| pair.host.take_receive())
    }

    /// Ends the host's half and waits for its `Closed`.
    pub(super) fn close_host(&mut self, qp: QpId) -> Result<()> {
        self.host.endpoint.disconnect(qp);
        self.wait("Closed at the host", |pair| {
            pair.host.is_closed(qp).then_some(())
        })
    }

    /// Ends the target's half and waits for its `Closed`.
    pub(super) fn close_target(&mut self, qp: QpId) -> Result<()> {
        self.target.endpoint.disconnect(qp);
        self.wait("Closed at the target", |pair| {
            pair.target.is_closed(qp).then_some(())
        })
    }

    /// Ends a connection from the host and waits until both ends are closed.
    pub(super) fn close(&mut self, link: Link) -> Result<()> {
        self.close_host(link.host)?;
        self.target_disconnected(link.target)?;
        self.close_target(link.target)
    }

    /// Waits for the host's `Disconnected`.
    pub(super) fn host_disconnected(&mut self, qp: QpId) -> Result<DisconnectReason> {
        disconnect_reason(&self.host_event(qp)?)
    }

    /// Waits for the target's `Disconnected`.
    pub(super) fn target_disconnected(&mut self, qp: QpId) -> Result<DisconnectReason> {
        disconnect_reason(&self.target_event(qp)?)
    }

    /// Sends a small message from host to target and checks that it arrives.
    /// Uses one receive, which the caller has posted.
    pub(super) fn check_works(&mut self, link: Link) -> Result<()> {
        const PING_ID: u64 = 0x7069_6e67;
        let offset = crate::node::DATA + crate::node::DATA_LEN - 64;
        self.host.fill(offset, b"still here");
        self.host
            .post_one(link.host, PING_ID, cairn_rdma::Operation::Send, offset, 10)?;
        let sent = self.host_completion(PING_ID)?;
        ensure!(sent.status.is_success(), "a message failed: {sent:?}");
        let landed = self.target_receive()?;
        ensure!(landed.qp == link.target, "it landed elsewhere: {landed:?}");
        ensure!(
            self.target.received(&landed) == b"still here",
            "it arrived mangled"
        );
        Ok(())
    }

    /// Drives both nodes until `ready` gives something.
    pub(super) fn wait<T>(
        &mut self,
        what: &str,
        mut ready: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T> {
        let mut patience = Patience::new(PATIENCE);
        loop {
            let progress = self.pump()?;
            if let Some(value) = ready(self) {
                return Ok(value);
            }
            ensure!(patience.step(progress), "no {what} within {PATIENCE:?}");
        }
    }

    /// Drives both nodes for a while.
    pub(super) fn settle(&mut self) -> Result<()> {
        let mut patience = Patience::new(QUIET);
        while patience.step(self.pump()?) {}
        Ok(())
    }

    fn pump(&mut self) -> Result<bool> {
        let host = self.host.pump().context("at the host")?;
        let target = self.target.pump().context("at the target")?;
        Ok(host || target)
    }
}

/// A deadline for a polling loop that leaves the processor to others when
/// there is nothing to do.
pub(super) struct Patience {
    deadline: Instant,
    idle_rounds: u32,
}

impl Patience {
    pub(super) fn new(length: Duration) -> Self {
        Self {
            deadline: Instant::now() + length,
            idle_rounds: 0,
        }
    }

    /// Called once a round; false when the time is up.
    pub(super) fn step(&mut self, progress: bool) -> bool {
        self.idle_rounds = if progress { 0 } else { self.idle_rounds + 1 };
        match self.idle_rounds {
            0..64 => {}
            64..256 => thread::yield_now(),
            _ => thread::sleep(Duration::from_micros(50)),
        }
        Instant::now() < self.deadline
    }
}

/// How the suite connects.
pub(super) fn connect_options(remote: SocketAddr, qp: &QpOptions) -> ConnectOptions {
    ConnectOptions {
        remote,
        local: None,
        pkey: PKey::DEFAULT,
        qp: *qp,
        timeout: PATIENCE / 2,
    }
}

/// Picks the events of one queue pair.
pub(super) fn about(qp: QpId) -> impl Fn(&Event) -> bool {
    move |event| crate::node::qp_of(event) == Some(qp)
}

fn disconnect_reason(event: &Event) -> Result<DisconnectReason> {
    match event {
        Event::Disconnected { reason, .. } => Ok(*reason),
        other => bail!("expected Disconnected, got {other:?}"),
    }
}
