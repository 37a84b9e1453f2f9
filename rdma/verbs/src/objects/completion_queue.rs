use std::cell::Cell;
use std::ffi::c_int;
use std::io;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::Arc;

use cairn_rdma::FabricError;

use super::{ProtectionDomain, Serial, errno, some};
use crate::cm::set_nonblocking;
use crate::explain;
use crate::sys::{self, inline};

pub(crate) struct CompletionQueue {
    pub(super) raw: *mut sys::ibv_cq,
    channel: *mut sys::ibv_comp_channel,
    domain: Arc<ProtectionDomain>,
    /// Unacknowledged channel events. Acknowledgement is batched, because each call takes a lock.
    unacknowledged: Cell<u32>,
}

const ACKNOWLEDGE_BATCH: u32 = 256;

impl CompletionQueue {
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        entries: u32,
        vector: u32,
        owner: Serial,
    ) -> Result<Self, FabricError> {
        let symbols = domain.symbols();
        // SAFETY: the context is live.
        let channel = unsafe { symbols.ibv_create_comp_channel(domain.context.raw) };
        let channel = some("ibv_create_comp_channel", channel)?;
        let mut queue = Self {
            raw: ptr::null_mut(),
            channel,
            domain: Arc::clone(domain),
            unacknowledged: Cell::new(0),
        };
        set_nonblocking(queue.fd()).map_err(|error| explain::os("fcntl", error))?;
        // SAFETY: the context and the channel are live.
        let raw = unsafe {
            symbols.ibv_create_cq(
                domain.context.raw,
                entries as c_int,
                owner.as_context(),
                channel,
                vector as c_int,
            )
        };
        queue.raw = some("ibv_create_cq", raw)?;
        Ok(queue)
    }

    pub(crate) fn fd(&self) -> RawFd {
        // SAFETY: the channel is live, and its descriptor never changes.
        unsafe { (*self.channel).fd }
    }

    pub(crate) fn poll(&self, out: &mut [sys::ibv_wc]) -> io::Result<usize> {
        // SAFETY: the queue is live, and only one thread polls it.
        let polled = unsafe { inline::poll_cq(self.raw, out) };
        usize::try_from(polled).map_err(|_| io::Error::from_raw_os_error(libc::EIO))
    }

    pub(crate) fn request_notify(&self) -> Result<(), FabricError> {
        // SAFETY: the queue is live.
        errno("ibv_req_notify_cq", unsafe {
            inline::req_notify_cq(self.raw)
        })
    }

    pub(crate) fn clear_wakeups(&self) {
        let symbols = self.domain.symbols();
        let mut cq = ptr::null_mut();
        let mut context = ptr::null_mut();
        // SAFETY: the channel is live and non-blocking, and the results hold two pointers.
        while unsafe { symbols.ibv_get_cq_event(self.channel, &mut cq, &mut context) } == 0 {
            self.unacknowledged.set(self.unacknowledged.get() + 1);
        }
        if self.unacknowledged.get() >= ACKNOWLEDGE_BATCH {
            self.acknowledge();
        }
    }

    fn acknowledge(&self) {
        // SAFETY: the queue is live, and exactly this number of its events was taken.
        unsafe {
            self.domain
                .symbols()
                .ibv_ack_cq_events(self.raw, self.unacknowledged.get());
        }
        self.unacknowledged.set(0);
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        let symbols = self.domain.symbols();
        if !self.raw.is_null() {
            self.acknowledge();
            // SAFETY: each queue pair holds a reference to the queue, so all queue pairs are
            // destroyed.
            unsafe { symbols.ibv_destroy_cq(self.raw) };
        }
        // SAFETY: the channel's only queue is destroyed.
        unsafe { symbols.ibv_destroy_comp_channel(self.channel) };
    }
}
