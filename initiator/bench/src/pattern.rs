//! Content of verified blocks: a header and pseudorandom data.
//!
//! A region consists of units of the job's smallest block size (fio's `verify_interval`). Each
//! unit's header contains offset, generation and seed, so that lost, torn, misplaced and stale
//! writes are distinguishable.

use std::fmt;

use fastrand::Rng;

use super::random::mix;

pub(super) const HEADER_BYTES: usize = 40;
const MAGIC: u64 = u64::from_le_bytes(*b"CairnBLK");
/// Position of the CRC-32C, which covers all later bytes.
const CRC: std::ops::Range<usize> = 8..12;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) offset: u64,
    /// Writes of this run to the unit, including this write.
    pub(super) generation: u32,
    pub(super) seed: u64,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "offset {}, generation {}, seed {:#x}",
            self.offset, self.generation, self.seed
        )
    }
}

pub(super) fn fill(unit: &mut [u8], identity: Identity) {
    assert!(unit.len() >= HEADER_BYTES, "a unit has room for its header");
    stream(identity).fill(&mut unit[HEADER_BYTES..]);
    unit[0..8].copy_from_slice(&MAGIC.to_le_bytes());
    let length = unit.len() as u32;
    unit[12..16].copy_from_slice(&length.to_le_bytes());
    unit[16..24].copy_from_slice(&identity.offset.to_le_bytes());
    unit[24..32].copy_from_slice(&identity.seed.to_le_bytes());
    unit[32..36].copy_from_slice(&identity.generation.to_le_bytes());
    unit[36..40].fill(0);
    let crc = crc32c::crc32c(&unit[CRC.end..]);
    unit[CRC].copy_from_slice(&crc.to_le_bytes());
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    pub(super) offset: u64,
    pub(super) generation: Option<u32>,
    pub(super) seed: Option<u64>,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.generation {
            Some(generation) => write!(f, "generation {generation}")?,
            None => write!(f, "a verified block")?,
        }
        self.seed
            .map_or(Ok(()), |seed| write!(f, " of seed {seed:#x}"))
    }
}

pub(super) fn check(unit: &[u8], expected: Expected) -> Result<(), String> {
    let stored = u32::from_le_bytes(unit[CRC].try_into().expect("4 bytes"));
    let computed = crc32c::crc32c(&unit[CRC.end..]);
    let wrong = match identity(unit) {
        None if unit.iter().all(|&byte| byte == 0) => {
            "zeroes: never written, or deallocated".to_owned()
        }
        None => {
            "bytes of something else: no verified run wrote them, or one with another block size"
                .to_owned()
        }
        Some(found) if stored != computed => format!(
            "a corrupt block ({found}): crc32c {stored:08x} stored, {computed:08x} found; {}",
            first_difference(unit, found)
        ),
        Some(found) if found.offset != expected.offset => format!("a misplaced block ({found})"),
        Some(found) if expected.seed.is_some_and(|seed| seed != found.seed) => {
            format!("a block of another run ({found})")
        }
        Some(found) if expected.generation.is_some_and(|g| g != found.generation) => {
            format!("a stale block ({found})")
        }
        Some(_) => return Ok(()),
    };
    let offset = expected.offset;
    Err(format!(
        "verify: bad block at offset {offset}: expected {expected}, got {wrong}"
    ))
}

fn identity(unit: &[u8]) -> Option<Identity> {
    let u64_at = |at: usize| u64::from_le_bytes(unit[at..at + 8].try_into().expect("8 bytes"));
    let u32_at = |at: usize| u32::from_le_bytes(unit[at..at + 4].try_into().expect("4 bytes"));
    let ours =
        unit.len() >= HEADER_BYTES && u64_at(0) == MAGIC && u32_at(12) as usize == unit.len();
    ours.then(|| Identity {
        offset: u64_at(16),
        generation: u32_at(32),
        seed: u64_at(24),
    })
}

fn first_difference(unit: &[u8], identity: Identity) -> String {
    let mut right = vec![0; unit.len()];
    fill(&mut right, identity);
    // The checksum is skipped, because it differs whenever another byte differs.
    let differs = |&at: &usize| unit[at] != right[at] && !CRC.contains(&at);
    match (0..unit.len()).find(differs) {
        Some(at) => format!(
            "first wrong byte {at}: {:#04x} for {:#04x}",
            unit[at], right[at]
        ),
        None => "only the checksum is wrong".to_owned(),
    }
}

fn stream(identity: Identity) -> Rng {
    let place = mix(identity.offset ^ u64::from(identity.generation) << 48);
    Rng::with_seed(identity.seed ^ place)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Identity = Identity {
        offset: 8192,
        generation: 3,
        seed: 42,
    };

    fn expected() -> Expected {
        Expected {
            offset: 8192,
            generation: Some(3),
            seed: Some(42),
        }
    }

    fn unit(identity: Identity) -> Vec<u8> {
        let mut unit = vec![0; 512];
        fill(&mut unit, identity);
        unit
    }

    fn mismatch(unit: &[u8]) -> String {
        check(unit, expected()).unwrap_err()
    }

    #[test]
    fn what_was_written_is_right() {
        check(&unit(AT), expected()).unwrap();
        let lenient = Expected {
            generation: None,
            seed: None,
            ..expected()
        };
        check(&unit(AT), lenient).unwrap();
    }

    #[test]
    fn each_way_to_be_wrong_has_its_name() {
        let stale = unit(Identity {
            generation: 2,
            ..AT
        });
        assert!(mismatch(&stale).contains("expected generation 3 of seed 0x2a, got a stale"));
        let misplaced = unit(Identity { offset: 4096, ..AT });
        assert!(mismatch(&misplaced).contains("misplaced block (offset 4096"));
        let other = unit(Identity { seed: 43, ..AT });
        assert!(mismatch(&other).contains("another run"));
        assert!(mismatch(&[0; 512]).contains("zeroes"));
        assert!(mismatch(&[7; 512]).contains("something else"));
    }

    #[test]
    fn any_flipped_bit_is_found_and_named() {
        let good = unit(AT);
        for at in (0..512).step_by(7) {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(check(&bad, expected()).is_err(), "byte {at}");
        }
        let mut bad = good.clone();
        bad[300] = !good[300];
        let text = mismatch(&bad);
        assert!(text.contains("first wrong byte 300"), "{text}");
    }

    #[test]
    fn no_two_units_look_alike() {
        let a = unit(AT);
        for other in [
            Identity { offset: 8704, ..AT },
            Identity {
                generation: 4,
                ..AT
            },
            Identity { seed: 7, ..AT },
        ] {
            let b = unit(other);
            let same = (HEADER_BYTES..512).filter(|&at| a[at] == b[at]).count();
            assert!(same < 20, "{same} bytes of {other} are the same");
        }
    }
}
