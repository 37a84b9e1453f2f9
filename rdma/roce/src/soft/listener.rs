use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use cairn_base::address::Payer;
use cairn_base::log::Topic;
use cairn_base::{PeerLimit, peer_line};
use cairn_rdma::{
    ConnHandle, ConnRequest, Listener, ListenerEvent, Marked, Marking, PKey, PrivateData, Sink,
};

use super::device::SoftDevice;
use super::{Shared, lock};
use cairn_roce_proto::cm::{ConnId, DEFAULT_HOP_LIMIT, Request};
use cairn_roce_proto::wire::cm::RejReason;

pub(super) struct ListenerState {
    pub(super) sink: Sink,
    pub(super) backlog: u32,
    pub(super) pkey: PKey,
    pub(super) waiting: AtomicU32,
    pub(super) peer_limit: Mutex<PeerLimit>,
}

impl fmt::Debug for ListenerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ListenerState(backlog {})", self.backlog)
    }
}

impl ListenerState {
    /// Logs a request with a wrong P_Key. The REJ has a general reason, which does not help
    /// attackers.
    fn log_partition(&self, request: &Request, now: Instant) {
        let (own, other) = (self.pkey, request.pkey);
        let payer = Payer::stranger(request.peer.ip());
        let admitted = lock(&self.peer_limit).admit(Topic::Refused, payer, now);
        let Some(line) = admitted else { return };
        let reason = if own.is_same_partition_as(other) {
            format!(
                "host (P_Key {other}) and listener (P_Key {own}) are limited members of the \
                 partition: one of them must be a full member"
            )
        } else {
            format!("P_Key {other} of the host does not match P_Key {own} of the listener")
        };
        peer_line!(
            warn, line, address = %request.peer, local = %request.local, reason,
            "connection request refused"
        );
    }
}

pub(super) struct SoftListener {
    pub(super) shared: Arc<Shared>,
    pub(super) device: Arc<SoftDevice>,
    pub(super) address: SocketAddr,
}

impl fmt::Debug for SoftListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user-space RoCE listener at {}", self.address)
    }
}

impl Listener for SoftListener {
    fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for SoftListener {
    fn drop(&mut self) {
        lock(&self.shared.listeners).remove(&(self.address, self.device.roce()));
    }
}

pub(super) struct SoftRequest {
    pub(super) device: Arc<SoftDevice>,
    pub(super) id: ConnId,
    pub(super) request: Box<Request>,
    pub(super) listening: Arc<ListenerState>,
    pub(super) answered: bool,
}

impl fmt::Debug for SoftRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request from {}", self.request.peer)
    }
}

impl ConnHandle for SoftRequest {
    fn mark(&mut self, marking: Marking) {
        let marked = Marked {
            traffic_class: marking.traffic_class.unwrap_or(self.request.traffic_class),
            hop_limit: marking.hop_limit.unwrap_or(DEFAULT_HOP_LIMIT),
        };
        self.device.manager.mark(self.id, marked);
    }

    fn reject(mut self: Box<Self>, private_data: &[u8]) {
        self.answered = true;
        self.device
            .manager
            .reject(self.id, RejReason::Consumer, &[], private_data);
    }

    fn ignore(mut self: Box<Self>) {
        self.answered = true;
        self.device.manager.ignore(self.id);
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

impl Drop for SoftRequest {
    fn drop(&mut self) {
        self.listening.waiting.fetch_sub(1, Ordering::Relaxed);
        if !self.answered {
            self.device
                .manager
                .reject(self.id, RejReason::Consumer, &[], &[]);
        }
    }
}

pub(super) fn deliver(
    shared: &Shared,
    device: &Arc<SoftDevice>,
    id: ConnId,
    request: Box<Request>,
) {
    let manager = &device.manager;
    let with_scope = |at: SocketAddr| device.scoped(at.ip()).at(at.port());
    let (local, peer) = (with_scope(request.local), with_scope(request.peer));
    let Some(listening) = shared.listener_at(local, device.roce()) else {
        manager.reject(id, RejReason::InvalidServiceId, &[], &[]);
        return;
    };
    if !listening.pkey.accepts(request.pkey.bits()) {
        manager.reject(id, RejReason::UnsupportedRequest, &[], &[]);
        return listening.log_partition(&request, shared.options.clock.now());
    }
    // A REJ with reason 26 contains the code of the largest acceptable MTU (IBTA 12.6.7.2).
    let fits = device
        .path_mtu(request.path.local)
        .map_or(1, |mtu| mtu.code);
    if request.path_mtu > fits {
        manager.reject(id, RejReason::InvalidPathMtu, &[fits], &[]);
        return;
    }
    if listening.waiting.fetch_add(1, Ordering::Relaxed) >= listening.backlog {
        listening.waiting.fetch_sub(1, Ordering::Relaxed);
        // The host repeats an ignored request, which may then succeed. A REJ would end the attempt.
        manager.ignore(id);
        return;
    }
    let event = ConnRequest {
        local,
        peer,
        private_data: PrivateData::new(&request.private_data),
        peer_responder_resources: request.terms.responder_resources,
        peer_initiator_depth: request.terms.initiator_depth,
        device: Arc::clone(device) as _,
        handle: Box::new(SoftRequest {
            device: Arc::clone(device),
            id,
            request,
            listening: Arc::clone(&listening),
            answered: false,
        }),
    };
    (listening.sink)(ListenerEvent::Request(Box::new(event)));
}
