//! Packet sequence numbers: 24 bits on the wire, 64 within.
//!
//! Within, a sequence number counts up for ever, so that comparing two needs no
//! thought. Its low 24 bits are the PSN. Only what comes in from the wire has
//! to be placed (IBTA 9.7.1: everything within 2^23 behind or ahead).

/// Bits of a PSN.
const BITS: u32 = 24;
const MASK: u64 = (1 << BITS) - 1;

/// The sequence number that a connection starts from. Far enough from 0 that
/// nothing that may legally come in is below it.
#[must_use]
pub const fn start(psn: u32) -> u64 {
    1 << BITS | psn as u64 & MASK
}

/// What stands on the wire for `sequence`.
#[must_use]
pub const fn to_wire(sequence: u64) -> u32 {
    (sequence & MASK) as u32
}

/// The sequence number nearest to `expected` that `psn` can mean.
#[must_use]
pub const fn from_wire(psn: u32, expected: u64) -> u64 {
    let ahead = (psn as u64).wrapping_sub(expected) & MASK;
    if ahead < 1 << (BITS - 1) {
        expected + ahead
    } else {
        (expected + ahead).saturating_sub(1 << BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_is_meant() {
        let expected = start(0xff_fffe);
        for offset in [-0x80_0000_i64, -3, -1, 0, 1, 2, 3, 0x7f_ffff] {
            let sequence = expected.saturating_add_signed(offset);
            assert_eq!(from_wire(to_wire(sequence), expected), sequence, "{offset}");
        }
    }
}
