//! What connects a reactor with the control plane and with the reactors before it.

use std::sync::Arc;
use std::time::Instant;

use cairn_rdma::{Event, PeerLimit};
use tokio::sync::mpsc::UnboundedSender;

use super::Sizes;
use super::census::Census;
use super::remains::Remains;
use super::settling::Unsettled;
use crate::audit::Audit;
use crate::ids::QpairId;
use crate::registry::{ControlMessage, Inbox, QueueAddress, Registry};

/// What a reactor has of the control plane.
pub(super) struct Control {
    /// The reactor's number.
    pub(super) index: usize,
    pub(super) sizes: Sizes,
    pub(super) registry: Arc<Registry>,
    pub(super) inbox: Inbox,
    /// Whether the ring watches the mailbox.
    pub(super) inbox_watched: bool,
    /// When it takes more connections; at once if not given.
    pub(super) next_connections: Option<Instant>,
    /// Where its own messages go.
    pub(super) plane: UnboundedSender<ControlMessage>,
    /// Who connected, and who was refused.
    pub(super) audit: Audit,
    /// Queues that are to enter their changes, for later associations of their hosts.
    pub(super) censuses: Vec<Census>,
    /// Changes of decisions that wait for older commands.
    pub(super) unsettled: Vec<Unsettled>,
    /// What disks still have of reactors that panicked in its place.
    pub(super) remains: Vec<Remains>,
    pub(super) peer_limit: PeerLimit,
    /// Connection events of the round, kept for their memory.
    pub(super) events: Vec<Event>,
    /// Whether the reactor ends once all its queues are closed.
    pub(super) stopping: bool,
}

impl Control {
    /// That of a reactor that begins.
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
            remains: Vec::new(),
            peer_limit: PeerLimit::default(),
            events: Vec::new(),
            stopping: false,
        }
    }

    /// Where messages for a queue pair go.
    pub(super) fn address(&self, qpair: QpairId) -> QueueAddress {
        QueueAddress {
            reactor: self.index,
            qpair,
        }
    }
}
