//! Fair queue with one FIFO of waiting items per key. The key with the smallest `used` is served
//! first.
//!
//! `used` grows by the cost of each served item, divided by its key's weight (start-time fair
//! queueing). If every item costs 1, this is round robin.

use std::collections::VecDeque;
use std::collections::vec_deque::IterMut;

use cairn_base::address::Payer;

use crate::request::{Request, RequestId, RequestTable, Stage};

pub(crate) trait Key: PartialEq {
    /// Index of the queue pair or host, for [`FairQueue::has_owner`].
    fn owner(&self) -> Option<usize> {
        None
    }

    /// True if both keys wait for the same resource, so that their `used` is comparable.
    fn competes(&self, _other: &Self) -> bool {
        true
    }
}

impl Key for Payer {}

/// Cost and weight of each item in round robin.
pub(crate) const TURN: (u64, u32) = (1, 1);

#[derive(Debug)]
struct Queue<K, T> {
    key: K,
    used: u64,
    waiting: VecDeque<T>,
}

#[derive(Debug)]
pub(crate) struct FairQueue<K, T> {
    /// Sorted by `used`. Empty queues stay while their `used` exceeds [`Self::floor`].
    queues: VecDeque<Queue<K, T>>,
    /// Number of queues at the front that were skipped since the last [`Self::wake`].
    skipped: usize,
    /// `used` of the last served key before its last item was charged.
    served: u64,
    lag_max: Option<u64>,
    len: usize,
    owners: Vec<usize>,
    spare: Vec<VecDeque<T>>,
}

impl<K, T> Default for FairQueue<K, T> {
    fn default() -> Self {
        Self {
            queues: VecDeque::new(),
            skipped: 0,
            served: 0,
            lag_max: None,
            len: 0,
            owners: Vec::new(),
            spare: Vec::new(),
        }
    }
}

impl<K: Key, T> FairQueue<K, T> {
    /// Creates a queue in which a skipped key keeps its `used`, and the `used` of an idle key rises
    /// to [`Self::floor`]. In a default queue, both keys' `used` rises to `served`.
    pub(crate) fn with_claims(lag_max: u64) -> Self {
        Self {
            lag_max: Some(lag_max),
            ..Self::default()
        }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn has_owner(&self, owner: usize) -> bool {
        self.owners.get(owner).is_some_and(|&count| count > 0)
    }

    pub(crate) fn has(&self, key: &K) -> bool {
        self.keys().any(|(own, _)| own == key)
    }

    pub(crate) fn count(&self, key: &K) -> usize {
        let mut keys = self.keys().filter(|(own, _)| *own == key);
        keys.next().map_or(0, |(_, waiting)| waiting.len())
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = (&K, &VecDeque<T>)> {
        let waiting = self.queues.iter().filter(|queue| !queue.waiting.is_empty());
        waiting.map(|queue| (&queue.key, &queue.waiting))
    }

    pub(crate) fn keys_mut(&mut self) -> impl Iterator<Item = (&mut K, IterMut<'_, T>)> {
        let queues = self.queues.iter_mut();
        queues.map(|queue| (&mut queue.key, queue.waiting.iter_mut()))
    }

    pub(crate) fn push(&mut self, key: K, item: T) {
        self.len += 1;
        if let Some(owner) = key.owner() {
            if self.owners.len() <= owner {
                self.owners.resize(owner + 1, 0);
            }
            self.owners[owner] += 1;
        }
        let known = self.queues.iter().position(|queue| queue.key == key);
        if let Some(queue) = known.map(|at| &mut self.queues[at])
            && !queue.waiting.is_empty()
        {
            return queue.waiting.push_back(item);
        }
        let (mut used, mut waiting) = (self.floor(Some(&key)), None);
        if let Some(idle) = known.and_then(|at| self.queues.remove(at)) {
            self.skipped -= usize::from(known < Some(self.skipped));
            (used, waiting) = (used.max(idle.used), Some(idle.waiting));
        }
        let mut waiting = waiting.or_else(|| self.spare.pop()).unwrap_or_default();
        waiting.push_back(item);
        let at = self.insert(Queue { key, used, waiting });
        // A key inserted among skipped keys is skipped, too.
        self.skipped += usize::from(at < self.skipped);
    }

    #[inline(always)]
    pub(crate) fn wake(&mut self) {
        self.skipped = 0;
    }

    /// Returns the first item of the key with the smallest `used`, except keys skipped since the
    /// last [`Self::wake`]. The caller then calls [`Self::pop`] or [`Self::skip`].
    #[inline]
    pub(crate) fn first(&self) -> Option<(&K, &T)> {
        if self.skipped >= self.queues.len() {
            return None;
        }
        let mut queues = self.queues.range(self.skipped..);
        queues.find_map(|queue| Some((&queue.key, queue.waiting.front()?)))
    }

    pub(crate) fn skip(&mut self) {
        self.skipped = self.first_index() + 1;
    }

    pub(crate) fn pop(&mut self, (cost, weight): (u64, u32)) -> T {
        let queue = self.queues.remove(self.first_index());
        let mut queue = queue.expect("`first` found it");
        let item = queue.waiting.pop_front().expect("`first` found it");
        if self.lag_max.is_none() {
            queue.used = queue.used.max(self.served);
            self.served = queue.used;
        }
        queue.used = queue.used.saturating_add(cost / u64::from(weight));
        self.forget(&queue.key);
        let is_idle = queue.waiting.is_empty();
        self.insert(queue);
        if is_idle {
            self.tidy();
        }
        item
    }

    pub(crate) fn pop_back(&mut self, key: &K) -> Option<T> {
        let queue = self.queues.iter_mut().find(|queue| queue.key == *key);
        let item = queue?.waiting.pop_back()?;
        self.forget(key);
        self.tidy();
        Some(item)
    }

    pub(crate) fn take_out(&mut self, mut goes: impl FnMut(&T) -> bool, mut each: impl FnMut(T)) {
        if self.is_empty() {
            return;
        }
        let mut queues = std::mem::take(&mut self.queues);
        for queue in &mut queues {
            for _ in 0..queue.waiting.len() {
                let item = queue.waiting.pop_front().expect("as many as its length");
                if goes(&item) {
                    self.forget(&queue.key);
                    each(item);
                } else {
                    queue.waiting.push_back(item);
                }
            }
        }
        self.queues = queues;
        self.tidy();
    }

    fn first_index(&self) -> usize {
        let waits = |&at: &usize| !self.queues[at].waiting.is_empty();
        let first = (self.skipped..self.queues.len()).find(waits);
        first.expect("`first` found it")
    }

    fn insert(&mut self, queue: Queue<K, T>) -> usize {
        let at = self
            .queues
            .partition_point(|other| other.used <= queue.used);
        self.queues.insert(at, queue);
        at
    }

    fn forget(&mut self, key: &K) {
        self.len -= 1;
        if let Some(owner) = key.owner() {
            self.owners[owner] -= 1;
        }
    }

    /// Returns the minimum [`Queue::used`] for `idle`, a key that begins to wait.
    ///
    /// The minimum is `served` without `lag_max`. With `lag_max`, it is the largest `used` of the
    /// waiting keys that compete with `idle`, minus `lag_max`. If none competes, the smallest
    /// `used` of all waiting keys replaces the largest.
    fn floor(&self, idle: Option<&K>) -> u64 {
        let Some(lag_max) = self.lag_max else {
            return self.served;
        };
        let waiting = || self.queues.iter().filter(|queue| !queue.waiting.is_empty());
        let beside = |idle: &K| waiting().rfind(|queue| idle.competes(&queue.key));
        let other = idle.and_then(beside).or_else(|| waiting().next());
        other.map_or(0, |queue| queue.used.saturating_sub(lag_max))
    }

    fn tidy(&mut self) {
        let floor = match self.is_empty() {
            true => u64::MAX,
            false => self.floor(None),
        };
        let (mut at, mut skipped) = (0, self.skipped);
        self.queues.retain_mut(|queue| {
            let stays = !queue.waiting.is_empty() || queue.used > floor;
            if !stays {
                self.spare.push(std::mem::take(&mut queue.waiting));
                skipped -= usize::from(at < self.skipped);
            }
            at += 1;
            stays
        });
        self.skipped = skipped;
        if self.is_empty() {
            self.served = 0;
        }
    }
}

impl<K: Key> FairQueue<K, RequestId> {
    pub(crate) fn push_request(
        &mut self,
        requests: &mut RequestTable,
        key: K,
        id: RequestId,
        stage: Stage,
    ) {
        requests.set_stage(id, Stage::Running, stage);
        self.push(key, id);
    }

    pub(crate) fn pop_request(
        &mut self,
        requests: &mut RequestTable,
        cost: (u64, u32),
    ) -> RequestId {
        let id = self.pop(cost);
        requests.set_stage(id, requests[id].stage(), Stage::Running);
        id
    }

    pub(crate) fn take_out_requests(
        &mut self,
        requests: &mut RequestTable,
        goes: impl Fn(&Request) -> bool,
        mut each: impl FnMut(RequestId),
    ) {
        let mut gone = Vec::new();
        self.take_out(|&id| goes(&requests[id]), |id| gone.push(id));
        for id in gone {
            requests.set_stage(id, requests[id].stage(), Stage::Running);
            each(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WEIGHTS: [u32; 4] = [1, 1, 3, 10];
    const COST_MAX: u64 = 1000;
    const LAG_MAX: u64 = 50;

    impl Key for usize {
        fn owner(&self) -> Option<usize> {
            Some(self / 2)
        }
    }

    fn new(claims: bool) -> FairQueue<usize, u64> {
        match claims {
            true => FairQueue::with_claims(LAG_MAX),
            false => FairQueue::default(),
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Push(usize),
        Serve(u8),
        TakeOut(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..WEIGHTS.len()).prop_map(Step::Push),
            4 => any::<u8>().prop_map(Step::Serve),
            1 => (2..5u64).prop_map(Step::TakeOut),
        ];
        proptest::collection::vec(step, 1..300)
    }

    proptest! {
        #[test]
        fn each_key_keeps_its_order_and_no_refused_key_hides_another(
            claims in any::<bool>(),
            steps in steps(),
        ) {
            let mut fair = new(claims);
            let mut model: [Vec<u64>; 4] = Default::default();
            for (number, step) in steps.into_iter().enumerate() {
                let number = number as u64;
                match step {
                    Step::Push(key) => {
                        fair.push(key, number);
                        model[key].push(number);
                    }
                    Step::Serve(refused) => {
                        let refused = |key: usize| refused >> key & 1 == 1;
                        fair.wake();
                        let mut tried = Vec::new();
                        let served = loop {
                            let Some((&key, &item)) = fair.first() else { break None };
                            prop_assert_eq!(item, model[key][0]);
                            prop_assert!(!tried.contains(&key));
                            tried.push(key);
                            match refused(key) {
                                true => fair.skip(),
                                false => break Some((key, fair.pop((number, WEIGHTS[key])))),
                            }
                        };
                        match served {
                            Some((key, item)) => prop_assert_eq!(item, model[key].remove(0)),
                            None => prop_assert!((0..4).all(|key| model[key].is_empty() || refused(key))),
                        }
                    }
                    Step::TakeOut(every) => {
                        let mut gone = Vec::new();
                        fair.take_out(|item| item % every == 0, |item| gone.push(item));
                        let all = model.iter().flatten();
                        prop_assert_eq!(gone.len(), all.filter(|item| *item % every == 0).count());
                        model.iter_mut().for_each(|items| items.retain(|item| item % every != 0));
                    }
                }
                prop_assert_eq!(fair.len(), model.iter().map(Vec::len).sum::<usize>());
                for (key, items) in model.iter().enumerate() {
                    prop_assert_eq!(fair.has(&key), !items.is_empty());
                    let others = &model[key ^ 1];
                    prop_assert_eq!(fair.has_owner(key / 2), !items.is_empty() || !others.is_empty());
                }
                prop_assert!(fair.queues.iter().is_sorted_by_key(|queue| queue.used));
                prop_assert!(!fair.is_empty() || fair.queues.is_empty());
            }
        }

        #[test]
        fn keys_that_always_wait_have_their_shares_within_one_item(
            claims in any::<bool>(),
            costs in proptest::collection::vec(1..=COST_MAX, 1..400),
        ) {
            let mut fair = new(claims);
            (0..WEIGHTS.len()).for_each(|key| (0..2).for_each(|_| fair.push(key, 0)));
            let mut used = [0; 4];
            for cost in costs {
                fair.wake();
                let (&key, _) = fair.first().unwrap();
                fair.push(key, 0);
                fair.pop((cost * 30, WEIGHTS[key]));
                used[key] += cost * 30 / u64::from(WEIGHTS[key]);
            }
            for (one, other) in used.iter().flat_map(|one| used.map(|other| (*one, other))) {
                prop_assert!(one.abs_diff(other) <= COST_MAX * 30, "{used:?}");
            }
        }

        #[test]
        fn no_key_starves(claims in any::<bool>(), steps in steps()) {
            let mut fair = new(claims);
            fair.push(3, 0);
            (0..10 * LAG_MAX).for_each(|_| {
                fair.wake();
                fair.push(0, 0);
                if fair.first().is_some_and(|(key, _)| *key == 3) {
                    fair.skip();
                }
                fair.pop(TURN);
            });
            fair.push(0, 0);
            let mut served = [0; 4];
            for step in steps {
                let refused = match step {
                    Step::Push(key) => {
                        fair.push(key, 0);
                        continue;
                    }
                    Step::Serve(refused) => refused & !1 | 8,
                    Step::TakeOut(_) => 8,
                };
                fair.wake();
                while fair.first().is_some_and(|(key, _)| refused >> *key & 1 == 1) {
                    fair.skip();
                }
                let (&key, _) = fair.first().unwrap();
                fair.pop(TURN);
                served[key] += 1;
                if key == 0 {
                    fair.push(0, 0);
                    served = [0; 4];
                }
                let most = 1 + if claims { LAG_MAX } else { 0 };
                prop_assert!(served.iter().all(|&count| count <= most), "{served:?}");
            }
        }
    }
}
