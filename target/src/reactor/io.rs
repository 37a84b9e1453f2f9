//! The I/O of a reactor: its ring, its buffers, the disks, and what waits for them.

use std::time::Instant;

use cairn_disk::{Arena, Ring, Span};

use super::aborts::Aborts;
use super::disks::Disks;
use super::limited::Limited;
use super::older::Older;
use super::retry::Retries;
use super::shares::Shares;
use crate::ids::ShareId;
use crate::request::{List, Request};

/// What a reactor has of the disks.
pub(super) struct Io {
    pub(super) ring: Ring,
    pub(super) arena: Arena,
    pub(super) disks: Disks,
    /// What each host may have, and holds of the data buffers.
    pub(super) shares: Shares,
    /// Requests that wait until limits allow them.
    pub(super) limited: Limited,
    /// Requests that wait for data buffers, within their shares.
    pub(super) awaiting_buffer: List,
    /// Since when the first of these finds no stretch that is long enough.
    pub(super) buffers_short: Option<Instant>,
    /// Block I/O that is tried again later.
    pub(super) retries: Retries,
    /// Changes that wait for older ones of the same blocks.
    pub(super) older: Older,
    /// Aborts of commands that a disk has.
    pub(super) aborts: Aborts,
}

impl Io {
    /// The data buffer of a request, as long as it asked for.
    pub(super) fn data_span(&self, request: &Request) -> Span {
        let buffer = request
            .data
            .as_ref()
            .expect("a request has the buffer that it asked for");
        self.arena.span(buffer, request.buffer_bytes.0)
    }

    /// The second buffer of a request.
    pub(super) fn scratch_span(&self, request: &Request) -> Span {
        let buffer = request
            .scratch
            .as_ref()
            .expect("a request has the buffer that it asked for");
        self.arena.span(buffer, request.buffer_bytes.1)
    }

    /// Gives the buffers of a request back, and what this share has promised it.
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

    /// A request has nothing more to do with its disk.
    #[inline]
    pub(super) fn leave_disk(&mut self, request: &mut Request) {
        if let Some(disk) = request.disk.take() {
            self.disks.leave(disk, &mut self.ring);
        }
    }
}
