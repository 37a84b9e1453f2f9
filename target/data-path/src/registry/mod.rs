//! Subsystems, controllers, queues, and reactor mailboxes, for Connects and admin commands.

mod arming;
mod authenticator;
mod backlog;
mod controller;
mod counters;
mod failures;
mod mailbox;
mod places;
mod queue;
mod refused;
mod settling;
mod subsystem;
mod view;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use nvme_proto::controller::Completion;
use nvme_proto::wire::Nqn;
use nvme_proto::wire::feature::WriteProtectionState;

pub(crate) use arming::Arming;
pub use authenticator::{Authenticator, Computed, HostKeys, Step};
pub use controller::ControllerShared;
pub(crate) use counters::IoCounters;
pub use mailbox::{Admitted, Inbox, Load, Mailbox, Message, QueueAddress};
pub use places::{ConnectPlace, DISPLACED, Evicted, Full, PlaceId, Places};
pub use queue::QueueShared;
pub use refused::{RefusedFor, RefusedHost, RefusedHosts};
pub use settling::{Scope, Settling};
pub use subsystem::SubsystemShared;
pub(crate) use subsystem::{Entry, Joined, KEEP_ALIVE_EXPIRED, Origin};
pub use view::{Activity, ControllerView};

use crate::namespace::{Namespace, NamespaceTable};
use crate::order::DiskOrders;

#[derive(Debug)]
pub enum ControlMessage {
    TimersChanged,
    /// Make completed writes durable, then report to the subsystem.
    FlushAll {
        subsystem: u32,
        cntlid: u16,
        namespaces: Arc<NamespaceTable>,
    },
    Flushed {
        namespaces: Arc<NamespaceTable>,
        intact: bool,
    },
    /// Write protection changed: store it, and report to the subsystem once earlier writes are
    /// durable.
    Protect {
        subsystem: u32,
        namespace: Arc<Namespace>,
        state: WriteProtectionState,
        was_protected: bool,
        change: u64,
    },
    WriteThrough(WriteThrough),
    Reservation {
        subsystem: u32,
        namespace: Arc<Namespace>,
        step: ReservationStep,
    },
    Settled {
        id: u64,
    },
    AuditChanged,
    DiskChanged,
    DeviceRemoved {
        device: u64,
    },
    /// A reactor has closed its last queue pair after [`Message::Drain`].
    Drained,
}

#[derive(Debug)]
pub enum ReservationStep {
    /// Store the change, enforce it, and report its end to the subsystem.
    Begun,
    Stored(bool),
    /// Execute Set Features of Reservation Persistence.
    Persist {
        controller: Arc<ControllerShared>,
        change: u64,
        persistent: bool,
    },
}

/// Disables the volatile write cache. Writes that complete later are durable; the command completes
/// once earlier writes are durable.
#[derive(Debug)]
pub struct WriteThrough {
    pub subsystem: u32,
    pub controller: Arc<ControllerShared>,
    pub(crate) change: u64,
    pub(crate) completion: Completion,
}

#[derive(Debug, Default)]
pub struct Registry {
    /// Poisoning is harmless: each change is one insertion or removal.
    subsystems: RwLock<BTreeMap<Nqn, Arc<SubsystemShared>>>,
    discovery_nqn: OnceLock<Nqn>,
    orders: Arc<DiskOrders>,
    refused: RefusedHosts,
}

impl Registry {
    pub fn orders(&self) -> &Arc<DiskOrders> {
        &self.orders
    }

    pub fn refused(&self) -> &RefusedHosts {
        &self.refused
    }

    pub(crate) fn find(&self, nqn: &Nqn) -> Option<Arc<SubsystemShared>> {
        let discovery = Nqn::discovery();
        let is_discovery = self.discovery_nqn.get() == Some(nqn);
        let nqn = if is_discovery { &discovery } else { nqn };
        let subsystems = self
            .subsystems
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        subsystems.get(nqn).cloned()
    }

    pub fn all(&self) -> Vec<Arc<SubsystemShared>> {
        let mut all = Vec::new();
        self.append_to(&mut all);
        all
    }

    pub fn append_to(&self, all: &mut Vec<Arc<SubsystemShared>>) {
        let subsystems = self
            .subsystems
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        all.extend(subsystems.values().cloned());
    }

    pub fn add_discovery(&self, nqn: Nqn, subsystem: Arc<SubsystemShared>) {
        self.discovery_nqn.get_or_init(|| nqn);
        self.add(Nqn::discovery(), subsystem);
    }

    pub fn add(&self, nqn: Nqn, subsystem: Arc<SubsystemShared>) {
        let mut subsystems = self
            .subsystems
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        subsystems.insert(nqn, subsystem);
    }

    pub fn remove(&self, nqn: &Nqn) -> Option<Arc<SubsystemShared>> {
        let mut subsystems = self
            .subsystems
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        subsystems.remove(nqn)
    }
}
