//! File format of reservations that persist through power loss.
//!
//! Layout (little-endian): magic, UUID, generation, type, index of the holder, number of
//! registrants, length of SUBNQN, SUBNQN, registrants (HOSTID and key), and an FNV-1a checksum of
//! all bytes before it.

use alloc::vec::Vec;

use super::{Registrant, ReservationType, Reservations};

const MAGIC: &[u8; 8] = b"CairnPR1";
const HEADER_BYTES: usize = 34;
const REGISTRANT_BYTES: usize = 24;
const CHECKSUM_BYTES: usize = 8;
const NO_HOLDER: u8 = u8::MAX;

/// Reason why stored reservations cannot be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredError {
    /// The bytes were not written by a target, or are damaged.
    Damaged,
    /// The bytes belong to another disk or subsystem.
    Foreign,
}

impl core::fmt::Display for StoredError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Damaged => "the content is damaged",
            Self::Foreign => "it belongs to another disk or subsystem",
        })
    }
}

impl core::error::Error for StoredError {}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let fold = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, fold).to_le_bytes()
}

impl Reservations {
    /// Encodes the state of disk `uuid` in subsystem `subnqn`. Truncates `subnqn` to 255 bytes.
    #[must_use]
    pub fn encode(&self, uuid: &[u8; 16], subnqn: &str) -> Vec<u8> {
        let subnqn = &subnqn.as_bytes()[..subnqn.len().min(255)];
        let held = self.held.map(|held| held.holder);
        let holder = held.flatten().and_then(|holder| self.find(&holder));
        let mut bytes = Vec::new();
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(uuid);
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.push(self.rtype().map_or(0, ReservationType::code));
        bytes.push(holder.map_or(NO_HOLDER, |holder| holder as u8));
        bytes.extend_from_slice(&(self.registrants.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&(subnqn.len() as u16).to_le_bytes());
        bytes.extend_from_slice(subnqn);
        for registrant in &self.registrants {
            bytes.extend_from_slice(&registrant.host);
            bytes.extend_from_slice(&registrant.key.to_le_bytes());
        }
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum);
        bytes
    }

    /// Decodes the state of disk `uuid` in subsystem `subnqn`, with PTPL set.
    pub fn decode(bytes: &[u8], uuid: &[u8; 16], subnqn: &str) -> Result<Self, StoredError> {
        let (content, sum) = bytes
            .split_last_chunk::<CHECKSUM_BYTES>()
            .ok_or(StoredError::Damaged)?;
        if checksum(content) != *sum {
            return Err(StoredError::Damaged);
        }
        let (state, own_uuid, own_subnqn) = parse(content).ok_or(StoredError::Damaged)?;
        let subnqn = &subnqn.as_bytes()[..subnqn.len().min(255)];
        if own_uuid == uuid && own_subnqn == subnqn {
            Ok(state)
        } else {
            Err(StoredError::Foreign)
        }
    }
}

fn parse(content: &[u8]) -> Option<(Reservations, &[u8], &[u8])> {
    let (header, rest) = content.split_at_checked(HEADER_BYTES)?;
    let number = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let (subnqn, rest) = rest.split_at_checked(number(32).into())?;
    if !header.starts_with(MAGIC) || rest.len() != usize::from(number(30)) * REGISTRANT_BYTES {
        return None;
    }
    let registrants = rest.chunks_exact(REGISTRANT_BYTES).map(|entry| {
        let (host, key) = entry.split_at(16);
        Registrant {
            host: host.try_into().expect("16 bytes"),
            key: u64::from_le_bytes(key.try_into().expect("8 bytes")),
        }
    });
    let held = match (header[28], header[29]) {
        (0, NO_HOLDER) => None,
        (rtype, holder) => {
            let rtype = ReservationType::from_code(rtype)?;
            let is_one = holder != NO_HOLDER;
            if is_one == rtype.has_all_holders() {
                return None;
            }
            Some((rtype, if is_one { holder.into() } else { 0 }))
        }
    };
    let generation = u32::from_le_bytes(header[24..28].try_into().expect("4 bytes"));
    let state = Reservations::restore(generation, true, registrants.collect(), held)?;
    Some((state, &header[8..24], subnqn))
}
