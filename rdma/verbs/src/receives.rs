//! Receives posted by the owner of an endpoint.
//!
//! Receives complete in any order. Work requests are stored, to be posted again if their queue pair
//! is destroyed.

use cairn_rdma::RecvWork;

pub(crate) struct ReceiveSlots {
    works: Box<[Option<RecvWork>]>,
    free: Vec<u32>,
}

impl ReceiveSlots {
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            works: vec![None; limit as usize].into(),
            free: (0..limit).rev().collect(),
        }
    }

    pub(crate) fn limit(&self) -> u32 {
        self.works.len() as u32
    }

    pub(crate) fn room(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn insert(&mut self, work: &RecvWork) -> u32 {
        let slot = self.free.pop().expect("the caller asked for room");
        self.works[slot as usize] = Some(*work);
        slot
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&RecvWork> {
        self.works.get(slot as usize)?.as_ref()
    }

    pub(crate) fn take(&mut self, slot: u32) -> Option<RecvWork> {
        let work = self.works.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(work)
    }
}

#[cfg(test)]
mod tests {
    use cairn_rdma::SgeList;

    use super::*;

    #[test]
    fn receives_come_back_in_any_order_and_once() {
        let mut slots = ReceiveSlots::new(2);
        let work = |id| RecvWork {
            id,
            sges: SgeList::EMPTY,
        };
        let (one, two) = (slots.insert(&work(1)), slots.insert(&work(2)));
        assert_eq!(slots.room(), 0);
        assert_eq!(slots.take(two).unwrap().id, 2);
        assert!(slots.take(two).is_none());
        assert!(slots.take(77).is_none());
        assert_eq!(slots.take(one).unwrap().id, 1);
        assert_eq!(slots.room(), 2);
    }
}
