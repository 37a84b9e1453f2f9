//! Shares: limits on a reactor's requests and data buffers per host and namespace, because a dead
//! link or hanging disk may hold them for long.
//!
//! A host, with its former controllers, may hold as much as remains free, and a namespace half as
//! much. A host beyond its share may still use a namespace that holds little ([`LITTLE`]), so that
//! a hanging disk does not block the host's other disks. Other requests wait in the queue of their
//! host and disk, and block no other queue.

use std::time::Instant;

use super::disks::Disks;
use super::queueing::limited::HostDisk;
use crate::fair_queue::{FairQueue, TURN};
use crate::ids::{QpairId, ShareId};
use crate::limits::Tokens;
use crate::request::{Request, RequestId, RequestTable, Stage};

/// A namespace holds little if it holds at most 1 / `LITTLE` of the total.
const LITTLE: usize = 16;

#[derive(Debug, Clone, Copy)]
pub(super) struct Stock {
    pub(super) total: usize,
    pub(super) free: usize,
}

impl Stock {
    /// A host or namespace that holds nothing is not limited by its share.
    pub(super) fn allows(self, by_host: usize, by_disk: usize, more: usize) -> bool {
        let left = self.free.saturating_sub(more);
        let (host, disk) = (by_host + more, by_disk + more);
        let host_may = by_host == 0 || host <= left;
        let little = disk * LITTLE <= self.total && host <= 3 * left;
        let disk_may = by_disk == 0 || 2 * disk <= left;
        disk_may && (host_may || little)
    }

    pub(super) fn plenty(total: usize, reserve: usize) -> usize {
        // From this number of free requests, any host or namespace is within its share.
        (2 * total + reserve + 3).div_ceil(3)
    }
}

#[derive(Debug)]
struct Share {
    host: String,
    queues: Vec<QpairId>,
    held: usize,
    /// Last start of a command while other hosts waited for requests.
    last_begun: Option<Instant>,
    tokens: Vec<(u32, Tokens)>,
}

#[derive(Debug)]
pub(super) struct Shares {
    shares: Vec<Option<Share>>,
    total: usize,
    /// Held or reserved bytes; may exceed the total while a host waits for its first buffer.
    promised: usize,
    waiting: FairQueue<HostDisk, RequestId>,
}

impl Shares {
    pub(super) fn new(total: usize) -> Self {
        Self {
            shares: Vec::new(),
            total,
            promised: 0,
            waiting: FairQueue::default(),
        }
    }

    pub(super) fn join(&mut self, host: &str, queue: QpairId) -> ShareId {
        let known = |share: &Option<Share>| share.as_ref().is_some_and(|share| share.host == host);
        let id = self.shares.iter().position(known).unwrap_or_else(|| {
            let free = self.shares.iter().position(Option::is_none);
            let id = free.unwrap_or_else(|| {
                self.shares.push(None);
                self.shares.len() - 1
            });
            self.shares[id] = Some(Share {
                host: host.to_owned(),
                queues: Vec::new(),
                held: 0,
                last_begun: None,
                tokens: Vec::new(),
            });
            id
        });
        self.share(id).queues.push(queue);
        id
    }

    pub(super) fn leave(&mut self, id: ShareId, queue: QpairId) {
        let share = self.share(id);
        share.queues.retain(|&own| own != queue);
        if share.queues.is_empty() {
            assert_eq!(share.held, 0, "{share:?} is in use");
            self.shares[id] = None;
        }
    }

    pub(super) fn tokens(&mut self, id: ShareId, subsystem: u32) -> &mut Tokens {
        let tokens = &mut self.share(id).tokens;
        let known = tokens.iter().position(|(of, _)| *of == subsystem);
        let at = known.unwrap_or_else(|| {
            tokens.push((subsystem, Tokens::default()));
            tokens.len() - 1
        });
        &mut tokens[at].1
    }

    pub(super) fn count(&self) -> usize {
        self.shares.iter().flatten().count()
    }

    pub(super) fn queues(&self, id: ShareId) -> &[QpairId] {
        let share = self.shares[id].as_ref();
        &share.expect("a share is there while its queues are").queues
    }

    pub(super) fn last_begun(&self, id: ShareId) -> Option<Instant> {
        self.shares[id].as_ref()?.last_begun
    }

    pub(super) fn note_begun(&mut self, id: ShareId, now: Instant) {
        self.share(id).last_begun = Some(now);
    }

    fn free(&self) -> usize {
        self.total.saturating_sub(self.promised)
    }

    pub(super) fn take_out(
        &mut self,
        requests: &mut RequestTable,
        goes: impl Fn(&Request) -> bool,
        each: impl FnMut(RequestId),
    ) {
        self.waiting.take_out_requests(requests, goes, each);
    }

    pub(super) fn has_queued(&self, key: &HostDisk) -> bool {
        self.waiting.has(key)
    }

    pub(super) fn wait(&mut self, requests: &mut RequestTable, id: RequestId, key: HostDisk) {
        self.waiting
            .push_request(requests, key, id, Stage::AwaitingBuffer);
    }

    pub(super) fn promise(
        &mut self,
        request: &mut Request,
        share: Option<ShareId>,
        disks: &mut Disks,
    ) -> bool {
        let (bytes, free, total) = (bytes_needed(request), self.free(), self.total);
        let by_host = share.map_or(0, |share| self.share(share).held);
        let by_disk = request.disk.map_or(0, |disk| disks[disk].held);
        if !(Stock { total, free }).allows(by_host, by_disk, bytes) {
            return false;
        }
        if let Some(share) = share {
            self.share(share).held += bytes;
        }
        if let Some(disk) = request.disk {
            disks[disk].held += bytes;
        }
        self.promised += bytes;
        request.reserved = bytes;
        true
    }

    pub(super) fn take_back(
        &mut self,
        request: &mut Request,
        share: Option<ShareId>,
        disks: &mut Disks,
    ) {
        let bytes = std::mem::take(&mut request.reserved);
        if let Some(share) = share {
            self.share(share).held -= bytes;
        }
        if let Some(disk) = request.disk {
            disks[disk].held -= bytes;
        }
        self.promised -= bytes;
        self.waiting.wake();
    }

    pub(super) fn next(
        &mut self,
        requests: &mut RequestTable,
        disks: &mut Disks,
    ) -> Option<RequestId> {
        while let Some((&HostDisk { share, .. }, &id)) = self.waiting.first() {
            if self.promise(&mut requests[id], share, disks) {
                return Some(self.waiting.pop_request(requests, TURN));
            }
            self.waiting.skip();
        }
        None
    }

    fn share(&mut self, id: ShareId) -> &mut Share {
        self.shares[id]
            .as_mut()
            .expect("a queue's share is there while the queue is")
    }
}

fn bytes_needed(request: &Request) -> usize {
    let (data, scratch) = request.buffer_bytes;
    [data, scratch]
        .into_iter()
        .filter(|&length| length > 0)
        .map(|length| cairn_disk::rounded(length as usize))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTAL: usize = 1024;

    fn fill(free: &mut usize, by_host: &mut usize, by_disk: &mut usize) -> usize {
        let before = *free;
        let total = TOTAL;
        while (Stock { total, free: *free }).allows(*by_host, *by_disk, 1) && *free > 0 {
            *by_host += 1;
            *by_disk += 1;
            *free -= 1;
        }
        before - *free
    }

    #[test]
    fn hosts_get_half_and_namespaces_a_third_of_what_the_ones_before_left() {
        let mut free = TOTAL;
        let by_disk: Vec<usize> = (0..4).map(|_| fill(&mut free, &mut 0, &mut 0)).collect();
        assert_eq!(by_disk, [341, 227, 152, 101]);
        assert!(free >= TOTAL / 6, "something is left for the next");
        let (mut free, mut host) = (TOTAL, 0);
        while fill(&mut free, &mut host, &mut (TOTAL / LITTLE)) > 0 {}
        assert_eq!(host, TOTAL / 2);
    }

    #[test]
    fn a_disk_that_hangs_keeps_no_host_from_its_others() {
        let (mut free, mut host) = (TOTAL, 0);
        fill(&mut free, &mut host, &mut 0);
        for _ in 0..3 {
            assert!(fill(&mut free, &mut host, &mut 0) > TOTAL / 2 / LITTLE);
        }
    }

    #[test]
    fn with_plenty_each_host_is_within_its_share() {
        for (total, reserve) in [(1024, 64), (64, 8), (65, 8), (66, 8)] {
            let plenty = Stock::plenty(total, reserve);
            let held = total - plenty;
            let free = plenty - reserve;
            assert!(Stock { total, free }.allows(held, held, 1), "{total}");
        }
    }

    #[test]
    fn who_has_nothing_may_take_something() {
        let stock = |free| Stock {
            total: 2 << 20,
            free,
        };
        assert!(stock(2 << 20).allows(0, 0, 2 << 20));
        assert!(!stock(1 << 20).allows(1 << 20, 1 << 20, 1 << 20));
    }

    #[test]
    fn queues_of_one_host_have_one_share() {
        let mut shares = Shares::new(16 << 20);
        let queue = QpairId::NONE;
        let (one, same) = (shares.join("a", queue), shares.join("a", queue));
        assert_eq!(one, same);
        assert_ne!(shares.join("b", queue), one);
        shares.leave(one, queue);
        assert_eq!(shares.join("c", queue), one, "its place is free");
    }
}
