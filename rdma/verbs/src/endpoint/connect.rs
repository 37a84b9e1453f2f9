use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_base::ScopedAddr;
use cairn_rdma::{
    ConnRequest, ConnectOptions, Device, DisconnectReason, Event, FabricError, Marked, PrivateData,
    QpId, QpOptions,
};

use crate::cm::{CmEvent, Id, Terms};
use crate::explain;
use crate::objects::QueuePair;
use crate::request::{VerbsRequest, refuse};
use crate::sys;
use crate::watcher::DeviceEvent;

use super::VerbsEndpoint;
use super::qp::{Attempt, Pair, Phase, Qp, from_tag, tag};
use super::transition::{self, Depths, Start};

/// Maximum inline data of a SEND in bytes, for responses and capsules without data.
const INLINE: u32 = 64;

/// Minimum interval between reads of connection events; each read is a system call.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

impl VerbsEndpoint {
    pub(super) fn accept_request(
        &mut self,
        request: ConnRequest,
        options: &QpOptions,
        private_data: &[u8],
    ) -> Result<QpId, FabricError> {
        let peer_reads = request.peer_initiator_depth;
        let our_reads = request.peer_responder_resources;
        let handle = request.handle.into_any().downcast::<VerbsRequest>();
        let handle = handle.expect("a request goes to an endpoint of its own provider");
        let (mut cm, pkey_index) = handle.claim();
        let depths = Depths {
            initiator: options
                .initiator_depth
                .min(our_reads)
                .min(self.limits.initiator_depth),
            responder: options
                .responder_resources
                .min(peer_reads)
                .min(self.limits.responder_resources),
        };
        let start = Start { depths, pkey_index };
        match self.accept_on(&mut cm, options, start, private_data) {
            Ok((id, pair)) => {
                let mut qp = Qp::new(cm, Phase::Accepted);
                qp.pair = Some(Pair::new(pair, options.send_work));
                self.table.insert(id, qp);
                self.check_hop_limit(id, options);
                Ok(id)
            }
            Err(error) => {
                refuse(&mut cm, &[]);
                Err(error)
            }
        }
    }

    fn accept_on(
        &mut self,
        cm: &mut Id,
        options: &QpOptions,
        start: Start,
        private_data: &[u8],
    ) -> Result<(QpId, QueuePair), FabricError> {
        let id = self.vacancy(options)?;
        if !self.device.holds(cm) {
            return Err(FabricError::Gone("RDMA device of the request"));
        }
        let mut pair = self.make_pair(options)?;
        let accepted = self.accept_with(id, &mut pair, cm, options, start, private_data);
        if let Err(error) = accepted {
            drop(pair);
            self.reclaim(id);
            return Err(error);
        }
        Ok((id, pair))
    }

    fn accept_with(
        &mut self,
        id: QpId,
        pair: &mut QueuePair,
        cm: &mut Id,
        options: &QpOptions,
        start: Start,
        private_data: &[u8],
    ) -> Result<(), FabricError> {
        transition::to_init(pair, cm, start)?;
        self.supply(id, pair, options)?;
        transition::to_ready(pair, cm, start.depths, options)?;
        cm.set_tag(tag(id));
        cm.migrate(&self.channel)
            .map_err(|error| explain::os("rdma_migrate_id", error))?;
        let terms = terms(pair, options, start.depths);
        cm.accept(&terms, private_data)
            .map_err(|error| match error.raw_os_error() {
                Some(libc::EINVAL | libc::ENOTCONN | libc::ECONNRESET) => FabricError::Gone("peer"),
                _ => explain::os("rdma_accept", error),
            })
    }

    pub(super) fn begin_connect(
        &mut self,
        options: &ConnectOptions,
        private_data: &[u8],
    ) -> Result<QpId, FabricError> {
        let id = self.vacancy(&options.qp)?;
        let mut cm = Id::new(&self.channel, tag(id))?;
        if let Some(class) = options.qp.traffic_class {
            cm.set_traffic_class(class)?;
        }
        let timeout_ms = i32::try_from(options.timeout.as_millis()).unwrap_or(i32::MAX);
        let scope_id = ScopedAddr::from(options.remote).scope_id();
        let local = options.local.map(|ip| ScopedAddr::new(ip, scope_id).at(0));
        cm.resolve_addr(local, options.remote, timeout_ms)
            .map_err(|error| explain::no_route(options.remote, error))?;
        let attempt = Attempt {
            remote: options.remote,
            pkey: options.pkey,
            options: options.qp,
            private_data: PrivateData::new(private_data),
            deadline: Instant::now() + options.timeout,
        };
        let phase = Phase::Connecting(Box::new(attempt));
        self.table.insert(id, Qp::new(cm, phase));
        self.settling.push(id);
        Ok(id)
    }

    fn vacancy(&mut self, options: &QpOptions) -> Result<QpId, FabricError> {
        if self.dead {
            return Err(FabricError::Gone("RDMA endpoint"));
        }
        if options.send_work > self.limits.send_work {
            return Err(FabricError::Limit {
                what: "the send queue",
                limit: self.limits.send_work.into(),
            });
        }
        self.table.vacant().ok_or(FabricError::Limit {
            what: "the endpoint's table of queue pairs",
            limit: self.table.limit() as u64,
        })
    }

    fn make_pair(&mut self, options: &QpOptions) -> Result<QueuePair, FabricError> {
        self.send_chain.grow(options.send_work as usize);
        QueuePair::new(
            &self.domain,
            &self.completions,
            self.receive_queues.of_pair(self.quota(options)),
            options.send_work,
            INLINE,
        )
    }

    pub(super) fn look_for_events(&mut self) {
        while let Some(event) = self.mailbox.take() {
            self.handle_device_event(event);
        }
        let now = Instant::now();
        if now >= self.next_look {
            self.next_look = now + LOOK_INTERVAL;
            while let Ok(Some(event)) = self.channel.next_event() {
                self.connection_event(&event);
            }
        }
        self.settle();
    }

    fn handle_device_event(&mut self, event: DeviceEvent) {
        match event {
            DeviceEvent::Removed => {
                if !std::mem::replace(&mut self.dead, true) {
                    self.push_event(Event::DeviceRemoved);
                }
            }
            DeviceEvent::Notice(message) => self.push_event(Event::Notice { message }),
            DeviceEvent::QueueBroken(owner) if owner == self.serial => {
                self.break_endpoint("the device reports an error of its queues".to_owned());
            }
            DeviceEvent::QueueBroken(_) => {}
            DeviceEvent::QueuePair(kind, number, serial) => {
                let Some(id) = self.table.by_name(number, serial) else {
                    return; // The queue pair belongs to another endpoint, or is destroyed.
                };
                match kind {
                    sys::IBV_EVENT_QP_LAST_WQE_REACHED => self.receives_end(id),
                    sys::IBV_EVENT_COMM_EST => self.traffic_seen(id),
                    sys::IBV_EVENT_QP_FATAL
                    | sys::IBV_EVENT_QP_REQ_ERR
                    | sys::IBV_EVENT_QP_ACCESS_ERR => self.failed(id),
                    _ => {}
                }
            }
        }
    }

    fn traffic_seen(&mut self, id: QpId) {
        if let Some(qp) = self.table.get_mut(id)
            && matches!(qp.phase, Phase::Accepted)
            && let Err(error) = qp.cm.traffic_seen()
        {
            cairn_base::peer_detail!(%id, %error, "rdma_notify");
        }
    }

    fn connection_event(&mut self, event: &CmEvent) {
        let id = from_tag(event.tag);
        let Some(qp) = self.table.get_mut(id) else {
            return;
        };
        match event.kind {
            sys::RDMA_CM_EVENT_ADDR_RESOLVED => self.step(id, Self::resolve_route),
            sys::RDMA_CM_EVENT_ROUTE_RESOLVED => self.step(id, Self::send_request),
            sys::RDMA_CM_EVENT_CONNECT_RESPONSE => {
                self.step(id, |endpoint, id| endpoint.finish_connect(id, event));
            }
            sys::RDMA_CM_EVENT_ESTABLISHED => {
                if matches!(qp.phase, Phase::Accepted) {
                    qp.phase = Phase::Established;
                    let private_data = event.private_data;
                    self.push_event(Event::Established {
                        qp: id,
                        private_data,
                    });
                }
            }
            sys::RDMA_CM_EVENT_REJECTED => self.rejected(id, event),
            sys::RDMA_CM_EVENT_ADDR_ERROR
            | sys::RDMA_CM_EVENT_ROUTE_ERROR
            | sys::RDMA_CM_EVENT_CONNECT_ERROR => self.unreachable(id, event),
            // On an established connection, UNREACHABLE means a new MAC address of the peer.
            sys::RDMA_CM_EVENT_UNREACHABLE => match qp.phase {
                Phase::Established => self.end_connection(id, DisconnectReason::PeerMoved),
                Phase::Connecting(_) | Phase::Accepted => self.unreachable(id, event),
                Phase::Closing { .. } => {}
            },
            sys::RDMA_CM_EVENT_DISCONNECTED => self.end_connection(id, DisconnectReason::Peer),
            sys::RDMA_CM_EVENT_ADDR_CHANGE => {
                self.end_connection(id, DisconnectReason::AddressChanged);
            }
            sys::RDMA_CM_EVENT_DEVICE_REMOVAL => self.device.subscribers().device_removed(),
            _ => {}
        }
    }

    fn step(&mut self, id: QpId, step: impl FnOnce(&mut Self, QpId) -> Result<(), FabricError>) {
        let connecting = self.table.get(id).map(|qp| &qp.phase);
        if !matches!(connecting, Some(Phase::Connecting(_))) {
            return;
        }
        if let Err(error) = step(self, id) {
            self.fail_connect(id, error.to_string());
        }
    }

    fn resolve_route(&mut self, id: QpId) -> Result<(), FabricError> {
        let (cm, _, attempt) = self.connecting(id)?;
        let left = attempt.deadline.saturating_duration_since(Instant::now());
        let timeout_ms = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
        cm.resolve_route(timeout_ms)
            .map_err(|error| explain::os("rdma_resolve_route", error))
    }

    fn send_request(&mut self, id: QpId) -> Result<(), FabricError> {
        let options = self.connecting(id)?.2.options;
        let mut pair = self.make_pair(&options)?;
        let depths = Depths {
            initiator: options.initiator_depth.min(self.limits.initiator_depth),
            responder: options
                .responder_resources
                .min(self.limits.responder_resources),
        };
        let device = Arc::clone(&self.device);
        let (cm, _, attempt) = self.connecting(id)?;
        if !device.holds(cm) {
            return Err(FabricError::NoDevice {
                address: attempt.remote.ip(),
                remedy: format!("the way there does not begin at {}", device.name()),
            });
        }
        let pkey_index = device.pkey_index(cm, attempt.pkey)?;
        transition::to_init(&mut pair, cm, Start { depths, pkey_index })?;
        self.supply(id, &mut pair, &options)?;
        let (cm, made, attempt) = self.connecting(id)?;
        let terms = terms(&pair, &options, depths);
        cm.connect(&terms, attempt.private_data.as_slice())
            .map_err(|error| explain::os("rdma_connect", error))?;
        *made = Some(Pair::new(pair, options.send_work));
        self.table.number(id);
        Ok(())
    }

    fn finish_connect(&mut self, id: QpId, event: &CmEvent) -> Result<(), FabricError> {
        let limits = self.limits;
        let (cm, pair, attempt) = self.connecting(id)?;
        let options = attempt.options;
        let depths = Depths {
            initiator: options
                .initiator_depth
                .min(event.initiator_depth)
                .min(limits.initiator_depth),
            responder: options.responder_resources.min(limits.responder_resources),
        };
        let pair = pair.as_mut().ok_or(FabricError::Gone("connection"))?;
        transition::to_ready(pair.queue_mut(), cm, depths, &options)?;
        cm.establish()
            .map_err(|error| explain::os("rdma_establish", error))?;
        if let Some(qp) = self.table.get_mut(id) {
            qp.phase = Phase::Established;
        }
        self.settling.retain(|settling| *settling != id);
        self.check_hop_limit(id, &options);
        let private_data = event.private_data;
        self.push_event(Event::Established {
            qp: id,
            private_data,
        });
        Ok(())
    }

    /// Reports a notice if the packets lack the requested hop limit. For user-space verbs, Linux
    /// uses the route's hop limit (`ib_resolve_unicast_gid_dmac`).
    fn check_hop_limit(&mut self, id: QpId, options: &QpOptions) {
        let Some(qp) = self.table.get(id) else { return };
        let (Some(wanted), Some(pair)) = (options.hop_limit, &qp.pair) else {
            return;
        };
        if let Ok(Marked {
            hop_limit: actual, ..
        }) = pair.queue().marked()
            && actual != wanted
        {
            let message = format!(
                "the kernel gives packets to {peer} hop limit {actual}, not {wanted}: it goes by the \
                 route; `ip route change ... hoplimit {wanted}` sets it",
                peer = qp.cm.peer_addr().ip()
            );
            self.push_event(Event::Notice { message });
        }
    }

    fn rejected(&mut self, id: QpId, event: &CmEvent) {
        match self.table.get(id).map(|qp| &qp.phase) {
            Some(Phase::Connecting(_) | Phase::Accepted) => {}
            Some(Phase::Established) => {
                return self.end_connection(id, DisconnectReason::Peer);
            }
            Some(Phase::Closing { .. }) | None => return,
        }
        self.push_event(Event::Rejected {
            qp: id,
            private_data: event.private_data,
            reason: u16::try_from(event.status).unwrap_or(0),
        });
        self.give_up(id);
    }

    fn unreachable(&mut self, id: QpId, event: &CmEvent) {
        let Some(qp) = self.table.get(id) else {
            return;
        };
        let error = std::io::Error::from_raw_os_error(event.status.abs());
        let reason = match (&qp.phase, event.kind) {
            (Phase::Connecting(attempt), sys::RDMA_CM_EVENT_UNREACHABLE) => format!(
                "no answer from {}: nothing listens there, or the path drops RoCE packets \
                 (UDP port 4791)",
                attempt.remote
            ),
            (Phase::Connecting(attempt), _) => explain::no_route(attempt.remote, error).to_string(),
            _ => format!(
                "{} did not confirm the connection: {error}",
                qp.cm.peer_addr()
            ),
        };
        self.push_event(Event::ConnectFailed { qp: id, reason });
        self.give_up(id);
    }

    fn give_up(&mut self, id: QpId) {
        if let Some(qp) = self.table.get_mut(id) {
            qp.down = true;
        }
        self.begin_close(id);
    }

    fn connecting(
        &mut self,
        id: QpId,
    ) -> Result<(&mut Id, &mut Option<Pair>, &Attempt), FabricError> {
        match self.table.get_mut(id) {
            Some(Qp {
                cm,
                pair,
                phase: Phase::Connecting(attempt),
                ..
            }) => Ok((cm, pair, attempt)),
            _ => Err(FabricError::Gone("connection")),
        }
    }
}

fn terms(pair: &QueuePair, options: &QpOptions, depths: Depths) -> Terms {
    Terms {
        qp_num: pair.number(),
        initiator_depth: depths.initiator,
        responder_resources: depths.responder,
        retry_count: options.retry_count,
        has_shared_receives: pair.has_shared_receives(),
    }
}
