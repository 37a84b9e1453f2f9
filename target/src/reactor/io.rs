//! The I/O of a reactor: its ring, its buffers, the disks, and what waits for them.

use std::time::Instant;

use super::disks::Disks;
use super::overdue::Aborting;
use super::retry::Retry;
use super::shares::Shares;
use crate::arena::Arena;
use crate::request::List;
use crate::ring::Ring;

/// What a reactor has of the disks.
pub(super) struct Io {
    pub(super) ring: Ring,
    pub(super) arena: Arena,
    pub(super) disks: Disks,
    /// What each host may have, and holds of the data buffers.
    pub(super) shares: Shares,
    /// Requests that wait for data buffers, within their shares.
    pub(super) awaiting_buffer: List,
    /// Since when the first of these finds no stretch that is long enough.
    pub(super) buffers_short: Option<Instant>,
    /// Block I/O that is tried again later. Not more than requests.
    pub(super) retries: Vec<Retry>,
    /// Aborts of commands that a disk has. Not more than ACL of each controller.
    pub(super) aborting: Vec<Aborting>,
}
