use super::RequestId;

/// Work requests of each request for which completion queues have room.
pub(crate) const OWN_WORK: u32 = 2;

/// Free requests. A request with data in several pieces borrows some for more than [`OWN_WORK`]
/// work requests, so that all fit into the completion queues; without a loan, it takes more steps.
#[derive(Debug)]
pub(crate) struct FreeList {
    pub(super) free: Vec<RequestId>,
    lent: Vec<RequestId>,
    capacity: usize,
}

impl FreeList {
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            free: (0..capacity).rev().map(RequestId).collect(),
            lent: Vec::with_capacity(capacity as usize / Self::LENT),
            capacity: capacity as usize,
        }
    }

    /// At most 1/`LENT` of the requests are lent.
    const LENT: usize = 8;

    /// None is lent unless more than 1/`KEPT` of the requests are free.
    const KEPT: usize = 2;

    /// Returns the number of work requests, up to `wanted`, that a request may have in flight until
    /// [`Self::give_back`].
    #[cold]
    pub(crate) fn lend(&mut self, wanted: u32) -> u32 {
        let spare = self.free.len().saturating_sub(self.capacity / Self::KEPT);
        let room = self.capacity / Self::LENT - self.lent.len();
        let count = loan(wanted).min(spare).min(room);
        self.lent.extend(self.free.drain(self.free.len() - count..));
        wanted.min(OWN_WORK * (1 + count as u32))
    }

    #[cold]
    pub(crate) fn give_back(&mut self, work: u32) {
        let rest = self.lent.len().checked_sub(loan(work));
        self.free
            .extend(self.lent.drain(rest.expect("the loan was made")..));
    }
}

fn loan(work: u32) -> usize {
    (work.saturating_sub(OWN_WORK)).div_ceil(OWN_WORK) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loans_end_at_an_eighth_and_come_back() {
        let mut list = FreeList::new(64);
        assert_eq!(list.lend(2), 2);
        assert_eq!((list.lend(17), list.lend(17)), (17, 2));
        assert_eq!(list.free.len(), 56);
        list.give_back(2);
        list.give_back(17);
        assert_eq!([list.lend(3), list.lend(16), list.lend(4)], [3, 16, 2]);
        list.give_back(16);
        list.give_back(3);
        assert_eq!((list.free.len(), list.lent.len()), (64, 0));
    }

    #[test]
    fn no_request_is_lent_while_half_are_in_use() {
        let mut list = FreeList::new(64);
        let taken = list.free.split_off(33);
        assert_eq!((list.lend(17), list.lend(3)), (4, 2));
        list.give_back(4);
        list.free.extend(taken);
        assert_eq!(list.lend(17), 17);
    }
}
