//! Test double of libibverbs and librdmacm: one device in memory, with faults on request.
//!
//! Why `unsafe` here: the functions have C's signatures, and receive pointers to objects that they
//! created. A function without a double aborts the test. Like libibverbs, `destroy_qp` waits until
//! events of the queue pair are acknowledged; like siw, the device reuses the smallest free number
//! of a queue pair.

use std::collections::VecDeque;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::{LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::library::Library;
use crate::sys::{self, Symbols};

const WORDS: usize = size_of::<Symbols>() / size_of::<fn()>();

#[derive(Default)]
pub(crate) struct State {
    /// `ibv_modify_qp` to the error state fails.
    pub(crate) keeps_running: bool,
    /// Error number returned by `post_send`, which names no refused request if `unnamed`.
    pub(crate) send_error: c_int,
    pub(crate) unnamed: bool,
    /// Error number returned by `post_srq_recv`.
    pub(crate) receive_error: c_int,
    pub(crate) poll_fails: bool,
    pub(crate) destroyed: u32,
    numbers: Vec<u32>,
    completions: VecDeque<sys::ibv_wc>,
    events: VecDeque<(sys::ibv_event_type, usize)>,
    unacknowledged: Vec<usize>,
    /// Addresses of the objects that events may name.
    pub(crate) pair: usize,
    pub(crate) queue: usize,
    pub(crate) receives: usize,
    context: usize,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

pub(crate) fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The device of one test; tests of one process take turns.
pub(crate) struct Fake {
    _turn: MutexGuard<'static, ()>,
}

impl Fake {
    pub(crate) fn new() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        *state() = State {
            context: context(),
            ..State::default()
        };
        Self { _turn: turn }
    }

    pub(crate) fn library(&self) -> &'static Library {
        static LIBRARY: OnceLock<Library> = OnceLock::new();
        LIBRARY.get_or_init(|| Library::with(symbols()))
    }

    /// Reports an event of the object at this address, and waits until the watcher has acknowledged
    /// it.
    pub(crate) fn report(&self, kind: sys::ibv_event_type, object: usize) {
        let fd = {
            let mut state = state();
            state.events.push_back((kind, object));
            state.unacknowledged.push(object);
            // SAFETY: the context lives until the device is closed.
            unsafe { (*(state.context as *mut sys::ibv_context)).async_fd }
        };
        // SAFETY: eight bytes are written to an eventfd.
        unsafe { libc::write(fd, (&raw const ONE).cast(), 8) };
        wait_acknowledged(object);
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
    // SAFETY: the location is this thread's.
    unsafe { *libc::__errno_location() = errno };
    -1
}

fn context() -> usize {
    let mut device = zeroed::<sys::ibv_device>();
    device.name[..4].copy_from_slice(&b"fake".map(|byte| byte.cast_signed()));
    let mut context = zeroed::<sys::ibv_context>();
    context.device = Box::into_raw(device);
    context.async_fd = eventfd();
    context.num_comp_vectors = 1;
    context.ops.poll_cq = Some(poll_cq);
    context.ops.req_notify_cq = Some(req_notify_cq);
    context.ops.post_send = Some(post_send);
    context.ops.post_srq_recv = Some(post_srq_recv);
    Box::into_raw(context) as usize
}

unsafe extern "C" fn missing() {
    std::process::abort();
}

fn symbols() -> Symbols {
    let words: [unsafe extern "C" fn(); WORDS] = [missing; WORDS];
    // SAFETY: each word of the table is a function pointer, or the handle of a library that is never used or dropped.
    let mut symbols: Symbols = unsafe { std::mem::transmute(words) };
    symbols.ibv_open_device = open_device;
    symbols.ibv_close_device = close_device;
    symbols.ibv_query_device = query_device;
    symbols.ibv_get_async_event = get_async_event;
    symbols.ibv_ack_async_event = ack_async_event;
    symbols.ibv_alloc_pd = alloc_pd;
    symbols.ibv_dealloc_pd = free;
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
    symbols.rdma_get_cm_event = get_cm_event;
    symbols
}

unsafe extern "C" fn free<T>(object: *mut T) -> c_int {
    // SAFETY: the object is a box of this module, and Cairn destroys it once.
    drop(unsafe { Box::from_raw(object) });
    0
}

unsafe extern "C" fn open_device(_: *mut sys::ibv_device) -> *mut sys::ibv_context {
    state().context as *mut sys::ibv_context
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
    known.max_sge = 16;
    known.max_srq = 16;
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
    let Some((kind, object)) = state().events.pop_front() else {
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
    // SAFETY: the event is one of `get_async_event`.
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
    (qp.context, qp.qp_context) = unsafe { ((*pd).context, (*attributes).qp_context) };
    let mut state = state();
    let free = (1..).find(|number| !state.numbers.contains(number));
    qp.qp_num = free.expect("few queue pairs");
    state.numbers.push(qp.qp_num);
    let qp = Box::into_raw(qp);
    state.pair = qp as usize;
    qp
}

unsafe extern "C" fn modify_qp(
    _: *mut sys::ibv_qp,
    attributes: *mut sys::ibv_qp_attr,
    _: c_int,
) -> c_int {
    // SAFETY: the attributes are valid in the call.
    let to_error = unsafe { (*attributes).qp_state } == sys::IBV_QPS_ERR;
    match to_error && state().keeps_running {
        true => libc::EIO,
        false => 0,
    }
}

unsafe extern "C" fn destroy_qp(qp: *mut sys::ibv_qp) -> c_int {
    wait_acknowledged(qp as usize);
    let mut state = state();
    state.destroyed += 1;
    // SAFETY: Cairn destroys the queue pair once.
    state
        .numbers
        .retain(|number| *number != unsafe { (*qp).qp_num });
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
    _: *mut sys::ibv_qp,
    wr: *mut sys::ibv_send_wr,
    bad: *mut *mut sys::ibv_send_wr,
) -> c_int {
    let state = state();
    let refused = if state.unnamed { ptr::null_mut() } else { wr };
    // SAFETY: the place for the refused request is valid in the call.
    unsafe { bad.write(refused) };
    state.send_error
}

unsafe extern "C" fn post_srq_recv(
    _: *mut sys::ibv_srq,
    wr: *mut sys::ibv_recv_wr,
    bad: *mut *mut sys::ibv_recv_wr,
) -> c_int {
    // SAFETY: the place for the refused request is valid in the call.
    unsafe { bad.write(wr) };
    state().receive_error
}
