//! Receives on a device without shared receive queues, where each queue pair has its own queue.
//!
//! The endpoint's owner posts receives, and the endpoint distributes them to its queue pairs. A
//! receive counts toward the quota of its queue pair until the owner posts it again.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use cairn_rdma::QpId;

use crate::number_hash::NumberHasher;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// Posted by the owner, and not yet given to a queue pair.
    Spare,
    Posted(QpId),
    /// The receive is flushed, and becomes spare when its queue pair is destroyed.
    Flushed(QpId),
    /// The owner has the receive, or has never posted it.
    Owner,
}

/// Receive posted to a device. `turn` counts the postings of the slot, because a driver may report
/// an old posting after its queue pair was destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Posting {
    pub(crate) slot: u32,
    pub(crate) turn: u16,
}

impl Posting {
    pub(crate) fn shared(slot: u32) -> Self {
        Self { slot, turn: 0 }
    }
}

#[derive(Debug, Clone, Copy)]
struct Quota {
    qp: QpId,
    limit: u32,
    used: u32,
    posted: u32,
    is_needy: bool,
}

impl Quota {
    fn deficit(&self) -> u32 {
        self.limit.saturating_sub(self.used)
    }
}

pub(crate) struct ReceiveQuotas {
    holders: Box<[Holder]>,
    turns: Box<[u16]>,
    spare: VecDeque<u32>,
    /// Queue pair of each completed receive that the owner has not posted again, by receive id.
    lent: HashMap<u64, QpId, BuildHasherDefault<NumberHasher>>,
    quotas: Box<[Option<Quota>]>,
    needy: VecDeque<QpId>,
    /// Receives needed to fill the quotas of all queue pairs.
    wanted: u32,
}

impl ReceiveQuotas {
    pub(crate) fn new(receives: u32, queue_pairs: u16) -> Self {
        let receives = receives as usize;
        Self {
            holders: vec![Holder::Owner; receives].into(),
            turns: vec![0; receives].into(),
            spare: VecDeque::with_capacity(receives),
            // Twice the maximum, so that the map reuses removed entries without allocating.
            lent: HashMap::with_capacity_and_hasher(2 * receives, BuildHasherDefault::default()),
            quotas: vec![None; queue_pairs.into()].into(),
            needy: VecDeque::with_capacity(queue_pairs.into()),
            wanted: 0,
        }
    }

    pub(crate) fn open(&mut self, qp: QpId, limit: u32) -> u32 {
        self.quotas[qp.slot()] = Some(Quota {
            qp,
            limit,
            used: 0,
            posted: 0,
            is_needy: false,
        });
        self.wanted += limit;
        self.note_need(qp);
        limit.min(self.part())
    }

    /// Returns the number of spare receives that one queue pair may take: all if they fill all
    /// quotas, else an equal part.
    fn part(&self) -> u32 {
        let spare = self.spare.len() as u32;
        match spare < self.wanted {
            true => (spare / self.needy.len().max(1) as u32).max(1),
            false => spare,
        }
    }

    pub(crate) fn add(&mut self, slot: u32, id: u64) {
        self.holders[slot as usize] = Holder::Spare;
        self.spare.push_back(slot);
        if let Some(qp) = self.lent.remove(&id) {
            self.give_back(qp);
        }
    }

    pub(crate) fn next(&mut self) -> Option<(QpId, u32)> {
        let part = self.part();
        while !self.spare.is_empty()
            && let Some(qp) = self.needy.pop_front()
        {
            let Some(quota) = self.quota(qp) else {
                continue;
            };
            quota.is_needy = false;
            let count = quota.deficit().min(part);
            if count > 0 {
                return Some((qp, count));
            }
        }
        None
    }

    pub(crate) fn take(&mut self, qp: QpId) -> Option<Posting> {
        let slot = self.spare.pop_front()?;
        self.holders[slot as usize] = Holder::Posted(qp);
        let quota = self.quota(qp).expect("an open queue pair has a quota");
        (quota.used, quota.posted) = (quota.used + 1, quota.posted + 1);
        self.wanted -= 1;
        let turn = &mut self.turns[slot as usize];
        *turn = turn.wrapping_add(1);
        Some(Posting { slot, turn: *turn })
    }

    pub(crate) fn note_need(&mut self, qp: QpId) {
        if let Some(quota) = self.quota(qp)
            && quota.deficit() > 0
            && !std::mem::replace(&mut quota.is_needy, true)
        {
            self.needy.push_back(qp);
        }
    }

    pub(crate) fn refused(&mut self, slot: u32) {
        if let Holder::Posted(qp) = self.holders[slot as usize] {
            self.holders[slot as usize] = Holder::Spare;
            self.spare.push_front(slot);
            if let Some(quota) = self.quota(qp) {
                quota.posted -= 1;
            }
            self.give_back(qp);
        }
    }

    pub(crate) fn completed(&mut self, posting: Posting, id: u64) -> Option<QpId> {
        let qp = self.leave(posting, |_| Holder::Owner)?;
        // If an owner uses an id twice, only the later receive counts.
        if let Some(older) = self.lent.insert(id, qp) {
            self.give_back(older);
        }
        Some(qp)
    }

    pub(crate) fn flushed(&mut self, posting: Posting) -> Option<QpId> {
        self.leave(posting, Holder::Flushed)
    }

    fn leave(&mut self, posting: Posting, to: impl Fn(QpId) -> Holder) -> Option<QpId> {
        let slot = posting.slot as usize;
        if *self.turns.get(slot)? != posting.turn {
            return None;
        }
        let holder = &mut self.holders[slot];
        let Holder::Posted(qp) = *holder else {
            return None;
        };
        *holder = to(qp);
        self.quota(qp)?.posted -= 1;
        Some(qp)
    }

    pub(crate) fn stop(&mut self, qp: QpId) {
        if let Some(quota) = self.quota(qp) {
            let deficit = quota.deficit();
            quota.limit = 0;
            self.wanted -= deficit;
        }
    }

    /// Posted and flushed receives of the destroyed queue pair become spare, even if the device did
    /// not report them.
    pub(crate) fn close(&mut self, qp: QpId) {
        if self.quota(qp).is_none() {
            return;
        }
        self.stop(qp);
        self.quotas[qp.slot()] = None;
        self.needy.retain(|needy| *needy != qp);
        for (slot, holder) in self.holders.iter_mut().enumerate() {
            if matches!(holder, Holder::Posted(of) | Holder::Flushed(of) if *of == qp) {
                *holder = Holder::Spare;
                self.spare.push_back(slot as u32);
            }
        }
    }

    pub(crate) fn posted(&self, qp: QpId) -> u32 {
        let quota = self.quotas.get(qp.slot()).copied().flatten();
        quota
            .filter(|quota| quota.qp == qp)
            .map_or(0, |quota| quota.posted)
    }

    fn give_back(&mut self, qp: QpId) {
        let Some(quota) = self.quota(qp) else {
            return;
        };
        let before = quota.deficit();
        quota.used -= 1;
        let more = quota.deficit() - before;
        self.wanted += more;
        self.note_need(qp);
    }

    fn quota(&mut self, qp: QpId) -> Option<&mut Quota> {
        let quota = self.quotas.get_mut(qp.slot())?.as_mut()?;
        (quota.qp == qp).then_some(quota)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quotas(receives: u32) -> ReceiveQuotas {
        let mut quotas = ReceiveQuotas::new(receives, 4);
        for slot in 0..receives {
            quotas.add(slot, slot.into());
        }
        quotas
    }

    fn latest(quotas: &ReceiveQuotas, slot: u32) -> Posting {
        let turn = quotas.turns[slot as usize];
        Posting { slot, turn }
    }

    fn completed(quotas: &mut ReceiveQuotas, slot: u32, id: u64) -> Option<QpId> {
        quotas.completed(latest(quotas, slot), id)
    }

    fn flushed(quotas: &mut ReceiveQuotas, slot: u32) -> Option<QpId> {
        quotas.flushed(latest(quotas, slot))
    }

    fn serve(quotas: &mut ReceiveQuotas) -> Vec<(u16, Vec<u32>)> {
        let mut served = Vec::new();
        while let Some((qp, count)) = quotas.next() {
            let slots = (0..count).map(|_| quotas.take(qp).unwrap().slot).collect();
            quotas.note_need(qp);
            served.push((qp.slot() as u16, slots));
        }
        served
    }

    #[test]
    fn receives_kept_by_the_owner_count_for_their_queue_pair() {
        let mut quotas = quotas(4);
        let (one, two) = (QpId::new(0, 0), QpId::new(1, 0));
        quotas.open(one, 2);
        quotas.open(two, 2);
        assert_eq!(serve(&mut quotas), [(0, vec![0, 1]), (1, vec![2, 3])]);
        assert_eq!(completed(&mut quotas, 0, 0), Some(one));
        assert_eq!(completed(&mut quotas, 0, 0), None, "completed once");
        assert_eq!(completed(&mut quotas, 2, 2), Some(two));
        quotas.add(2, 2);
        assert_eq!(serve(&mut quotas), [(1, vec![2])]);
        quotas.add(0, 0);
        assert_eq!(serve(&mut quotas), [(0, vec![0])]);
    }

    #[test]
    fn receives_of_a_closed_queue_pair_are_spare_reported_or_not() {
        let mut quotas = quotas(4);
        let first = QpId::new(0, 0);
        assert_eq!(quotas.open(first, 4), 4);
        serve(&mut quotas);
        assert_eq!(flushed(&mut quotas, 1), Some(first));
        assert_eq!(flushed(&mut quotas, 1), None, "flushed once");
        completed(&mut quotas, 3, 3);
        quotas.stop(first);
        assert_eq!(quotas.posted(first), 2);
        assert!(serve(&mut quotas).is_empty());
        quotas.close(first);
        let second = QpId::new(0, 1);
        quotas.open(second, 4);
        assert_eq!(serve(&mut quotas), [(0, vec![0, 1, 2])]);
        quotas.add(3, 3);
        assert_eq!(serve(&mut quotas), [(0, vec![3])]);
        assert_eq!(quotas.posted(second), 4);
        assert_eq!(quotas.wanted, 0);
    }

    #[test]
    fn scarce_receives_are_divided() {
        let mut quotas = quotas(4);
        for slot in 0..3 {
            quotas.open(QpId::new(slot, 0), 4);
        }
        let served = serve(&mut quotas);
        let of = |slot| {
            let own = served.iter().filter(|(to, _)| *to == slot);
            own.map(|(_, slots)| slots.len()).sum::<usize>()
        };
        assert_eq!([of(0), of(1), of(2)], [2, 1, 1]);
    }

    #[test]
    fn an_id_that_is_used_twice_leaks_nothing() {
        let mut quotas = ReceiveQuotas::new(2, 4);
        let qp = QpId::new(0, 0);
        quotas.open(qp, 2);
        quotas.add(0, 7);
        quotas.add(1, 7);
        serve(&mut quotas);
        completed(&mut quotas, 0, 7);
        completed(&mut quotas, 1, 7);
        quotas.add(0, 7);
        quotas.add(1, 7);
        serve(&mut quotas);
        assert_eq!(quotas.posted(qp), 2);
    }

    #[test]
    fn a_completion_for_a_destroyed_queue_pair_is_not_its_successors() {
        let mut quotas = quotas(1);
        let (first, second) = (QpId::new(0, 0), QpId::new(0, 1));
        quotas.open(first, 1);
        let late = quotas.take(first).unwrap();
        quotas.close(first);
        quotas.open(second, 1);
        let posted = quotas.take(second).unwrap();
        assert_eq!(quotas.completed(late, 0), None);
        assert_eq!(quotas.flushed(late), None);
        assert_eq!(quotas.completed(posted, 0), Some(second));
    }
}
