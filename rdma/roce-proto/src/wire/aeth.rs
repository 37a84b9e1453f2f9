//! AETH (IBTA 9.3.5, 9.7.5.2).

use core::time::Duration;

use super::{Header, field};

/// ACK extended transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aeth {
    /// Syndrome, possibly reserved.
    pub syndrome: u8,
    /// MSN: completed messages, modulo 2^24.
    pub msn: u32,
}

impl Header for Aeth {
    const LEN: usize = 4;

    fn read(b: &[u8]) -> Self {
        Self {
            syndrome: b[0],
            msn: field::u24(b, 1),
        }
    }

    fn write(&self, out: &mut [u8]) {
        out[0] = self.syndrome;
        field::put_u24(out, 1, self.msn);
    }
}

/// Meaning of a syndrome (IBTA 9.7.5.2.2, table 43).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syndrome {
    /// All packets up to this PSN have arrived.
    ///
    /// The sent credit count is 31 (unlimited), as a shared receive queue requires.
    Ack,
    /// Receiver not ready: send again after the delay of this timer code.
    Rnr(u8),
    /// The request was refused.
    Nak(NakCode),
}

impl Syndrome {
    /// Returns the syndrome byte.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Ack => 0x1f,
            Self::Rnr(timer) => 0x20 | timer & 0x1f,
            Self::Nak(nak) => 0x60 | nak as u8,
        }
    }

    /// Returns the meaning of a syndrome byte, or `None` if reserved.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code >> 5 {
            0 => Some(Self::Ack),
            1 => Some(Self::Rnr(code & 0x1f)),
            3 => match code & 0x1f {
                0 => Some(Self::Nak(NakCode::PsnSequence)),
                1 => Some(Self::Nak(NakCode::InvalidRequest)),
                2 => Some(Self::Nak(NakCode::RemoteAccess)),
                3 => Some(Self::Nak(NakCode::RemoteOperational)),
                _ => None,
            },
            _ => None,
        }
    }
}

/// NAK code (IBTA 9.7.5.2.2, table 44).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum NakCode {
    /// A packet is missing: retransmit from this PSN.
    PsnSequence = 0,
    /// The request is unsupported or malformed.
    InvalidRequest = 1,
    /// The key, range or access right is invalid.
    RemoteAccess = 2,
    /// The responder could not execute the request.
    RemoteOperational = 3,
}

/// Returns the delay of an RNR timer code (IBTA 9.7.5.2.8, table 45).
#[must_use]
pub fn rnr_delay(code: u8) -> Duration {
    /// Delays in units of 10 us.
    const TABLE: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
        1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    Duration::from_micros(u64::from(TABLE[usize::from(code & 0x1f)]) * 10)
}

/// Returns the ACK timeout of a code, or `None` for 0 (IBTA 9.7.6.1.3).
#[must_use]
pub fn ack_timeout_of_code(code: u8) -> Option<Duration> {
    (code != 0).then(|| timeout_of_code(code))
}

/// Returns the time of a code: 4.096 us * 2^code (IBTA 9.7.6.1.3).
#[must_use]
pub fn timeout_of_code(code: u8) -> Duration {
    Duration::from_nanos(4096 << (code & 0x1f))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syndromes_survive_their_codes() {
        for code in 0..=u8::MAX {
            match Syndrome::from_code(code) {
                Some(Syndrome::Ack) => assert!(code < 0x20),
                Some(syndrome) => assert_eq!(syndrome.code(), code),
                None => assert!((0x40..0x60).contains(&code) || code > 0x63),
            }
        }
    }

    #[test]
    fn timers_are_those_of_the_specification() {
        assert_eq!(rnr_delay(0), Duration::from_micros(655_360));
        assert_eq!(rnr_delay(1), Duration::from_micros(10));
        assert_eq!(rnr_delay(12), Duration::from_micros(640));
        assert_eq!(rnr_delay(31), Duration::from_micros(491_520));
        assert_eq!(timeout_of_code(17), Duration::from_nanos(536_870_912));
    }
}
