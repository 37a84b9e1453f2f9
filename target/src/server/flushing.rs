//! Flushes that hosts ask for as they shut down.
//!
//! A disk that hangs keeps a flush, and the thread that waits for it, and a host can ask again
//! and again. So one flush of a subsystem is under way at a time; the next one, which begins
//! after all the others were asked for, ends them all. A flush of the namespaces as they were
//! before a reload keeps none of those after it waiting.

use std::collections::BTreeSet;
use std::sync::Arc;

use cairn_rdma::log::{Line, Topic};
use cairn_rdma::peer_line;
use nvme_proto::wire::feature::WriteProtectionState;

use super::control::Control;
use crate::namespace::{Namespace, NamespaceTable};
use crate::panics::Part;
use crate::registry::{ControlMessage, Scope, SubsystemShared, WriteThrough};

/// A flush that is under way.
pub(super) struct Flushing {
    subsystem: Arc<SubsystemShared>,
    table: Arc<NamespaceTable>,
    waiting: Waiters,
    /// Those who wait for the next flush.
    next: Waiters,
}

/// Those who wait for a flush.
#[derive(Default)]
struct Waiters {
    /// CNTLIDs of controllers that shut down.
    shut_down: BTreeSet<u16>,
    /// Waits of the control plane ([`Control::wait`]).
    waits: Vec<u64>,
}

impl Waiters {
    fn is_empty(&self) -> bool {
        self.shut_down.is_empty() && self.waits.is_empty()
    }
}

/// What a host asks for.
pub(super) struct Protection {
    /// The namespace, which does so already.
    pub(super) namespace: Arc<Namespace>,
    /// What its protection is to be.
    pub(super) state: WriteProtectionState,
    /// Whether it refused writes before.
    pub(super) was_protected: bool,
    /// Which change it is.
    pub(super) change: u64,
}

impl Control {
    /// A controller waits for a flush.
    pub(super) fn flush_for(
        &mut self,
        cntlid: u16,
        subsystem: Arc<SubsystemShared>,
        table: Arc<NamespaceTable>,
    ) {
        let waiters = self.waiters_of(subsystem, table);
        waiters.shut_down.insert(cntlid);
    }

    /// Those who wait for the next flush of these namespaces to begin: now, if none is under way.
    fn waiters_of(
        &mut self,
        subsystem: Arc<SubsystemShared>,
        table: Arc<NamespaceTable>,
    ) -> &mut Waiters {
        let mut under_way = self.flushing.iter();
        let at = under_way.position(|flushing| Arc::ptr_eq(&flushing.table, &table));
        if let Some(at) = at {
            return &mut self.flushing[at].next;
        }
        self.begin_flush(&subsystem, &table);
        self.flushing.push(Flushing {
            subsystem,
            table,
            waiting: Waiters::default(),
            next: Waiters::default(),
        });
        let last = self.flushing.len() - 1;
        &mut self.flushing[last].waiting
    }

    /// A host has switched its write cache off. Its writes that are under way end, then all namespaces are flushed. If a
    /// disk keeps that from happening in time, the command fails, and later writes are durable all the same.
    pub(super) fn write_through(&mut self, wish: WriteThrough) {
        let Some(subsystem) = self.subsystem(wish.subsystem) else {
            return;
        };
        let scope = Scope::Controller(Arc::clone(&wish.controller));
        self.settle(scope, move |control, settled| {
            if !settled {
                return subsystem.write_through_done(&wish, false);
            }
            let (table, of) = (subsystem.namespaces(), Arc::clone(&subsystem));
            let id = control.wait(move |_, intact| of.write_through_done(&wish, intact));
            let (unsettled, waits) = (&control.unsettled, &mut control.flushing);
            for flushing in waits {
                flushing.next.waits.retain(|id| unsettled.has(*id));
            }
            control.waiters_of(subsystem, table).waits.push(id);
        });
    }

    /// A host has a namespace refuse writes, or accept them again: what was written before becomes
    /// durable, and the change is kept.
    pub(super) fn protect(&mut self, subsystem: Arc<SubsystemShared>, wish: Protection) {
        let is_protected = wish.state != WriteProtectionState::NONE;
        if let Some(line) = Line::about(Topic::Disk) {
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
        self.settle(scope, move |control, settled| {
            if settled {
                return control.keep_protection(subsystem, wish);
            }
            if let Some(line) = Line::about(Topic::Disk) {
                let (subsystem, nsid) = (subsystem.nqn(), wish.namespace.nsid);
                peer_line!(
                    warn,
                    line,
                    subsystem,
                    nsid,
                    "a disk still has writes from before its namespace was to be protected: it \
                     is not protected; look for a disk that hangs"
                );
            }
            wish.namespace.set_protected(false);
            subsystem.protection_done(wish.namespace.nsid, wish.change, false);
        });
    }

    /// The disk has no writes from before the change.
    fn keep_protection(&self, subsystem: Arc<SubsystemShared>, wish: Protection) {
        let Protection {
            namespace,
            state,
            was_protected,
            change,
        } = wish;
        let is_protected = state != WriteProtectionState::NONE;
        if !is_protected && namespace.kept.is_none() {
            subsystem.protection_done(namespace.nsid, change, true);
            return;
        }
        let panics = Arc::clone(&self.panics);
        // Blocks as long as the disk takes: on a thread for blocking work.
        self.reactors.run(Box::new(move || {
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
        let control = self.messages_out.clone();
        // Blocks as long as the disks take: on a thread for blocking work.
        let panics = Arc::clone(&self.panics);
        self.reactors.run(Box::new(move || {
            let flush = || {
                let intact = namespaces.flush();
                if !intact {
                    subsystem.show_losses();
                }
                intact
            };
            let intact = panics.confine(Part::Flush, flush).unwrap_or(false);
            // A control plane that has ended owes no host an answer.
            let _ = control.send(ControlMessage::Flushed { namespaces, intact });
        }));
    }

    /// A flush has ended: those who waited for it are answered, and the next one begins.
    pub(super) fn flush_ended(&mut self, table: &Arc<NamespaceTable>, intact: bool) {
        let mut under_way = self.flushing.iter();
        let at = under_way.position(|flushing| Arc::ptr_eq(&flushing.table, table));
        let mut flushing = self.flushing.swap_remove(at.expect("it was under way"));
        let ended = std::mem::take(&mut flushing.waiting);
        // A controller that asks anew has the CNTLID of one that is gone.
        for &cntlid in ended.shut_down.difference(&flushing.next.shut_down) {
            flushing.subsystem.flushed(cntlid, intact);
        }
        if !flushing.next.is_empty() {
            flushing.waiting = std::mem::take(&mut flushing.next);
            self.begin_flush(&flushing.subsystem, &flushing.table);
            self.flushing.push(flushing);
        }
        for id in ended.waits {
            self.settled(id, intact);
        }
    }
}

/// Makes durable what was written; whether it is.
fn flush(subsystem: &SubsystemShared, namespace: &Namespace) -> bool {
    let Err(error) = namespace.backend.flush() else {
        return true;
    };
    if let Some(line) = Line::about(Topic::Disk) {
        let nsid = namespace.nsid;
        peer_line!(error, line, nsid, %error,
            "flush failed: the namespace is not protected from writes"
        );
    }
    subsystem.show_losses();
    false
}

/// Keeps a protection where it has a file; whether it is kept.
fn keep(namespace: &Namespace, state: WriteProtectionState) -> bool {
    let Some(kept) = &namespace.kept else {
        return true;
    };
    let Err(error) = kept.write(state) else {
        return true;
    };
    if let Some(line) = Line::about(Topic::Disk) {
        let (nsid, file) = (namespace.nsid, kept.path().display());
        peer_line!(error, line, nsid, %file, %error,
            "cannot keep the write protection of a namespace: it stays as it was"
        );
    }
    false
}
