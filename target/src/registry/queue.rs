//! State of a connected queue visible outside its reactor.

use std::net::SocketAddr;

use cairn_rdma::PKey;
use nvme_auth::Authenticated;

use crate::marking::Shown;
use crate::metrics::QueueCounters;

#[derive(Debug)]
pub(crate) struct QueueShared {
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) reactor: usize,
    pub(crate) device: String,
    pub(crate) provider: &'static str,
    pub(crate) pkey: PKey,
    /// Number of submission queue entries, 1-based.
    pub(crate) entries: u16,
    pub(crate) marked: Shown,
    /// `None` if the Connect required no authentication.
    pub(crate) authenticated: Option<Authenticated>,
    pub(crate) counters: QueueCounters,
}
