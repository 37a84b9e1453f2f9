//! The queues of a reactor: its devices, their queue pairs, and the requests of these.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use nvme_proto::controller::Completion as CommandEnd;

use super::lines::Lines;
use super::port::Port;
use crate::ids::QpairId;
use crate::metrics::ReactorCounters;
use crate::qpair::Qpairs;
use crate::request::{List, RequestTable};

/// What a reactor has of its hosts.
pub(super) struct Queues {
    /// By device; `None` where one was removed.
    pub(super) ports: Vec<Option<Port>>,
    pub(super) qpairs: Qpairs,
    pub(super) requests: RequestTable,
    /// Capsules that wait for a request. Not more than the queues have entries.
    pub(super) lines: Lines,
    /// While so many requests are free, every capsule may have one.
    pub(super) plenty: usize,
    /// Requests that only admin queues and Connects may use.
    pub(super) reserve: usize,
    /// Until when capsules wait in their lines, whatever is free.
    pub(super) hold_until: Option<Instant>,
    /// Completions of parked commands that wait for a request. Not more than the
    /// controllers' limit on parked commands.
    pub(super) late: VecDeque<(QpairId, CommandEnd)>,
    /// Connects whose host has older commands at the disks.
    pub(super) awaiting_predecessors: List,
    /// Queue pairs with something in their outbox.
    pub(super) dirty: Vec<QpairId>,
    /// Whether new commands are refused, because the target shuts down.
    pub(super) draining: bool,
    /// What the reactor counts.
    pub(super) counters: Arc<ReactorCounters>,
}
