//! Memory of command capsules.
//!
//! A signaled SEND costs a completion, so only every [`SIGNAL_EVERY`]th SEND is signaled. Until a
//! SEND is known to be acknowledged, the fabric may send its capsule again, even if the command has
//! ended. Capsule slots ([`CapsuleSlot`]) therefore outnumber commands.

use std::collections::VecDeque;

use cairn_rdma::{Access, Device, FabricError, Operation, SendWork, SgeList};
use nvme_proto::wire::sqe::SQE_BYTES;
use nvme_proto::wire::{FromZeros, IntoBytes, Sqe};

use crate::buffer::Buffer;

const SIGNAL_EVERY: u16 = 32;

/// Maximum posted capsules whose commands have ended.
const LINGER_MAX: u16 = 2 * SIGNAL_EVERY;

pub(super) struct Capsules {
    /// All SQEs, then all in-capsule data, so that SQEs share pages and cache lines.
    memory: Buffer,
    stride: usize,
    places: Vec<CapsuleSlot>,
    free: Vec<u16>,
    posted: VecDeque<u16>,
    silent: u16,
    lingering: u16,
}

#[derive(Debug, Clone, Copy, Default)]
struct CapsuleSlot {
    command: Option<u16>,
    posted: bool,
}

impl Capsules {
    pub(super) const fn places(commands: u16) -> u32 {
        commands as u32 + LINGER_MAX as u32
    }

    pub(super) fn new(
        device: &dyn Device,
        commands: u16,
        stride: usize,
    ) -> Result<Self, FabricError> {
        let count = Self::places(commands) as usize;
        Ok(Self {
            memory: Buffer::with_access(device, count * stride, Access::LOCAL_READ)?,
            stride,
            places: vec![CapsuleSlot::default(); count],
            free: (0..count as u16).rev().collect(),
            posted: VecDeque::with_capacity(count),
            silent: 0,
            lingering: 0,
        })
    }

    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    pub(super) fn take(&mut self, cid: u16) -> u16 {
        let place = self.free.pop();
        let place = place.expect("there is a place for each command, besides those that linger");
        self.places[usize::from(place)].command = Some(cid);
        place
    }

    pub(super) fn write_sqe(&mut self, place: u16, sqe: &Sqe) {
        self.memory.write(Self::sqe_at(place), sqe.as_bytes());
    }

    pub(super) fn sqe(&self, place: u16) -> Sqe {
        let mut sqe = Sqe::new_zeroed();
        self.memory.read(Self::sqe_at(place), sqe.as_mut_bytes());
        sqe
    }

    pub(super) fn write_data(&mut self, place: u16, bytes: &[u8]) {
        let at = self.data_at(place);
        self.memory.write(at, bytes);
    }

    pub(super) fn post(&mut self, place: u16, length: u32) -> SendWork {
        self.places[usize::from(place)].posted = true;
        self.posted.push_back(place);
        self.silent += 1;
        let signaled = self.silent == SIGNAL_EVERY;
        if signaled {
            self.silent = 0;
        }
        let region = self.memory.region();
        let sqe = region.sge(Self::sqe_at(place), SQE_BYTES as u32);
        let sges = match length - SQE_BYTES as u32 {
            0 => SgeList::one(sqe),
            data => SgeList::two(sqe, region.sge(self.data_at(place), data)),
        };
        SendWork {
            id: u64::from(place),
            op: Operation::Send,
            sges,
            signaled,
        }
    }

    pub(super) fn sent(&mut self, last: u16) {
        loop {
            let place = self.posted.pop_front();
            let place = place.expect("a SEND ends once");
            let entry = &mut self.places[usize::from(place)];
            entry.posted = false;
            if entry.command.is_none() {
                self.lingering -= 1;
                self.free.push(place);
            }
            if place == last {
                return;
            }
        }
    }

    pub(super) fn closed(&mut self) {
        if let Some(&last) = self.posted.back() {
            self.sent(last);
        }
        self.silent = 0;
    }

    pub(super) fn renew(&mut self, cid: u16, place: u16, length: usize) -> u16 {
        if !self.places[usize::from(place)].posted {
            return place;
        }
        let next = self.take(cid);
        let sqe = self.sqe(place);
        self.write_sqe(next, &sqe);
        let mut data = vec![0; length - SQE_BYTES];
        self.memory.read(self.data_at(place), &mut data);
        self.write_data(next, &data);
        self.leave(place);
        next
    }

    pub(super) fn may_leave(&self, place: u16) -> bool {
        !self.places[usize::from(place)].posted || self.lingering < LINGER_MAX
    }

    pub(super) fn leave(&mut self, place: u16) {
        let entry = &mut self.places[usize::from(place)];
        entry.command = None;
        if entry.posted {
            self.lingering += 1;
        } else {
            self.free.push(place);
        }
    }

    const fn sqe_at(place: u16) -> usize {
        place as usize * SQE_BYTES
    }

    fn data_at(&self, place: u16) -> usize {
        self.places.len() * SQE_BYTES + usize::from(place) * (self.stride - SQE_BYTES)
    }

    #[cfg(test)]
    pub(super) fn bytes(&self, place: u16, length: usize) -> Vec<u8> {
        let data_bytes = length - SQE_BYTES;
        let sqe = self.memory.bytes(Self::sqe_at(place), SQE_BYTES);
        [sqe, self.memory.bytes(self.data_at(place), data_bytes)].concat()
    }

    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }
}
