//! Each host's share of the data buffers.
//!
//! A host whose link just died still holds the buffers of its last commands,
//! until the transport gives it up. So that the others notice nothing, no
//! controller ever holds more than a quarter of a reactor's buffers. Who is
//! beyond its share waits for itself; who is within it waits in the one queue
//! for buffers, first come first served.

use super::Reactor;
use super::count::Wait;
use crate::pool;
use crate::qpair::QpairId;
use crate::request::{List, RequestId, RequestTable, Stage};

/// Hosts that can stop reading at once before anyone else must wait for them.
const SHARES: usize = 4;

/// A controller's share, by its place.
pub(crate) type ShareId = usize;

/// What one controller has of the buffers.
#[derive(Debug, Default)]
struct Share {
    /// The controller: its subsystem and CNTLID.
    of: (u32, u16),
    /// Its queues on this reactor.
    queues: u32,
    /// Bytes that its requests hold, or have been promised.
    held: usize,
    /// Its requests that wait until it holds less.
    waiting: List,
}

/// The shares of all controllers of a reactor.
#[derive(Debug)]
pub(super) struct Shares {
    shares: Vec<Option<Share>>,
    /// Bytes that each may hold.
    limit: usize,
    /// Shares of which something was given back while somebody waits for it.
    eased: Vec<ShareId>,
}

impl Shares {
    /// Shares of `total` bytes, of which a command takes `largest` twice at most.
    pub(super) fn new(total: usize, largest: usize) -> Self {
        Self {
            shares: Vec::new(),
            limit: (total / SHARES).max(2 * largest),
            eased: Vec::new(),
        }
    }

    /// One more queue of a controller.
    pub(super) fn join(&mut self, of: (u32, u16)) -> ShareId {
        let known = |share: &Option<Share>| share.as_ref().is_some_and(|share| share.of == of);
        let id = self.shares.iter().position(known).unwrap_or_else(|| {
            let free = self.shares.iter().position(Option::is_none);
            let id = free.unwrap_or_else(|| {
                self.shares.push(None);
                self.shares.len() - 1
            });
            self.shares[id] = Some(Share {
                of,
                ..Share::default()
            });
            id
        });
        self.share(id).queues += 1;
        id
    }

    /// One queue less. With the last its share goes.
    pub(super) fn leave(&mut self, id: ShareId) {
        let share = self.share(id);
        share.queues -= 1;
        if share.queues == 0 {
            assert!(
                share.held == 0 && share.waiting.is_empty(),
                "{share:?} is in use"
            );
            self.shares[id] = None;
        }
    }

    /// Controllers that have one.
    pub(super) fn count(&self) -> usize {
        self.shares.iter().flatten().count()
    }

    /// Promises bytes, if that is within the share.
    fn reserve(&mut self, id: ShareId, bytes: usize) -> bool {
        let limit = self.limit;
        let share = self.share(id);
        let fits = share.held + bytes <= limit;
        if fits {
            share.held += bytes;
        }
        fits
    }

    /// Takes bytes back.
    pub(super) fn give_back(&mut self, id: ShareId, bytes: usize) {
        let share = self.share(id);
        share.held -= bytes;
        if !share.waiting.is_empty() {
            self.eased.push(id);
        }
    }

    /// Takes out requests that wait for their share.
    pub(super) fn take_out(
        &mut self,
        id: ShareId,
        requests: &mut RequestTable,
        goes: impl Fn(&crate::request::Request) -> bool,
        each: impl FnMut(RequestId),
    ) {
        requests.take_out(&mut self.share(id).waiting, goes, each);
    }

    fn share(&mut self, id: ShareId) -> &mut Share {
        self.shares[id]
            .as_mut()
            .expect("a queue's share is there while the queue is")
    }
}

impl Reactor {
    /// Promises a request its buffers out of its host's share, or has it wait
    /// for those before it; whether it goes on.
    pub(super) fn claim_share(&mut self, id: RequestId) -> bool {
        let Some(share) = self.share_of(id) else {
            return true;
        };
        let bytes = self.bytes_wanted(id);
        if self.shares.share(share).waiting.is_empty() && self.shares.reserve(share, bytes) {
            self.requests[id].reserved = bytes;
            return true;
        }
        self.count_wait(id, Wait::Share);
        let waiting = &mut self.shares.share(share).waiting;
        self.requests.push_back(waiting, id, Stage::AwaitingBuffer);
        false
    }

    /// Gives back what a request was promised.
    pub(super) fn return_share(&mut self, id: RequestId) {
        let bytes = std::mem::take(&mut self.requests[id].reserved);
        let share = self.share_of(id).expect("only a share makes promises");
        self.shares.give_back(share, bytes);
    }

    /// Lets those go on whose share has room again.
    pub(super) fn serve_shares(&mut self) {
        while let Some(share) = self.shares.eased.pop() {
            // The share may have gone with its queues.
            while let Some(waiting) = self.shares.shares[share]
                .as_ref()
                .map(|s| s.waiting.front())
            {
                let Some(id) = waiting else { break };
                let bytes = self.bytes_wanted(id);
                if !self.shares.reserve(share, bytes) {
                    break;
                }
                self.requests
                    .pop_front(&mut self.shares.share(share).waiting);
                self.requests[id].reserved = bytes;
                self.acquire_promised(id);
            }
        }
    }

    fn share_of(&self, id: RequestId) -> Option<ShareId> {
        let qpair: QpairId = self.requests[id].qpair;
        self.qpairs[qpair].share
    }

    fn bytes_wanted(&self, id: RequestId) -> usize {
        let (data, scratch) = self.requests[id].wants;
        [data, scratch]
            .into_iter()
            .filter(|&length| length > 0)
            .map(|length| pool::rounded(length as usize))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn a_quarter_each() {
        let mut shares = Shares::new(16 * MIB, MIB);
        let (one, other) = (shares.join((1, 1)), shares.join((1, 2)));
        assert!(shares.reserve(one, 4 * MIB));
        assert!(!shares.reserve(one, 1), "its share is used up");
        assert!(shares.reserve(other, MIB), "the other's is not");
        shares.give_back(one, MIB);
        assert!(shares.reserve(one, MIB));
    }

    #[test]
    fn the_largest_command_always_fits() {
        let mut shares = Shares::new(2 * MIB, MIB);
        let share = shares.join((1, 1));
        assert!(shares.reserve(share, 2 * MIB));
    }

    #[test]
    fn queues_of_one_controller_have_one_share() {
        let mut shares = Shares::new(16 * MIB, MIB);
        let (admin, io) = (shares.join((1, 7)), shares.join((1, 7)));
        assert_eq!(admin, io);
        assert_ne!(shares.join((2, 7)), admin, "another subsystem's");
        shares.leave(admin);
        assert!(shares.reserve(io, MIB));
        shares.give_back(io, MIB);
        shares.leave(io);
        assert_eq!(shares.join((3, 1)), io, "its place is free");
    }
}
