//! Record of unanswered requests, kept by the front end (vhost-user.rst, "Inflight I/O tracking").

use std::fs::File;
use std::io;
use std::sync::atomic::Ordering::{Acquire, Release};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use vhost::vhost_user::message::VhostUserInflight;
use vm_memory::{Bytes, MmapRegion, VolatileMemory, VolatileSlice};

use super::config::{QUEUE_ENTRIES_MAX, QUEUES_MAX};
use super::memory::map;

const ALIGNMENT: u64 = 64;
const VERSION: u16 = 1;

// struct QueueRegionSplit.
const VERSION_AT: usize = 8;
const ENTRIES_AT: usize = 10;
const LAST_AT: usize = 12;
const USED_AT: usize = 14;
const HEADER_BYTES: usize = 16;
// struct DescStateSplit.
const MARK_AT: usize = 0;
const ORDER_AT: usize = 8;
const STATE_BYTES: usize = 16;

#[derive(Debug)]
pub(super) struct Inflight {
    mapping: MmapRegion,
    queues: u16,
    entries: u16,
}

#[derive(Clone, Copy)]
pub(super) struct Region<'a>(VolatileSlice<'a>);

fn region_bytes(entries: u16) -> u64 {
    let states = u64::from(entries) * STATE_BYTES as u64;
    (HEADER_BYTES as u64 + states).next_multiple_of(ALIGNMENT)
}

fn check(asked: &VhostUserInflight) -> io::Result<u64> {
    let (queues, entries) = (asked.num_queues, asked.queue_size);
    if queues > QUEUES_MAX || entries > QUEUE_ENTRIES_MAX {
        return Err(io::Error::other("too many queues or entries"));
    }
    Ok(u64::from(queues) * region_bytes(entries))
}

impl Inflight {
    pub(super) fn create(asked: &VhostUserInflight) -> io::Result<(VhostUserInflight, File)> {
        let bytes = check(asked)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create(c"cairn-inflight", flags)?);
        file.set_len(bytes)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let made = VhostUserInflight {
            mmap_size: bytes,
            mmap_offset: 0,
            ..*asked
        };
        Ok((made, file))
    }

    pub(super) fn map(kept: &VhostUserInflight, file: File) -> io::Result<Self> {
        let bytes = check(kept)?;
        if !fcntl_get_seals(&file)?.contains(SealFlags::SHRINK) || kept.mmap_size < bytes {
            return Err(io::Error::other(
                "the memory for requests under way is not whole",
            ));
        }
        Ok(Self {
            mapping: map(file, kept.mmap_offset, bytes)?,
            queues: kept.num_queues,
            entries: kept.queue_size,
        })
    }

    pub(super) fn region(&self, queue: usize, entries: u16) -> Option<Region<'_>> {
        if queue >= usize::from(self.queues) || entries > self.entries {
            return None;
        }
        let bytes = region_bytes(self.entries) as usize;
        let slice = self.mapping.as_volatile_slice();
        slice.subslice(queue * bytes, bytes).ok().map(Region)
    }
}

impl Region<'_> {
    fn set<T: vm_memory::AtomicAccess>(self, at: usize, value: T) {
        let stored = self.0.store(value, at, Release);
        stored.expect("the offset is aligned and in the region");
    }

    fn get<T: vm_memory::AtomicAccess>(self, at: usize) -> T {
        let loaded = self.0.load(at, Acquire);
        loaded.expect("the offset is aligned and in the region")
    }

    fn state(head: u16) -> usize {
        HEADER_BYTES + usize::from(head) * STATE_BYTES
    }

    pub(super) fn taken(self, head: u16, order: u64) {
        self.set(Self::state(head) + ORDER_AT, order);
        self.set(Self::state(head) + MARK_AT, 1_u8);
    }

    /// Precedes the change of the used ring.
    pub(super) fn answering(self, head: u16) {
        self.set(LAST_AT, head);
    }

    /// Follows the change of the used ring.
    pub(super) fn answered(self, head: u16, used: u16) {
        self.set(Self::state(head) + MARK_AT, 0_u8);
        self.set(USED_AT, used);
    }

    pub(super) fn forget(self, entries: u16) {
        for head in 0..entries {
            self.set(Self::state(head) + MARK_AT, 0_u8);
        }
    }

    /// Returns the unanswered requests in their order.
    pub(super) fn recover(self, entries: u16, used: u16) -> Vec<u16> {
        if self.get::<u16>(VERSION_AT) != VERSION {
            self.set(ENTRIES_AT, entries);
            self.set(USED_AT, used);
            self.set(VERSION_AT, VERSION);
        }
        let last: u16 = self.get(LAST_AT);
        if self.get::<u16>(USED_AT) != used && last < entries {
            // The process ended between `answering` and `answered`.
            self.answered(last, used);
        }
        let heads = 0..entries;
        let mut left: Vec<(u64, u16)> = heads
            .filter(|&head| self.get::<u8>(Self::state(head) + MARK_AT) == 1)
            .map(|head| (self.get(Self::state(head) + ORDER_AT), head))
            .collect();
        left.sort_unstable();
        left.into_iter().map(|(_, head)| head).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> (Inflight, VhostUserInflight, File) {
        let asked = VhostUserInflight::new(0, 0, 2, 8);
        let (made, file) = Inflight::create(&asked).unwrap();
        let inflight = Inflight::map(&made, file.try_clone().unwrap()).unwrap();
        (inflight, made, file)
    }

    #[test]
    fn unanswered_requests_return_in_their_order() {
        let (inflight, made, file) = record();
        assert!(inflight.region(2, 8).is_none() && inflight.region(0, 9).is_none());
        let region = inflight.region(1, 8).unwrap();
        assert_eq!(region.recover(8, 40), [0_u16; 0]);
        for (order, head) in [5, 0, 7, 3].into_iter().enumerate() {
            region.taken(head, order as u64);
        }
        region.answering(0);
        region.answered(0, 41);
        drop(inflight);
        let inflight = Inflight::map(&made, file).unwrap();
        assert_eq!(inflight.region(0, 8).unwrap().recover(8, 0), [0_u16; 0]);
        let region = inflight.region(1, 8).unwrap();
        assert_eq!(region.recover(8, 41), [5, 7, 3]);

        region.answering(7);
        assert_eq!(region.recover(8, 41), [5, 7, 3]);
        assert_eq!(region.recover(8, 42), [5, 3]);
        region.forget(8);
        assert_eq!(region.recover(8, 42), [0_u16; 0]);
    }

    #[test]
    fn a_record_that_is_not_whole_is_refused() {
        let (_, made, file) = record();
        let wrong = |change: fn(&mut VhostUserInflight)| {
            let mut changed = made;
            change(&mut changed);
            Inflight::map(&changed, file.try_clone().unwrap()).is_err()
        };
        assert!(wrong(|kept| kept.mmap_size -= 1));
        assert!(wrong(|kept| kept.mmap_offset = 4096));
        assert!(wrong(|kept| kept.mmap_offset = u64::MAX));
        assert!(wrong(|kept| kept.num_queues = u16::MAX));
        assert!(wrong(|kept| kept.queue_size = u16::MAX));
    }
}
