use cairn_base::slab::Slab;

use super::QueuePair;
use crate::ids::QpairId;

#[derive(Debug)]
pub(crate) struct Qpairs(Slab<QueuePair>);

impl Qpairs {
    pub(crate) fn new() -> Self {
        Self(Slab::growing())
    }

    /// Creates an empty table whose ids never equal those of `other`.
    pub(crate) fn after(other: &Self) -> Self {
        Self(Slab::after(&other.0))
    }

    pub(crate) fn add(&mut self, qpair: QueuePair) -> QpairId {
        self.0.insert(qpair)
    }

    pub(crate) fn remove(&mut self, id: QpairId) -> QueuePair {
        self.0.remove(id).unwrap_or_else(|| is_gone(id))
    }

    #[inline]
    pub(crate) fn get(&self, id: QpairId) -> Option<&QueuePair> {
        self.0.get(id)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = QpairId> + '_ {
        self.0.iter().map(|(id, _)| id)
    }
}

#[cold]
fn is_gone(id: QpairId) -> ! {
    panic!("{id:?} is gone: a queue pair stays until its last request has ended");
}

impl std::ops::Index<QpairId> for Qpairs {
    type Output = QueuePair;

    #[inline]
    fn index(&self, id: QpairId) -> &QueuePair {
        self.0.get(id).unwrap_or_else(|| is_gone(id))
    }
}

impl std::ops::IndexMut<QpairId> for Qpairs {
    #[inline]
    fn index_mut(&mut self, id: QpairId) -> &mut QueuePair {
        self.0.get_mut(id).unwrap_or_else(|| is_gone(id))
    }
}
