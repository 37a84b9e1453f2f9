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

pub(super) const PATIENCE: Duration = Duration::from_secs(20);
pub(super) const QUIET: Duration = Duration::from_millis(30);

pub(super) struct Door {
    listener: Box<dyn Listener>,
    events: Receiver<ListenerEvent>,
}

impl Door {
    pub(super) fn open(setting: &Setting) -> Result<Self> {
        Self::open_in(setting, PKey::DEFAULT)
    }

    pub(super) fn open_in(setting: &Setting, pkey: PKey) -> Result<Self> {
        let (sender, events) = crossbeam_channel::unbounded();
        let options = ListenOptions {
            address: SocketAddr::new(setting.ip, 0),
            backlog: 64,
            pkey,
            roce: None,
        };
        let sink = Box::new(move |event| {
            let _ = sender.send(event);
        });
        let listener = setting.provider.listen(&options, sink)?;
        ensure!(
            listener.local_addr().port() != 0,
            "a listener does not know its port"
        );
        Ok(Self { listener, events })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    pub(super) fn try_request(&self) -> Option<ConnRequest> {
        self.events.try_iter().find_map(|event| match event {
            ListenerEvent::Request(request) => Some(*request),
            ListenerEvent::Down { .. } | ListenerEvent::Up => None,
        })
    }
}

pub(super) struct Pair {
    pub(super) host: Node,
    pub(super) target: Node,
    pub(super) door: Door,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    pub(super) host: QpId,
    pub(super) target: QpId,
}

impl Pair {
    pub(super) fn open(setting: &Setting) -> Result<Self> {
        let door = Door::open(setting)?;
        let device = setting.provider.device_for(door.address(), None)?;
        Ok(Self {
            host: Node::open(&device)?,
            target: Node::open(&device)?,
            door,
        })
    }

    pub(super) fn connected(setting: &Setting) -> Result<(Self, Link)> {
        Self::connected_with(setting, &QpOptions::default())
    }

    pub(super) fn connected_with(setting: &Setting, options: &QpOptions) -> Result<(Self, Link)> {
        let mut pair = Self::open(setting)?;
        let link = pair.link(options)?;
        Ok((pair, link))
    }

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

    pub(super) fn begin_connect(&mut self, qp: &QpOptions, private_data: &[u8]) -> Result<QpId> {
        let options = connect_options(self.door.address(), qp);
        Ok(self.host.endpoint.connect(&options, private_data)?)
    }

    pub(super) fn request(&mut self) -> Result<ConnRequest> {
        self.wait("a connection request", |pair| pair.door.try_request())
    }

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

    pub(super) fn host_event(&mut self, qp: QpId) -> Result<Event> {
        self.wait("an event at the host", |pair| {
            pair.host.take_event(about(qp))
        })
    }

    pub(super) fn target_event(&mut self, qp: QpId) -> Result<Event> {
        self.wait("an event at the target", |pair| {
            pair.target.take_event(about(qp))
        })
    }

    pub(super) fn host_completion(&mut self, id: u64) -> Result<Completion> {
        self.wait(&format!("completion {id:#x} at the host"), |pair| {
            pair.host.take_completion(id)
        })
    }

    pub(super) fn target_completion(&mut self, id: u64) -> Result<Completion> {
        self.wait(&format!("completion {id:#x} at the target"), |pair| {
            pair.target.take_completion(id)
        })
    }

    pub(super) fn target_receive(&mut self) -> Result<Completion> {
        self.wait("a message at the target", |pair| pair.target.take_receive())
    }

    pub(super) fn host_receive(&mut self) -> Result<Completion> {
        self.wait("a message at the host", |pair| pair.host.take_receive())
    }

    pub(super) fn close_host(&mut self, qp: QpId) -> Result<()> {
        self.host.endpoint.disconnect(qp);
        self.wait("Closed at the host", |pair| {
            pair.host.is_closed(qp).then_some(())
        })
    }

    pub(super) fn close_target(&mut self, qp: QpId) -> Result<()> {
        self.target.endpoint.disconnect(qp);
        self.wait("Closed at the target", |pair| {
            pair.target.is_closed(qp).then_some(())
        })
    }

    pub(super) fn close(&mut self, link: Link) -> Result<()> {
        self.close_host(link.host)?;
        self.target_disconnected(link.target)?;
        self.close_target(link.target)
    }

    pub(super) fn host_disconnected(&mut self, qp: QpId) -> Result<DisconnectReason> {
        disconnect_reason(&self.host_event(qp)?)
    }

    pub(super) fn target_disconnected(&mut self, qp: QpId) -> Result<DisconnectReason> {
        disconnect_reason(&self.target_event(qp)?)
    }

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

pub(super) fn connect_options(remote: SocketAddr, qp: &QpOptions) -> ConnectOptions {
    ConnectOptions {
        remote,
        local: None,
        pkey: PKey::DEFAULT,
        qp: *qp,
        timeout: PATIENCE / 2,
    }
}

pub(super) fn about(qp: QpId) -> impl Fn(&Event) -> bool {
    move |event| crate::node::qp_of(event) == Some(qp)
}

fn disconnect_reason(event: &Event) -> Result<DisconnectReason> {
    match event {
        Event::Disconnected { reason, .. } => Ok(*reason),
        other => bail!("expected Disconnected, got {other:?}"),
    }
}
