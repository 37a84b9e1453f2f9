//! Content of verified blocks: a header and pseudorandom data.
//!
//! A region consists of units of the job's smallest block size (fio's `verify_interval`). The header of each unit
//! contains offset, generation and seed, so that lost, torn, misplaced and stale writes are distinguishable.

use std::fmt;

use fastrand::Rng;

use super::random::mix;

/// Size of the header in bytes.
pub(super) const HEADER_BYTES: usize = 40;
const MAGIC: u64 = u64::from_le_bytes(*b"CairnBLK");
/// Byte range of the checksum, which covers all bytes after it.
const CRC: std::ops::Range<usize> = 8..12;

/// Identity of a unit, stored in its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    /// Offset in the namespace in bytes.
    pub offset: u64,
    /// Number of writes to this unit by the run, including this one.
    pub generation: u32,
    /// Seed of the run.
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

/// Fills a unit with its header and data.
///
/// # Panics
/// If the unit is smaller than the header.
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

/// Expected identity of a unit. `None` accepts any value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    /// Offset in the namespace in bytes.
    pub offset: u64,
    /// Generation, if known.
    pub generation: Option<u32>,
    /// Seed of the run, if known.
    pub seed: Option<u64>,
}

/// Checks a unit.
///
/// # Errors
/// A description of the unexpected content.
pub(super) fn check(unit: &[u8], expected: Expected) -> Result<(), Mismatch> {
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

/// Parses the header of a unit; `None` if the unit has no valid header.
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

/// Finds the first byte that differs from the content determined by the header. Returns its position, the expected byte
/// and the actual byte.
fn first_difference(unit: &[u8], identity: Identity) -> Option<(usize, u8, u8)> {
    let mut right = vec![0; unit.len()];
    fill(&mut right, identity);
    // The checksum is not compared, because it is wrong whenever another byte is.
    let differs = |&at: &usize| unit[at] != right[at] && !CRC.contains(&at);
    (0..unit.len())
        .find(differs)
        .map(|at| (at, right[at], unit[at]))
}

fn stream(identity: Identity) -> Rng {
    let place = mix(identity.offset ^ u64::from(identity.generation) << 48);
    Rng::with_seed(identity.seed ^ place)
}

/// Unit with unexpected content.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mismatch {
    /// Expected identity.
    pub expected: Expected,
    /// Actual content.
    pub wrong: Wrong,
}

/// Kind of unexpected content.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wrong {
    /// All bytes are zero: the unit was never written, or deallocated.
    Zeroes,
    /// There is no valid header for this unit size.
    Foreign,
    /// The header is valid, but other bytes are wrong.
    Torn {
        /// Identity in the header.
        found: Identity,
        /// Checksum in the header.
        stored: u32,
        /// Checksum of the content.
        computed: u32,
        /// Position, expected value and actual value of the first wrong byte.
        first: Option<(usize, u8, u8)>,
    },
    /// Intact content of a unit at another offset.
    Misplaced(Identity),
    /// Intact content of this unit from another run.
    OtherRun(Identity),
    /// Intact content of this unit from another generation.
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
                    None => write!(f, "; only the checksum is wrong"),
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
