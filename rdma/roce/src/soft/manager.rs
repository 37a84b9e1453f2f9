//! Connection management for one device: the state machine of [`crate::cm`], its
//! socket, and its thread.
//!
//! The thread reads the socket and keeps the time. Endpoints call in from their
//! own threads, under a lock: connecting and disconnecting is not the data path.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use cairn_rdma::{FabricError, QpId};
use crossbeam_channel::Sender as Mailbox;

use super::device::SoftDevice;
use super::{Shared, listening, lock};
use crate::capture::Capture;
use crate::cm::{CmEvent, ConnId, Connect, Gone, Manager, Path, QpTerms, Transmit};
use crate::phy::receive::{Received, Receiver};
use crate::phy::send::{Flow, Sender};
use crate::phy::socket::Socket;
use crate::wire::cm::RejReason;
use crate::wire::icrc::{Checker, Route};
use crate::wire::mad::{GSI_QKEY, GSI_QPN, MAD_LEN};
use crate::wire::udp::ROCE_PORT;
use crate::wire::{Deth, Opcode, Packet};
use cairn_rdma::wake::{Wake, wait_readable};

/// Hop limit of connection messages.
const HOP_LIMIT: u8 = 64;

/// What an endpoint hears of its connections.
#[derive(Debug)]
pub(super) struct News {
    pub(super) qp: QpId,
    pub(super) event: CmEvent,
}

/// An endpoint's letter box.
#[derive(Debug, Clone)]
pub(super) struct Inbox {
    pub(super) mailbox: Mailbox<News>,
    pub(super) wake: Arc<Wake>,
}

/// A device's connection manager, for whoever needs it.
#[derive(Debug)]
pub(super) struct ConnectionManager {
    state: Mutex<State>,
    socket: Arc<Socket>,
    wake: Wake,
    stopping: AtomicBool,
}

#[derive(Debug)]
struct State {
    manager: Manager,
    owners: HashMap<ConnId, Owner>,
    sender: Sender,
    /// PSN of the next datagram; nobody looks at it.
    psn: u32,
    capture: Option<Arc<Capture>>,
}

#[derive(Debug)]
struct Owner {
    qp: QpId,
    inbox: Inbox,
}

impl ConnectionManager {
    pub(super) fn new(
        manager: Manager,
        socket: Arc<Socket>,
        sender: Sender,
        capture: Option<Arc<Capture>>,
    ) -> Result<Self, FabricError> {
        Ok(Self {
            state: Mutex::new(State {
                manager,
                owners: HashMap::new(),
                sender,
                psn: 0,
                capture,
            }),
            socket,
            wake: Wake::new()?,
            stopping: AtomicBool::new(false),
        })
    }

    /// Runs `call`, sends what it gave rise to, and has the thread look at its
    /// timers again.
    fn with<T>(&self, call: impl FnOnce(&mut State, Instant) -> T) -> T {
        let mut state = lock(&self.state);
        let result = call(&mut state, Instant::now());
        state.transmit(&self.socket);
        drop(state);
        self.wake.wake();
        result
    }

    pub(super) fn connect(&self, wish: &Connect, qp: QpId, inbox: &Inbox) -> ConnId {
        self.with(|state, now| {
            let id = state.manager.connect(now, wish);
            let inbox = inbox.clone();
            state.owners.insert(id, Owner { qp, inbox });
            id
        })
    }

    pub(super) fn accept(
        &self,
        id: ConnId,
        terms: &QpTerms,
        private_data: &[u8],
        qp: QpId,
        inbox: &Inbox,
    ) -> Result<(), Gone> {
        self.with(|state, now| {
            state.manager.accept(now, id, terms, private_data)?;
            let inbox = inbox.clone();
            state.owners.insert(id, Owner { qp, inbox });
            Ok(())
        })
    }

    pub(super) fn reject(&self, id: ConnId, reason: RejReason, info: &[u8], private_data: &[u8]) {
        // A peer that has given up meanwhile needs no refusal.
        let _ = self.with(|state, _| state.manager.reject(id, reason, info, private_data));
    }

    pub(super) fn heard(&self, id: ConnId) {
        self.with(|state, _| {
            state.manager.heard(id);
            // The queue pair knows: it is where this comes from.
            while state.manager.poll_event().is_some() {}
        });
    }

    pub(super) fn disconnect(&self, id: ConnId) {
        self.with(|state, now| {
            state.owners.remove(&id);
            state.manager.disconnect(now, id);
        });
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake.wake();
    }

    /// The thread.
    pub(super) fn run(&self, shared: &Arc<Shared>, device: &Weak<SoftDevice>) {
        let mut receiver = Receiver::new();
        let mut checker = Checker::new();
        while !self.stopping.load(Ordering::Acquire) {
            self.wake.clear();
            let mut requests = Vec::new();
            let timeout = {
                let mut state = lock(&self.state);
                let now = Instant::now();
                state.receive(&self.socket, &mut receiver, &mut checker, now);
                state.manager.handle_timeout(now);
                state.dispatch(&mut requests);
                state.transmit(&self.socket);
                state.manager.poll_timeout()
            };
            let idle = requests.is_empty();
            for (id, request) in requests {
                // Whoever listens keeps the device alive.
                match device.upgrade() {
                    Some(device) => listening::deliver(shared, &device, id, request),
                    None => self.reject(id, RejReason::InvalidServiceId, &[], &[]),
                }
            }
            if idle {
                let timeout = timeout.map(|at| at.saturating_duration_since(Instant::now()));
                wait_readable([self.socket.raw(), self.wake.fd()], timeout);
            }
        }
    }
}

impl State {
    fn receive(
        &mut self,
        socket: &Socket,
        receiver: &mut Receiver,
        checker: &mut Checker,
        now: Instant,
    ) {
        // A socket that reports an error has none the next time.
        let count = receiver.receive(socket).unwrap_or(0);
        for datagram in 0..count {
            for received in receiver.packets(datagram) {
                if let Some(capture) = &self.capture {
                    capture.received(&received);
                }
                self.handle(&received, checker, now);
            }
        }
    }

    /// A packet for QP1, if it is one (IBTA 9.8.3, 13.5.3).
    fn handle(&mut self, received: &Received<'_>, checker: &mut Checker, now: Instant) {
        let route = route_of(received);
        let Some(transport) = checker.open(&route, received.index, received.bytes) else {
            return;
        };
        let Ok(packet) = Packet::parse(transport) else {
            return;
        };
        let for_gsi = packet.opcode == Opcode::UdSendOnly
            && packet.bth.dest_qpn == GSI_QPN
            && packet.deth.is_some_and(|deth| deth.qkey == GSI_QKEY);
        if for_gsi {
            let path = Path {
                local: received.local,
                remote: received.source.ip(),
            };
            self.manager.handle_mad(now, path, packet.payload);
        }
    }

    /// Hands news to the endpoints; requests go to `requests`.
    fn dispatch(&mut self, requests: &mut Vec<(ConnId, Box<crate::cm::Request>)>) {
        while let Some(event) = self.manager.poll_event() {
            let id = match &event {
                CmEvent::Request { .. } => {
                    if let CmEvent::Request { id, request } = event {
                        requests.push((id, request));
                    }
                    continue;
                }
                // The consumer finds out when it answers.
                CmEvent::Withdrawn { .. } => continue,
                CmEvent::Accepted { id, .. }
                | CmEvent::Established { id }
                | CmEvent::Rejected { id, .. }
                | CmEvent::TimedOut { id }
                | CmEvent::Disconnected { id } => *id,
            };
            let last = !matches!(
                event,
                CmEvent::Accepted { .. } | CmEvent::Established { .. }
            );
            if let Some(owner) = self.owners.get(&id) {
                // An endpoint that is being dropped reads no more news.
                let _ = owner.inbox.mailbox.send(News {
                    qp: owner.qp,
                    event,
                });
                owner.inbox.wake.wake();
            }
            if last {
                self.owners.remove(&id);
            }
        }
    }

    fn transmit(&mut self, socket: &Socket) {
        while let Some(Transmit { path, mad }) = self.manager.poll_transmit() {
            let flow = Flow {
                fd: socket.raw(),
                source_port: ROCE_PORT,
                local: path.local,
                remote: path.remote,
                traffic_class: 0,
                hop_limit: HOP_LIMIT,
            };
            self.psn = self.psn.wrapping_add(1) & 0xff_ffff;
            let mut packet = Packet::new(Opcode::UdSendOnly, GSI_QPN, self.psn);
            packet.deth = Some(Deth {
                qkey: GSI_QKEY,
                source_qpn: GSI_QPN,
            });
            let mad: &[u8; MAD_LEN] = &mad;
            packet.payload = mad;
            let length = packet.emit(self.sender.packet());
            self.sender.commit(&flow, length);
        }
        self.sender.flush();
    }
}

/// What a packet's ICRC covers of its headers.
pub(super) fn route_of(received: &Received<'_>) -> Route {
    let canonical = |ip: IpAddr| ip.to_canonical();
    Route::Udp {
        source: canonical(received.source.ip()),
        destination: canonical(received.local),
        source_port: received.source.port(),
    }
}
