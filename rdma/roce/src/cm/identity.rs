//! Numbers that must not repeat from one start to the next, and that a stranger must
//! not foresee.
//!
//! A Linux host remembers the GUID and queue pair number of each connection. A
//! target that came back with the same ones would be refused as a stale
//! connection (IBTA 12.9.8.3.1). And the GUID is in every REQ and REP: nothing else
//! may follow from it, so each number is drawn by itself.

use crate::chance::Chance;

/// The source of a connection manager's numbers.
#[derive(Debug)]
pub struct Identity {
    chance: Chance,
    guid: u64,
}

impl Identity {
    /// An identity whose numbers come from `chance`.
    #[must_use]
    pub fn new(chance: Chance) -> Self {
        // Locally administered (the U/L bit of an EUI-64).
        let guid = chance.draw() | 0x0200_0000_0000_0000;
        Self { chance, guid }
    }

    /// The channel adapter's GUID.
    #[must_use]
    pub fn guid(&self) -> u64 {
        self.guid
    }

    /// A communication id: 0 is for messages that have none.
    pub(super) fn comm_id(&self) -> u32 {
        (self.chance.draw() as u32).max(1)
    }

    /// A transaction id.
    pub(super) fn transaction_id(&self) -> u64 {
        self.chance.draw()
    }
}
