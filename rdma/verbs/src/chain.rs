//! Chains of work requests in C's layout, allocated once and reused.
//!
//! Why `unsafe` here: C structures are initialized with zero bytes.

use std::ptr;

use cairn_rdma::{MAX_SGE, Operation, RecvWork, SendWork, SgeList};

use crate::sys;

pub(crate) trait Link: Copy {
    fn set_next(&mut self, next: *mut Self);
    fn set_sges(&mut self, sges: *mut sys::ibv_sge);
}

impl Link for sys::ibv_send_wr {
    fn set_next(&mut self, next: *mut Self) {
        self.next = next;
    }
    fn set_sges(&mut self, sges: *mut sys::ibv_sge) {
        self.sg_list = sges;
    }
}

impl Link for sys::ibv_recv_wr {
    fn set_next(&mut self, next: *mut Self) {
        self.next = next;
    }
    fn set_sges(&mut self, sges: *mut sys::ibv_sge) {
        self.sg_list = sges;
    }
}

pub(crate) struct Chain<W> {
    works: Vec<W>,
    sges: Vec<[sys::ibv_sge; MAX_SGE]>,
    count: usize,
    empty: W,
}

pub(crate) type SendChain = Chain<sys::ibv_send_wr>;
pub(crate) type ReceiveChain = Chain<sys::ibv_recv_wr>;

impl<W: Link> Chain<W> {
    fn of(empty: W, capacity: usize) -> Self {
        let mut chain = Self {
            works: Vec::new(),
            sges: Vec::new(),
            count: 0,
            empty,
        };
        chain.grow(capacity);
        chain
    }

    pub(crate) fn grow(&mut self, capacity: usize) {
        const NO_BYTES: sys::ibv_sge = sys::ibv_sge {
            addr: 0,
            length: 0,
            lkey: 0,
        };
        if capacity > self.works.len() {
            self.works.resize(capacity, self.empty);
            self.sges.resize(capacity, [NO_BYTES; MAX_SGE]);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }

    /// Links the requests, and returns a pointer to the first. The chain must not change while C
    /// uses it.
    pub(crate) fn head(&mut self) -> *mut W {
        assert!(self.count > 0, "an empty chain is not posted");
        let (works, sges) = (self.works.as_mut_ptr(), self.sges.as_mut_ptr());
        for (index, work) in self.works[..self.count].iter_mut().enumerate() {
            work.set_sges(sges.wrapping_add(index).cast());
            work.set_next(match index + 1 < self.count {
                true => works.wrapping_add(index + 1),
                false => ptr::null_mut(),
            });
        }
        works
    }

    /// Returns the number of requests accepted before the refused `work`, or the chain's length if
    /// the driver reported no request.
    pub(crate) fn position(&self, work: *const W) -> usize {
        let chain = &self.works[..self.count];
        chain
            .iter()
            .position(|candidate| ptr::eq(candidate, work))
            .unwrap_or(self.count)
    }

    fn next(&mut self, sges: &SgeList) -> (&mut W, i32) {
        let (work, slots) = (&mut self.works[self.count], &mut self.sges[self.count]);
        for (slot, sge) in slots.iter_mut().zip(sges.as_slice()) {
            *slot = sys::ibv_sge {
                addr: sge.addr,
                length: sge.length,
                lkey: sge.lkey,
            };
        }
        self.count += 1;
        (work, sges.as_slice().len() as i32)
    }
}

impl SendChain {
    pub(crate) fn new(capacity: usize) -> Self {
        // SAFETY: all-zero bytes are a valid ibv_send_wr.
        Self::of(unsafe { std::mem::zeroed() }, capacity)
    }

    pub(crate) fn push(&mut self, work: &SendWork, wr_id: u64, inline: bool) {
        let (raw, sges) = self.next(&work.sges);
        raw.wr_id = wr_id;
        raw.num_sge = sges;
        raw.send_flags = match work.signaled {
            true => sys::IBV_SEND_SIGNALED,
            false => 0,
        };
        if inline {
            raw.send_flags |= sys::IBV_SEND_INLINE;
        }
        let mut remote = None;
        raw.opcode = match work.op {
            Operation::Send => sys::IBV_WR_SEND,
            Operation::SendWithInvalidate { rkey } => {
                raw.__bindgen_anon_1.invalidate_rkey = rkey;
                // siw in rdma-core sends this field instead of `invalidate_rkey`. The reused field
                // may contain the key of an earlier WRITE.
                raw.wr.rdma.rkey = rkey;
                sys::IBV_WR_SEND_WITH_INV
            }
            Operation::Write(buffer) => {
                remote = Some(buffer);
                sys::IBV_WR_RDMA_WRITE
            }
            Operation::Read(buffer) => {
                remote = Some(buffer);
                sys::IBV_WR_RDMA_READ
            }
        };
        if let Some(buffer) = remote {
            raw.wr.rdma.remote_addr = buffer.addr;
            raw.wr.rdma.rkey = buffer.rkey;
        }
    }
}

impl ReceiveChain {
    pub(crate) fn new(capacity: usize) -> Self {
        // SAFETY: all-zero bytes are a valid ibv_recv_wr.
        Self::of(unsafe { std::mem::zeroed() }, capacity)
    }

    pub(crate) fn push(&mut self, work: &RecvWork, wr_id: u64) {
        let (raw, sges) = self.next(&work.sges);
        raw.wr_id = wr_id;
        raw.num_sge = sges;
    }
}

#[cfg(test)]
mod tests {
    use cairn_rdma::{RemoteBuffer, Sge};

    use super::*;

    fn work(op: Operation, signaled: bool) -> SendWork {
        let sge = Sge {
            addr: 0x1000,
            length: 16,
            lkey: 7,
        };
        SendWork {
            id: 0,
            op,
            sges: sge.into(),
            signaled,
        }
    }

    #[test]
    fn a_write_and_its_send_are_one_chain() {
        let mut chain = SendChain::new(4);
        let remote = RemoteBuffer {
            addr: 0xdead_0000,
            rkey: 9,
        };
        chain.push(&work(Operation::Write(remote), false), 1, false);
        chain.push(
            &work(Operation::SendWithInvalidate { rkey: 9 }, true),
            2,
            true,
        );
        // SAFETY: the chain does not change while its links are read.
        unsafe {
            let first = *chain.head();
            assert_eq!(first.opcode, sys::IBV_WR_RDMA_WRITE);
            assert_eq!(first.send_flags, 0);
            assert_eq!(
                (first.wr.rdma.remote_addr, first.wr.rdma.rkey),
                (0xdead_0000, 9)
            );
            assert_eq!((*first.sg_list).lkey, 7);
            let second = *first.next;
            assert_eq!(second.opcode, sys::IBV_WR_SEND_WITH_INV);
            assert_eq!(second.__bindgen_anon_1.invalidate_rkey, 9);
            assert_eq!(
                second.send_flags,
                sys::IBV_SEND_SIGNALED | sys::IBV_SEND_INLINE
            );
            assert!(second.next.is_null());
            assert_eq!(chain.position(first.next), 1);
        }
    }

    #[test]
    fn a_key_of_an_earlier_write_is_not_invalidated() {
        let mut chain = SendChain::new(1);
        let remote = RemoteBuffer { addr: 1, rkey: 9 };
        chain.push(&work(Operation::Write(remote), false), 1, false);
        chain.clear();
        let send = Operation::SendWithInvalidate { rkey: 4 };
        chain.push(&work(send, true), 2, false);
        // SAFETY: the chain does not change while it is read.
        unsafe {
            let send = *chain.head();
            assert_eq!(send.__bindgen_anon_1.invalidate_rkey, 4);
            assert_eq!(send.wr.rdma.rkey, 4);
        }
    }

    #[test]
    fn a_shorter_chain_does_not_reach_into_the_last_one() {
        let mut chain = SendChain::new(4);
        for _ in 0..4 {
            chain.push(&work(Operation::Send, true), 0, false);
        }
        chain.head();
        chain.clear();
        chain.push(&work(Operation::Send, true), 5, false);
        // SAFETY: the chain does not change while its links are read.
        assert!(unsafe { (*chain.head()).next.is_null() });
    }
}
