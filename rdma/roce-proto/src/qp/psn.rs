//! Packet sequence numbers: 24 bits on the wire, 64 bits internally.
//!
//! Internal numbers never wrap, so they can be compared; their low 24 bits are the PSN. A PSN from
//! the wire maps to the nearest internal number (IBTA 9.7.1: within 2^23 behind or ahead).

const BITS: u32 = 24;
const MASK: u64 = (1 << BITS) - 1;

/// Returns the sequence number of the first PSN, so large that no PSN maps to a negative number.
#[must_use]
pub const fn start(psn: u32) -> u64 {
    1 << BITS | psn as u64 & MASK
}

/// Returns the PSN of a sequence number.
#[must_use]
pub const fn to_wire(sequence: u64) -> u32 {
    (sequence & MASK) as u32
}

/// Returns the sequence number with this PSN that is nearest to `expected`.
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
