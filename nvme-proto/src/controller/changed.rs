//! The namespaces that log page 04h names.

use alloc::collections::BTreeSet;

use crate::limits::CHANGED_NAMESPACES_MAX;
use crate::wire::NSID_ALL;

/// Namespaces that changed since the host last read of them.
#[derive(Debug, Default)]
pub(super) struct ChangedNamespaces {
    nsids: BTreeSet<u32>,
    /// More than the page can name: the host looks at all of them.
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

    /// The page's entries (Base, 5.16.1.5): one of all ones stands for too many.
    pub(super) fn entries(&self) -> impl Iterator<Item = u32> {
        let too_many = self.too_many.then_some(NSID_ALL);
        too_many.into_iter().chain(self.nsids.iter().copied())
    }
}
