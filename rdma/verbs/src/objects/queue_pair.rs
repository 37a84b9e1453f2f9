use std::ffi::c_int;
use std::io;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use cairn_rdma::{FabricError, MAX_SGE, Marked};

use super::{CompletionQueue, ProtectionDomain, Serial, errno, some};
use crate::chain::{ReceiveChain, SendChain};
use crate::sys::{self, inline};

#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) taken: usize,
    pub(crate) error: io::Error,
}

impl Refusal {
    fn new(taken: usize, code: c_int) -> Self {
        Self {
            taken,
            error: io::Error::from_raw_os_error(code.abs()),
        }
    }
}

pub(crate) struct SharedReceiveQueue {
    raw: *mut sys::ibv_srq,
    domain: Arc<ProtectionDomain>,
}

impl SharedReceiveQueue {
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        receives: u32,
        owner: Serial,
    ) -> Result<Option<Self>, FabricError> {
        let mut attributes = sys::ibv_srq_init_attr {
            srq_context: owner.as_context(),
            attr: sys::ibv_srq_attr {
                max_wr: receives,
                max_sge: MAX_SGE as u32,
                srq_limit: 0,
            },
        };
        // SAFETY: the domain is live.
        let raw = unsafe { domain.symbols().ibv_create_srq(domain.raw, &mut attributes) };
        let errno = io::Error::last_os_error().raw_os_error();
        if raw.is_null() && matches!(errno, Some(libc::ENOSYS | libc::EOPNOTSUPP)) {
            return Ok(None);
        }
        Ok(Some(Self {
            raw: some("ibv_create_srq", raw)?,
            domain: Arc::clone(domain),
        }))
    }

    pub(crate) fn post(&self, chain: &mut ReceiveChain) -> Result<(), Refusal> {
        let mut bad = ptr::null_mut();
        // SAFETY: the queue is live and the chain is linked. The device checks the SGEs against its
        // registered regions.
        match unsafe { inline::post_srq_recv(self.raw, chain.head(), &mut bad) } {
            0 => Ok(()),
            code => Err(Refusal::new(chain.position(bad), code)),
        }
    }
}

impl Drop for SharedReceiveQueue {
    fn drop(&mut self) {
        // SAFETY: each queue pair holds a reference to the queue, so all queue pairs are destroyed.
        unsafe { self.domain.symbols().ibv_destroy_srq(self.raw) };
    }
}

#[derive(Clone)]
pub(crate) enum Receives {
    Shared(Rc<SharedReceiveQueue>),
    /// Receive queue of this queue pair only, with its number of receives.
    Own(u32),
}

impl Receives {
    fn parts(&self) -> (*mut sys::ibv_srq, u32) {
        match self {
            Self::Shared(queue) => (queue.raw, 0),
            Self::Own(length) => (ptr::null_mut(), *length),
        }
    }
}

pub(crate) struct QueuePair {
    raw: *mut sys::ibv_qp,
    max_inline: u32,
    serial: Serial,
    domain: Arc<ProtectionDomain>,
    _completions: Rc<CompletionQueue>,
    receives: Receives,
}

impl QueuePair {
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        completions: &Rc<CompletionQueue>,
        receives: Receives,
        send_work: u32,
        inline: u32,
    ) -> Result<Self, FabricError> {
        let serial = Serial::next();
        let (srq, max_recv_wr) = receives.parts();
        let create = |inline: u32| {
            let mut attributes = sys::ibv_qp_init_attr {
                qp_context: serial.as_context(),
                send_cq: completions.raw,
                recv_cq: completions.raw,
                srq,
                cap: sys::ibv_qp_cap {
                    max_send_wr: send_work,
                    max_recv_wr,
                    max_send_sge: MAX_SGE as u32,
                    max_recv_sge: if max_recv_wr > 0 { MAX_SGE as u32 } else { 0 },
                    max_inline_data: inline,
                },
                qp_type: sys::IBV_QPT_RC,
                sq_sig_all: 0,
            };
            // SAFETY: the domain and the queues are live and of one context.
            let raw = unsafe { domain.symbols().ibv_create_qp(domain.raw, &mut attributes) };
            (raw, attributes.cap.max_inline_data)
        };
        let (mut raw, mut max_inline) = create(inline);
        if raw.is_null() && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
            (raw, max_inline) = create(0);
        }
        Ok(Self {
            raw: some("ibv_create_qp", raw)?,
            max_inline,
            serial,
            domain: Arc::clone(domain),
            _completions: Rc::clone(completions),
            receives,
        })
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the queue pair is live, and its number never changes.
        unsafe { (*self.raw).qp_num }
    }

    pub(crate) fn serial(&self) -> Serial {
        self.serial
    }

    pub(crate) fn has_shared_receives(&self) -> bool {
        matches!(self.receives, Receives::Shared(_))
    }

    pub(crate) fn max_inline(&self) -> u32 {
        self.max_inline
    }

    pub(crate) fn modify(
        &mut self,
        attributes: &mut sys::ibv_qp_attr,
        mask: sys::ibv_qp_attr_mask,
    ) -> Result<(), FabricError> {
        // SAFETY: the queue pair is live, and the attributes are complete.
        let code = unsafe {
            self.domain
                .symbols()
                .ibv_modify_qp(self.raw, attributes, mask as c_int)
        };
        errno("ibv_modify_qp", code)
    }

    pub(crate) fn marked(&self) -> Result<Marked, FabricError> {
        // SAFETY: all-zero bytes are valid attributes.
        let (mut attributes, mut initial): (sys::ibv_qp_attr, sys::ibv_qp_init_attr) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        // SAFETY: the queue pair is live, and both results have space.
        let code = unsafe {
            self.domain.symbols().ibv_query_qp(
                self.raw,
                &mut attributes,
                sys::IBV_QP_AV as c_int,
                &mut initial,
            )
        };
        errno("ibv_query_qp", code)?;
        let route = &attributes.ah_attr.grh;
        Ok(Marked {
            traffic_class: route.traffic_class,
            hop_limit: route.hop_limit,
        })
    }

    pub(crate) fn fail(&mut self) -> Result<(), FabricError> {
        // SAFETY: all-zero bytes are a valid ibv_qp_attr.
        let mut attributes: sys::ibv_qp_attr = unsafe { std::mem::zeroed() };
        attributes.qp_state = sys::IBV_QPS_ERR;
        self.modify(&mut attributes, sys::IBV_QP_STATE)
    }

    pub(crate) fn post_receives(&mut self, chain: &mut ReceiveChain) -> Result<(), Refusal> {
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is live and the chain is linked. The device checks the SGEs
        // against its registered regions.
        match unsafe { inline::post_recv(self.raw, chain.head(), &mut bad) } {
            0 => Ok(()),
            code => Err(Refusal::new(chain.position(bad), code)),
        }
    }

    /// # Safety
    /// The bytes of inline work are readable.
    pub(crate) unsafe fn post(&mut self, chain: &mut SendChain) -> Result<(), Refusal> {
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is live and the chain is linked. The device checks the SGEs
        // against its registered regions; the caller guarantees the bytes of inline work.
        match unsafe { inline::post_send(self.raw, chain.head(), &mut bad) } {
            0 => Ok(()),
            code => Err(Refusal::new(chain.position(bad), code)),
        }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: `self` owns the queue pair, and destroys it once.
        unsafe { self.domain.symbols().ibv_destroy_qp(self.raw) };
    }
}
