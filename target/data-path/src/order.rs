//! Order of the changes (commands that modify blocks) that one host sends to one disk over several
//! associations.
//!
//! A host that loses a connection repeats its writes over another connection, then sends newer
//! writes. A late change of the lost association must not overwrite the newer data. Changes of a
//! host with several associations therefore wait for overlapping older changes of its other
//! associations. After `OVERTAKEN_AFTER`, a change overtakes an older change that has not called
//! `arrive`; the older change fails. Namespaces on the same file or device share a `DiskOrder`.
//!
//! Exclusive commands (Compare, and Compare and Write) wait for every earlier change of their
//! blocks, and later changes wait for them. All changes of the disk must therefore be registered
//! here, from before the first exclusive command until `LINGER_NS` after the last.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use cairn_config::Uuid;

pub(crate) const OVERTAKEN_AFTER: Duration = Duration::from_millis(100);

const LINGER_NS: u64 = 1_000_000_000;

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

/// Position of a command in a disk's order. Later commands have greater tickets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(NonZeroU64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entrance {
    Change,
    /// A change already sent to the disk, or that may be sent at any time.
    AtDisk,
    Exclusive,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    Go,
    Wait,
    /// A newer change of the same blocks has overtaken this change, which must not begin.
    Overtaken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Coming,
    /// Waits for older changes of the same host, or for reactors to register their changes.
    Waiting,
    /// Waits for earlier commands that exclude this one.
    Queued,
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
    exclusive: bool,
    /// Sequence number, assigned when the command stops waiting for older changes of its host.
    arrival: Option<NonZeroU64>,
}

impl Entry {
    fn overlaps(&self, other: &Self) -> bool {
        self.bytes.start < other.bytes.end && other.bytes.start < self.bytes.end
    }

    /// True if `later` must not begin before this entry ends. An entry excludes only later
    /// arrivals, so that no two entries wait for each other.
    fn excludes(&self, later: &Self) -> bool {
        self.arrival.is_some_and(|own| Some(own) < later.arrival)
            && (self.exclusive || later.exclusive)
            && self.overlaps(later)
    }

    fn precedes(&self, newer: &Self) -> bool {
        self.ticket < newer.ticket
            && self.stage != Stage::Overtaken
            && self.from.host == newer.from.host
            && self.from.association != newer.from.association
            && self.overlaps(newer)
    }
}

#[derive(Debug, Default)]
enum Exclusion {
    #[default]
    Off,
    /// Reactors that have not registered their changes yet.
    Joining(Vec<usize>),
    /// All changes of the disk are registered. No exclusive command was found since
    /// `idle_since_ns`; `None` if the last check found one.
    On { idle_since_ns: Option<u64> },
}

#[derive(Debug, Default)]
struct Entries {
    last: u64,
    arrivals: u64,
    exclusion: Exclusion,
    /// Number of exclusive entries in `list`. If 0, no entry is excluded.
    exclusive: usize,
    list: Vec<Entry>,
}

impl Entries {
    fn next_arrival(&mut self) -> Option<NonZeroU64> {
        self.arrivals += 1;
        NonZeroU64::new(self.arrivals)
    }

    /// Assigns the arrival number of a command, unless it is exclusive and reactors still register
    /// their changes. Returns `Queued` if an earlier command excludes it.
    #[cold]
    fn queue(&mut self, ticket: Ticket) -> Stage {
        let own = |entry: &&mut Entry| entry.ticket == ticket;
        let is_on = matches!(self.exclusion, Exclusion::On { .. });
        if !is_on
            && self
                .list
                .iter_mut()
                .filter(own)
                .any(|entry| entry.exclusive)
        {
            return Stage::Waiting;
        }
        let arrival = self.next_arrival();
        for entry in self.list.iter_mut().filter(own) {
            entry.arrival = entry.arrival.or(arrival);
        }
        let mut own = self.list.iter().filter(|entry| entry.ticket == ticket);
        match own.any(|own| self.is_excluded(own)) {
            true => Stage::Queued,
            false => Stage::AtDisk,
        }
    }

    fn is_excluded(&self, later: &Entry) -> bool {
        self.list.iter().any(|earlier| earlier.excludes(later))
    }
}

/// Hosts with one association take the lock only during exclusion.
#[derive(Debug)]
pub struct DiskOrder {
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
        // Poisoning is harmless: each change is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hosts with equal hashes wait for each other, which is harmless.
pub(crate) fn host_key(host: impl Hash) -> u64 {
    static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    KEYS.hash_one(host)
}

impl DiskOrder {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        // Poisoning is harmless: each change affects one entry.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(
        &self,
        from: Sender,
        waiter: Waiter,
        entrance: Entrance,
        ranges: impl Iterator<Item = Range<u64>>,
    ) -> Ticket {
        let mut entries = self.entries();
        entries.last += 1;
        let ticket = Ticket(NonZeroU64::new(entries.last).expect("it was 0 or more"));
        let (stage, arrival) = match entrance {
            Entrance::AtDisk => (Stage::AtDisk, entries.next_arrival()),
            Entrance::Change | Entrance::Exclusive => (Stage::Coming, None),
        };
        let before = entries.list.len();
        entries.list.extend(ranges.map(|bytes| Entry {
            ticket,
            from,
            waiter,
            bytes,
            stage,
            exclusive: entrance == Entrance::Exclusive,
            arrival,
        }));
        if entrance == Entrance::Exclusive {
            entries.exclusive += entries.list.len() - before;
        }
        ticket
    }

    /// Begins exclusion, and returns true, unless exclusion has begun. The caller must then ask all
    /// `reactors` to register their changes of this disk and to call [`Self::joined`]. Exclusive
    /// commands wait until all have.
    pub(crate) fn exclude(&self, reactors: usize) -> bool {
        let exclusion = &mut self.entries().exclusion;
        let is_off = matches!(exclusion, Exclusion::Off);
        if is_off {
            *exclusion = Exclusion::Joining((0..reactors).collect());
        }
        is_off
    }

    /// Called by a reactor that has registered its changes, and registers every later change.
    /// Returns the exclusive commands that may continue.
    pub(crate) fn joined(&self, reactor: usize) -> Vec<Waiter> {
        let mut entries = self.entries();
        let Exclusion::Joining(left) = &mut entries.exclusion else {
            return Vec::new();
        };
        left.retain(|&other| other != reactor);
        if !left.is_empty() {
            return Vec::new();
        }
        entries.exclusion = Exclusion::On {
            idle_since_ns: None,
        };
        let waits = |entry: &&Entry| entry.exclusive && entry.stage == Stage::Waiting;
        let waiting = entries.list.iter().filter(waits);
        waiting.map(|entry| entry.waiter).collect()
    }

    /// Returns true if reactors must register each change.
    pub(crate) fn is_exclusive(&self) -> bool {
        !matches!(self.entries().exclusion, Exclusion::Off)
    }

    /// Ends exclusion after [`LINGER_NS`] without exclusive commands. Returns
    /// [`Self::is_exclusive`].
    pub(crate) fn stays_exclusive(&self, now_ns: u64) -> bool {
        let mut entries = self.entries();
        let in_use = entries.exclusive > 0;
        if let Exclusion::On { idle_since_ns } = &mut entries.exclusion {
            if in_use {
                *idle_since_ns = None;
            } else if now_ns.saturating_sub(*idle_since_ns.get_or_insert(now_ns)) >= LINGER_NS {
                entries.exclusion = Exclusion::Off;
            }
        }
        !matches!(entries.exclusion, Exclusion::Off)
    }

    /// Decides whether a change may begin. If `late`, it has waited for [`OVERTAKEN_AFTER`], and
    /// overtakes older changes that have not called this function.
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
            if own.arrival.is_some() {
                continue;
            }
            for older in list.iter_mut().filter(|older| older.precedes(&own)) {
                if late && older.stage == Stage::Coming {
                    older.stage = Stage::Overtaken;
                } else {
                    waits = true;
                }
            }
        }
        let (stage, arrival) = match waits {
            true => (Stage::Waiting, None),
            false if entries.exclusive == 0 => (Stage::AtDisk, entries.next_arrival()),
            false => (entries.queue(ticket), None),
        };
        let own = |entry: &&mut Entry| entry.ticket == ticket;
        for entry in entries.list.iter_mut().filter(own) {
            entry.stage = stage;
            entry.arrival = entry.arrival.or(arrival);
        }
        match stage {
            Stage::AtDisk => Arrival::Go,
            _ => Arrival::Wait,
        }
    }

    /// Calls `wake` for each command that waited for the ended one and must call [`Self::arrive`]
    /// again.
    pub(crate) fn leave(&self, ticket: Ticket, mut wake: impl FnMut(Waiter)) {
        let (mut woken, mut left) = (Vec::new(), Vec::new());
        let mut entries = self.entries();
        let Entries {
            exclusive, list, ..
        } = &mut *entries;
        let any_exclusive = *exclusive > 0;
        let mut at = 0;
        while at < list.len() {
            if list[at].ticket != ticket {
                at += 1;
                continue;
            }
            let gone = list.swap_remove(at);
            *exclusive -= usize::from(gone.exclusive);
            let waits = |entry: &&Entry| entry.stage == Stage::Waiting && gone.precedes(entry);
            woken.extend(list.iter().filter(waits).map(|entry| entry.waiter));
            if any_exclusive {
                left.push(gone);
            }
        }
        for gone in &left {
            let waits = |entry: &&Entry| entry.stage == Stage::Queued && gone.excludes(entry);
            let queued = entries.list.iter().filter(waits);
            let free = queued.filter(|entry| !entries.is_excluded(entry));
            woken.extend(free.map(|entry| entry.waiter));
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
mod tests;
