//! Verbs that rdma-core defines as `static inline` functions, which call through the table in
//! `ibv_context`.

use std::ffi::c_int;

use super::{IBV_WC_WITH_INV, ibv_cq, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_wc};

const MISSING: &str = "libibverbs fills its context's operations table";

/// Moves completions out of `cq` and returns their number; a negative number means a broken CQ.
///
/// # Safety
/// `cq` is a live CQ, and no other thread polls it.
pub(crate) unsafe fn poll_cq(cq: *mut ibv_cq, wcs: &mut [ibv_wc]) -> c_int {
    // SAFETY: the caller guarantees `cq`, and the driver writes at most `wcs.len()` entries.
    unsafe {
        let poll = (*(*cq).context).ops.poll_cq.expect(MISSING);
        poll(
            cq,
            wcs.len().min(c_int::MAX as usize) as c_int,
            wcs.as_mut_ptr(),
        )
    }
}

pub(crate) fn invalidated_rkey(wc: &ibv_wc) -> Option<u32> {
    // SAFETY: both members of the union are plain numbers.
    let rkey = unsafe { wc.__bindgen_anon_1.invalidated_rkey };
    (wc.wc_flags & IBV_WC_WITH_INV != 0).then_some(rkey)
}

/// # Safety
/// `cq` is a live CQ.
pub(crate) unsafe fn req_notify_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: the caller guarantees `cq`.
    unsafe {
        let notify = (*(*cq).context).ops.req_notify_cq.expect(MISSING);
        notify(cq, 0)
    }
}

/// # Safety
/// `qp` is live. `wr` is the head of a chain whose links and SGE arrays are valid for the call. The
/// memory of the SGEs stays registered until the completions.
pub(crate) unsafe fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: &mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller guarantees `qp` and the chain.
    unsafe {
        let post = (*(*qp).context).ops.post_send.expect(MISSING);
        post(qp, wr, bad)
    }
}

/// # Safety
/// As [`post_send`], with `srq` in place of `qp`.
pub(crate) unsafe fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: &mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller guarantees `srq` and the chain.
    unsafe {
        let post = (*(*srq).context).ops.post_srq_recv.expect(MISSING);
        post(srq, wr, bad)
    }
}

/// # Safety
/// As [`post_send`].
pub(crate) unsafe fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: &mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller guarantees `qp` and the chain.
    unsafe {
        let post = (*(*qp).context).ops.post_recv.expect(MISSING);
        post(qp, wr, bad)
    }
}
