//! Objects of libibverbs, each owned by one Rust value.
//!
//! Why `unsafe` here: libibverbs uses pointers, and an object must outlive its dependents. Each
//! value therefore holds counted references to its parents. Raw pointers leave this module only for
//! comparison.

mod completion_queue;
mod queue_pair;

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cairn_base::Mapping;
use cairn_rdma::{Access, FabricError};

use crate::cm::{DeviceHandle, set_nonblocking};
use crate::explain;
use crate::library::Library;
use crate::sys;

pub(crate) use completion_queue::CompletionQueue;
pub(crate) use queue_pair::{QueuePair, Receives, Refusal, SharedReceiveQueue};

pub(crate) struct Context {
    library: &'static Library,
    raw: *mut sys::ibv_context,
}

// SAFETY: control calls of libibverbs lock their shared state.
unsafe impl Send for Context {}
// SAFETY: see `Send` above.
unsafe impl Sync for Context {}

/// Number in the context field of an object, by which an event identifies the object's owner.
/// Unlike queue pair numbers, serials are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Serial(usize);

impl Serial {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    fn of(context: *mut c_void) -> Self {
        Self(context.addr())
    }

    fn as_context(self) -> *mut c_void {
        ptr::without_provenance_mut(self.0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AsyncEvent {
    QueuePair(sys::ibv_event_type, u32, Serial),
    Queue(sys::ibv_event_type, Serial),
    Port(sys::ibv_event_type, i32),
    Other(sys::ibv_event_type),
}

/// Event that is acknowledged when dropped. Destroying an object waits until its events are
/// acknowledged, so the holder of an event must not destroy objects.
pub(crate) struct PendingEvent<'a> {
    pub(crate) event: AsyncEvent,
    raw: sys::ibv_async_event,
    context: &'a Context,
}

impl Drop for PendingEvent<'_> {
    fn drop(&mut self) {
        let symbols = self.context.library.symbols();
        // SAFETY: the event is acknowledged once.
        unsafe { symbols.ibv_ack_async_event(&mut self.raw) };
    }
}

impl Context {
    pub(crate) fn open(
        library: &'static Library,
        device: &DeviceHandle<'_>,
    ) -> Result<Arc<Self>, FabricError> {
        // SAFETY: the handle's identifier keeps the device's structure alive.
        let raw = unsafe { library.symbols().ibv_open_device(device.raw) };
        if raw.is_null() {
            return Err(explain::open_device(
                &device.name,
                &io::Error::last_os_error(),
            ));
        }
        let context = Arc::new(Self { library, raw });
        set_nonblocking(context.async_fd()).map_err(|error| explain::os("fcntl", error))?;
        Ok(context)
    }

    pub(crate) fn query(&self) -> Result<sys::ibv_device_attr, FabricError> {
        // SAFETY: all-zero bytes are a valid ibv_device_attr.
        let mut attributes = unsafe { std::mem::zeroed() };
        // SAFETY: the context is live, and `attributes` holds the result.
        let code = unsafe {
            self.library
                .symbols()
                .ibv_query_device(self.raw, &mut attributes)
        };
        errno("ibv_query_device", code)?;
        Ok(attributes)
    }

    pub(crate) fn pkeys(&self, port: u8, length: u16) -> Vec<u16> {
        let symbols = self.library.symbols();
        let at = |index: u16| {
            let mut key = 0;
            // SAFETY: the context is live, and `key` holds the result.
            let code =
                unsafe { symbols.ibv_query_pkey(self.raw, port, index.into(), &raw mut key) };
            // The device's limit may exceed the table of this port, so the first error ends the
            // list.
            (code == 0).then_some(u16::from_be(key))
        };
        (0..length).map_while(at).collect()
    }

    pub(crate) fn completion_vectors(&self) -> u32 {
        // SAFETY: the context is live, and the field never changes.
        unsafe { (*self.raw).num_comp_vectors }.max(1) as u32
    }

    pub(crate) fn async_fd(&self) -> RawFd {
        // SAFETY: the context is live, and the field never changes.
        unsafe { (*self.raw).async_fd }
    }

    pub(crate) fn next_event(&self) -> io::Result<Option<PendingEvent<'_>>> {
        let symbols = self.library.symbols();
        // SAFETY: all-zero bytes are a valid ibv_async_event.
        let mut raw: sys::ibv_async_event = unsafe { std::mem::zeroed() };
        // SAFETY: the context is live, and `raw` holds one event.
        if unsafe { symbols.ibv_get_async_event(self.raw, &mut raw) } != 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        let kind = raw.event_type;
        // SAFETY: the event type determines the union member. The object in the event is live,
        // because its destruction waits for the acknowledgement.
        let event = unsafe {
            match kind {
                sys::IBV_EVENT_QP_FATAL
                | sys::IBV_EVENT_QP_REQ_ERR
                | sys::IBV_EVENT_QP_ACCESS_ERR
                | sys::IBV_EVENT_COMM_EST
                | sys::IBV_EVENT_SQ_DRAINED
                | sys::IBV_EVENT_PATH_MIG
                | sys::IBV_EVENT_PATH_MIG_ERR
                | sys::IBV_EVENT_QP_LAST_WQE_REACHED => {
                    let qp = raw.element.qp;
                    AsyncEvent::QueuePair(kind, (*qp).qp_num, Serial::of((*qp).qp_context))
                }
                sys::IBV_EVENT_CQ_ERR => {
                    AsyncEvent::Queue(kind, Serial::of((*raw.element.cq).cq_context))
                }
                sys::IBV_EVENT_SRQ_ERR => {
                    AsyncEvent::Queue(kind, Serial::of((*raw.element.srq).srq_context))
                }
                sys::IBV_EVENT_PORT_ACTIVE | sys::IBV_EVENT_PORT_ERR => {
                    AsyncEvent::Port(kind, raw.element.port_num)
                }
                other => AsyncEvent::Other(other),
            }
        };
        Ok(Some(PendingEvent {
            event,
            raw,
            context: self,
        }))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: each object of the context holds a reference to it, so all objects are destroyed.
        unsafe { self.library.symbols().ibv_close_device(self.raw) };
    }
}

pub(crate) struct ProtectionDomain {
    raw: *mut sys::ibv_pd,
    context: Arc<Context>,
}

// SAFETY: see `Context`.
unsafe impl Send for ProtectionDomain {}
// SAFETY: see `Context`.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Arc<Self>, FabricError> {
        // SAFETY: the context is live.
        let raw = unsafe { context.library.symbols().ibv_alloc_pd(context.raw) };
        let raw = some("ibv_alloc_pd", raw)?;
        Ok(Arc::new(Self {
            raw,
            context: Arc::clone(context),
        }))
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    fn symbols(&self) -> &'static sys::Symbols {
        self.context.library.symbols()
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: each object of the domain holds a reference to it, so all objects are destroyed.
        unsafe { self.symbols().ibv_dealloc_pd(self.raw) };
    }
}

pub(crate) struct MemoryRegion {
    raw: *mut sys::ibv_mr,
    domain: Arc<ProtectionDomain>,
    _mapping: Arc<Mapping>,
}

// SAFETY: the region's keys are only read until its single deregistration.
unsafe impl Send for MemoryRegion {}
// SAFETY: see `Send` above.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        mapping: &Arc<Mapping>,
        access: Access,
    ) -> io::Result<Self> {
        // Relaxed ordering is faster. Cairn reads the data only after its completion, and PCI
        // Express delivers a completion after all its data. The library drops this flag on kernels
        // without it.
        let mut flags = sys::IBV_ACCESS_RELAXED_ORDERING;
        for (wanted, flag) in [
            (Access::LOCAL_WRITE, sys::IBV_ACCESS_LOCAL_WRITE),
            (Access::REMOTE_READ, sys::IBV_ACCESS_REMOTE_READ),
            (Access::REMOTE_WRITE, sys::IBV_ACCESS_REMOTE_WRITE),
        ] {
            if access.contains(wanted) {
                flags |= flag;
            }
        }
        // SAFETY: the whole mapping is allocated, and `_mapping` keeps it until the region is
        // deregistered. References to its bytes exist only under the promises of `Mapping::slice`.
        let raw = unsafe {
            domain.symbols().ibv_reg_mr(
                domain.raw,
                ptr::with_exposed_provenance_mut(mapping.addr() as usize),
                mapping.len(),
                flags as c_int,
            )
        };
        if raw.is_null() {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            raw,
            domain: Arc::clone(domain),
            _mapping: Arc::clone(mapping),
        })
    }

    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: the region is live, and its keys never change.
        unsafe { (*self.raw).lkey }
    }

    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: the region is live, and its keys never change.
        unsafe { (*self.raw).rkey }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: `self` owns the region, and deregisters it once.
        unsafe { self.domain.symbols().ibv_dereg_mr(self.raw) };
    }
}

fn some<T>(call: &'static str, raw: *mut T) -> Result<*mut T, FabricError> {
    if raw.is_null() {
        return Err(FabricError::last_os(call));
    }
    Ok(raw)
}

fn errno(call: &'static str, code: c_int) -> Result<(), FabricError> {
    match code {
        0 => Ok(()),
        -1 => Err(FabricError::last_os(call)),
        code => Err(explain::os(call, io::Error::from_raw_os_error(code.abs()))),
    }
}
