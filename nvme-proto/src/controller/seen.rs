//! Which namespaces the host of a controller sees, and what it receives of their changes.
//!
//! A namespace that a host does not see is inactive to it: in no list, in no event, in no ANA
//! group, and its NSID takes no command.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::ana::AnaStates;
use crate::namespace::NsidSet;
use crate::wire::aen::AsyncEvent;

use super::{Action, Controller};

impl Controller {
    /// The namespaces that the host sees.
    #[must_use]
    pub fn seen(&self) -> &NsidSet {
        &self.seen
    }

    pub(crate) fn sees(&self, nsid: u32) -> bool {
        self.seen.contains(nsid)
    }

    /// The ANA states at its port are these from now on; `groups` has the namespaces of each
    /// group.
    pub(crate) fn ana_changed(
        &mut self,
        states: &AnaStates,
        groups: &BTreeMap<u32, Vec<u32>>,
        actions: &mut Vec<Action>,
    ) {
        let seen = &self.seen;
        // Whether the log shows the group.
        let shown = |group| {
            let nsids = groups.get(&group);
            nsids.is_some_and(|nsids: &Vec<u32>| nsids.iter().any(|&nsid| seen.contains(nsid)))
        };
        if self.ana.change(states, shown) {
            self.raise(AsyncEvent::NOTICE_ANA_CHANGED, actions);
        }
    }

    /// A namespace has other attributes: an event for a host that sees it.
    pub(crate) fn namespace_changed(&mut self, nsid: u32, actions: &mut Vec<Action>) {
        if self.sees(nsid) {
            self.report_namespace(nsid, actions);
        }
    }

    pub(super) fn report_namespace(&mut self, nsid: u32, actions: &mut Vec<Action>) {
        self.changed_namespaces.add(nsid);
        self.raise(AsyncEvent::NOTICE_NAMESPACE_CHANGED, actions);
    }

    /// From now on the host sees a namespace of this ANA group, or does not. Its I/O works
    /// before it receives the event, and fails after it.
    pub(crate) fn set_seen(
        &mut self,
        nsid: u32,
        anagrpid: u32,
        is_seen: bool,
        actions: &mut Vec<Action>,
    ) {
        let is_withheld = self.withheld.iter().any(|one| one.nsid == nsid);
        if is_seen && is_withheld || self.sees(nsid) == is_seen && !is_withheld {
            return;
        }
        if is_seen {
            self.show(nsid, anagrpid, actions);
            self.report_namespace(nsid, actions);
            return;
        }
        self.withheld.retain(|one| one.nsid != nsid);
        self.seen.set(nsid, false);
        self.ana.note_change(&[anagrpid]);
        self.report_namespace(nsid, actions);
        let cntlid = self.cntlid;
        actions.push(Action::SetSeen { cntlid });
    }

    /// From now on the host sees a namespace.
    pub(super) fn show(&mut self, nsid: u32, anagrpid: u32, actions: &mut Vec<Action>) {
        self.seen.set(nsid, true);
        self.ana.note_change(&[anagrpid]);
        let cntlid = self.cntlid;
        actions.push(Action::SetSeen { cntlid });
    }

    /// A namespace is in another ANA group: not a change of its attributes (Base, figure 146).
    pub(crate) fn ana_group_changed(
        &mut self,
        nsid: u32,
        groups: [u32; 2],
        actions: &mut Vec<Action>,
    ) {
        if self.sees(nsid) {
            self.ana.note_change(&groups);
            self.raise(AsyncEvent::NOTICE_ANA_CHANGED, actions);
        }
    }
}
