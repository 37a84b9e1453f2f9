//! State transitions of queue pairs.
//!
//! rdma_cm supplies the attributes of each transition. This module overrides traffic class, hop
//! limit, partition, remote access, outstanding READs, timeouts and retries.

use cairn_rdma::{FabricError, QpOptions};

use crate::cm::Id;
use crate::objects::QueuePair;
use crate::sys;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Depths {
    pub(super) initiator: u8,
    pub(super) responder: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) depths: Depths,
    pub(super) pkey_index: Option<u16>,
}

pub(super) fn to_init(pair: &mut QueuePair, cm: &mut Id, start: Start) -> Result<(), FabricError> {
    let (mut attributes, mask) = cm.qp_attributes(sys::IBV_QPS_INIT)?;
    if let Some(index) = start.pkey_index {
        attributes.pkey_index = index;
    }
    // The queue pair permits remote access; each region can restrict it.
    attributes.qp_access_flags = sys::IBV_ACCESS_REMOTE_WRITE;
    if start.depths.responder > 0 {
        attributes.qp_access_flags |= sys::IBV_ACCESS_REMOTE_READ;
    }
    let ours = sys::IBV_QP_ACCESS_FLAGS | sys::IBV_QP_PKEY_INDEX;
    pair.modify(&mut attributes, mask | ours)
}

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
    let mut ours = sys::IBV_QP_MAX_QP_RD_ATOMIC | sys::IBV_QP_RETRY_CNT | sys::IBV_QP_RNR_RETRY;
    if let Some(timeout) = options.ack_timeout {
        attributes.timeout = timeout.exponent();
        ours |= sys::IBV_QP_TIMEOUT;
    }
    pair.modify(&mut attributes, mask | ours)
}
