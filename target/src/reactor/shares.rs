//! Each host's and each namespace's share of what a reactor has a fixed number of:
//! requests and data buffers.
//!
//! A host whose link died, or a disk that hangs, keeps what it holds until the transport
//! or the disk lets go. So no host gets everything: a host may take one more only while it
//! then holds no more than is left free for others, and a namespace while it then holds
//! half as much as that. A lone host so gets half, a lone namespace a third, the next one
//! as much of the rest, and something is always left. What a host's former controllers
//! still hold counts as the host's. A host at its share may hold a little of a namespace
//! that holds little itself: a disk that hangs keeps no host from its other disks.
//!
//! What is beyond a share waits in a line of its own, and no other request waits behind it.

use std::collections::VecDeque;
use std::time::Instant;

use super::disks::Disks;
use crate::ids::{QpairId, ShareId};
use crate::limits::Purse;
use crate::request::{List, Request, RequestId, RequestTable, Stage};

/// A namespace holds little if it holds this part of all.
const LITTLE: usize = 16;

/// What there is of something.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stock {
    pub(super) total: usize,
    pub(super) free: usize,
}

impl Stock {
    /// Whether a host and a disk that hold so much may take that much more. Who has nothing
    /// may always take something, which no share is too small for.
    pub(super) fn allows(self, by_host: usize, by_disk: usize, more: usize) -> bool {
        let left = self.free.saturating_sub(more);
        let (host, disk) = (by_host + more, by_disk + more);
        let host_may = by_host == 0 || host <= left;
        let little = disk * LITTLE <= self.total && host <= 3 * left;
        let disk_may = by_disk == 0 || 2 * disk <= left;
        disk_may && (host_may || little)
    }

    /// How much must be free for all hosts to be within their shares.
    pub(super) fn plenty(total: usize, reserve: usize) -> usize {
        // What anyone holds is at most what is not free.
        (2 * total + reserve + 3).div_ceil(3)
    }
}

/// What one host has of a reactor.
#[derive(Debug)]
struct Share {
    /// Its NQN.
    host: String,
    /// Its queue pairs here, whose controllers may be gone.
    queues: Vec<QpairId>,
    /// Bytes of buffers that its requests hold, or have been promised.
    held: usize,
    /// When a command of it last began while others waited for requests.
    last_begun: Option<Instant>,
    /// By subsystem: what the reactor has bought of its limits.
    purses: Vec<(u32, Purse)>,
}

/// Requests of one host for one disk that wait for their shares of the buffers.
#[derive(Debug)]
struct Line {
    share: Option<ShareId>,
    disk: Option<u32>,
    waiting: List,
}

/// The shares of all hosts of a reactor.
#[derive(Debug)]
pub(super) struct Shares {
    shares: Vec<Option<Share>>,
    /// Bytes of data buffers.
    total: usize,
    /// Bytes of them that are promised. More than there are, while someone who had
    /// nothing waits for its first.
    promised: usize,
    /// Served in turns.
    lines: VecDeque<Line>,
    /// Whether something was given back while a command waits.
    eased: bool,
}

impl Shares {
    /// Shares of `total` bytes of data buffers.
    pub(super) fn new(total: usize) -> Self {
        Self {
            shares: Vec::new(),
            total,
            promised: 0,
            lines: VecDeque::new(),
            eased: false,
        }
    }

    /// One more queue of a host.
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
                purses: Vec::new(),
            });
            id
        });
        self.share(id).queues.push(queue);
        id
    }

    /// One queue less. With the last its share goes.
    pub(super) fn leave(&mut self, id: ShareId, queue: QpairId) {
        let share = self.share(id);
        share.queues.retain(|&own| own != queue);
        if share.queues.is_empty() {
            assert_eq!(share.held, 0, "{share:?} is in use");
            self.shares[id] = None;
        }
    }

    /// What the reactor has bought of a host's limits at a subsystem.
    pub(super) fn purse(&mut self, id: ShareId, subsystem: u32) -> &mut Purse {
        let purses = &mut self.share(id).purses;
        let known = purses.iter().position(|(of, _)| *of == subsystem);
        let at = known.unwrap_or_else(|| {
            purses.push((subsystem, Purse::default()));
            purses.len() - 1
        });
        &mut purses[at].1
    }

    /// Hosts that have one.
    pub(super) fn count(&self) -> usize {
        self.shares.iter().flatten().count()
    }

    /// The queue pairs of a host.
    pub(super) fn queues(&self, id: ShareId) -> &[QpairId] {
        let share = self.shares[id].as_ref();
        &share.expect("a share is there while its queues are").queues
    }

    /// When a command of a host last began while others waited for requests.
    pub(super) fn last_begun(&self, id: ShareId) -> Option<Instant> {
        self.shares[id].as_ref()?.last_begun
    }

    /// It is now.
    pub(super) fn note_begun(&mut self, id: ShareId, now: Instant) {
        self.share(id).last_begun = Some(now);
    }

    /// Bytes of buffers that are neither held nor promised.
    fn free(&self) -> usize {
        self.total.saturating_sub(self.promised)
    }

    /// Takes out requests that wait for their shares.
    pub(super) fn take_out(
        &mut self,
        requests: &mut RequestTable,
        goes: impl Fn(&Request) -> bool,
        mut each: impl FnMut(RequestId),
    ) {
        for line in &mut self.lines {
            requests.take_out(&mut line.waiting, &goes, &mut each);
        }
    }

    /// Whether requests of a host wait for shares of a disk.
    pub(super) fn has_line(&self, share: Option<ShareId>, disk: Option<u32>) -> bool {
        let of = |line: &&Line| line.share == share && line.disk == disk;
        let line = self.lines.iter().find(of);
        line.is_some_and(|line| !line.waiting.is_empty())
    }

    /// Has a request wait in the line of its host and its disk.
    pub(super) fn wait(
        &mut self,
        requests: &mut RequestTable,
        id: RequestId,
        share: Option<ShareId>,
    ) {
        let disk = requests[id].disk;
        let of = |line: &Line| line.share == share && line.disk == disk;
        let at = self.lines.iter().position(of).unwrap_or_else(|| {
            let waiting = List::default();
            self.lines.push_back(Line {
                share,
                disk,
                waiting,
            });
            self.lines.len() - 1
        });
        let waiting = &mut self.lines[at].waiting;
        requests.push_back(waiting, id, Stage::AwaitingBuffer);
    }

    /// Promises a request its buffers, if that is within its host's share and its disk's.
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

    /// Takes back what a request was promised.
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
        self.eased |= !self.lines.is_empty();
    }

    /// The next request whose shares have room again, by turns of the lines. It was promised
    /// its buffers.
    pub(super) fn next(
        &mut self,
        requests: &mut RequestTable,
        disks: &mut Disks,
    ) -> Option<RequestId> {
        if !self.eased {
            return None;
        }
        let mut passed = 0;
        while passed < self.lines.len() {
            let mut line = self.lines.pop_front()?;
            let Some(id) = line.waiting.front() else {
                continue;
            };
            if self.promise(&mut requests[id], line.share, disks) {
                requests.pop_front(&mut line.waiting);
                self.lines.push_back(line);
                return Some(id);
            }
            self.lines.push_back(line);
            passed += 1;
        }
        self.eased = false;
        None
    }

    fn share(&mut self, id: ShareId) -> &mut Share {
        self.shares[id]
            .as_mut()
            .expect("a queue's share is there while the queue is")
    }
}

/// Bytes of the buffers that a request asks for.
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

    /// What holders get of what is free, one by one.
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
        // One host, and a disk of its own for each command.
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
