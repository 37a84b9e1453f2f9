use std::net::SocketAddr;

use cairn_rdma::PKey;
use nvme_auth::Authenticated;

use crate::marking::Shown;
use crate::metrics::QueueCounters;

#[derive(Debug)]
pub struct QueueShared {
    pub peer: SocketAddr,
    pub local: SocketAddr,
    pub reactor: usize,
    pub device: String,
    pub provider: &'static str,
    pub pkey: PKey,
    /// Submission queue entries: SQSIZE + 1.
    pub entries: u16,
    pub marked: Shown,
    /// `None` if the Connect required no authentication.
    pub authenticated: Option<Authenticated>,
    pub counters: QueueCounters,
}
