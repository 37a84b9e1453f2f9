use super::{RequestId, RequestTable, Stage};

/// FIFO queue, linked through the request table. A request is in at most one list.
#[derive(Debug, Default)]
pub(crate) struct List {
    head: Option<RequestId>,
    tail: Option<RequestId>,
}

impl List {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<RequestId> {
        self.head
    }
}

impl RequestTable {
    pub(crate) fn push_back(&mut self, list: &mut List, id: RequestId, stage: Stage) {
        self.set_stage(id, Stage::Running, stage);
        assert_eq!(self[id].next, None, "{id:?} is in a list already");
        match list.tail.replace(id) {
            Some(last) => self[last].next = Some(id),
            None => list.head = Some(id),
        }
    }

    pub(crate) fn pop_front(&mut self, list: &mut List) -> Option<RequestId> {
        let id = list.head?;
        list.head = self[id].next.take();
        if list.head.is_none() {
            list.tail = None;
        }
        self[id].stage = Stage::Running;
        Some(id)
    }

    /// Only for the control path, because it visits the whole list.
    pub(crate) fn take_out(
        &mut self,
        list: &mut List,
        goes: impl Fn(&super::Request) -> bool,
        mut each: impl FnMut(RequestId),
    ) {
        let mut kept = List::default();
        while let Some(id) = list.head {
            let stage = self[id].stage;
            self.pop_front(list);
            if goes(&self[id]) {
                each(id);
            } else {
                self.push_back(&mut kept, id, stage);
            }
        }
        *list = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::QpairId;
    use nvme_proto::wire::{FromZeros, Sqe, U16};

    fn waiting(count: u16) -> (RequestTable, List) {
        let mut table = RequestTable::new(u32::from(count));
        let mut list = List::default();
        for cid in 0..count {
            let sqe = Sqe {
                cid: U16::new(cid),
                ..Sqe::new_zeroed()
            };
            let mut taken = table.take();
            *taken.sqe() = sqe;
            let (id, ..) = taken.begin(QpairId::NONE);
            table.push_back(&mut list, id, Stage::AwaitingBuffer);
        }
        (table, list)
    }

    fn drain(table: &mut RequestTable, list: &mut List) -> Vec<u16> {
        let mut order = Vec::new();
        while let Some(id) = table.pop_front(list) {
            order.push(table[id].cid());
            table[id].take_permit().abandoned();
            let (request, free) = table.entry(id);
            request.release(id, free);
        }
        order
    }

    #[test]
    fn first_come_first_served() {
        let (mut table, mut list) = waiting(3);
        assert_eq!(list.front().map(|id| table[id].cid()), Some(0));
        assert_eq!(drain(&mut table, &mut list), [0, 1, 2]);
        assert!(list.is_empty());
    }

    #[test]
    fn some_leave_and_the_rest_keep_their_order() {
        let (mut table, mut list) = waiting(5);
        let mut left = List::default();
        let mut out = Vec::new();
        table.take_out(
            &mut list,
            |request| request.cid() % 2 == 1,
            |id| out.push(id),
        );
        for id in out {
            table.push_back(&mut left, id, Stage::AwaitingSend);
        }
        assert_eq!(drain(&mut table, &mut left), [1, 3]);
        assert_eq!(drain(&mut table, &mut list), [0, 2, 4]);
    }
}
