//! A connected queue, as others than its reactor see it.

use std::net::SocketAddr;

use cairn_rdma::PKey;
use nvme_auth::Authenticated;

use crate::marking::Shown;
use crate::metrics::QueueCounters;

/// What is known of a connected queue pair, and what it counts.
#[derive(Debug)]
pub(crate) struct QueueShared {
    /// The host's end.
    pub(crate) peer: SocketAddr,
    /// Our end.
    pub(crate) local: SocketAddr,
    /// The reactor it lives on.
    pub(crate) reactor: usize,
    /// The device it is on.
    pub(crate) device: String,
    /// What speaks RDMA there.
    pub(crate) provider: &'static str,
    /// Its membership in a partition.
    pub(crate) pkey: PKey,
    /// Entries of the submission queue, 1-based.
    pub(crate) entries: u16,
    /// What its packets carry.
    pub(crate) marked: Shown,
    /// How its host authenticated at its Connect, if it had to.
    pub(crate) authenticated: Option<Authenticated>,
    /// What it counts.
    pub(crate) counters: QueueCounters,
}
