//! Port: a device's endpoint on one reactor, with registered memory.

use std::os::fd::RawFd;
use std::sync::Arc;

use cairn_base::Mapping;
use cairn_disk::Ring;
use cairn_rdma::{
    Access, Completion, Device, Endpoint, EndpointLimits, EndpointOptions, PostError, QpId,
    RecvWork, Region,
};

use super::Sizes;
use crate::capsules::ReceiveSlots;
use crate::ids::QpairId;
use crate::metrics::DeviceCounters;

/// Maximum ports. Two of the ring's fixed buffers are for zeroes and the arena.
pub(crate) const PORTS_MAX: usize = cairn_disk::BUFFERS_MAX - 2;

pub(crate) struct Port {
    endpoint: Box<dyn Endpoint>,
    limits: EndpointLimits,
    arena: Region,
    slots: ReceiveSlots,
    receives: Box<[RecvWork]>,
    _slots_region: Region,
    counters: Arc<DeviceCounters>,
    slots_out: u32,
    reposts: Vec<RecvWork>,
    /// Queue pairs by endpoint slot, which may be reused before the former queue pair's close
    /// event.
    qpairs: Vec<Vec<(QpId, QpairId)>>,
    watched: Vec<bool>,
}

impl Port {
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
        let mut limits = endpoint.limits();
        limits.send_with_invalidate &= sizes.send_with_invalidate;
        let mut port = Self {
            limits,
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

    pub(crate) fn close(mut self, index: usize, ring: &mut Ring) -> std::io::Result<()> {
        for (fd, watched) in self.watched.iter_mut().enumerate() {
            if std::mem::take(watched) {
                ring.cancel_poll(wait_token(index, fd));
            }
        }
        self.counters.open.set(0);
        ring.remove_buffer(self.slots.slot())
    }

    pub(crate) fn counters(&self) -> &DeviceCounters {
        &self.counters
    }

    pub(crate) fn endpoint(&mut self) -> &mut dyn Endpoint {
        &mut *self.endpoint
    }

    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        self.endpoint.device()
    }

    pub(crate) fn limits(&self) -> &EndpointLimits {
        &self.limits
    }

    pub(crate) fn arena_lkey(&self) -> u32 {
        self.arena.lkey()
    }

    pub(crate) fn slots(&self) -> &ReceiveSlots {
        &self.slots
    }

    #[inline(always)]
    pub(crate) fn repost(&mut self, slot: u32) {
        assert!(
            self.reposts.len() < self.reposts.capacity(),
            "too many slots"
        );
        self.reposts.push(self.receives[slot as usize]);
    }

    pub(crate) fn slot_filled(&mut self) {
        self.slots_out += 1;
    }

    pub(crate) fn slots_out(&self) -> usize {
        self.slots_out as usize
    }

    pub(crate) fn slots_posted(&self) -> usize {
        (self.slots.count() - self.slots_out) as usize + self.reposts.len()
    }

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

    pub(crate) fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.endpoint.poll(out)
    }

    pub(crate) fn add_qpair(&mut self, qp: QpId, qpair: QpairId) {
        assert!(self.qpair(qp).is_none(), "{qp:?} is in use");
        self.qpairs[qp.slot()].push((qp, qpair));
    }

    #[inline]
    pub(crate) fn qpair(&self, qp: QpId) -> Option<QpairId> {
        let known = self
            .qpairs
            .get(qp.slot())?
            .iter()
            .find(|(known, _)| *known == qp);
        known.map(|(_, qpair)| *qpair)
    }

    pub(crate) fn remove_qpair(&mut self, qp: QpId) {
        self.qpairs[qp.slot()].retain(|(known, _)| *known != qp);
    }

    pub(crate) fn watch(&mut self, index: usize, ring: &mut Ring) {
        let fds: &[RawFd] = self.endpoint.wait_fds();
        for (fd, watched) in self.watched.iter_mut().enumerate() {
            if !std::mem::replace(watched, true) {
                ring.poll_readable(wait_token(index, fd), fds[fd]);
            }
        }
    }

    pub(crate) fn woken(&mut self, fd: usize) {
        self.watched[fd] = false;
    }
}

fn wait_token(port: usize, fd: usize) -> u32 {
    (port as u32) << 16 | fd as u32
}

pub(crate) fn of_token(token: u32) -> (usize, usize) {
    ((token >> 16) as usize, (token & 0xffff) as usize)
}
