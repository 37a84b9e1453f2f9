//! Who is there: subsystems, their controllers and queues, and the mailboxes by
//! which threads reach them. For connects and the admin path; no I/O comes here.

mod arming;
mod authenticator;
mod backlog;
mod controller;
mod counters;
mod failures;
mod mailbox;
mod places;
mod queue;
mod settling;
mod subsystem;
mod view;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use nvme_proto::controller::Completion;
use nvme_proto::wire::Nqn;
use nvme_proto::wire::feature::WriteProtectionState;

pub(crate) use arming::Arming;
pub(crate) use authenticator::{Authenticator, Computed, HostKeys, Step};
pub(crate) use controller::ControllerShared;
pub(crate) use counters::IoCounters;
pub(crate) use mailbox::{Admitted, Inbox, Load, Mailbox, Message, QueueAddress};
pub(crate) use places::{DISPLACED, Evicted, Full, Place, PlaceId, Places};
pub(crate) use queue::QueueShared;
pub(crate) use settling::{Scope, Settling};
pub(crate) use subsystem::{Entry, Joined, KEEP_ALIVE_EXPIRED, Origin, SubsystemShared};
pub(crate) use view::{Activity, ControllerView};

use crate::namespace::{Namespace, NamespaceTable};
use crate::order::DiskOrders;

/// A message to the control plane.
#[derive(Debug)]
pub(crate) enum ControlMessage {
    /// A keep alive deadline is earlier than all that were known, or was found to have
    /// passed.
    TimersChanged,
    /// Make all that was written durable, then report it to the subsystem.
    FlushAll {
        /// The subsystem.
        subsystem: u32,
        /// The controller that waits for it.
        cntlid: u16,
        /// What to flush.
        namespaces: Arc<NamespaceTable>,
    },
    /// A flush has ended.
    Flushed {
        /// What was flushed.
        namespaces: Arc<NamespaceTable>,
        /// Whether all of it is durable.
        intact: bool,
    },
    /// A host has a namespace refuse writes, or accept them again: report it to the subsystem,
    /// once what was written before is durable and the change is kept.
    Protect {
        /// The subsystem.
        subsystem: u32,
        /// The namespace, which does so already.
        namespace: Arc<Namespace>,
        /// What its protection is to be.
        state: WriteProtectionState,
        /// Whether it refused writes before.
        was_protected: bool,
        /// Which change it is.
        change: u64,
    },
    /// A host has switched its write cache off.
    WriteThrough(WriteThrough),
    /// No reactor has commands from before the change of this number.
    Settled { id: u64 },
    /// The audit log takes lines no more, or again.
    AuditChanged,
    /// A disk says by itself that it is not what it was.
    DiskChanged,
    /// A device is gone, and the memory that it knew must be forgotten.
    DeviceRemoved {
        /// The device's id.
        device: u64,
    },
    /// A reactor has closed its last queue pair, as a message required.
    Drained,
}

/// A command that switches the write cache of a controller off. Writes of the controller are durable before they
/// complete from now on, and the command completes once those that completed before are durable, too.
#[derive(Debug)]
pub(crate) struct WriteThrough {
    /// The subsystem.
    pub(crate) subsystem: u32,
    /// The controller.
    pub(crate) controller: Arc<ControllerShared>,
    /// Number of the change among those of the controller's write cache.
    pub(crate) change: u64,
    /// Completion of the command, if all is durable.
    pub(crate) completion: Completion,
}

/// The subsystems that hosts can connect to.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// A panic leaves it whole: a change is one insertion or removal.
    subsystems: RwLock<BTreeMap<Nqn, Arc<SubsystemShared>>>,
    /// The name that the discovery subsystem has beside the well-known one, by which it is found.
    discovery_nqn: OnceLock<Nqn>,
    orders: Arc<DiskOrders>,
}

impl Registry {
    /// Where the disks of all subsystems have the order of their changes.
    pub(crate) fn orders(&self) -> &Arc<DiskOrders> {
        &self.orders
    }

    /// The subsystem of that name.
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

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<SubsystemShared>> {
        let mut all = Vec::new();
        self.append_to(&mut all);
        all
    }

    /// The same, for a caller who keeps the memory for them.
    pub(crate) fn append_to(&self, all: &mut Vec<Arc<SubsystemShared>>) {
        let subsystems = self
            .subsystems
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        all.extend(subsystems.values().cloned());
    }

    /// Lets hosts connect to the discovery subsystem, by the well-known name and by this one.
    pub(crate) fn add_discovery(&self, nqn: Nqn, subsystem: Arc<SubsystemShared>) {
        self.discovery_nqn.get_or_init(|| nqn);
        self.add(Nqn::discovery(), subsystem);
    }

    /// Lets hosts connect to a subsystem.
    pub(crate) fn add(&self, nqn: Nqn, subsystem: Arc<SubsystemShared>) {
        let mut subsystems = self
            .subsystems
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        subsystems.insert(nqn, subsystem);
    }

    /// Lets no more hosts connect to a subsystem.
    pub(crate) fn remove(&self, nqn: &Nqn) -> Option<Arc<SubsystemShared>> {
        let mut subsystems = self
            .subsystems
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        subsystems.remove(nqn)
    }
}
