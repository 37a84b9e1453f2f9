//! Queue pair state transitions.
//!
//! The connection manager knows the path and the peer, and says what it requires
//! of each transition. Our own choices replace parts of that: the traffic
//! class and hop limit of our packets, their partition, how many RDMA READs may
//! be outstanding, and timeouts and retries.

use cairn_rdma::{FabricError, QpOptions};

use crate::cm::Id;
use crate::objects::QueuePair;
use crate::sys;

/// RDMA READs under way at a time, after both ends and the device were asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Depths {
    /// Ours.
    pub(super) initiator: u8,
    /// The peer's.
    pub(super) responder: u8,
}

/// What a queue pair begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) depths: Depths,
    /// Where its P_Key stands in the port's table. `None`: as rdma_cm sets it.
    pub(super) pkey_index: Option<u16>,
}

/// Takes a fresh queue pair to INIT.
pub(super) fn to_init(pair: &mut QueuePair, cm: &mut Id, start: Start) -> Result<(), FabricError> {
    let (mut attributes, mask) = cm.qp_attributes(sys::IBV_QPS_INIT)?;
    if let Some(index) = start.pkey_index {
        attributes.pkey_index = index;
    }
    // What a peer may really touch, each region says for itself.
    attributes.qp_access_flags = sys::IBV_ACCESS_REMOTE_WRITE;
    if start.depths.responder > 0 {
        attributes.qp_access_flags |= sys::IBV_ACCESS_REMOTE_READ;
    }
    let ours = sys::IBV_QP_ACCESS_FLAGS | sys::IBV_QP_PKEY_INDEX;
    pair.modify(&mut attributes, mask | ours)
}

/// Takes it through RTR to RTS, when the peer is known.
pub(super) fn to_ready(
    pair: &mut QueuePair,
    cm: &mut Id,
    depths: Depths,
    options: &QpOptions,
) -> Result<(), FabricError> {
    let (mut attributes, mask) = cm.qp_attributes(sys::IBV_QPS_RTR)?;
    attributes.max_dest_rd_atomic = depths.responder;
    attributes.min_rnr_timer = options.min_rnr_timer;
    let route = &mut attributes.ah_attr.grh;
    if let Some(class) = options.traffic_class {
        route.traffic_class = class;
    }
    if let Some(limit) = options.hop_limit {
        route.hop_limit = limit;
    }
    let ours = sys::IBV_QP_MAX_DEST_RD_ATOMIC | sys::IBV_QP_MIN_RNR_TIMER;
    pair.modify(&mut attributes, mask | ours)?;

    let (mut attributes, mask) = cm.qp_attributes(sys::IBV_QPS_RTS)?;
    attributes.max_rd_atomic = depths.initiator;
    attributes.retry_cnt = options.retry_count;
    attributes.rnr_retry = options.rnr_retry_count;
    let ours = sys::IBV_QP_MAX_QP_RD_ATOMIC | sys::IBV_QP_RETRY_CNT | sys::IBV_QP_RNR_RETRY;
    pair.modify(&mut attributes, mask | ours)
}
