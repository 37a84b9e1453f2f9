//! Endpoint: the queue pairs of one reactor, and their receiving socket.

mod connect;
mod data_path;
mod drain;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Instant as System;

use cairn_rdma::{
    Completion, ConnRequest, ConnectOptions, Device, Endpoint, EndpointLimits, EndpointOptions,
    Event, FabricError, Marked, Marking, PostError, QpId, QpOptions, RecvWork, SendWork, Trains,
};
use crossbeam_channel::Receiver as MailboxReceiver;

use super::device::{EndpointSlot, SoftDevice};
use super::manager::{ConnectionEvent, Inbox};
use super::relay::Packets;
use super::slots::{Phase, SLOTS, Slots};
use crate::memory::{Regions, View};
use crate::phy::Inlet;
use crate::phy::interface::mtu_of_code;
use crate::phy::receive::Receiver;
use crate::phy::send::Sender;
use crate::phy::send_sockets::SendSockets;
use crate::phy::socket::FlowKey;
use crate::time::ProtoClock;
use cairn_base::wake::Wake;
use cairn_roce_proto::counters::Counters;
use cairn_roce_proto::qp::Context;
use cairn_roce_proto::qp::work::{CompletionQueue, ReceiveQueue};
use cairn_roce_proto::time::Instant;
use cairn_roce_proto::wire::cm::LongSend;
use cairn_roce_proto::wire::icrc::Checker;

const PUBLISH_EVERY: u32 = 4096;
const MAX_DEPTH: u8 = 128;

pub(super) struct SoftEndpoint {
    device: Arc<SoftDevice>,
    as_device: Arc<dyn Device>,
    index: u32,
    inlet: Arc<Inlet>,
    send_sockets: SendSockets,
    wait_fds: Vec<RawFd>,

    inbox: Inbox,
    connection_events: MailboxReceiver<ConnectionEvent>,
    slots: Slots,
    memory: View,
    receives: ReceiveQueue,
    completions: CompletionQueue,
    events: VecDeque<Event>,
    disconnected: Vec<QpId>,
    counters: Counters,
    rounds: u32,

    receiver: Option<Box<Receiver>>,
    checker: Checker,
    sender: Sender,
    handed: Packets,
    handed_to: u64,
    mixed: VecDeque<FlowKey>,
    ready: VecDeque<u16>,
    timers: BinaryHeap<Reverse<(Instant, u16)>>,
    clock: ProtoClock,
}

impl SoftEndpoint {
    pub(super) fn open(
        device: Arc<SoftDevice>,
        as_device: Arc<dyn Device>,
        regions: &Arc<Regions>,
        options: &EndpointOptions,
    ) -> Result<Self, FabricError> {
        if usize::from(options.queue_pairs) > SLOTS {
            return Err(FabricError::Limit {
                what: "queue pairs of an endpoint",
                limit: SLOTS as u64,
            });
        }
        let wake = Wake::new().map_err(FabricError::os("eventfd"))?;
        let wake = Arc::new(wake);
        let EndpointSlot {
            index,
            inlet,
            numbers,
        } = device.take_slot()?;
        let (mailbox, connection_events) = crossbeam_channel::unbounded();
        let count = usize::from(options.queue_pairs);
        let entropy = device.options.entropy.clone();
        let mut receiver = Box::new(Receiver::new());
        let admitted = admit(&inlet, &[], &[])?;
        device.relays.open(index, &wake);
        while matches!(receiver.receive(&inlet), Ok(1..)) {}
        Ok(Self {
            wait_fds: inlet.fd().into_iter().chain([wake.fd()]).collect(),
            index,
            inlet,
            send_sockets: SendSockets::new(
                device.options.network.clone(),
                device.address,
                entropy.clone(),
            ),
            inbox: Inbox { mailbox, wake },
            connection_events,
            slots: Slots::new(index, options.queue_pairs, numbers, entropy, admitted),
            memory: regions.reader(),
            receives: ReceiveQueue::new(options.receives as usize),
            completions: CompletionQueue::new(options.completions as usize, count),
            events: VecDeque::new(),
            disconnected: Vec::new(),
            counters: Counters::default(),
            rounds: 0,
            receiver: Some(receiver),
            checker: Checker::new(),
            sender: device.options.sender(device.address),
            handed: Packets::default(),
            handed_to: 0,
            mixed: VecDeque::new(),
            ready: VecDeque::with_capacity(count),
            timers: BinaryHeap::with_capacity(4 * count),
            clock: device.manager.clock(),
            as_device,
            device,
        })
    }
}

fn admit(inlet: &Inlet, numbers: &[u32], flows: &[FlowKey]) -> Result<bool, FabricError> {
    let admitted = inlet.admit(numbers, flows);
    admitted.map_err(|source| FabricError::Os {
        call: "setting a socket's filter",
        source,
    })
}

impl Drop for SoftEndpoint {
    fn drop(&mut self) {
        for conn in self.slots.connections() {
            self.device.manager.disconnect(conn);
        }
        self.device.relays.close(self.index);
        self.device.flows.release(self.index, &self.inlet);
        self.device.publish(self.index, &self.counters);
        self.device.give_back(self.index, self.slots.take_numbers());
    }
}

macro_rules! context {
    ($endpoint:ident, $qp:expr) => {
        Context {
            qp: $qp,
            memory: &$endpoint.memory,
            receives: &mut $endpoint.receives,
            completions: &mut $endpoint.completions,
            counters: &mut $endpoint.counters,
        }
    };
}
use context;

impl Endpoint for SoftEndpoint {
    fn device(&self) -> &Arc<dyn Device> {
        &self.as_device
    }

    fn limits(&self) -> EndpointLimits {
        EndpointLimits {
            send_work: 16384,
            initiator_depth: MAX_DEPTH,
            responder_resources: MAX_DEPTH,
            send_with_invalidate: true,
            shared_receives: true,
        }
    }

    fn post_receives(&mut self, works: &[RecvWork]) -> Result<(), PostError> {
        if self.receives.post(works) {
            Ok(())
        } else {
            Err(PostError::Full)
        }
    }

    fn accept(
        &mut self,
        request: ConnRequest,
        options: &QpOptions,
        private_data: &[u8],
    ) -> Result<QpId, FabricError> {
        self.accept_request(request, options, private_data)
    }

    fn connect(
        &mut self,
        options: &ConnectOptions,
        private_data: &[u8],
    ) -> Result<QpId, FabricError> {
        self.send_request(options, private_data)
    }

    fn trains(&mut self, id: QpId) -> Option<Trains> {
        let entry = self.slots.get(id)?;
        let mtu = mtu_of_code(entry.path_mtu);
        Some(Trains {
            packet_bytes: entry.terms.long_send.map_or(mtu, LongSend::bytes),
            round_trip: entry.qp.as_ref().and_then(|qp| qp.round_trip()),
        })
    }

    fn marked(&mut self, id: QpId) -> Option<Marked> {
        self.flow_marked(id)
    }

    fn set_marking(&mut self, id: QpId, marking: Marking) -> bool {
        self.set_flow_marking(id, marking)
    }

    fn post(&mut self, id: QpId, chain: &[SendWork]) -> Result<(), PostError> {
        self.memory.refresh();
        let entry = self.slots.get(id).ok_or(PostError::Broken)?;
        let up = matches!(entry.phase, Phase::Accepted | Phase::Established);
        let Some(qp) = entry.qp.as_mut().filter(|_| up) else {
            return self.post_early(id, chain);
        };
        let cx = context!(self, id);
        qp.post(chain.iter().copied(), &cx)?;
        self.make_ready(id);
        Ok(())
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.progress();
        let mut count = 0;
        while let Some(to) = out.get_mut(count) {
            let Some(completion) = self.completions.pop() else {
                break;
            };
            *to = completion;
            count += 1;
            self.close_if_drained(to.qp);
        }
        count
    }

    fn poll_events(&mut self, out: &mut Vec<Event>) {
        self.take_connection_events(self.clock.now());
        for event in self.events.drain(..) {
            if let Event::Closed { qp } = event {
                self.slots.closed_is_reported(qp);
            }
            out.push(event);
        }
    }

    fn drain_connections(&mut self) {
        self.drain();
    }

    fn disconnect(&mut self, id: QpId) {
        // The DREQ must not overtake the NAK for the peer's last packet.
        let broken = self.slots.get(id).map(|entry| entry.phase) == Some(Phase::Broken);
        if broken {
            self.transmit(self.clock.now());
        }
        let closing = |phase: Phase| phase == Phase::Closing;
        let Some(entry) = self.slots.get(id).filter(|entry| !closing(entry.phase)) else {
            return;
        };
        entry.phase = Phase::Closing;
        let conn = entry.conn.take();
        if let Some(qp) = &mut entry.qp {
            qp.flush(&mut context!(self, id));
        }
        if let Some(conn) = conn {
            self.device.manager.disconnect(conn);
        }
        self.close_if_drained(id);
    }

    fn arm(&mut self) -> Result<bool, FabricError> {
        self.inbox.wake.clear();
        self.progress();
        self.device.publish(self.index, &self.counters);
        let something = !self.completions.is_empty()
            || !self.events.is_empty()
            || !self.ready.is_empty()
            || self.device.relays.has_packets(self.index)
            || self.may_have_more();
        Ok(something)
    }

    fn wait_fds(&self) -> &[RawFd] {
        &self.wait_fds
    }

    fn next_deadline(&self) -> Option<System> {
        let next = self.timers.peek();
        next.map(|Reverse((at, _))| self.clock.to_system(*at))
    }
}

impl SoftEndpoint {
    fn progress(&mut self) {
        let now = self.clock.now();
        self.memory.refresh();
        self.take_connection_events(now);
        self.transmit(now);
        self.receive(now);
        self.receive_handed(now);
        self.end_disconnected();
        self.run_timers(now);
        // Acknowledgements wait while the owner handles completions, because the owner's responses
        // can carry them.
        if self.completions.is_empty() {
            self.transmit(now);
        }
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds.is_multiple_of(PUBLISH_EVERY) {
            self.device.publish(self.index, &self.counters);
        }
    }

    #[cold]
    fn post_early(&mut self, id: QpId, chain: &[SendWork]) -> Result<(), PostError> {
        let entry = self.slots.get(id);
        if entry.is_none_or(|entry| entry.phase != Phase::Accepted) {
            return Err(PostError::Broken);
        }
        let begun = self.begin(id, self.clock.now());
        begun.map_err(|_| PostError::Broken)?;
        self.post(id, chain)
    }

    fn may_have_more(&self) -> bool {
        let receiver = self.receiver.as_ref();
        receiver.is_some_and(|receiver| receiver.has_more())
    }

    fn close_if_drained(&mut self, id: QpId) {
        let closing = self.slots.get(id);
        let closing = closing.filter(|entry| entry.phase == Phase::Closing);
        if let Some(entry) = closing
            && !self.completions.has_of(id)
        {
            if let Some(send_socket) = entry.send_socket.take() {
                self.send_sockets.give_back(send_socket);
            }
            self.slots.remove(id);
            self.events.push_back(Event::Closed { qp: id });
        }
    }

    fn make_ready(&mut self, id: QpId) {
        if let Some(entry) = self.slots.get(id)
            && !entry.queued
        {
            entry.queued = true;
            self.ready.push_back(id.slot() as u16);
        }
    }

    fn forget_old_timers(&mut self) {
        let slots = &mut self.slots;
        self.timers.retain(|Reverse((at, slot))| {
            let entry = slots.by_slot(*slot);
            entry.is_some_and(|(_, entry)| entry.timer_at == Some(*at))
        });
    }
}
