//! Extension of REQ and REP: a SEND longer than the path MTU in one packet.
//!
//! The extension ends the private data: `CairnSend`, version, limit in bytes. A REQ contains the
//! sender's limit, a REP that of both ends.

use super::ip_cm::CONSUMER_LEN;
use crate::wire::field;

/// Length of the extension in bytes.
pub const LEN: usize = 12;
/// Maximum private data of the consumer in a REQ with the extension, in bytes.
pub const ROOM_IN_REQ: usize = CONSUMER_LEN - LEN;
const MARK: [u8; 10] = *b"CairnSend\x01";

/// Largest path MTU in bytes (IBTA 12.6.5.7).
const PATH_MTU_MAX: u32 = 4096;

/// Maximum payload of a SEND in one packet: more than the largest path MTU, and at most
/// [`Self::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LongSend(u16);

impl LongSend {
    /// NVMe command with 4 KiB of data.
    pub const MAX: Self = Self(64 + PATH_MTU_MAX as u16);

    /// Returns the limit for packets of at most `bytes` payload bytes, or `None` if the path MTU
    /// is as large.
    #[must_use]
    pub fn within(bytes: u32) -> Option<Self> {
        let limited = bytes.min(Self::MAX.bytes());
        (limited > PATH_MTU_MAX).then_some(Self(limited as u16))
    }

    /// Payload in bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        self.0 as u32
    }

    /// Writes the extension behind the consumer's private data. Returns false if the consumer uses
    /// its bytes.
    #[must_use]
    pub fn append<const N: usize>(self, private_data: &mut [u8; N]) -> bool {
        let extension = &mut private_data[N - LEN..];
        let is_free = extension.iter().all(|byte| *byte == 0);
        if is_free {
            extension[..MARK.len()].copy_from_slice(&MARK);
            extension[MARK.len()..].copy_from_slice(&self.0.to_be_bytes());
        }
        is_free
    }

    /// Replaces the extension by zeros, and returns its limit, if valid.
    pub fn take<const N: usize>(private_data: &mut [u8; N]) -> Option<Self> {
        let extension = &mut private_data[N - LEN..];
        if !extension.starts_with(&MARK) {
            return None;
        }
        let bytes = field::u16(extension, MARK.len());
        extension.fill(0);
        Self::within(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(bytes: u16) -> Option<u32> {
        let mut data = [0; 56];
        data[..4].copy_from_slice(b"data");
        assert!(LongSend(bytes).append(&mut data));
        let limit = LongSend::take(&mut data).map(LongSend::bytes);
        assert!(data.starts_with(b"data\0"));
        assert!(
            data[4..].iter().all(|byte| *byte == 0),
            "the consumer sees nothing of it"
        );
        limit
    }

    #[test]
    fn no_peer_can_name_an_absurd_length() {
        for (bytes, limit) in [(4097, 4097), (4160, 4160), (4161, 4160), (u16::MAX, 4160)] {
            assert_eq!(taken(bytes), Some(limit), "{bytes}");
        }
        for bytes in [0, 1, 64, 4095, 4096] {
            assert_eq!(taken(bytes), None, "{bytes}");
        }
    }

    #[test]
    fn the_consumers_bytes_stay() {
        let mut full = [7; 56];
        assert!(!LongSend::MAX.append(&mut full));
        assert_eq!(LongSend::take(&mut full), None);
        assert_eq!(full, [7; 56]);
        let mut other_version = [0; 196];
        assert!(LongSend::MAX.append(&mut other_version));
        other_version[196 - LEN + MARK.len() - 1] += 1;
        let before = other_version;
        assert_eq!(LongSend::take(&mut other_version), None);
        assert_eq!(other_version, before);
    }
}
