//! Endpoint with registered memory, and queues for completions and events.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use cairn_base::Mapping;
use cairn_rdma::{
    Access, Completion, Device, Endpoint, EndpointOptions, Event, Operation, QpId, RecvWork,
    Region, RemoteBuffer, SendWork, Sge, SgeList,
};

pub(crate) const RECEIVES: u32 = 256;
pub(crate) const SLOT: usize = 8 * 1024;
pub(crate) const QUEUE_PAIRS: u16 = 64;
pub(crate) const DATA: usize = RECEIVES as usize * SLOT;
pub(crate) const DATA_LEN: usize = 2 * 1024 * 1024;

const RECEIVE_ID: u64 = 1 << 63;

pub(crate) const fn receive_id(slot: u32) -> u64 {
    RECEIVE_ID | slot as u64
}

pub(crate) struct Node {
    pub(crate) endpoint: Box<dyn Endpoint>,
    pub(crate) region: Region,
    completions: VecDeque<Completion>,
    events: VecDeque<Event>,
    closed: HashSet<QpId>,
}

impl Node {
    pub(crate) fn open(device: &Arc<dyn Device>) -> Result<Self> {
        Self::open_with(device, QUEUE_PAIRS)
    }

    pub(crate) fn open_with(device: &Arc<dyn Device>, queue_pairs: u16) -> Result<Self> {
        let mapping = Arc::new(Mapping::anonymous(DATA + DATA_LEN)?);
        let region = device
            .register(
                mapping,
                Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE,
            )
            .context("registering a node's memory")?;
        let endpoint = Arc::clone(device)
            .open(&EndpointOptions {
                receives: RECEIVES,
                completions: 4096,
                queue_pairs,
            })
            .context("opening an endpoint")?;
        Ok(Self {
            endpoint,
            region,
            completions: VecDeque::new(),
            events: VecDeque::new(),
            closed: HashSet::new(),
        })
    }

    /// Polls for completions and events; true if there were any.
    ///
    /// # Errors
    /// A completion or event of a queue pair arrived after the queue pair's `Closed` event.
    pub(crate) fn pump(&mut self) -> Result<bool> {
        let mut progress = false;
        let mut out = [Completion::EMPTY; 16];
        loop {
            let count = self.endpoint.poll(&mut out);
            ensure!(count <= out.len(), "poll claims {count} completions of 16");
            for completion in &out[..count] {
                self.check_open(completion.qp, completion)?;
                self.completions.push_back(*completion);
            }
            progress |= count > 0;
            if count < out.len() {
                break;
            }
        }
        let mut events = Vec::new();
        self.endpoint.poll_events(&mut events);
        progress |= !events.is_empty();
        for event in events {
            if let Some(qp) = qp_of(&event) {
                self.check_open(qp, &event)?;
            }
            if let Event::Closed { qp } = event {
                self.closed.insert(qp);
            }
            self.events.push_back(event);
        }
        Ok(progress)
    }

    fn check_open(&self, qp: QpId, what: &dyn std::fmt::Debug) -> Result<()> {
        ensure!(
            !self.closed.contains(&qp),
            "{what:?} came after the queue pair's Closed"
        );
        Ok(())
    }

    pub(crate) fn take_completion(&mut self, id: u64) -> Option<Completion> {
        let at = self.completions.iter().position(|c| c.id == id)?;
        self.completions.remove(at)
    }

    pub(crate) fn take_receive(&mut self) -> Option<Completion> {
        let at = self
            .completions
            .iter()
            .position(|c| c.id & RECEIVE_ID != 0)?;
        self.completions.remove(at)
    }

    pub(crate) fn forget_sends(&mut self) {
        self.completions.retain(|c| c.id & RECEIVE_ID != 0);
    }

    pub(crate) fn take_any(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    pub(crate) fn waiting_completions(&self) -> usize {
        self.completions.len()
    }

    pub(crate) fn take_event(&mut self, wanted: impl Fn(&Event) -> bool) -> Option<Event> {
        let at = self.events.iter().position(wanted)?;
        self.events.remove(at)
    }

    pub(crate) fn is_closed(&self, qp: QpId) -> bool {
        self.closed.contains(&qp)
    }

    pub(crate) fn post_receives(&mut self, slots: std::ops::Range<u32>) -> Result<()> {
        let works: Vec<_> = slots
            .map(|slot| RecvWork {
                id: receive_id(slot),
                sges: self.sge(slot as usize * SLOT, SLOT).into(),
            })
            .collect();
        Ok(self.endpoint.post_receives(&works)?)
    }

    pub(crate) fn received(&self, completion: &Completion) -> Vec<u8> {
        let slot = slot_of(completion.id) as usize;
        self.bytes(slot * SLOT, completion.byte_len as usize)
    }

    pub(crate) fn sge(&self, offset: usize, length: usize) -> Sge {
        let length = u32::try_from(length).expect("test buffers are small");
        self.region.sge(offset, length)
    }

    pub(crate) fn rkey(&self) -> u32 {
        self.remote(0).rkey
    }

    pub(crate) fn remote(&self, offset: usize) -> RemoteBuffer {
        let buffer = self.region.remote(offset);
        buffer.expect("a node's memory has all rights")
    }

    pub(crate) fn fill(&self, offset: usize, bytes: &[u8]) {
        self.region.mapping().write(offset, bytes);
    }

    pub(crate) fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut out = vec![0; length];
        self.region.mapping().read(offset, &mut out);
        out
    }

    pub(crate) fn post_one(
        &mut self,
        qp: QpId,
        id: u64,
        op: Operation,
        offset: usize,
        length: usize,
    ) -> Result<()> {
        let sges = self.sge(offset, length).into();
        let work = signaled(id, op, sges);
        self.endpoint
            .post(qp, &[work])
            .with_context(|| format!("posting {op:?}"))
    }
}

pub(crate) fn signaled(id: u64, op: Operation, sges: SgeList) -> SendWork {
    SendWork {
        id,
        op,
        sges,
        signaled: true,
    }
}

pub(crate) fn unsignaled(id: u64, op: Operation, sges: SgeList) -> SendWork {
    SendWork {
        signaled: false,
        ..signaled(id, op, sges)
    }
}

pub(crate) fn slot_of(receive_id: u64) -> u32 {
    (receive_id & !RECEIVE_ID) as u32
}

pub(crate) fn qp_of(event: &Event) -> Option<QpId> {
    match event {
        Event::Established { qp, .. }
        | Event::Rejected { qp, .. }
        | Event::ConnectFailed { qp, .. }
        | Event::Disconnected { qp, .. }
        | Event::Closed { qp } => Some(*qp),
        Event::DeviceRemoved | Event::EndpointBroken { .. } | Event::Notice { .. } => None,
    }
}
