//! Numbers that must not repeat from one start to the next, and that an attacker must
//! not predict.
//!
//! A Linux host remembers the GUID and queue pair number of each connection. A
//! target that came back with the same ones would be refused as a stale
//! connection (IBTA 12.9.8.3.1). And the GUID is in every REQ and REP: nothing else
//! may follow from it, so each number is drawn by itself.

use alloc::boxed::Box;
use core::fmt;

/// The source of a connection manager's numbers.
pub struct Identity {
    draw: Draw,
    guid: u64,
}

/// Draws a random number.
pub type Draw = Box<dyn FnMut() -> u64 + Send>;

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({:#018x})", self.guid)
    }
}

impl Identity {
    /// An identity whose numbers come from `draw`: the operating system's generator, or a
    /// simulation's.
    #[must_use]
    pub fn new(mut draw: Draw) -> Self {
        // Locally administered (the U/L bit of an EUI-64).
        let guid = draw() | 0x0200_0000_0000_0000;
        Self { draw, guid }
    }

    /// The channel adapter's GUID.
    #[must_use]
    pub fn guid(&self) -> u64 {
        self.guid
    }

    /// A communication id: 0 is for messages that have none.
    pub(super) fn comm_id(&mut self) -> u32 {
        ((self.draw)() as u32).max(1)
    }

    /// A transaction id.
    pub(super) fn transaction_id(&mut self) -> u64 {
        (self.draw)()
    }
}
