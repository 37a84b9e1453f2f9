//! A reactor's way out by one device: its endpoint, and the memory it knows.

use std::os::fd::RawFd;
use std::sync::Arc;

use cairn_rdma::{
    Access, Completion, Device, Endpoint, EndpointLimits, EndpointOptions, Mapping, PostError,
    QpId, RecvWork, Region,
};

use super::Sizes;
use crate::arena::ReceiveSlots;
use crate::ids::QpairId;
use crate::metrics::DeviceCounters;
use crate::ring::Ring;

/// Devices that a reactor serves at a time: the fixed buffers of the ring, less
/// its zeroes and the arena.
pub(crate) const PORTS_MAX: usize = crate::ring::BUFFERS_MAX - 2;

/// One device, as one reactor uses it.
pub(crate) struct Port {
    endpoint: Box<dyn Endpoint>,
    limits: EndpointLimits,
    arena: Region,
    slots: ReceiveSlots,
    /// The receive of each slot.
    receives: Box<[RecvWork]>,
    /// What the receives' keys stand for.
    _slots_region: Region,
    /// What is counted of the device.
    counters: Arc<DeviceCounters>,
    /// Receive slots that are not posted.
    slots_out: u32,
    /// Receives to post at the end of the round.
    reposts: Vec<RecvWork>,
    /// By the endpoint's slot for a queue pair: what we call it. The endpoint may
    /// give a slot to a new one before we have read that the old one is closed.
    qpairs: Vec<Vec<(QpId, QpairId)>>,
    /// Which of the endpoint's descriptors the ring watches.
    watched: Vec<bool>,
}

impl Port {
    /// Opens an endpoint, registers the memory and posts all receives.
    pub(crate) fn open(
        device: &Arc<dyn Device>,
        arena: &Arc<Mapping>,
        ring: &mut Ring,
        sizes: &Sizes,
        counters: Arc<DeviceCounters>,
    ) -> Result<Self, String> {
        let explain = |error: &dyn std::fmt::Display| format!("{}: {error}", device.name());
        let mut slots = ReceiveSlots::new(sizes.receives, sizes.in_capsule_bytes)
            .map_err(|error| explain(&error))?;
        let register = |mapping: &Arc<Mapping>| {
            device
                .register(Arc::clone(mapping), Access::LOCAL_WRITE)
                .map_err(|e| explain(&e))
        };
        let (arena, slots_region) = (register(arena)?, register(slots.mapping())?);
        let options = EndpointOptions {
            receives: sizes.receives,
            completions: sizes.completions(),
            queue_pairs: sizes.queue_pairs,
        };
        let endpoint = Arc::clone(device)
            .open(&options)
            .map_err(|error| explain(&error))?;
        slots.set_slot(
            ring.add_buffer(slots.mapping())
                .map_err(|error| explain(&error))?,
        );
        let receive = |slot| slots.receive(slot, slots_region.lkey());
        let mut port = Self {
            limits: endpoint.limits(),
            watched: vec![false; endpoint.wait_fds().len()],
            endpoint,
            arena,
            receives: (0..slots.count()).map(receive).collect(),
            reposts: Vec::with_capacity(sizes.receives as usize),
            slots_out: slots.count(),
            slots,
            _slots_region: slots_region,
            counters,
            qpairs: vec![Vec::new(); usize::from(sizes.queue_pairs)],
        };
        for slot in 0..port.slots.count() {
            port.repost(slot);
        }
        port.flush_receives().map_err(|error| explain(&error))?;
        port.counters.open.set(1);
        Ok(port)
    }

    /// Lets go of what the ring has of it.
    pub(crate) fn close(mut self, index: usize, ring: &mut Ring) -> std::io::Result<()> {
        for (fd, watched) in self.watched.iter_mut().enumerate() {
            if std::mem::take(watched) {
                ring.cancel_poll(wait_token(index, fd));
            }
        }
        self.counters.open.set(0);
        ring.remove_buffer(self.slots.slot())
    }

    /// What is counted of the device.
    pub(crate) fn counters(&self) -> &DeviceCounters {
        &self.counters
    }

    /// The endpoint.
    pub(crate) fn endpoint(&mut self) -> &mut dyn Endpoint {
        &mut *self.endpoint
    }

    /// The device's id.
    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        self.endpoint.device()
    }

    /// What the device can do.
    pub(crate) fn limits(&self) -> &EndpointLimits {
        &self.limits
    }

    /// The device's key for the arena.
    pub(crate) fn arena_lkey(&self) -> u32 {
        self.arena.lkey()
    }

    /// Where its capsules land.
    pub(crate) fn slots(&self) -> &ReceiveSlots {
        &self.slots
    }

    /// Has a receive slot posted again at the end of the round.
    #[inline(always)]
    pub(crate) fn repost(&mut self, slot: u32) {
        // There are as many as slots: nothing grows.
        assert!(
            self.reposts.len() < self.reposts.capacity(),
            "too many slots"
        );
        self.reposts.push(self.receives[slot as usize]);
    }

    /// A receive slot was filled.
    pub(crate) fn slot_filled(&mut self) {
        self.slots_out += 1;
    }

    /// Receive slots that are not posted.
    pub(crate) fn slots_out(&self) -> usize {
        self.slots_out as usize
    }

    /// Receive slots that are posted, or will be at the end of the round.
    pub(crate) fn slots_posted(&self) -> usize {
        (self.slots.count() - self.slots_out) as usize + self.reposts.len()
    }

    /// Posts the receives of this round.
    pub(crate) fn flush_receives(&mut self) -> Result<(), PostError> {
        if self.reposts.is_empty() {
            return Ok(());
        }
        let result = self.endpoint.post_receives(&self.reposts);
        self.slots_out -= self.reposts.len() as u32;
        self.reposts.clear();
        match result {
            Err(PostError::Full) => panic!("more receives than there are slots"),
            other => other,
        }
    }

    /// Takes completions.
    pub(crate) fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.endpoint.poll(out)
    }

    /// A queue pair came.
    pub(crate) fn add_qpair(&mut self, qp: QpId, qpair: QpairId) {
        assert!(self.qpair(qp).is_none(), "{qp:?} is in use");
        self.qpairs[qp.slot()].push((qp, qpair));
    }

    /// What we call a queue pair, if it is still ours.
    #[inline]
    pub(crate) fn qpair(&self, qp: QpId) -> Option<QpairId> {
        let known = self
            .qpairs
            .get(qp.slot())?
            .iter()
            .find(|(known, _)| *known == qp);
        known.map(|(_, qpair)| *qpair)
    }

    /// The endpoint has forgotten a queue pair.
    pub(crate) fn remove_qpair(&mut self, qp: QpId) {
        self.qpairs[qp.slot()].retain(|(known, _)| *known != qp);
    }

    /// Has the ring watch the endpoint's descriptors.
    pub(crate) fn watch(&mut self, index: usize, ring: &mut Ring) {
        let fds: &[RawFd] = self.endpoint.wait_fds();
        for (fd, watched) in self.watched.iter_mut().enumerate() {
            if !std::mem::replace(watched, true) {
                ring.poll_readable(wait_token(index, fd), fds[fd]);
            }
        }
    }

    /// One of its descriptors was readable, and is not watched any more.
    pub(crate) fn woken(&mut self, fd: usize) {
        self.watched[fd] = false;
    }
}

/// The ring's token for a port's descriptor.
fn wait_token(port: usize, fd: usize) -> u32 {
    (port as u32) << 16 | fd as u32
}

/// The port and descriptor of a token.
pub(crate) fn of_token(token: u32) -> (usize, usize) {
    ((token >> 16) as usize, (token & 0xffff) as usize)
}
