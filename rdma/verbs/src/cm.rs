//! Wrappers of librdmacm: connection identifiers, and channels for their events.
//!
//! Why `unsafe` here: librdmacm uses pointers. An [`Id`] owns its `rdma_cm_id` and keeps its
//! channel alive. An event is copied and acknowledged before it is returned, so no pointer outlives
//! a call, and destroying an identifier never waits for acknowledgements.

use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use cairn_rdma::{FabricError, PrivateData};

use crate::address::{self, RawAddress};
use crate::explain;
use crate::library::Library;
use crate::sys;

pub(crate) struct Channel {
    library: &'static Library,
    raw: *mut sys::rdma_event_channel,
}

// SAFETY: librdmacm protects its state with locks. The channel's structure is only a file
// descriptor, which never changes.
unsafe impl Send for Channel {}
// SAFETY: see `Send`. Concurrent reads return different events.
unsafe impl Sync for Channel {}

impl Channel {
    pub(crate) fn new(library: &'static Library) -> Result<Arc<Self>, FabricError> {
        // SAFETY: the function takes no arguments.
        let raw = unsafe { library.symbols().rdma_create_event_channel() };
        if raw.is_null() {
            return Err(explain::event_channel(&io::Error::last_os_error()));
        }
        let channel = Arc::new(Self { library, raw });
        set_nonblocking(channel.fd()).map_err(|error| explain::os("fcntl", error))?;
        Ok(channel)
    }

    pub(crate) fn fd(&self) -> RawFd {
        // SAFETY: `raw` lives as long as `self`, and its descriptor never changes.
        unsafe { (*self.raw).fd }
    }

    pub(crate) fn next_event(self: &Arc<Self>) -> io::Result<Option<CmEvent>> {
        let mut raw = ptr::null_mut();
        // SAFETY: the channel is live, and `raw` holds one pointer.
        let failed = unsafe { self.library.symbols().rdma_get_cm_event(self.raw, &mut raw) } != 0;
        if failed {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        // SAFETY: librdmacm returned a valid event, owned by this thread until it is acknowledged.
        let event = unsafe { self.copy(&*raw) };
        // SAFETY: the event is acknowledged once, and not used afterwards.
        unsafe { self.library.symbols().rdma_ack_cm_event(raw) };
        Ok(Some(event))
    }

    /// # Safety
    /// `event` is valid and not yet acknowledged.
    unsafe fn copy(self: &Arc<Self>, event: &sys::rdma_cm_event) -> CmEvent {
        // SAFETY: an unacknowledged event keeps its identifier alive. Events of RC connections use
        // the union member `conn`.
        unsafe {
            let conn = event.param.conn;
            let tag = tag_of(event.id).load(Ordering::Relaxed) as usize as u64;
            let request = (event.event == sys::RDMA_CM_EVENT_CONNECT_REQUEST).then(|| {
                tag_of(event.id).store(tag_pointer(UNCLAIMED), Ordering::Relaxed);
                Id {
                    raw: event.id,
                    channel: Arc::clone(self),
                }
            });
            CmEvent {
                kind: event.event,
                status: event.status,
                tag,
                request,
                private_data: private_data(&conn),
                responder_resources: conn.responder_resources,
                initiator_depth: conn.initiator_depth,
            }
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: each `Id` holds its channel, so no identifier uses this channel any more.
        unsafe { self.library.symbols().rdma_destroy_event_channel(self.raw) };
    }
}

pub(crate) const UNCLAIMED: u64 = u64::MAX;

pub(crate) const LISTENING: u64 = u64::MAX - 1;

#[derive(Debug)]
pub(crate) struct CmEvent {
    pub(crate) kind: sys::rdma_cm_event_type,
    /// 0, a negative errno, or the reason of a REJ.
    pub(crate) status: c_int,
    /// Tag of the identifier ([`Id::set_tag`]). A connection request has its listener's tag.
    pub(crate) tag: u64,
    pub(crate) request: Option<Id>,
    pub(crate) private_data: PrivateData,
    /// Maximum outstanding READs sent by the peer: `initiator_depth` in its message, because the
    /// kernel swaps the two fields.
    pub(crate) responder_resources: u8,
    /// Maximum outstanding READs answered by the peer: `responder_resources` of the peer's message.
    pub(crate) initiator_depth: u8,
}

pub(crate) struct Id {
    raw: *mut sys::rdma_cm_id,
    channel: Arc<Channel>,
}

// SAFETY: librdmacm permits calls on one identifier from any thread, one at a time, which `&mut
// self` or ownership ensures.
unsafe impl Send for Id {}

impl std::fmt::Debug for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Id({:p})", self.raw)
    }
}

impl Id {
    pub(crate) fn new(channel: &Arc<Channel>, tag: u64) -> Result<Self, FabricError> {
        let mut raw = ptr::null_mut();
        let symbols = channel.library.symbols();
        // SAFETY: the channel is live, and `raw` holds one pointer. The context is a number that is
        // never dereferenced.
        check("rdma_create_id", unsafe {
            symbols.rdma_create_id(channel.raw, &mut raw, tag_pointer(tag), sys::RDMA_PS_TCP)
        })?;
        Ok(Self {
            raw,
            channel: Arc::clone(channel),
        })
    }

    fn symbols(&self) -> &'static sys::Symbols {
        self.channel.library.symbols()
    }

    pub(crate) fn set_tag(&mut self, tag: u64) {
        // SAFETY: the identifier is live.
        unsafe { tag_of(self.raw).store(tag_pointer(tag), Ordering::Relaxed) };
    }

    pub(crate) fn bind(&mut self, address: SocketAddr) -> Result<(), FabricError> {
        if address.is_ipv6() {
            // A listener on [::] would otherwise occupy the IPv4 port too.
            self.set_option(sys::RDMA_OPTION_ID_AFONLY, &mut 1i32)?;
        }
        let mut raw = RawAddress::new(address);
        // SAFETY: the identifier is live, and the address is complete.
        let result = unsafe { self.symbols().rdma_bind_addr(self.raw, raw.as_mut_ptr()) };
        outcome(result).map_err(|error| explain::bind(address, error))
    }

    pub(crate) fn listen(&mut self, backlog: u32) -> io::Result<()> {
        let backlog = c_int::try_from(backlog).unwrap_or(c_int::MAX);
        // SAFETY: the identifier is live.
        outcome(unsafe { self.symbols().rdma_listen(self.raw, backlog) })
    }

    pub(crate) fn resolve_addr(
        &mut self,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        timeout_ms: c_int,
    ) -> io::Result<()> {
        let mut source = local.map(RawAddress::new);
        let source = source
            .as_mut()
            .map_or(ptr::null_mut(), RawAddress::as_mut_ptr);
        let mut target = RawAddress::new(remote);
        // SAFETY: the identifier is live; each address is complete, or null.
        outcome(unsafe {
            self.symbols()
                .rdma_resolve_addr(self.raw, source, target.as_mut_ptr(), timeout_ms)
        })
    }

    pub(crate) fn resolve_route(&mut self, timeout_ms: c_int) -> io::Result<()> {
        // SAFETY: the identifier is live.
        outcome(unsafe { self.symbols().rdma_resolve_route(self.raw, timeout_ms) })
    }

    pub(crate) fn connect(&mut self, terms: &Terms, private_data: &[u8]) -> io::Result<()> {
        let mut param = terms.conn_param(private_data);
        // SAFETY: the identifier is live, and the private data outlives the call.
        outcome(unsafe { self.symbols().rdma_connect(self.raw, &mut param) })
    }

    pub(crate) fn accept(&mut self, terms: &Terms, private_data: &[u8]) -> io::Result<()> {
        let mut param = terms.conn_param(private_data);
        // SAFETY: the identifier is live, and the private data outlives the call.
        outcome(unsafe { self.symbols().rdma_accept(self.raw, &mut param) })
    }

    pub(crate) fn establish(&mut self) -> io::Result<()> {
        // SAFETY: the identifier is live, and its queue pair was not created by librdmacm.
        outcome(unsafe { self.symbols().rdma_establish(self.raw) })
    }

    pub(crate) fn reject(&mut self, private_data: &[u8]) -> io::Result<()> {
        let length = private_data.len().min(148) as u8;
        // SAFETY: the identifier is live, and the private data outlives the call.
        outcome(unsafe {
            self.symbols()
                .rdma_reject(self.raw, private_data.as_ptr().cast(), length)
        })
    }

    pub(crate) fn disconnect(&mut self) -> io::Result<()> {
        // SAFETY: the identifier is live.
        outcome(unsafe { self.symbols().rdma_disconnect(self.raw) })
    }

    pub(crate) fn traffic_seen(&mut self) -> io::Result<()> {
        // SAFETY: the identifier is live.
        outcome(unsafe {
            self.symbols()
                .rdma_notify(self.raw, sys::IBV_EVENT_COMM_EST)
        })
    }

    pub(crate) fn migrate(&mut self, channel: &Arc<Channel>) -> io::Result<()> {
        // SAFETY: identifier and channel are live; the old channel is released afterwards.
        outcome(unsafe { self.symbols().rdma_migrate_id(self.raw, channel.raw) })?;
        self.channel = Arc::clone(channel);
        Ok(())
    }

    pub(crate) fn set_traffic_class(&mut self, mut class: u8) -> Result<(), FabricError> {
        self.set_option(sys::RDMA_OPTION_ID_TOS, &mut class)
    }

    fn set_option<T>(&mut self, option: u32, value: &mut T) -> Result<(), FabricError> {
        // SAFETY: the identifier is live, and librdmacm reads `size_of::<T>()` bytes.
        check("rdma_set_option", unsafe {
            self.symbols().rdma_set_option(
                self.raw,
                sys::RDMA_OPTION_ID as c_int,
                option as c_int,
                ptr::from_mut(value).cast::<c_void>(),
                size_of::<T>(),
            )
        })
    }

    pub(crate) fn qp_attributes(
        &mut self,
        state: sys::ibv_qp_state,
    ) -> Result<(sys::ibv_qp_attr, sys::ibv_qp_attr_mask), FabricError> {
        // SAFETY: all-zero bytes are a valid ibv_qp_attr.
        let mut attributes: sys::ibv_qp_attr = unsafe { std::mem::zeroed() };
        attributes.qp_state = state;
        let mut mask = 0;
        // SAFETY: the identifier is live, and both results have space.
        check("rdma_init_qp_attr", unsafe {
            self.symbols()
                .rdma_init_qp_attr(self.raw, &mut attributes, &mut mask)
        })?;
        Ok((attributes, mask as sys::ibv_qp_attr_mask))
    }

    /// Replaces the descriptors of a device under removal by /dev/null.
    ///
    /// Drivers such as rdma_rxe wait until the descriptors are closed, and librdmacm closes them
    /// only when it next lists devices. Without the replacement, `rdma link delete` would hang.
    pub(crate) fn release_removed_device(&self) {
        // SAFETY: the identifier and its context are live. librdmacm still owns the descriptors,
        // and may use them (and fail) or close them.
        let fds = unsafe {
            let verbs = (*self.raw).verbs;
            if verbs.is_null() {
                return;
            }
            [(*verbs).cmd_fd, (*verbs).async_fd]
        };
        match std::fs::File::open("/dev/null") {
            Ok(null) => {
                for fd in fds {
                    // SAFETY: dup3 replaces one open descriptor by another.
                    unsafe { libc::dup3(null.as_raw_fd(), fd, libc::O_CLOEXEC) };
                }
            }
            Err(error) => {
                // Logged when a device is removed and no descriptor is available.
                tracing::warn!(%error, "cannot open /dev/null: the removal of the device waits; \
                                        raise the limit on open files");
            }
        }
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        // SAFETY: the identifier is live, and its address union is a `sockaddr_storage`.
        unsafe { address::from_raw(&(*self.raw).route.addr.__bindgen_anon_1.src_addr) }
    }

    pub(crate) fn peer_addr(&self) -> SocketAddr {
        // SAFETY: the identifier is live, and its address union is a `sockaddr_storage`.
        unsafe { address::from_raw(&(*self.raw).route.addr.__bindgen_anon_2.dst_addr) }
    }

    pub(crate) fn port(&self) -> u8 {
        // SAFETY: the identifier is live.
        unsafe { (*self.raw).port_num }
    }

    pub(crate) fn device(&self) -> Option<DeviceHandle<'_>> {
        // SAFETY: the identifier is live; once set, its verbs context stays.
        unsafe {
            let verbs = (*self.raw).verbs;
            (!verbs.is_null()).then(|| DeviceHandle {
                raw: (*verbs).device,
                name: CStr::from_ptr((*(*verbs).device).name.as_ptr())
                    .to_string_lossy()
                    .into_owned(),
                _id: self,
            })
        }
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: `self` owns the identifier, and all its events are acknowledged.
        unsafe { self.symbols().rdma_destroy_id(self.raw) };
    }
}

pub(crate) struct DeviceHandle<'a> {
    pub(crate) raw: *mut sys::ibv_device,
    pub(crate) name: String,
    _id: &'a Id,
}

impl DeviceHandle<'_> {
    pub(crate) fn is_iwarp(&self) -> bool {
        // SAFETY: the handle's identifier keeps the device's structure alive.
        let (transport, node) = unsafe { ((*self.raw).transport_type, (*self.raw).node_type) };
        transport == sys::IBV_TRANSPORT_IWARP || node == sys::IBV_NODE_RNIC
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) qp_num: u32,
    pub(crate) initiator_depth: u8,
    pub(crate) responder_resources: u8,
    pub(crate) retry_count: u8,
    pub(crate) has_shared_receives: bool,
}

/// Unlimited RNR retries by the peer, because the receive queue may be empty for a short time.
const PEER_RNR_RETRY_COUNT: u8 = 7;

impl Terms {
    /// Returns connection parameters that point to `private_data`, which must outlive them.
    fn conn_param(&self, private_data: &[u8]) -> sys::rdma_conn_param {
        sys::rdma_conn_param {
            private_data: private_data.as_ptr().cast(),
            private_data_len: private_data.len().min(u8::MAX.into()) as u8,
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            // A queue pair with a shared receive queue cannot have end-to-end credits.
            flow_control: 0,
            retry_count: self.retry_count,
            rnr_retry_count: PEER_RNR_RETRY_COUNT,
            srq: self.has_shared_receives.into(),
            qp_num: self.qp_num,
        }
    }
}

/// Returns the context field of an identifier, which contains its tag.
///
/// # Safety
/// `raw` is live.
unsafe fn tag_of<'a>(raw: *mut sys::rdma_cm_id) -> &'a AtomicPtr<c_void> {
    // SAFETY: the caller guarantees that `raw` is live. Only this function accesses the context
    // field.
    unsafe { AtomicPtr::from_ptr(&raw mut (*raw).context) }
}

fn tag_pointer(tag: u64) -> *mut c_void {
    ptr::without_provenance_mut(tag as usize)
}

/// # Safety
/// `conn` belongs to an event that is not yet acknowledged.
unsafe fn private_data(conn: &sys::rdma_conn_param) -> PrivateData {
    if conn.private_data.is_null() {
        return PrivateData::new(&[]);
    }
    // SAFETY: the event contains the stated number of bytes.
    PrivateData::new(unsafe {
        std::slice::from_raw_parts(conn.private_data.cast(), conn.private_data_len.into())
    })
}

fn check(call: &'static str, result: c_int) -> Result<(), FabricError> {
    outcome(result).map_err(|error| explain::os(call, error))
}

fn outcome(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(crate) fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: fcntl changes only flags of the descriptor.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        if flags < 0 || libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
