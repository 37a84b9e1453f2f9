//! Address ranges covered by the local keys of a device.
//!
//! For an inline SEND, the CPU copies bytes without checking keys, so endpoints check inline work
//! against this table.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cairn_base::Mapping;
use cairn_rdma::SgeList;

type Entry = (u32, Arc<Mapping>);

#[derive(Default)]
pub(crate) struct RegionTable {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    version: AtomicU64,
    regions: Mutex<Vec<Entry>>,
}

impl Shared {
    fn change(&self, change: impl FnOnce(&mut Vec<Entry>)) {
        change(&mut self.lock());
        self.version.fetch_add(1, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RegionTable {
    pub(crate) fn list(&self, lkey: u32, mapping: &Arc<Mapping>) -> Listed {
        self.shared
            .change(|regions| regions.push((lkey, Arc::clone(mapping))));
        Listed {
            shared: Arc::clone(&self.shared),
            lkey,
        }
    }

    pub(crate) fn view(&self) -> RegionView {
        RegionView {
            shared: Arc::clone(&self.shared),
            version: 0,
            regions: Vec::new(),
        }
    }
}

pub(crate) struct Listed {
    shared: Arc<Shared>,
    lkey: u32,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.shared
            .change(|regions| regions.retain(|(lkey, _)| *lkey != self.lkey));
    }
}

pub(crate) struct RegionView {
    shared: Arc<Shared>,
    version: u64,
    regions: Vec<Entry>,
}

impl RegionView {
    pub(crate) fn covers(&mut self, sges: &SgeList) -> bool {
        let version = self.shared.version.load(Ordering::Acquire);
        if version != self.version {
            self.regions.clone_from(&self.shared.lock());
            self.version = version;
        }
        sges.as_slice().iter().all(|sge| {
            self.regions.iter().any(|(lkey, mapping)| {
                *lkey == sge.lkey && mapping.contains(sge.addr, sge.length.into())
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use cairn_rdma::Sge;

    use super::*;

    #[test]
    fn a_view_follows_the_table() {
        let table = RegionTable::default();
        let mut view = table.view();
        let mapping = Arc::new(Mapping::anonymous(4096).unwrap());
        let sges = |addr, length, lkey| SgeList::one(Sge { addr, length, lkey });
        let inside = sges(mapping.addr(), 16, 5);
        assert!(!view.covers(&inside));
        let listed = table.list(5, &mapping);
        assert!(view.covers(&inside));
        assert!(!view.covers(&sges(mapping.addr(), 16, 6)), "another key");
        let length = mapping.len() as u32;
        assert!(
            !view.covers(&sges(mapping.addr() + 1, length, 5)),
            "past the end"
        );
        assert!(!view.covers(&sges(0, 16, 5)), "elsewhere");
        drop(listed);
        assert!(!view.covers(&inside));
    }
}
