//! Random identifiers of a connection manager, neither repeated nor predictable.
//!
//! Linux hosts refuse reuse of a GUID and queue pair number after a restart as a stale connection
//! (IBTA 12.9.8.3.1). REQs and REPs expose the GUID, so each number is drawn separately.

use alloc::boxed::Box;
use core::fmt;

/// Generator of a connection manager's identifiers.
pub struct Identity {
    draw: Draw,
    guid: u64,
}

/// Function that returns a random number.
pub type Draw = Box<dyn FnMut() -> u64 + Send>;

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({:#018x})", self.guid)
    }
}

impl Identity {
    /// Creates a generator on top of `draw`, the operating system's or a simulation's.
    #[must_use]
    pub fn new(mut draw: Draw) -> Self {
        // Locally administered (the U/L bit of an EUI-64).
        let guid = draw() | 0x0200_0000_0000_0000;
        Self { draw, guid }
    }

    /// GUID of the channel adapter.
    #[must_use]
    pub fn guid(&self) -> u64 {
        self.guid
    }

    /// Draws a communication id other than 0, which means none.
    pub(super) fn comm_id(&mut self) -> u32 {
        ((self.draw)() as u32).max(1)
    }

    pub(super) fn transaction_id(&mut self) -> u64 {
        (self.draw)()
    }
}
