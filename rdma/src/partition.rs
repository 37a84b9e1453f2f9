//! Partitions, which decide which queue pairs may communicate (IBTA 10.9).
//!
//! A P_Key is a 15-bit partition number and a membership bit. Each packet carries its sender's
//! P_Key. Full members communicate with all members, limited members only with full members.

use core::fmt;
use core::str::FromStr;

const FULL: u16 = 0x8000;

/// Partition key: membership in a partition.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PKey(u16);

impl PKey {
    /// P_Key of a full member of the default partition (IBTA 10.9.1).
    pub const DEFAULT: Self = Self(0xffff);

    /// Creates a P_Key from its 16 bits; `None` for 0x0000 and 0x8000, which are invalid (IBTA
    /// 10.9.1).
    #[must_use]
    pub const fn new(bits: u16) -> Option<Self> {
        if bits & !FULL == 0 {
            None
        } else {
            Some(Self(bits))
        }
    }

    /// Returns the 16 bits carried by packets.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Returns the P_Key of a full member of the same partition.
    #[must_use]
    pub const fn to_full(self) -> Self {
        Self(self.0 | FULL)
    }

    /// True if both P_Keys belong to one partition, regardless of membership.
    #[must_use]
    pub const fn is_same_partition_as(self, other: Self) -> bool {
        self.0 & !FULL == other.0 & !FULL
    }

    /// True if a queue pair with this P_Key accepts packets with P_Key `bits`: the partition is the
    /// same, and at least one P_Key is a full member's (IBTA 10.9.3).
    #[must_use]
    pub const fn accepts(self, bits: u16) -> bool {
        self.0 & !FULL == bits & !FULL && (self.0 | bits) & FULL != 0
    }
}

impl Default for PKey {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for PKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

impl fmt::Debug for PKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PKey({self})")
    }
}

/// Reason why a text is not a P_Key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PKeyError {
    /// Text other than a 16-bit number.
    #[error("not a P_Key: write 16 bits such as 0x8001, where bit 15 is full membership")]
    NotSixteenBits,
    /// P_Key 0x0000 or 0x8000, which are invalid.
    #[error("not a partition: 0x0000 and 0x8000 are never valid; the default is 0xffff")]
    NoPartition,
}

impl FromStr for PKey {
    type Err = PKeyError;

    fn from_str(text: &str) -> Result<Self, PKeyError> {
        let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
        let bits = match hexadecimal {
            Some(digits) => u16::from_str_radix(digits, 16),
            None => text.parse(),
        };
        let bits = bits.map_err(|_| PKeyError::NotSixteenBits)?;
        Self::new(bits).ok_or(PKeyError::NoPartition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_one_partition_accept_each_other_but_for_two_limited_ones() {
        for (own, other, accepts) in [
            (0xffff, 0xffff, true),
            (0xffff, 0x7fff, true),
            (0x7fff, 0xffff, true),
            (0x7fff, 0x7fff, false),
            (0x8001, 0x8001, true),
            (0x8001, 0x0001, true),
            (0x0001, 0x8001, true),
            (0x0001, 0x0001, false),
            (0x8001, 0x8002, false),
            (0x8001, 0xffff, false),
            (0xffff, 0x8001, false),
            (0xffff, 0x0000, false),
            (0xffff, 0x8000, false),
        ] {
            let own = PKey::new(own).unwrap();
            assert_eq!(own.accepts(other), accepts, "{own} and {other:#06x}");
        }
    }

    #[test]
    fn texts_as_sysfs_and_people_write_them() {
        for (text, expected) in [
            ("0xffff", Ok(0xffff)),
            ("0x8001", Ok(0x8001)),
            ("0X1", Ok(1)),
            ("32769", Ok(0x8001)),
            ("0x0", Err(PKeyError::NoPartition)),
            ("0x8000", Err(PKeyError::NoPartition)),
            ("0x10000", Err(PKeyError::NotSixteenBits)),
            ("-1", Err(PKeyError::NotSixteenBits)),
            ("0x", Err(PKeyError::NotSixteenBits)),
            ("8001h", Err(PKeyError::NotSixteenBits)),
            ("", Err(PKeyError::NotSixteenBits)),
        ] {
            assert_eq!(text.parse().map(PKey::bits), expected, "{text:?}");
        }
        assert_eq!(PKey::new(1).unwrap().to_string(), "0x0001");
        assert!(PKey::new(0x8000).is_none() && PKey::new(0).is_none());
    }
}
