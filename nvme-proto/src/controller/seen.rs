//! Namespaces visible to a controller's host, and events about them. Other namespaces are absent
//! from lists, events and ANA groups; commands to them fail.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::ana::AnaStates;
use crate::namespace::NsidSet;
use crate::wire::aen::AsyncEvent;

use super::{Action, Controller};

impl Controller {
    /// Visible NSIDs.
    #[must_use]
    pub fn seen(&self) -> &NsidSet {
        &self.seen
    }

    pub(crate) fn sees(&self, nsid: u32) -> bool {
        self.seen.contains(nsid)
    }

    pub(crate) fn ana_changed(
        &mut self,
        states: &AnaStates,
        groups: &BTreeMap<u32, Vec<u32>>,
        actions: &mut Vec<Action>,
    ) {
        let seen = &self.seen;
        let shown = |group| {
            let nsids = groups.get(&group);
            nsids.is_some_and(|nsids: &Vec<u32>| nsids.iter().any(|&nsid| seen.contains(nsid)))
        };
        if self.ana.change(states, shown) {
            self.raise(AsyncEvent::NOTICE_ANA_CHANGED, actions);
        }
    }

    pub(crate) fn namespace_changed(&mut self, nsid: u32, actions: &mut Vec<Action>) {
        if self.sees(nsid) {
            self.report_namespace(nsid, actions);
        }
    }

    pub(super) fn report_namespace(&mut self, nsid: u32, actions: &mut Vec<Action>) {
        self.changed_namespaces.add(nsid);
        self.raise(AsyncEvent::NOTICE_NAMESPACE_CHANGED, actions);
    }

    /// Makes a namespace visible or invisible to the host, and reports Namespace Attribute Changed.
    /// A new namespace accepts I/O before the event, and a removed one until after the event.
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

    pub(super) fn show(&mut self, nsid: u32, anagrpid: u32, actions: &mut Vec<Action>) {
        self.seen.set(nsid, true);
        self.ana.note_change(&[anagrpid]);
        let cntlid = self.cntlid;
        actions.push(Action::SetSeen { cntlid });
    }

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
