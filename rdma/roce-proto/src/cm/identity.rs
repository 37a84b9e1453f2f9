//! Random identifiers of a connection manager, which are neither repeated nor predictable.
//!
//! Linux hosts refuse a connection as stale if an earlier one had the same GUID and queue pair
//! number (IBTA 12.9.8.3.1), so a restarted target uses another GUID.

use alloc::boxed::Box;
use core::fmt;

/// Generator of the GUID, communication ids and transaction ids.
pub struct Identity {
    draw: Draw,
    guid: u64,
}

/// Source of unpredictable 64-bit numbers.
pub type Draw = Box<dyn FnMut() -> u64 + Send>;

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({:#018x})", self.guid)
    }
}

impl Identity {
    /// Creates a generator.
    #[must_use]
    pub fn new(mut draw: Draw) -> Self {
        let guid = draw() | 0x0200_0000_0000_0000;
        Self { draw, guid }
    }

    /// Returns the GUID of the channel adapter.
    #[must_use]
    pub fn guid(&self) -> u64 {
        self.guid
    }

    /// Returns a new communication id, never 0, which means "no id" in messages.
    pub(super) fn comm_id(&mut self) -> u32 {
        ((self.draw)() as u32).max(1)
    }

    pub(super) fn transaction_id(&mut self) -> u64 {
        (self.draw)()
    }
}
