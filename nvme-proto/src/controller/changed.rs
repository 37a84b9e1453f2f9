//! NSIDs reported in log page 04h (changed namespaces).

use alloc::collections::BTreeSet;

use crate::limits::CHANGED_NAMESPACES_MAX;
use crate::wire::NSID_ALL;

#[derive(Debug, Default)]
pub(super) struct ChangedNamespaces {
    nsids: BTreeSet<u32>,
    too_many: bool,
}

impl ChangedNamespaces {
    pub(super) fn add(&mut self, nsid: u32) {
        if !self.too_many {
            self.nsids.insert(nsid);
            self.too_many = self.nsids.len() > CHANGED_NAMESPACES_MAX;
        }
        if self.too_many {
            self.nsids.clear();
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Entries of the log page; a single FFFFFFFFh reports too many changes (Base, 5.16.1.5).
    pub(super) fn entries(&self) -> impl Iterator<Item = u32> {
        let too_many = self.too_many.then_some(NSID_ALL);
        too_many.into_iter().chain(self.nsids.iter().copied())
    }
}
