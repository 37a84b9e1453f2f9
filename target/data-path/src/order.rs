//! Order of the changes that one host sends to one disk over several associations.
//!
//! A host that loses a connection repeats its writes over another, then sends newer writes; a late
//! change of the lost association must not overwrite the newer data. Changes of such a host
//! therefore wait here for overlapping older changes of other associations. After
//! `OVERTAKEN_AFTER`, a change overtakes an older one that has not reached the disk; the older one
//! fails. Namespaces on the same file or device share a `DiskOrder`.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use cairn_config::Uuid;

pub(crate) const OVERTAKEN_AFTER: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum DiskKey {
    /// (device, inode) of a file, or (device number, 0) of a device.
    File(u64, u64),
    Named(Uuid),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sender {
    /// Hash of HOSTNQN and HOSTID ([`host_key`]).
    pub(crate) host: u64,
    /// Unique in the process.
    pub(crate) association: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) reactor: usize,
    pub(crate) work: u64,
}

/// Position in the order of a disk; ascends with arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(NonZeroU64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    Go,
    Wait,
    /// A newer change of the same blocks has begun, so this one must not.
    Overtaken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Coming,
    Waiting,
    AtDisk,
    Overtaken,
}

#[derive(Debug, Clone)]
struct Entry {
    ticket: Ticket,
    from: Sender,
    waiter: Waiter,
    bytes: Range<u64>,
    stage: Stage,
}

impl Entry {
    fn precedes(&self, newer: &Self) -> bool {
        self.ticket < newer.ticket
            && self.stage != Stage::Overtaken
            && self.from.host == newer.from.host
            && self.from.association != newer.from.association
            && self.bytes.start < newer.bytes.end
            && newer.bytes.start < self.bytes.end
    }
}

#[derive(Debug, Default)]
struct Entries {
    last: u64,
    list: Vec<Entry>,
}

/// Changes in progress of one disk. Changes of hosts with one association take no lock.
#[derive(Debug)]
pub(crate) struct DiskOrder {
    place: DiskKey,
    entries: Mutex<Entries>,
    orders: Arc<DiskOrders>,
}

#[derive(Debug, Default)]
pub struct DiskOrders(Mutex<HashMap<DiskKey, Weak<DiskOrder>>>);

impl DiskOrders {
    pub(crate) fn of(self: &Arc<Self>, place: DiskKey) -> Arc<DiskOrder> {
        let mut disks = self.disks();
        if let Some(order) = disks.get(&place).and_then(Weak::upgrade) {
            return order;
        }
        let order = Arc::new(DiskOrder {
            place,
            entries: Mutex::default(),
            orders: Arc::clone(self),
        });
        disks.insert(place, Arc::downgrade(&order));
        order
    }

    fn disks(&self) -> MutexGuard<'_, HashMap<DiskKey, Weak<DiskOrder>>> {
        // A panic leaves no partial change, because each change is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hosts with equal keys wait for each other, which is harmless.
pub(crate) fn host_key(host: impl Hash) -> u64 {
    static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    KEYS.hash_one(host)
}

impl DiskOrder {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        // A panic leaves no partial change, because each change affects one entry.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(
        &self,
        from: Sender,
        waiter: Waiter,
        at_disk: bool,
        ranges: impl Iterator<Item = Range<u64>>,
    ) -> Ticket {
        let mut entries = self.entries();
        entries.last += 1;
        let ticket = Ticket(NonZeroU64::new(entries.last).expect("it was 0 or more"));
        let stage = if at_disk {
            Stage::AtDisk
        } else {
            Stage::Coming
        };
        entries.list.extend(ranges.map(|bytes| Entry {
            ticket,
            from,
            waiter,
            bytes,
            stage,
        }));
        ticket
    }

    /// Decides whether a change may begin. `late` is true once the change has waited for
    /// [`OVERTAKEN_AFTER`]: it then overtakes older changes that have not reached the disk.
    pub(crate) fn arrive(&self, ticket: Ticket, late: bool) -> Arrival {
        let mut entries = self.entries();
        let list = &mut entries.list;
        let mut waits = false;
        for at in 0..list.len() {
            if list[at].ticket != ticket {
                continue;
            }
            let own = list[at].clone();
            if own.stage == Stage::Overtaken {
                return Arrival::Overtaken;
            }
            for older in list.iter_mut().filter(|older| older.precedes(&own)) {
                if late && older.stage == Stage::Coming {
                    older.stage = Stage::Overtaken;
                } else {
                    waits = true;
                }
            }
        }
        let stage = if waits { Stage::Waiting } else { Stage::AtDisk };
        let own = |entry: &&mut Entry| entry.ticket == ticket;
        let own = list.iter_mut().filter(own);
        own.for_each(|entry| entry.stage = stage);
        if waits { Arrival::Wait } else { Arrival::Go }
    }

    /// Removes a completed change. Calls `wake` for each change that waits for it; each must call
    /// [`Self::arrive`] again.
    pub(crate) fn leave(&self, ticket: Ticket, mut wake: impl FnMut(Waiter)) {
        let mut woken = Vec::new();
        let mut entries = self.entries();
        let list = &mut entries.list;
        let mut at = 0;
        while at < list.len() {
            if list[at].ticket != ticket {
                at += 1;
                continue;
            }
            let gone = list.swap_remove(at);
            let waits = |entry: &&Entry| entry.stage == Stage::Waiting && gone.precedes(entry);
            woken.extend(list.iter().filter(waits).map(|entry| entry.waiter));
        }
        drop(entries);
        woken.dedup();
        woken.into_iter().for_each(&mut wake);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.entries().list.len()
    }
}

impl Drop for DiskOrder {
    fn drop(&mut self) {
        let mut disks = self.orders.disks();
        if disks
            .get(&self.place)
            .is_some_and(|it| it.strong_count() == 0)
        {
            disks.remove(&self.place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Sender = Sender {
        host: 1,
        association: 1,
    };
    const SECOND: Sender = Sender {
        host: 1,
        association: 2,
    };
    const OTHER_HOST: Sender = Sender {
        host: 2,
        association: 3,
    };

    struct Bed {
        order: Arc<DiskOrder>,
        works: u64,
    }

    impl Bed {
        fn new() -> Self {
            Self {
                order: Arc::<DiskOrders>::default().of(DiskKey::Named(Uuid::nil())),
                works: 0,
            }
        }

        fn enter(&mut self, from: Sender, ranges: &[Range<u64>]) -> Ticket {
            self.works += 1;
            let waiter = Waiter {
                reactor: 0,
                work: self.works,
            };
            self.order
                .enter(from, waiter, false, ranges.iter().cloned())
        }

        fn comes(&mut self, from: Sender, bytes: Range<u64>) -> (Ticket, Arrival) {
            let ticket = self.enter(from, &[bytes]);
            (ticket, self.order.arrive(ticket, false))
        }

        fn leaves(&self, ticket: Ticket) -> Vec<u64> {
            let mut woken = Vec::new();
            self.order.leave(ticket, |waiter| woken.push(waiter.work));
            woken
        }
    }

    #[test]
    fn a_change_waits_for_older_ones_of_other_associations_of_its_host() {
        let mut bed = Bed::new();
        let (old, arrival) = bed.comes(FIRST, 0..8);
        assert_eq!(arrival, Arrival::Go);
        let (newer, arrival) = bed.comes(SECOND, 7..9);
        assert_eq!(arrival, Arrival::Wait);
        assert_eq!(bed.comes(SECOND, 9..10).1, Arrival::Go);
        assert_eq!(bed.comes(SECOND, 8..9).1, Arrival::Go);
        assert_eq!(bed.comes(OTHER_HOST, 0..8).1, Arrival::Go);
        assert_eq!(bed.comes(FIRST, 0..4).1, Arrival::Go);
        assert_eq!(bed.leaves(old), [2]);
        assert_eq!(bed.order.arrive(newer, false), Arrival::Go);
    }

    #[test]
    fn changes_that_wait_keep_their_order() {
        let mut bed = Bed::new();
        let (held, _) = bed.comes(FIRST, 0..8);
        let (second, arrival) = bed.comes(SECOND, 0..8);
        assert_eq!(arrival, Arrival::Wait);
        let (third, arrival) = bed.comes(FIRST, 0..8);
        assert_eq!(arrival, Arrival::Wait);
        assert_eq!(bed.leaves(held), [2]);
        assert_eq!(bed.order.arrive(third, false), Arrival::Wait);
        assert_eq!(bed.order.arrive(second, false), Arrival::Go);
        assert_eq!(bed.leaves(second), [3]);
        assert_eq!(bed.order.arrive(third, false), Arrival::Go);
    }

    #[test]
    fn a_change_that_does_not_come_is_overtaken() {
        let mut bed = Bed::new();
        let slow = bed.enter(FIRST, std::slice::from_ref(&(0..8)));
        let (newer, arrival) = bed.comes(SECOND, 0..8);
        assert_eq!(arrival, Arrival::Wait);
        assert_eq!(bed.order.arrive(newer, true), Arrival::Go);
        assert_eq!(bed.order.arrive(slow, false), Arrival::Overtaken);
        assert!(bed.leaves(newer).is_empty());
        assert_eq!(
            bed.order.arrive(slow, false),
            Arrival::Overtaken,
            "when the newer one is done, too"
        );
        bed.leaves(slow);
        assert_eq!(bed.order.len(), 0);
    }

    #[test]
    fn a_change_at_the_disk_is_not_overtaken() {
        let mut bed = Bed::new();
        let (held, _) = bed.comes(FIRST, 0..8);
        let (newer, _) = bed.comes(SECOND, 0..8);
        assert_eq!(bed.order.arrive(newer, true), Arrival::Wait);
        let (newest, _) = bed.comes(FIRST, 0..8);
        assert_eq!(bed.order.arrive(newest, true), Arrival::Wait);
        bed.leaves(held);
        assert_eq!(bed.order.arrive(newer, false), Arrival::Go);
    }

    #[test]
    fn all_ranges_of_a_change_count() {
        let mut bed = Bed::new();
        let ranges = bed.enter(FIRST, &[0..8, 32..40]);
        assert_eq!(bed.order.arrive(ranges, false), Arrival::Go);
        assert_eq!(bed.comes(SECOND, 36..37).1, Arrival::Wait);
        assert_eq!(bed.comes(SECOND, 8..32).1, Arrival::Go);
        assert_eq!(bed.leaves(ranges), [2]);
        assert_eq!(bed.order.len(), 2);
    }

    #[test]
    fn namespaces_of_one_disk_share_their_order() {
        let orders = Arc::<DiskOrders>::default();
        let place = DiskKey::File(1, 1);
        let (first, second) = (orders.of(place), orders.of(place));
        assert!(Arc::ptr_eq(&first, &second));
        let other = orders.of(DiskKey::File(1, 2));
        assert!(!Arc::ptr_eq(&first, &other));
        drop((first, second));
        assert_eq!(orders.disks().len(), 1, "the other one");
    }
}
