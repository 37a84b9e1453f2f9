//! List of ended commands, oldest first, linked through the command slots, so that any command can
//! be removed in constant time.

use super::slot::Slot;

#[derive(Debug, Default)]
pub(super) struct Done {
    oldest: Option<u16>,
    newest: Option<u16>,
}

impl Done {
    pub(super) fn oldest(&self) -> Option<u16> {
        self.oldest
    }

    pub(super) fn push(&mut self, slots: &mut [Slot], cid: u16) {
        let slot = &mut slots[usize::from(cid)];
        (slot.older, slot.newer) = (self.newest, None);
        match self.newest.replace(cid) {
            Some(before) => slots[usize::from(before)].newer = Some(cid),
            None => self.oldest = Some(cid),
        }
    }

    pub(super) fn remove(&mut self, slots: &mut [Slot], cid: u16) {
        let slot = &mut slots[usize::from(cid)];
        let (older, newer) = (slot.older.take(), slot.newer.take());
        match older {
            Some(older) => slots[usize::from(older)].newer = newer,
            None => self.oldest = newer,
        }
        match newer {
            Some(newer) => slots[usize::from(newer)].older = older,
            None => self.newest = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_can_be_removed_and_the_rest_stay_in_order() {
        for victim in 0..4 {
            let mut slots: Vec<_> = (0..4).map(|_| Slot::default()).collect();
            let mut done = Done::default();
            for cid in [2, 0, 3, 1] {
                done.push(&mut slots, cid);
            }
            done.remove(&mut slots, victim);
            let mut left = Vec::new();
            while let Some(cid) = done.oldest() {
                done.remove(&mut slots, cid);
                left.push(cid);
            }
            let expected: Vec<_> = [2, 0, 3, 1].into_iter().filter(|&c| c != victim).collect();
            assert_eq!(left, expected);
        }
    }
}
