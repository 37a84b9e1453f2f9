//! Connection management of a device: the state machine of [`cairn_roce_proto::cm`], its socket and
//! its thread.
//!
//! The thread reads the socket and runs the timers; endpoints use the state machine under a lock.
//! After a panic under the lock, all connections end, and listeners continue on the same socket.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Instant as System;

use cairn_base::log::{LogLine, Topic};
use cairn_base::{ScopedAddr, peer_line};
use cairn_rdma::{FabricError, Marked, PKey, QpId, SOCKET_RECEIVE_BYTES};
use crossbeam_channel::Sender as Mailbox;

use super::device::SoftDevice;
use super::relay::{Handed, Packets, Relays};
use super::{Shared, SoftOptions, listener};
use crate::phy::batch::{BatchPosition, Sharing};
use crate::phy::capture::Capture;
use crate::phy::receive::{Received, Receiver};
use crate::phy::send::{ECN, Flow, Sender};
use crate::phy::{Inlet, Network};
use crate::time::ProtoClock;
use cairn_base::entropy::Entropy;
use cairn_base::panics::{Part, confine_part};
use cairn_base::wake::{Wake, wait_readable};
use cairn_roce_proto::cm::{
    CmEvent, ConnId, Connect, Gone, Identity, Manager, Path, QpTerms, Request, Transmit,
};
use cairn_roce_proto::counters::Counters;
use cairn_roce_proto::time::Instant;
use cairn_roce_proto::wire::cm::{LongSend, RejReason};
use cairn_roce_proto::wire::icrc::Checker;
use cairn_roce_proto::wire::mad::{GSI_QKEY, GSI_QPN, MAD_LEN};
use cairn_roce_proto::wire::udp::ROCE_PORT;
use cairn_roce_proto::wire::{Deth, Opcode, Packet};

/// Maximum datagrams in the receive buffer: the kernel doubles the requested size, and a datagram
/// takes at least 512 bytes.
pub(super) const DATAGRAMS_MAX: usize = 2 * SOCKET_RECEIVE_BYTES as usize / 512;

const TURN: u32 = 0;

#[derive(Debug)]
pub(super) struct ConnectionEvent {
    pub(super) qp: QpId,
    pub(super) event: Option<CmEvent>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Acceptance<'a> {
    pub(super) terms: &'a QpTerms,
    pub(super) marked: Marked,
    pub(super) private_data: &'a [u8],
}

#[derive(Debug, Clone)]
pub(super) struct Inbox {
    pub(super) mailbox: Mailbox<ConnectionEvent>,
    pub(super) wake: Arc<Wake>,
}

#[derive(Debug)]
pub(super) struct ConnectionManager {
    clock: ProtoClock,
    network: Network,
    address: ScopedAddr,
    entropy: Entropy,
    state: Mutex<ManagerState>,
    wake: Arc<Wake>,
    stopping: AtomicBool,
}

#[derive(Debug)]
struct ManagerState {
    inner: Inner,
    receiver: Receiver,
    handed: Packets,
}

#[derive(Debug)]
struct Inner {
    manager: Manager,
    inlet: Inlet,
    checker: Checker,
    owners: HashMap<ConnId, Owner>,
    requests: Vec<(ConnId, Box<Request>)>,
    sender: Sender,
    psn: u32,
    class: Option<u8>,
    capture: Option<Arc<Capture>>,
    counters: Counters,
    relays: Arc<Relays>,
}

#[derive(Debug)]
struct Owner {
    qp: QpId,
    inbox: Inbox,
}

impl ConnectionManager {
    pub(super) fn new(
        options: &SoftOptions,
        address: ScopedAddr,
        inlet: Inlet,
        relays: Arc<Relays>,
    ) -> Result<Self, FabricError> {
        let wake = Arc::new(Wake::new().map_err(FabricError::os("eventfd"))?);
        relays.open(TURN, &wake);
        let inner = Inner {
            manager: Manager::new(Identity::new(options.entropy.to_draw())),
            inlet,
            checker: Checker::new(),
            owners: HashMap::new(),
            requests: Vec::new(),
            sender: options.sender(address),
            psn: 0,
            class: None,
            capture: options.capture.clone(),
            counters: Counters::default(),
            relays,
        };
        let receiver = Receiver::new();
        let handed = Packets::default();
        Ok(Self {
            clock: ProtoClock::new(options.clock.clone()),
            network: options.network.clone(),
            address,
            entropy: options.entropy.clone(),
            state: Mutex::new(ManagerState {
                inner,
                receiver,
                handed,
            }),
            wake,
            stopping: AtomicBool::new(false),
        })
    }

    fn state(&self) -> MutexGuard<'_, ManagerState> {
        self.state.lock().unwrap_or_else(|poisoned| {
            let mut state = poisoned.into_inner();
            // The poison is cleared last, so that the lock stays poisoned if one of these calls
            // panics.
            let manager = Manager::new(Identity::new(self.entropy.to_draw()));
            let receiver = Receiver::new();
            let sender = Sender::new(
                &self.network,
                self.address,
                state.inner.capture.clone(),
                false,
            );
            state.renew(manager, sender, receiver);
            self.state.clear_poison();
            self.wake.wake();
            state
        })
    }

    fn with<T>(&self, call: impl FnOnce(&mut Inner, Instant) -> T) -> T {
        let mut state = self.state();
        let result = call(&mut state.inner, self.clock.now());
        state.inner.transmit();
        drop(state);
        self.wake.wake();
        result
    }

    pub(super) fn connect(&self, connect_request: &Connect, qp: QpId, inbox: &Inbox) -> ConnId {
        self.with(|inner, now| {
            let id = inner.manager.connect(now, connect_request);
            let inbox = inbox.clone();
            inner.owners.insert(id, Owner { qp, inbox });
            id
        })
    }

    pub(super) fn accept(
        &self,
        id: ConnId,
        answer: &Acceptance<'_>,
        qp: QpId,
        inbox: &Inbox,
    ) -> Result<Option<LongSend>, Gone> {
        let Acceptance {
            terms,
            marked,
            private_data,
        } = *answer;
        self.with(|inner, now| {
            inner.manager.mark(id, marked);
            let long_send = inner.manager.accept(now, id, terms, private_data)?;
            let inbox = inbox.clone();
            inner.owners.insert(id, Owner { qp, inbox });
            Ok(long_send)
        })
    }

    pub(super) fn mark(&self, id: ConnId, marked: Marked) {
        self.state().inner.manager.mark(id, marked);
    }

    pub(super) fn reject(&self, id: ConnId, reason: RejReason, info: &[u8], private_data: &[u8]) {
        let _ = self.with(|inner, _| inner.manager.reject(id, reason, info, private_data));
    }

    pub(super) fn ignore(&self, id: ConnId) {
        let _ = self.with(|inner, _| inner.manager.ignore(id));
    }

    pub(super) fn received_packet(&self, id: ConnId) {
        self.with(|inner, _| {
            inner.manager.received_packet(id);
            while inner.manager.poll_event().is_some() {}
        });
    }

    pub(super) fn disconnect(&self, id: ConnId) {
        self.with(|inner, now| {
            inner.owners.remove(&id);
            inner.manager.disconnect(now, id);
        });
    }

    pub(super) fn penalize(&self, id: ConnId) {
        let now = self.clock.now();
        let held = self.state().inner.manager.penalize(now, id);
        if let Some(address) = held
            && let Some(line) = LogLine::about(Topic::Fault)
        {
            peer_line!(
                warn, line, %address,
                "packets with memory keys that this peer does not have; its connection requests \
                 are ignored for some time"
            );
        }
    }

    pub(super) fn clock(&self) -> ProtoClock {
        self.clock.clone()
    }

    pub(super) fn connections(&self) -> usize {
        self.state().inner.manager.connections()
    }

    pub(super) fn counters(&self) -> Counters {
        let inner = &self.state().inner;
        Counters {
            cm_dropped_requests: inner.manager.dropped_requests(),
            cm_held_requests: inner.manager.held_requests(),
            ..inner.counters
        }
    }

    /// Handles all arrived messages on the calling thread.
    pub(super) fn drain(&self) {
        let mut handled = 0;
        while handled < DATAGRAMS_MAX {
            let mut state = self.state();
            let received = state.receive(self.clock.now());
            state.inner.dispatch();
            state.inner.transmit();
            drop(state);
            match received {
                Ok(0) => break,
                Ok(count) => handled += count,
                Err(_) => handled += 1,
            }
        }
        if handled > 0 {
            self.wake.wake();
        }
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake.wake();
    }

    pub(super) fn run(&self, shared: &Arc<Shared>, device: &Weak<SoftDevice>) {
        let inlet = self.state().inner.inlet.fd();
        let inlet = inlet.expect("a manager with a thread has a socket");
        while !self.stopping.load(Ordering::Acquire) {
            self.wake.clear();
            let turn = || self.turn(shared, device);
            let Some(rest) = confine_part(Part::Device, turn) else {
                continue;
            };
            if let Rest::Until(deadline) = rest {
                let now = self.clock.system();
                let timeout = deadline.map(|at| at.saturating_duration_since(now));
                wait_readable([inlet, self.wake.fd()], timeout);
            }
        }
    }

    pub(super) fn turn(&self, shared: &Arc<Shared>, device: &Weak<SoftDevice>) -> Rest {
        let (deadline, requests) = {
            let mut state = self.state();
            let now = self.clock.now();
            let _ = state.receive(now);
            state.inner.manager.handle_timeout(now);
            state.inner.dispatch();
            state.inner.transmit();
            let requests = std::mem::take(&mut state.inner.requests);
            (state.inner.manager.poll_timeout(), requests)
        };
        if requests.is_empty() {
            return Rest::Until(deadline.map(|at| self.clock.to_system(at)));
        }
        for (id, request) in requests {
            match device.upgrade() {
                Some(device) => listener::deliver(shared, &device, id, request),
                None => self.reject(id, RejReason::InvalidServiceId, &[], &[]),
            }
        }
        Rest::None
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    None,
    Until(Option<System>),
}

impl ManagerState {
    /// Replaces state that a panic may have left inconsistent, and reports each connection as lost.
    fn renew(&mut self, manager: Manager, sender: Sender, receiver: Receiver) {
        let Self {
            inner,
            receiver: old,
            handed,
        } = self;
        handed.clear();
        (inner.manager, inner.sender, *old) = (manager, sender, receiver);
        (inner.checker, inner.class) = (Checker::new(), None);
        inner.requests.clear();
        for Owner { qp, inbox } in inner.owners.drain().map(|(_, owner)| owner) {
            let _ = inbox.mailbox.send(ConnectionEvent { qp, event: None });
            inbox.wake.wake();
        }
    }

    fn receive(&mut self, now: Instant) -> io::Result<usize> {
        let Self {
            inner,
            receiver,
            handed,
        } = self;
        if inner.relays.has_packets(TURN) {
            inner.relays.take(TURN, handed);
            for received in handed.iter() {
                inner.handle(&received, now);
            }
            handed.clear();
        }
        let count = receiver.receive(&inner.inlet)?;
        for datagram in 0..count {
            for received in receiver.packets(datagram) {
                inner.handle(&received, now);
            }
        }
        Ok(count)
    }
}

impl Inner {
    /// Handles a received packet. Gives management datagrams for QP1 in the default partition (IBTA
    /// 9.8.3, 13.5.3) to the state machine, and other packets to the endpoint of their queue pair.
    fn handle(&mut self, received: &Received<'_>, now: Instant) {
        let headers = received.headers;
        let opened = self
            .checker
            .open(&headers.route, received.index, received.bytes);
        let Some(transport) = opened else {
            self.counters.rx_icrc_encapsulated += 1;
            return;
        };
        if let Some(capture) = &self.capture {
            capture.received(received);
        }
        let Ok(packet) = Packet::parse(transport) else {
            self.counters.rx_malformed += 1;
            return;
        };
        let for_gsi = packet.opcode == Opcode::UdSendOnly
            && packet.bth.dest_qpn == GSI_QPN
            && PKey::DEFAULT.accepts(packet.bth.pkey)
            && packet.deth.is_some_and(|deth| deth.qkey == GSI_QKEY);
        if for_gsi {
            let path = Path {
                local: headers.local,
                remote: headers.source.ip(),
            };
            let class = headers.traffic_class & !ECN;
            self.manager.handle_mad(now, path, class, packet.payload);
            return;
        }
        match self.relays.hand_over(TURN, received) {
            Handed::To(turn) => {
                self.counters.rx_handed_over += 1;
                self.relays.wake(turn);
            }
            Handed::Dropped => self.counters.rx_handover_dropped += 1,
            Handed::NotOurs => self.counters.rx_not_ours += 1,
        }
    }

    fn dispatch(&mut self) {
        while let Some(event) = self.manager.poll_event() {
            let id = match &event {
                CmEvent::Request { .. } => {
                    if let CmEvent::Request { id, request } = event {
                        self.requests.push((id, request));
                    }
                    continue;
                }
                CmEvent::Withdrawn { .. } => continue,
                CmEvent::Accepted { id, .. }
                | CmEvent::Established { id }
                | CmEvent::Rejected { id, .. }
                | CmEvent::TimedOut { id }
                | CmEvent::Disconnected { id }
                | CmEvent::Questioned { id } => *id,
            };
            let last = !matches!(
                event,
                CmEvent::Accepted { .. } | CmEvent::Established { .. } | CmEvent::Questioned { .. }
            );
            if let Some(owner) = self.owners.get(&id) {
                let _ = owner.inbox.mailbox.send(ConnectionEvent {
                    qp: owner.qp,
                    event: Some(event),
                });
                owner.inbox.wake.wake();
            }
            if last {
                self.owners.remove(&id);
            }
        }
    }

    fn transmit(&mut self) {
        let fd = self.inlet.fd().unwrap_or(-1);
        while let Some(Transmit { path, marked, mad }) = self.manager.poll_transmit() {
            let traffic_class = marked.traffic_class & !ECN;
            let flow = Flow {
                fd,
                source_port: ROCE_PORT,
                local: path.local,
                remote: path.remote,
                traffic_class,
                is_of_class: self.set_class(traffic_class),
                hop_limit: marked.hop_limit,
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
            let place = &mut BatchPosition::default();
            self.sender.commit(&flow, length, place, Sharing::Alone);
        }
        self.sender.flush();
        self.sender.report(&mut self.counters);
    }

    fn set_class(&mut self, traffic_class: u8) -> bool {
        if self.class != Some(traffic_class) {
            self.sender.flush();
            let turned = self.inlet.set_class(traffic_class);
            self.class = turned.is_ok().then_some(traffic_class);
        }
        self.class.is_some()
    }
}
