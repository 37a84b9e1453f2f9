use std::time::Instant;

use cairn_disk::{Arena, Ring, Span};

use super::aborts::Aborts;
use super::disks::Disks;
use super::older::Older;
use super::queueing::limited::Limited;
use super::retry::Retries;
use super::shares::Shares;
use crate::ids::ShareId;
use crate::request::{List, Request};

pub(super) struct Io {
    pub(super) ring: Ring,
    pub(super) arena: Arena,
    pub(super) disks: Disks,
    pub(super) shares: Shares,
    pub(super) limited: Limited,
    pub(super) awaiting_buffer: List,
    /// Time since which the first request of `awaiting_buffer` has found no buffer.
    pub(super) buffers_short: Option<Instant>,
    pub(super) retries: Retries,
    pub(super) older: Older,
    pub(super) aborts: Aborts,
}

impl Io {
    pub(super) fn data_span(&self, request: &Request) -> Span {
        let buffer = request
            .data
            .as_ref()
            .expect("a request has the buffer that it asked for");
        self.arena.span(buffer, request.buffer_bytes.0)
    }

    pub(super) fn pair_spans(&self, first: &Request) -> [Span; 2] {
        let (whole, length) = (self.data_span(first), first.transfer.length());
        [
            whole.part(0, length),
            whole.part(whole.length - length, length),
        ]
    }

    pub(super) fn scratch_span(&self, request: &Request) -> Span {
        let buffer = request
            .scratch
            .as_ref()
            .expect("a request has the buffer that it asked for");
        self.arena.span(buffer, request.buffer_bytes.1)
    }

    pub(super) fn release_buffers(&mut self, request: &mut Request, share: Option<ShareId>) {
        if let Some(buffer) = request.data.take() {
            self.arena.give(buffer);
        }
        if let Some(buffer) = request.scratch.take() {
            self.arena.pool().give(buffer);
        }
        if request.reserved > 0 {
            self.shares.take_back(request, share, &mut self.disks);
        }
    }

    #[inline]
    pub(super) fn leave_disk(&mut self, request: &mut Request) {
        if let Some(disk) = request.disk.take() {
            self.disks.leave(disk, &mut self.ring);
        }
    }
}
