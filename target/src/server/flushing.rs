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
use crate::registry::{ControlMessage, SubsystemShared};

/// A flush that is under way.
pub(super) struct Flushing {
    subsystem: Arc<SubsystemShared>,
    table: Arc<NamespaceTable>,
    /// The CNTLIDs of those who wait for it.
    waiting: BTreeSet<u16>,
    /// Of those who wait for the next one.
    next: BTreeSet<u16>,
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
        let mut under_way = self.flushing.iter_mut();
        if let Some(flushing) = under_way.find(|flushing| Arc::ptr_eq(&flushing.table, &table)) {
            flushing.next.insert(cntlid);
            return;
        }
        self.begin_flush(&subsystem, &table);
        self.flushing.push(Flushing {
            subsystem,
            table,
            waiting: BTreeSet::from([cntlid]),
            next: BTreeSet::new(),
        });
    }

    /// A host has a namespace refuse writes, or accept them again: what was written before becomes
    /// durable, and the change is kept.
    pub(super) fn protect(&self, subsystem: Arc<SubsystemShared>, wish: Protection) {
        let Protection {
            namespace,
            state,
            was_protected,
            change,
        } = wish;
        let is_protected = state != WriteProtectionState::NONE;
        if let Some(line) = Line::about(Topic::Disk) {
            let (subsystem, nsid) = (subsystem.nqn(), namespace.nsid);
            peer_line!(
                info,
                line,
                subsystem,
                nsid,
                is_protected,
                "a host changed the write protection of a namespace"
            );
        }
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
        // A controller that asks anew has the CNTLID of one that is gone.
        for &cntlid in flushing.waiting.difference(&flushing.next) {
            flushing.subsystem.flushed(cntlid, intact);
        }
        if flushing.next.is_empty() {
            return;
        }
        flushing.waiting = std::mem::take(&mut flushing.next);
        self.begin_flush(&flushing.subsystem, &flushing.table);
        self.flushing.push(flushing);
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
