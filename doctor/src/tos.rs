//! Type of service (ToS).

use std::fmt;

use serde::Serialize;

/// Type of service of a packet: DSCP in the upper six bits, ECN in the lower two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tos(pub u8);

impl Tos {
    #[must_use]
    pub fn dscp(self) -> u8 {
        self.0 >> 2
    }

    /// Returns the ECN bits (RFC 3168), which adapters overwrite.
    #[must_use]
    pub fn ecn(self) -> u8 {
        self.0 & 3
    }

    /// Returns the RoCE service level: the upper three bits.
    #[must_use]
    pub fn sl(self) -> u8 {
        self.0 >> 5
    }

    #[must_use]
    pub fn pcp(self) -> u8 {
        self.sl() & 7
    }
}

impl fmt::Display for Tos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(tos) = self;
        write!(f, "ToS {tos} (DSCP {}, SL {})", self.dscp(), self.sl())
    }
}

impl Serialize for Tos {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Notations {
            tos: u8,
            dscp: u8,
            sl: u8,
        }
        Notations {
            tos: self.0,
            dscp: self.dscp(),
            sl: self.sl(),
        }
        .serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::Tos;

    #[test]
    fn one_byte_in_all_notations() {
        let tos = Tos(96);
        assert_eq!((tos.dscp(), tos.sl(), tos.pcp(), tos.ecn()), (24, 3, 3, 0));
        assert_eq!(tos.to_string(), "ToS 96 (DSCP 24, SL 3)");
        assert_eq!(Tos(106).ecn(), 2);
        assert_eq!(Tos(255).pcp(), 7);
    }
}
