//! What verified blocks hold: who they are, and bytes that only they have.
//!
//! A unit (fio's `verify_interval`: the smallest block of the job) begins with a
//! header that says at which offset of the namespace it belongs, in which
//! generation it was written there, and by which run. So a block that was lost,
//! torn, written elsewhere or never replaced is not only found: it says itself
//! what it is.

use std::fmt;

use super::random::{Random, mix};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 40;
/// "CairnBLK".
const MAGIC: u64 = u64::from_le_bytes(*b"CairnBLK");
/// Where the checksum is; it covers everything behind it.
const CRC: std::ops::Range<usize> = 8..12;

/// Which version of which place a unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Bytes from the start of the namespace.
    pub offset: u64,
    /// How often this run has written the place, this time included.
    pub generation: u32,
    /// The run's seed.
    pub seed: u64,
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

/// Fills a unit.
///
/// # Panics
/// If it has no room for a header.
pub fn fill(unit: &mut [u8], identity: Identity) {
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

/// What a unit must be.
#[derive(Debug, Clone, Copy)]
pub struct Expected {
    /// Bytes from the start of the namespace.
    pub offset: u64,
    /// `None`: any will do, as when another run has written it.
    pub generation: Option<u32>,
    /// `None`: any will do.
    pub seed: Option<u64>,
}

/// Checks a unit.
///
/// # Errors
/// What is there instead.
pub fn check(unit: &[u8], expected: Expected) -> Result<(), Mismatch> {
    let Some(found) = identity(unit) else {
        let wrong = if unit.iter().all(|&byte| byte == 0) {
            Wrong::Zeroes
        } else {
            Wrong::Foreign
        };
        return Err(Mismatch { expected, wrong });
    };
    let stored = u32::from_le_bytes(unit[CRC].try_into().expect("4 bytes"));
    let computed = crc32c::crc32c(&unit[CRC.end..]);
    let wrong = if stored != computed {
        Wrong::Torn {
            found,
            stored,
            computed,
            first: first_difference(unit, found),
        }
    } else if found.offset != expected.offset {
        Wrong::Misplaced(found)
    } else if expected.seed.is_some_and(|seed| seed != found.seed) {
        Wrong::OtherRun(found)
    } else if expected.generation.is_some_and(|g| g != found.generation) {
        Wrong::Stale(found)
    } else {
        return Ok(());
    };
    Err(Mismatch { expected, wrong })
}

/// Who a unit says it is, if it is one.
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

/// The first byte that is not what its own header calls for.
fn first_difference(unit: &[u8], identity: Identity) -> Option<(usize, u8, u8)> {
    let mut right = vec![0; unit.len()];
    fill(&mut right, identity);
    // The checksum's own bytes differ of course.
    let differs = |&at: &usize| unit[at] != right[at] && !CRC.contains(&at);
    (0..unit.len())
        .find(differs)
        .map(|at| (at, right[at], unit[at]))
}

/// The bytes behind a unit's header.
fn stream(identity: Identity) -> Random {
    let place = mix(identity.offset ^ u64::from(identity.generation) << 48);
    Random::new(identity.seed ^ place)
}

/// A unit is not what it must be.
#[derive(Debug, Clone, Copy)]
pub struct Mismatch {
    /// What it must be.
    pub expected: Expected,
    /// What it is.
    pub wrong: Wrong,
}

/// In which way a unit is wrong.
#[derive(Debug, Clone, Copy)]
pub enum Wrong {
    /// Nothing but zeroes: never written, or deallocated.
    Zeroes,
    /// Something that no verified run has written, or one with another block size.
    Foreign,
    /// Some of its bytes are others.
    Torn {
        /// Who it says it is.
        found: Identity,
        /// Its checksum.
        stored: u32,
        /// The checksum of what it holds.
        computed: u32,
        /// The first byte that is wrong: where, what it should be, what it is.
        first: Option<(usize, u8, u8)>,
    },
    /// It is whole, but belongs elsewhere.
    Misplaced(Identity),
    /// It is whole and in place, but of another run.
    OtherRun(Identity),
    /// It is whole and in place, but not what was written there last.
    Stale(Identity),
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Expected {
            offset,
            generation,
            seed,
        } = self.expected;
        write!(f, "verify: bad block at offset {offset}: expected ")?;
        match generation {
            Some(generation) => write!(f, "generation {generation}")?,
            None => write!(f, "a verified block")?,
        }
        if let Some(seed) = seed {
            write!(f, " of seed {seed:#x}")?;
        }
        write!(f, ", got ")?;
        match self.wrong {
            Wrong::Zeroes => write!(f, "zeroes: never written, or deallocated"),
            Wrong::Foreign => write!(
                f,
                "bytes of something else: no verified run wrote them, or one with another block \
                 size"
            ),
            Wrong::Torn {
                found,
                stored,
                computed,
                first,
            } => {
                write!(
                    f,
                    "a corrupt block ({found}): crc32c {stored:08x} stored, {computed:08x} found"
                )?;
                match first {
                    Some((at, right, is)) => {
                        write!(f, "; first wrong byte {at}: {is:#04x} for {right:#04x}")
                    }
                    None => write!(f, "; the checksum alone is wrong"),
                }
            }
            Wrong::Misplaced(found) => write!(f, "a misplaced block ({found})"),
            Wrong::OtherRun(found) => write!(f, "a block of another run ({found})"),
            Wrong::Stale(found) => write!(f, "a stale block ({found})"),
        }
    }
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
        check(unit, expected()).unwrap_err().to_string()
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
