//! Numbers that must not repeat from one start to the next.
//!
//! A Linux host remembers the GUID and queue pair number of each connection. A
//! target that came back with the same ones would be refused as a stale
//! connection (IBTA 12.9.8.3.1), so all of them begin at a random place.

/// A source of numbers (splitmix64).
#[derive(Debug)]
pub struct Identity {
    state: u64,
    guid: u64,
    next_comm_id: u32,
}

impl Identity {
    /// From a seed: random in production, chosen in a simulation.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut this = Self {
            state: seed,
            guid: 0,
            next_comm_id: 0,
        };
        // Locally administered (the U/L bit of an EUI-64).
        this.guid = this.random() | 0x0200_0000_0000_0000;
        this.next_comm_id = this.random() as u32;
        this
    }

    /// The channel adapter's GUID.
    #[must_use]
    pub fn guid(&self) -> u64 {
        self.guid
    }

    /// A communication id: 0 is for messages that have none.
    pub(super) fn comm_id(&mut self) -> u32 {
        self.next_comm_id = self.next_comm_id.wrapping_add(1).max(1);
        self.next_comm_id
    }

    /// A PSN to begin with, a transaction id, and the like.
    pub fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
