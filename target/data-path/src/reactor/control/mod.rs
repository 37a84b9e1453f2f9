//! Link of a reactor to the control plane, and disk commands of panicked reactors.

pub(super) mod census;
pub(super) mod exclusion;
pub(super) mod orphans;
pub(super) mod settling;

use std::sync::Arc;
use std::time::Instant;

use cairn_base::PeerLimit;
use cairn_rdma::Event;
use tokio::sync::mpsc::UnboundedSender;

use super::Sizes;
use crate::audit::Audit;
use crate::ids::QpairId;
use crate::registry::{ControlMessage, Inbox, QueueAddress, Registry};
use census::Census;
use orphans::Orphans;
use settling::Unsettled;

pub(super) struct ControlLink {
    pub(super) index: usize,
    pub(super) sizes: Sizes,
    pub(super) registry: Arc<Registry>,
    pub(super) inbox: Inbox,
    pub(super) inbox_watched: bool,
    pub(super) next_connections: Option<Instant>,
    pub(super) plane: UnboundedSender<ControlMessage>,
    pub(super) audit: Audit,
    pub(super) censuses: Vec<Census>,
    pub(super) unsettled: Vec<Unsettled>,
    pub(super) orphans: Vec<Orphans>,
    pub(super) peer_limit: PeerLimit,
    pub(super) events: Vec<Event>,
    pub(super) stopping: bool,
}

impl ControlLink {
    pub(super) fn new(
        index: usize,
        sizes: Sizes,
        registry: Arc<Registry>,
        inbox: Inbox,
        plane: UnboundedSender<ControlMessage>,
        audit: Audit,
    ) -> Self {
        Self {
            index,
            sizes,
            registry,
            inbox,
            inbox_watched: false,
            next_connections: None,
            plane,
            audit,
            censuses: Vec::new(),
            unsettled: Vec::new(),
            orphans: Vec::new(),
            peer_limit: PeerLimit::default(),
            events: Vec::new(),
            stopping: false,
        }
    }

    pub(super) fn address(&self, qpair: QpairId) -> QueueAddress {
        QueueAddress {
            reactor: self.index,
            qpair,
        }
    }
}
