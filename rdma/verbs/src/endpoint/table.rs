use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use cairn_base::slab::{Reuse, Slab};
use cairn_rdma::QpId;

use crate::number_hash::NumberHasher;
use crate::objects::Serial;

use super::qp::{Pair, Qp};

pub(super) struct QpTable {
    slab: Slab<Qp, u16>,
    /// Slots by queue pair number. Receive completions contain only the number.
    numbers: HashMap<u32, u16, BuildHasherDefault<NumberHasher>>,
}

impl QpTable {
    pub(super) fn new(limit: u16) -> Self {
        Self {
            slab: Slab::with_limit(limit.into(), Reuse::Latest),
            numbers: HashMap::with_capacity_and_hasher(limit.into(), BuildHasherDefault::default()),
        }
    }

    pub(super) fn limit(&self) -> usize {
        self.slab.slots()
    }

    pub(super) fn vacant(&self) -> Option<QpId> {
        self.slab.vacant().map(QpId::from)
    }

    pub(super) fn insert(&mut self, id: QpId, qp: Qp) {
        let key = self.slab.insert(qp);
        assert_eq!(QpId::from(key), id, "the slot was vacant just now");
        self.number(id);
    }

    pub(super) fn number(&mut self, id: QpId) {
        if let Some(pair) = self.get(id).and_then(|qp| qp.pair.as_ref()) {
            self.numbers.insert(pair.queue().number(), id.slot() as u16);
        }
    }

    /// Removes the pair from its entry. The entry stays until completions of the pair's work are
    /// polled.
    pub(super) fn take_pair(&mut self, id: QpId) -> Option<Pair> {
        let pair = self.get_mut(id)?.pair.take()?;
        self.numbers.remove(&pair.queue().number());
        Some(pair)
    }

    pub(super) fn remove(&mut self, id: QpId) -> Option<Qp> {
        drop(self.take_pair(id));
        self.slab.remove(id.into())
    }

    pub(super) fn get(&self, id: QpId) -> Option<&Qp> {
        self.slab.get(id.into())
    }

    pub(super) fn get_mut(&mut self, id: QpId) -> Option<&mut Qp> {
        self.slab.get_mut(id.into())
    }

    pub(super) fn at(&self, slot: u16) -> Option<QpId> {
        let (key, _) = self.slab.at(slot.into())?;
        Some(key.into())
    }

    pub(super) fn by_number(&self, number: u32) -> Option<QpId> {
        self.at(*self.numbers.get(&number)?)
    }

    /// The serial excludes earlier queue pairs with this number.
    pub(super) fn by_name(&self, number: u32, serial: Serial) -> Option<QpId> {
        let id = self.by_number(number)?;
        let pair = self.get(id)?.pair.as_ref()?;
        (pair.queue().serial() == serial).then_some(id)
    }
}
