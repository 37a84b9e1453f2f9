//! Test double of libibverbs and librdmacm: one device in memory, with faults on request.
//!
//! Why `unsafe` here: the functions have C's signatures, and receive pointers to objects that they
//! created.
//!
//! Like libibverbs, `destroy_qp` waits until events of the queue pair are acknowledged. Like siw,
//! the device reuses the smallest free queue pair number. Like any device, it may write to a
//! receive until completion or until the queue pair is destroyed; [`State::reused`] counts receives
//! posted again too early.

mod device;

use std::collections::VecDeque;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::{LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::library::Library;
use crate::quirks::{BROADCOM, Quirks, SharedReceives};
use crate::sys::{self, Symbols};

pub(crate) use device::{Pair, State};

const WORDS: usize = size_of::<Symbols>() / size_of::<fn()>();

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

pub(crate) fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct Fake {
    _turn: MutexGuard<'static, ()>,
}

impl Fake {
    pub(crate) fn new(quirks: Quirks) -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        *state() = State {
            context: context(),
            quirks: Some(quirks),
            ..State::default()
        };
        Self { _turn: turn }
    }

    pub(crate) fn library(&self) -> &'static Library {
        static LIBRARY: OnceLock<Library> = OnceLock::new();
        LIBRARY.get_or_init(|| Library::with(symbols()))
    }

    pub(crate) fn set_transport(&self, transport: sys::ibv_transport_type) {
        // SAFETY: the context and its device live until the device is closed.
        unsafe {
            (*(*(state().context as *mut sys::ibv_context)).device).transport_type = transport;
        };
    }

    pub(crate) fn report(&self, kind: sys::ibv_event_type, object: usize) {
        state().raise(kind, object);
        wait_acknowledged(object);
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let state = state();
        if !state.is_opened {
            // SAFETY: nothing uses the context, because no device was opened with it.
            unsafe { close_device(state.context as *mut sys::ibv_context) };
        }
    }
}

static ONE: u64 = 1;

fn wait_acknowledged(object: usize) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while state().unacknowledged.contains(&object) {
        assert!(Instant::now() < deadline, "an event is not acknowledged");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn zeroed<T>() -> Box<T> {
    // SAFETY: the C structures of this module are valid as zero bytes.
    unsafe { Box::new(std::mem::zeroed()) }
}

fn eventfd() -> c_int {
    // SAFETY: the call has no pointers.
    unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) }
}

fn failed(errno: c_int) -> c_int {
    // SAFETY: errno is thread-local.
    unsafe { *libc::__errno_location() = errno };
    -1
}

fn context() -> usize {
    let mut device = zeroed::<sys::ibv_device>();
    device.name[..4].copy_from_slice(&b"fake".map(|byte| byte as std::ffi::c_char));
    let mut context = zeroed::<sys::ibv_context>();
    context.device = Box::into_raw(device);
    context.async_fd = eventfd();
    context.num_comp_vectors = 1;
    context.ops.poll_cq = Some(poll_cq);
    context.ops.req_notify_cq = Some(req_notify_cq);
    context.ops.post_send = Some(post_send);
    context.ops.post_srq_recv = Some(post_srq_recv);
    context.ops.post_recv = Some(post_recv);
    Box::into_raw(context) as usize
}

unsafe extern "C" fn missing() {
    std::process::abort();
}

fn symbols() -> Symbols {
    let words: [unsafe extern "C" fn(); WORDS] = [missing; WORDS];
    // SAFETY: each word of the table is a function pointer, or the handle of a library that is
    // never used or dropped.
    let mut symbols: Symbols = unsafe { std::mem::transmute(words) };
    symbols.ibv_open_device = open_device;
    symbols.ibv_close_device = close_device;
    symbols.ibv_query_device = query_device;
    symbols.ibv_get_async_event = get_async_event;
    symbols.ibv_ack_async_event = ack_async_event;
    symbols.ibv_alloc_pd = alloc_pd;
    symbols.ibv_dealloc_pd = free;
    symbols.ibv_reg_mr = reg_mr;
    symbols.ibv_dereg_mr = free;
    symbols.ibv_create_comp_channel = create_comp_channel;
    symbols.ibv_destroy_comp_channel = destroy_comp_channel;
    symbols.ibv_create_cq = create_cq;
    symbols.ibv_destroy_cq = free;
    symbols.ibv_get_cq_event = get_cq_event;
    symbols.ibv_ack_cq_events = ack_cq_events;
    symbols.ibv_create_srq = create_srq;
    symbols.ibv_destroy_srq = free;
    symbols.ibv_create_qp = create_qp;
    symbols.ibv_modify_qp = modify_qp;
    symbols.ibv_destroy_qp = destroy_qp;
    symbols.rdma_create_event_channel = create_event_channel;
    symbols.rdma_destroy_event_channel = destroy_event_channel;
    symbols.rdma_create_id = create_id;
    symbols.rdma_destroy_id = free;
    symbols.rdma_bind_addr = bind_addr;
    symbols.rdma_migrate_id = migrate_id;
    symbols.rdma_init_qp_attr = init_qp_attr;
    symbols.rdma_accept = accept;
    symbols.rdma_disconnect = disconnect;
    symbols.rdma_reject = reject;
    symbols.rdma_get_cm_event = get_cm_event;
    symbols
}

unsafe extern "C" fn free<T>(object: *mut T) -> c_int {
    // SAFETY: the object is a box of this module, and Cairn destroys it once.
    drop(unsafe { Box::from_raw(object) });
    0
}

unsafe extern "C" fn reg_mr(
    _: *mut sys::ibv_pd,
    _: *mut c_void,
    _: usize,
    access: c_int,
) -> *mut sys::ibv_mr {
    state().registered.push(access.cast_unsigned());
    Box::into_raw(zeroed())
}

unsafe extern "C" fn open_device(_: *mut sys::ibv_device) -> *mut sys::ibv_context {
    let mut state = state();
    state.is_opened = true;
    state.context as *mut sys::ibv_context
}

unsafe extern "C" fn close_device(context: *mut sys::ibv_context) -> c_int {
    // SAFETY: Cairn closes the device once, after all of its objects.
    unsafe {
        libc::close((*context).async_fd);
        free((*context).device);
        free(context)
    }
}

unsafe extern "C" fn query_device(
    _: *mut sys::ibv_context,
    attributes: *mut sys::ibv_device_attr,
) -> c_int {
    let mut known = zeroed::<sys::ibv_device_attr>();
    let quirks = state().quirks();
    known.max_sge = quirks.max_sge;
    known.max_srq = match quirks.shared_receives {
        SharedReceives::Absent => 0,
        _ => 16,
    };
    if quirks.swallows_receives {
        known.vendor_id = BROADCOM;
    }
    if quirks.send_with_invalidate {
        known.device_cap_flags = sys::IBV_DEVICE_MEM_MGT_EXTENSIONS;
    }
    known.max_qp_wr = 64;
    known.max_srq_wr = 64;
    known.max_cqe = 256;
    known.max_qp = 16;
    // SAFETY: the caller has space for the result.
    unsafe { attributes.write(*known) };
    0
}

unsafe extern "C" fn get_async_event(
    context: *mut sys::ibv_context,
    event: *mut sys::ibv_async_event,
) -> c_int {
    // The lock is held during the read, so that no event is raised meanwhile.
    let mut state = state();
    let Some((kind, object)) = state.events.pop_front() else {
        let mut count = 0u64;
        // SAFETY: eight bytes are read from an eventfd.
        unsafe { libc::read((*context).async_fd, (&raw mut count).cast(), 8) };
        return failed(libc::EAGAIN);
    };
    // SAFETY: the caller has space for the result.
    unsafe {
        (*event).event_type = kind;
        (*event).element.qp = object as *mut sys::ibv_qp;
    }
    0
}

unsafe extern "C" fn ack_async_event(event: *mut sys::ibv_async_event) {
    // SAFETY: the event came from `get_async_event`.
    let object = unsafe { (*event).element.qp } as usize;
    state().unacknowledged.retain(|waiting| *waiting != object);
}

unsafe extern "C" fn alloc_pd(context: *mut sys::ibv_context) -> *mut sys::ibv_pd {
    let mut pd = zeroed::<sys::ibv_pd>();
    pd.context = context;
    Box::into_raw(pd)
}

unsafe extern "C" fn create_comp_channel(
    context: *mut sys::ibv_context,
) -> *mut sys::ibv_comp_channel {
    let mut channel = zeroed::<sys::ibv_comp_channel>();
    channel.context = context;
    channel.fd = eventfd();
    Box::into_raw(channel)
}

unsafe extern "C" fn destroy_comp_channel(channel: *mut sys::ibv_comp_channel) -> c_int {
    // SAFETY: see `free`.
    unsafe {
        libc::close((*channel).fd);
        free(channel)
    }
}

unsafe extern "C" fn create_cq(
    context: *mut sys::ibv_context,
    _: c_int,
    cq_context: *mut c_void,
    _: *mut sys::ibv_comp_channel,
    _: c_int,
) -> *mut sys::ibv_cq {
    let mut cq = zeroed::<sys::ibv_cq>();
    (cq.context, cq.cq_context) = (context, cq_context);
    let cq = Box::into_raw(cq);
    state().queue = cq as usize;
    cq
}

unsafe extern "C" fn get_cq_event(
    _: *mut sys::ibv_comp_channel,
    _: *mut *mut sys::ibv_cq,
    _: *mut *mut c_void,
) -> c_int {
    failed(libc::EAGAIN)
}

unsafe extern "C" fn ack_cq_events(_: *mut sys::ibv_cq, _: c_uint) {}

unsafe extern "C" fn create_srq(
    pd: *mut sys::ibv_pd,
    attributes: *mut sys::ibv_srq_init_attr,
) -> *mut sys::ibv_srq {
    if state().quirks().shared_receives == SharedReceives::Unimplemented {
        failed(libc::EOPNOTSUPP);
        return ptr::null_mut();
    }
    let mut srq = zeroed::<sys::ibv_srq>();
    // SAFETY: both pointers are valid in the call.
    (srq.context, srq.srq_context) = unsafe { ((*pd).context, (*attributes).srq_context) };
    let srq = Box::into_raw(srq);
    state().receives = srq as usize;
    srq
}

unsafe extern "C" fn create_qp(
    pd: *mut sys::ibv_pd,
    attributes: *mut sys::ibv_qp_init_attr,
) -> *mut sys::ibv_qp {
    let mut qp = zeroed::<sys::ibv_qp>();
    // SAFETY: both pointers are valid in the call.
    let attributes = unsafe {
        qp.context = (*pd).context;
        &*attributes
    };
    qp.qp_context = attributes.qp_context;
    let mut state = state();
    std::thread::sleep(state.quirks().control_verb);
    if attributes.cap.max_inline_data > state.quirks().max_inline {
        failed(libc::EINVAL);
        return ptr::null_mut();
    }
    let used = |number: &u32| state.pairs.iter().any(|pair| pair.number == *number);
    qp.qp_num = (1..).find(|number| !used(number)).expect("few queue pairs");
    let number = qp.qp_num;
    let raw = Box::into_raw(qp);
    state.pairs.push(Pair {
        raw: raw as usize,
        number,
        is_shared: !attributes.srq.is_null(),
        has_failed: false,
        receives: VecDeque::new(),
        held: Vec::new(),
        sends: VecDeque::new(),
    });
    state.pair = raw as usize;
    raw
}

unsafe extern "C" fn modify_qp(
    qp: *mut sys::ibv_qp,
    attributes: *mut sys::ibv_qp_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: the attributes are valid in the call.
    let attributes = unsafe { &*attributes };
    let to_error = attributes.qp_state == sys::IBV_QPS_ERR;
    let mut state = state();
    if mask.cast_unsigned() & sys::IBV_QP_TIMEOUT != 0 {
        state.ack_timeouts.push(attributes.timeout);
    }
    std::thread::sleep(state.quirks().control_verb);
    if to_error && state.keeps_running {
        return libc::EIO;
    }
    if to_error {
        state.fail(qp as usize, sys::IBV_WC_WR_FLUSH_ERR);
    }
    0
}

unsafe extern "C" fn destroy_qp(qp: *mut sys::ibv_qp) -> c_int {
    wait_acknowledged(qp as usize);
    let mut state = state();
    state.destroyed += 1;
    state.pairs.retain(|pair| pair.raw != qp as usize);
    // SAFETY: see `free`.
    unsafe { free(qp) }
}

unsafe extern "C" fn create_event_channel() -> *mut sys::rdma_event_channel {
    Box::into_raw(Box::new(sys::rdma_event_channel { fd: eventfd() }))
}

unsafe extern "C" fn destroy_event_channel(channel: *mut sys::rdma_event_channel) {
    // SAFETY: see `free`.
    unsafe {
        libc::close((*channel).fd);
        free(channel);
    }
}

unsafe extern "C" fn create_id(
    channel: *mut sys::rdma_event_channel,
    id: *mut *mut sys::rdma_cm_id,
    context: *mut c_void,
    _: sys::rdma_port_space,
) -> c_int {
    let mut made = zeroed::<sys::rdma_cm_id>();
    (made.channel, made.context) = (channel, context);
    made.verbs = state().context as *mut sys::ibv_context;
    // SAFETY: the caller has space for the result.
    unsafe { id.write(Box::into_raw(made)) };
    0
}

unsafe extern "C" fn bind_addr(_: *mut sys::rdma_cm_id, _: *mut sys::sockaddr) -> c_int {
    0
}

unsafe extern "C" fn migrate_id(_: *mut sys::rdma_cm_id, _: *mut sys::rdma_event_channel) -> c_int {
    0
}

unsafe extern "C" fn init_qp_attr(
    _: *mut sys::rdma_cm_id,
    _: *mut sys::ibv_qp_attr,
    _: *mut c_int,
) -> c_int {
    0
}

unsafe extern "C" fn accept(_: *mut sys::rdma_cm_id, _: *mut sys::rdma_conn_param) -> c_int {
    0
}

unsafe extern "C" fn disconnect(_: *mut sys::rdma_cm_id) -> c_int {
    0
}

unsafe extern "C" fn reject(_: *mut sys::rdma_cm_id, _: *const c_void, _: u8) -> c_int {
    0
}

unsafe extern "C" fn get_cm_event(
    _: *mut sys::rdma_event_channel,
    _: *mut *mut sys::rdma_cm_event,
) -> c_int {
    failed(libc::EAGAIN)
}

unsafe extern "C" fn poll_cq(_: *mut sys::ibv_cq, room: c_int, out: *mut sys::ibv_wc) -> c_int {
    let mut state = state();
    if state.poll_fails {
        return -1;
    }
    let count = state.completions.len().min(room as usize);
    for (at, wc) in state.completions.drain(..count).enumerate() {
        // SAFETY: the caller has space for `room` completions.
        unsafe { out.add(at).write(wc) };
    }
    count as c_int
}

unsafe extern "C" fn req_notify_cq(_: *mut sys::ibv_cq, _: c_int) -> c_int {
    0
}

unsafe extern "C" fn post_send(
    qp: *mut sys::ibv_qp,
    wr: *mut sys::ibv_send_wr,
    bad: *mut *mut sys::ibv_send_wr,
) -> c_int {
    let mut state = state();
    if state.send_error != 0 {
        let refused = if state.unnamed { ptr::null_mut() } else { wr };
        // SAFETY: `bad` is valid in the call.
        unsafe { bad.write(refused) };
        return state.send_error;
    }
    let mut next = wr;
    while !next.is_null() {
        // SAFETY: the chain is valid in the call.
        let wr = unsafe { &*next };
        let inline = wr.send_flags & sys::IBV_SEND_INLINE != 0;
        state.opcodes.push((wr.opcode, inline));
        let drains = state.drains;
        let Some(pair) = state.at(qp as usize) else {
            break;
        };
        let number = pair.number;
        match drains && pair.has_failed {
            true => state.complete(wr.wr_id, sys::IBV_WC_WR_FLUSH_ERR, number),
            false => pair.sends.push_back(wr.wr_id),
        }
        next = wr.next;
    }
    0
}

unsafe extern "C" fn post_srq_recv(
    _: *mut sys::ibv_srq,
    wr: *mut sys::ibv_recv_wr,
    bad: *mut *mut sys::ibv_recv_wr,
) -> c_int {
    // SAFETY: `bad` is valid in the call.
    unsafe { post_receives(None, wr, bad) }
}

unsafe extern "C" fn post_recv(
    qp: *mut sys::ibv_qp,
    wr: *mut sys::ibv_recv_wr,
    bad: *mut *mut sys::ibv_recv_wr,
) -> c_int {
    // SAFETY: `bad` is valid in the call.
    unsafe { post_receives(Some(qp as usize), wr, bad) }
}

/// # Safety
/// `bad` has space for a pointer.
unsafe fn post_receives(
    pair: Option<usize>,
    wr: *mut sys::ibv_recv_wr,
    bad: *mut *mut sys::ibv_recv_wr,
) -> c_int {
    let mut state = state();
    if state.receive_error != 0 {
        // SAFETY: the caller guarantees the space.
        unsafe { bad.write(wr) };
        return state.receive_error;
    }
    state.queue_receives(pair, wr);
    0
}
