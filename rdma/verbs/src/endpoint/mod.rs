//! Endpoint: the queues of one reactor on a device.
//!
//! The data path ([`VerbsEndpoint::post`], [`VerbsEndpoint::post_receives`],
//! [`VerbsEndpoint::poll`]) uses preallocated memory and the queues mapped by the driver.

mod close;
mod connect;
mod poll;
mod qp;
mod receiving;
mod table;
#[cfg(test)]
mod tests;
mod transition;
mod work_id;

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use cairn_rdma::{
    Completion, ConnRequest, ConnectOptions, Device, DisconnectReason, Endpoint, EndpointLimits,
    EndpointOptions, Event, FabricError, Marked, Marking, PostError, QpId, QpOptions, RecvWork,
    SendWork,
};

use crate::chain::{ReceiveChain, SendChain};
use crate::cm::Channel;
use crate::device::VerbsDevice;
use crate::objects::{CompletionQueue, ProtectionDomain, Refusal, Serial};
use crate::receives::ReceiveSlots;
use crate::region_table::RegionView;
use crate::watcher::Mailbox;

use poll::Staged;
use qp::Phase;
use receiving::{RECEIVE_BATCH, ReceiveQueues};
use table::QpTable;
use work_id::WorkId;

/// The field order drops queue pairs and identifiers before the queues and the channel that they
/// use.
pub(crate) struct VerbsEndpoint {
    table: QpTable,
    settling: Vec<QpId>,
    completions: Rc<CompletionQueue>,
    receive_queues: ReceiveQueues,
    slots: ReceiveSlots,
    /// Receives that the device may have flushed without a report.
    missing: u32,
    staged: Staged,
    send_chain: SendChain,
    receive_chain: ReceiveChain,
    regions: RegionView,
    channel: Arc<Channel>,
    mailbox: Arc<Mailbox>,
    events: VecDeque<Event>,
    next_look: Instant,
    dead: bool,
    serial: Serial,
    wait_fds: [RawFd; 3],
    limits: EndpointLimits,
    domain: Arc<ProtectionDomain>,
    device: Arc<VerbsDevice>,
    as_device: Arc<dyn Device>,
}

impl VerbsEndpoint {
    pub(crate) fn open(
        device: Arc<VerbsDevice>,
        as_device: Arc<dyn Device>,
        domain: Arc<ProtectionDomain>,
        options: &EndpointOptions,
    ) -> Result<Self, FabricError> {
        device.check_size(options)?;
        let serial = Serial::next();
        let vector = device.next_vector();
        let completions = CompletionQueue::new(&domain, options.completions, vector, serial)?;
        let receive_queues = ReceiveQueues::open(&device, &domain, options, serial)?;
        let channel = Channel::new(device.library())?;
        let mailbox = device.subscribers().subscribe()?;
        Ok(Self {
            table: QpTable::new(options.queue_pairs),
            settling: Vec::with_capacity(options.queue_pairs.into()),
            wait_fds: [completions.fd(), channel.fd(), mailbox.fd()],
            completions: Rc::new(completions),
            limits: EndpointLimits {
                shared_receives: receive_queues.are_shared(),
                ..device.limits()
            },
            receive_queues,
            slots: ReceiveSlots::new(options.receives),
            missing: 0,
            staged: Staged::new(),
            send_chain: SendChain::new(0),
            receive_chain: ReceiveChain::new(RECEIVE_BATCH),
            regions: device.regions().view(),
            channel,
            mailbox,
            events: VecDeque::new(),
            next_look: Instant::now(),
            dead: false,
            serial,
            as_device,
            domain,
            device,
        })
    }

    /// Breaks a queue pair after the device refused all of `chain`, or only its end. In the second
    /// case, the refused requests complete as flushed.
    #[cold]
    fn post_refused(
        &mut self,
        id: QpId,
        chain: &[SendWork],
        refusal: Refusal,
    ) -> Result<(), PostError> {
        let Refusal { taken, error } = refusal;
        let refused = &chain[taken..];
        let Some(qp) = self.table.get_mut(id) else {
            return Err(PostError::Broken);
        };
        if let Some(pair) = &mut qp.pair {
            pair.unpush(refused.len() as u32);
        }
        self.report_refusal(id, "ibv_post_send", &error);
        if taken == 0 {
            return Err(PostError::Broken);
        }
        self.staged.flush(id, refused);
        Ok(())
    }

    #[cold]
    fn report_refusal(&mut self, id: QpId, call: &str, error: &std::io::Error) {
        let Some(qp) = self.table.get(id) else { return };
        let message = format!(
            "{device} refused work of the connection with {peer}, which ends: {call}: {error}",
            device = self.device.name(),
            peer = qp.cm.peer_addr(),
        );
        self.push_event(Event::Notice { message });
        self.end_connection(id, DisconnectReason::DeviceFault);
    }
}

impl Endpoint for VerbsEndpoint {
    fn device(&self) -> &Arc<dyn Device> {
        &self.as_device
    }

    fn limits(&self) -> EndpointLimits {
        self.limits
    }

    fn post_receives(&mut self, works: &[RecvWork]) -> Result<(), PostError> {
        if self.dead {
            return Err(PostError::Broken);
        }
        if works.len() > self.slots.room() {
            return Err(PostError::Full);
        }
        self.add_receives(works)
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
        self.begin_connect(options, private_data)
    }

    fn marked(&mut self, id: QpId) -> Option<Marked> {
        let pair = self.table.get(id)?.pair.as_ref()?;
        pair.queue().marked().ok()
    }

    fn set_marking(&mut self, _: QpId, _: Marking) -> bool {
        false
    }

    fn post(&mut self, id: QpId, chain: &[SendWork]) -> Result<(), PostError> {
        let qp = self.table.get_mut(id).ok_or(PostError::Broken)?;
        if self.dead || qp.down || !matches!(qp.phase, Phase::Accepted | Phase::Established) {
            return Err(PostError::Broken);
        }
        let pair = qp.pair.as_mut().ok_or(PostError::Broken)?;
        if chain.len() > pair.room() as usize {
            return Err(PostError::Full);
        }
        if chain.is_empty() {
            return Ok(());
        }
        self.send_chain.clear();
        for work in chain {
            let inline = pair.may_inline(work) && self.regions.covers(&work.sges);
            let sequence = pair.push(work);
            let wr_id = WorkId::send(id, sequence);
            self.send_chain.push(work, wr_id.raw(), inline);
        }
        // SAFETY: work is inline only if `regions` covers its bytes.
        match unsafe { pair.post(&mut self.send_chain) } {
            Ok(()) => Ok(()),
            Err(refusal) => self.post_refused(id, chain, refusal),
        }
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.take_completions(out)
    }

    fn poll_events(&mut self, out: &mut Vec<Event>) {
        self.look_for_events();
        out.extend(self.events.drain(..));
    }

    fn drain_connections(&mut self) {
        self.next_look = Instant::now();
    }

    fn disconnect(&mut self, qp: QpId) {
        self.begin_close(qp);
    }

    fn arm(&mut self) -> Result<bool, FabricError> {
        if self.dead {
            return Err(FabricError::Gone("RDMA endpoint"));
        }
        self.next_look = Instant::now();
        self.completions.clear_wakeups();
        if let Err(error) = self.completions.request_notify() {
            self.break_endpoint(error.to_string());
            return Err(error);
        }
        self.stage();
        self.settle();
        Ok(!self.staged.is_empty() || !self.events.is_empty() || !self.mailbox.is_empty())
    }

    fn wait_fds(&self) -> &[RawFd] {
        &self.wait_fds
    }

    fn next_deadline(&self) -> Option<Instant> {
        let deadlines = self.settling.iter().filter_map(|id| {
            let qp = self.table.get(*id)?;
            qp.phase.deadline()
        });
        deadlines.min()
    }
}
