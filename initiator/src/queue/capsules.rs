//! Where command capsules lie until the fabric has no more use for them.
//!
//! A command ends with its response. Its capsule may not: until the other end has
//! acknowledged it, the fabric may have to send it again. To wait for that would
//! cost a packet for each command, and its time. So capsules have places of their
//! own, some more than there are commands, and only one SEND in some reports its
//! end: sends end in order, so it speaks for those before it.

use std::collections::VecDeque;

use cairn_rdma::{Access, Device, FabricError, Operation, SendWork, Sge, SgeList};
use nvme_proto::wire::sqe::SQE_BYTES;
use nvme_proto::wire::{FromZeros, IntoBytes, Sqe};

use crate::buffer::Buffer;

/// SENDs of which one reports its end.
const SIGNAL_EVERY: u16 = 32;

/// Capsules that may outlive their commands. Twice as many as go without a word,
/// so that there is room while the last ones are reported.
const LINGER_MAX: u16 = 2 * SIGNAL_EVERY;

/// The capsules of a queue.
pub(super) struct Capsules {
    /// All SQEs, then all in-capsule data. So those of a queue that has no such data
    /// to send are neighbours: they share pages, and are in the cache again.
    memory: Buffer,
    /// Bytes of the longest capsule.
    stride: usize,
    places: Vec<Place>,
    /// Places without a capsule; the next to use is last.
    free: Vec<u16>,
    /// Places that the fabric has, in the order of their SENDs.
    posted: VecDeque<u16>,
    /// SENDs since the last that will report its end.
    silent: u16,
    /// Places that the fabric has, but no command any more.
    lingering: u16,
}

#[derive(Debug, Clone, Copy, Default)]
struct Place {
    command: Option<u16>,
    posted: bool,
}

impl Capsules {
    /// Places for the capsules of `commands` commands: and SENDs that the fabric
    /// may have at a time.
    pub(super) const fn places(commands: u16) -> u32 {
        commands as u32 + LINGER_MAX as u32
    }

    /// For so many commands, each with a capsule of at most `stride` bytes.
    pub(super) fn new(
        device: &dyn Device,
        commands: u16,
        stride: usize,
    ) -> Result<Self, FabricError> {
        let count = Self::places(commands) as usize;
        Ok(Self {
            memory: Buffer::with_access(device, count * stride, Access::LOCAL_READ)?,
            stride,
            places: vec![Place::default(); count],
            free: (0..count as u16).rev().collect(),
            posted: VecDeque::with_capacity(count),
            silent: 0,
            lingering: 0,
        })
    }

    /// Bytes of the longest capsule.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// A place for the capsule of command `cid`.
    pub(super) fn take(&mut self, cid: u16) -> u16 {
        let place = self.free.pop();
        let place = place.expect("there is a place for each command, besides those that linger");
        self.places[usize::from(place)].command = Some(cid);
        place
    }

    /// Writes a capsule's SQE.
    pub(super) fn write_sqe(&self, place: u16, sqe: &Sqe) {
        self.memory.write(Self::sqe_at(place), sqe.as_bytes());
    }

    /// A capsule's SQE, as it was written.
    pub(super) fn sqe(&self, place: u16) -> Sqe {
        let mut sqe = Sqe::new_zeroed();
        self.memory.read(Self::sqe_at(place), sqe.as_mut_bytes());
        sqe
    }

    /// Writes what stands behind it.
    pub(super) fn write_data(&self, place: u16, bytes: &[u8]) {
        self.memory.write(self.data_at(place), bytes);
    }

    /// The work that sends a capsule of so many bytes.
    pub(super) fn post(&mut self, place: u16, length: u32) -> SendWork {
        self.places[usize::from(place)].posted = true;
        self.posted.push_back(place);
        self.silent += 1;
        let signaled = self.silent == SIGNAL_EVERY;
        if signaled {
            self.silent = 0;
        }
        let region = self.memory.region();
        let sge = |at: usize, length: usize| Sge {
            addr: region.mapping().addr() + at as u64,
            length: length as u32,
            lkey: region.lkey(),
        };
        let sqe = sge(Self::sqe_at(place), SQE_BYTES);
        let sges = match length as usize - SQE_BYTES {
            0 => SgeList::one(sqe),
            data => SgeList::two(sqe, sge(self.data_at(place), data)),
        };
        SendWork {
            id: u64::from(place),
            op: Operation::Send,
            sges,
            signaled,
        }
    }

    /// The SEND from this place has ended, and so have those before it.
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

    /// Nothing more will be sent.
    pub(super) fn closed(&mut self) {
        if let Some(&last) = self.posted.back() {
            self.sent(last);
        }
        self.silent = 0;
    }

    /// A place for the same capsule of `length` bytes, to be sent again while the fabric may still
    /// have the old one. The command may leave the old place.
    pub(super) fn renew(&mut self, cid: u16, place: u16, length: usize) -> u16 {
        if !self.places[usize::from(place)].posted {
            return place;
        }
        let next = self.take(cid);
        self.write_sqe(next, &self.sqe(place));
        let mut data = vec![0; length - SQE_BYTES];
        self.memory.read(self.data_at(place), &mut data);
        self.write_data(next, &data);
        self.leave(place);
        next
    }

    /// Whether the command of a capsule may end now.
    pub(super) fn may_leave(&self, place: u16) -> bool {
        !self.places[usize::from(place)].posted || self.lingering < LINGER_MAX
    }

    /// The command of a capsule has ended.
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
