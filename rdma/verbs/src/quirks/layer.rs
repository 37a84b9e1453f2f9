//! Layer between Cairn and libibverbs that gives a real device the quirks of another.
//!
//! Why `unsafe` here: the functions have C's signatures, and pass their arguments to libibverbs.
//! The profile applies to the whole process.

use std::collections::HashSet;
use std::ffi::c_int;
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::library::{Library, LibraryError};
use crate::sys::{self, Symbols};

use super::{BROADCOM, Quirks, SharedReceives};

type PollCq = unsafe extern "C" fn(*mut sys::ibv_cq, c_int, *mut sys::ibv_wc) -> c_int;

struct Layer {
    quirks: Quirks,
    real: Symbols,
    poll_cq: OnceLock<PollCq>,
    failed: Mutex<HashSet<usize>>,
}

static LAYER: OnceLock<Layer> = OnceLock::new();

fn layer() -> &'static Layer {
    LAYER
        .get()
        .expect("the layer is open before its functions are known")
}

impl Layer {
    fn failed(&self) -> MutexGuard<'_, HashSet<usize>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn library(quirks: Quirks) -> Result<&'static Library, LibraryError> {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    let mut symbols = Library::load()?;
    let real = Library::load()?;
    LAYER.get_or_init(|| Layer {
        quirks,
        real,
        poll_cq: OnceLock::new(),
        failed: Mutex::default(),
    });
    symbols.ibv_open_device = open_device;
    symbols.ibv_query_device = query_device;
    symbols.ibv_create_srq = create_srq;
    symbols.ibv_create_qp = create_qp;
    symbols.ibv_modify_qp = modify_qp;
    symbols.ibv_destroy_qp = destroy_qp;
    symbols.ibv_get_async_event = get_async_event;
    Ok(LIBRARY.get_or_init(|| Library::with(symbols)))
}

fn refused<T>(errno: c_int) -> *mut T {
    // SAFETY: errno is thread-local.
    unsafe { *libc::__errno_location() = errno };
    ptr::null_mut()
}

unsafe extern "C" fn open_device(device: *mut sys::ibv_device) -> *mut sys::ibv_context {
    let layer = layer();
    // SAFETY: the caller guarantees the argument.
    let context = unsafe { layer.real.ibv_open_device(device) };
    if !context.is_null() && layer.quirks.swallows_receives {
        // SAFETY: the context is open, and nothing uses its table yet.
        let ops = unsafe { &mut (*context).ops };
        if let Some(poll) = ops.poll_cq.replace(poll_cq) {
            layer.poll_cq.get_or_init(|| poll);
        }
    }
    context
}

unsafe extern "C" fn query_device(
    context: *mut sys::ibv_context,
    attributes: *mut sys::ibv_device_attr,
) -> c_int {
    let Layer { quirks, real, .. } = layer();
    // SAFETY: the caller guarantees the arguments.
    let (code, found) = unsafe { (real.ibv_query_device(context, attributes), &mut *attributes) };
    if code == 0 {
        found.max_sge = found.max_sge.min(quirks.max_sge);
        if quirks.shared_receives == SharedReceives::Absent {
            (found.max_srq, found.max_srq_wr) = (0, 0);
        }
        if !quirks.send_with_invalidate {
            found.device_cap_flags &= !sys::IBV_DEVICE_MEM_MGT_EXTENSIONS;
        }
        if quirks.swallows_receives {
            found.vendor_id = BROADCOM;
        }
    }
    code
}

unsafe extern "C" fn create_srq(
    pd: *mut sys::ibv_pd,
    attributes: *mut sys::ibv_srq_init_attr,
) -> *mut sys::ibv_srq {
    let Layer { quirks, real, .. } = layer();
    if quirks.shared_receives != SharedReceives::Present {
        return refused(libc::EOPNOTSUPP);
    }
    // SAFETY: the caller guarantees the arguments.
    unsafe { real.ibv_create_srq(pd, attributes) }
}

unsafe extern "C" fn create_qp(
    pd: *mut sys::ibv_pd,
    attributes: *mut sys::ibv_qp_init_attr,
) -> *mut sys::ibv_qp {
    let Layer { quirks, real, .. } = layer();
    std::thread::sleep(quirks.control_verb);
    // SAFETY: the caller guarantees the arguments.
    unsafe {
        if (*attributes).cap.max_inline_data > quirks.max_inline {
            return refused(libc::EINVAL);
        }
        real.ibv_create_qp(pd, attributes)
    }
}

unsafe extern "C" fn modify_qp(
    qp: *mut sys::ibv_qp,
    attributes: *mut sys::ibv_qp_attr,
    mask: c_int,
) -> c_int {
    let layer = layer();
    std::thread::sleep(layer.quirks.control_verb);
    // SAFETY: the caller guarantees the arguments.
    unsafe {
        if (*attributes).qp_state == sys::IBV_QPS_ERR {
            layer.failed().insert(qp.addr());
        }
        layer.real.ibv_modify_qp(qp, attributes, mask)
    }
}

unsafe extern "C" fn destroy_qp(qp: *mut sys::ibv_qp) -> c_int {
    let layer = layer();
    std::thread::sleep(layer.quirks.control_verb);
    // SAFETY: the caller guarantees the argument.
    let code = unsafe { layer.real.ibv_destroy_qp(qp) };
    layer.failed().remove(&qp.addr());
    code
}

unsafe extern "C" fn get_async_event(
    context: *mut sys::ibv_context,
    event: *mut sys::ibv_async_event,
) -> c_int {
    let layer = layer();
    // SAFETY: the caller guarantees the arguments, and the event type determines the union member.
    unsafe {
        let code = layer.real.ibv_get_async_event(context, event);
        if code == 0
            && layer.quirks.no_last_wqe
            && (*event).event_type == sys::IBV_EVENT_QP_LAST_WQE_REACHED
            && !layer.failed().contains(&(*event).element.qp.addr())
        {
            (*event).event_type = sys::IBV_EVENT_QP_FATAL;
        }
        code
    }
}

unsafe extern "C" fn poll_cq(cq: *mut sys::ibv_cq, room: c_int, out: *mut sys::ibv_wc) -> c_int {
    const RECEIVE: u64 = 1 << 63;
    let poll = layer().poll_cq.get().expect("the device is open");
    let mut kept = 0;
    while kept < room {
        // SAFETY: the array has `room` entries, of which `kept` are in use.
        let (asked, found) = unsafe {
            let asked = room - kept;
            (asked, poll(cq, asked, out.add(kept as usize)))
        };
        if found < 0 {
            return found;
        }
        // SAFETY: `poll` wrote `found` entries, starting at entry `kept`.
        let new = unsafe { std::slice::from_raw_parts_mut(out.add(kept as usize), found as usize) };
        let mut end = 0;
        for index in 0..new.len() {
            let wc = new[index];
            if wc.status != sys::IBV_WC_WR_FLUSH_ERR || wc.wr_id & RECEIVE == 0 {
                new[end] = wc;
                end += 1;
            }
        }
        kept += end as c_int;
        if found < asked {
            break;
        }
    }
    kept
}
