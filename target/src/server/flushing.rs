//! Flushes requested by hosts: at shutdown, for write-through, and for write protection.
//!
//! A hung disk blocks its flush and a thread, and hosts can repeat requests. A subsystem therefore
//! runs one flush at a time, and later requests share the next flush. After a reload, flushes of
//! new namespaces do not wait for former namespaces.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use cairn_base::log::{LogLine, Topic};
use cairn_base::{Clock, peer_line};
use nvme_proto::wire::feature::WriteProtectionState;
use tokio::sync::mpsc::UnboundedSender;

use super::jobs::Jobs;
use super::settling::Waits;
use crate::panics::Part;
use cairn_data_path::namespace::{Namespace, NamespaceTable};
use cairn_data_path::registry::{ControlMessage, Mailbox, Scope, SubsystemShared, WriteThrough};

pub(super) struct Flushes {
    under_way: Vec<UnderWay>,
    waits: Waits<Self>,
    pub(super) jobs: Arc<Jobs>,
    pub(super) control: UnboundedSender<ControlMessage>,
}

struct UnderWay {
    subsystem: Arc<SubsystemShared>,
    table: Arc<NamespaceTable>,
    waiting: Waiters,
    next: Waiters,
}

#[derive(Default)]
struct Waiters {
    shut_down: BTreeSet<u16>,
    waits: Vec<u64>,
}

impl Waiters {
    fn is_empty(&self) -> bool {
        self.shut_down.is_empty() && self.waits.is_empty()
    }
}

pub(super) struct Protection {
    pub(super) namespace: Arc<Namespace>,
    pub(super) state: WriteProtectionState,
    pub(super) was_protected: bool,
    pub(super) change: u64,
}

impl Flushes {
    pub(super) fn new(
        clock: &Clock,
        reactors: &Arc<[Mailbox]>,
        jobs: Arc<Jobs>,
        control: UnboundedSender<ControlMessage>,
    ) -> Self {
        Self {
            under_way: Vec::new(),
            waits: Waits::new(clock.clone(), Arc::clone(reactors), control.clone()),
            jobs,
            control,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.waits.next_deadline()
    }

    pub(super) fn settle(
        &mut self,
        scope: Scope,
        then: impl FnOnce(&mut Self, bool) + Send + 'static,
    ) {
        self.waits.settle(scope, then);
    }

    pub(super) fn settled(&mut self, id: u64, well: bool) {
        if let Some(then) = self.waits.end(id) {
            then(self, well);
        }
    }

    pub(super) fn give_up_settling(&mut self) {
        for then in self.waits.late() {
            then(self, false);
        }
    }

    pub(super) fn flush_for(
        &mut self,
        cntlid: u16,
        subsystem: Arc<SubsystemShared>,
        table: Arc<NamespaceTable>,
    ) {
        let waiters = self.waiters_of(subsystem, table);
        waiters.shut_down.insert(cntlid);
    }

    /// Returns the waiters for the next flush of these namespaces. Starts that flush unless another
    /// flush is in progress.
    fn waiters_of(
        &mut self,
        subsystem: Arc<SubsystemShared>,
        table: Arc<NamespaceTable>,
    ) -> &mut Waiters {
        let mut under_way = self.under_way.iter();
        let at = under_way.position(|flush| Arc::ptr_eq(&flush.table, &table));
        if let Some(at) = at {
            return &mut self.under_way[at].next;
        }
        self.begin_flush(&subsystem, &table);
        self.under_way.push(UnderWay {
            subsystem,
            table,
            waiting: Waiters::default(),
            next: Waiters::default(),
        });
        let last = self.under_way.len() - 1;
        &mut self.under_way[last].waiting
    }

    /// Flushes all namespaces after the host's earlier writes, and completes the host's command to
    /// disable the write cache. The command fails after a timeout or a failed flush, although
    /// later writes are durable.
    pub(super) fn write_through(&mut self, subsystem: Arc<SubsystemShared>, wish: WriteThrough) {
        let scope = Scope::Controller(Arc::clone(&wish.controller));
        self.waits.settle(scope, move |flushes, settled| {
            if !settled {
                return subsystem.write_through_done(&wish, false);
            }
            let (table, of) = (subsystem.namespaces(), Arc::clone(&subsystem));
            let done = move |_: &mut Self, intact| of.write_through_done(&wish, intact);
            let id = flushes.waits.begin(done);
            for flush in &mut flushes.under_way {
                flush.next.waits.retain(|id| flushes.waits.has(*id));
            }
            flushes.waiters_of(subsystem, table).waits.push(id);
        });
    }

    pub(super) fn protect(&mut self, subsystem: Arc<SubsystemShared>, wish: Protection) {
        let is_protected = wish.state != WriteProtectionState::NONE;
        if let Some(line) = LogLine::about(Topic::Disk) {
            let (subsystem, nsid) = (subsystem.nqn(), wish.namespace.nsid);
            peer_line!(
                info,
                line,
                subsystem,
                nsid,
                is_protected,
                "a host changed the write protection of a namespace"
            );
        }
        if !is_protected || wish.was_protected {
            return self.keep_protection(subsystem, wish);
        }
        let scope = Scope::Namespaces(vec![wish.namespace.id]);
        self.waits.settle(scope, move |flushes, settled| {
            if settled {
                return flushes.keep_protection(subsystem, wish);
            }
            if let Some(line) = LogLine::about(Topic::Disk) {
                let (subsystem, nsid) = (subsystem.nqn(), wish.namespace.nsid);
                peer_line!(
                    warn,
                    line,
                    subsystem,
                    nsid,
                    "writes from before the protection are still in progress: the namespace is \
                     not protected; look for a disk that hangs"
                );
            }
            wish.namespace.set_protected(false);
            subsystem.protection_done(wish.namespace.nsid, wish.change, false);
        });
    }

    /// All writes begun before the change must have ended.
    fn keep_protection(&self, subsystem: Arc<SubsystemShared>, wish: Protection) {
        let Protection {
            namespace,
            state,
            was_protected,
            change,
        } = wish;
        let is_protected = state != WriteProtectionState::NONE;
        if !is_protected && namespace.protection_file.is_none() {
            subsystem.protection_done(namespace.nsid, change, true);
            return;
        }
        let panics = Arc::clone(self.jobs.panics());
        self.jobs.run(Box::new(move || {
            let keep = || {
                let flushed = !is_protected || was_protected || flush(&subsystem, &namespace);
                flushed && keep(&namespace, state)
            };
            let intact = panics.confine(Part::Flush, keep).unwrap_or(false);
            if !intact {
                namespace.set_protected(was_protected);
            }
            subsystem.protection_done(namespace.nsid, change, intact);
        }));
    }

    fn begin_flush(&self, subsystem: &Arc<SubsystemShared>, table: &Arc<NamespaceTable>) {
        let (subsystem, namespaces) = (Arc::clone(subsystem), Arc::clone(table));
        let control = self.control.clone();
        let panics = Arc::clone(self.jobs.panics());
        self.jobs.run(Box::new(move || {
            let flush = || {
                let intact = namespaces.flush();
                if !intact {
                    subsystem.show_losses();
                }
                intact
            };
            let intact = panics.confine(Part::Flush, flush).unwrap_or(false);
            let _ = control.send(ControlMessage::Flushed { namespaces, intact });
        }));
    }

    pub(super) fn flush_ended(&mut self, table: &Arc<NamespaceTable>, intact: bool) {
        let mut under_way = self.under_way.iter();
        let at = under_way.position(|flush| Arc::ptr_eq(&flush.table, table));
        let mut flush = self.under_way.swap_remove(at.expect("it was under way"));
        let ended = std::mem::take(&mut flush.waiting);
        // Skips a CNTLID that also waits for the next flush, because a new controller reuses the
        // CNTLID.
        for &cntlid in ended.shut_down.difference(&flush.next.shut_down) {
            flush.subsystem.flushed(cntlid, intact);
        }
        if !flush.next.is_empty() {
            flush.waiting = std::mem::take(&mut flush.next);
            self.begin_flush(&flush.subsystem, &flush.table);
            self.under_way.push(flush);
        }
        for id in ended.waits {
            self.settled(id, intact);
        }
    }
}

fn flush(subsystem: &SubsystemShared, namespace: &Namespace) -> bool {
    let Err(error) = namespace.backend.flush() else {
        return true;
    };
    if let Some(line) = LogLine::about(Topic::Disk) {
        let nsid = namespace.nsid;
        peer_line!(error, line, nsid, %error,
            "flush failed: the namespace is not protected from writes"
        );
    }
    subsystem.show_losses();
    false
}

fn keep(namespace: &Namespace, state: WriteProtectionState) -> bool {
    let Some(stored) = &namespace.protection_file else {
        return true;
    };
    let Err(error) = stored.write(state) else {
        return true;
    };
    // Restores the file, which has the refused state if only the sync of its folder failed.
    let _ = stored.write(namespace.protection());
    if let Some(line) = LogLine::about(Topic::Disk) {
        let (nsid, file) = (namespace.nsid, stored.path().display());
        peer_line!(error, line, nsid, %file, %error,
            "cannot store the write protection of a namespace, which stays unchanged"
        );
    }
    false
}
