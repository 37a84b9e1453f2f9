//! Data of Copy: up to 128 source ranges of the destination's namespace (NVM 1.1, 3.3.2).

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BlockRange, IoLimits, NamespaceView};
use crate::wire::{Sqe, Status};

/// Maximum source ranges (MSRC, not 0-based).
pub const COPY_RANGES_MAX: usize = 128;
/// Maximum length of the list of source ranges, in bytes.
pub const COPY_BYTES_MAX: usize = COPY_RANGES_MAX * CopyFormat::One.entry_bytes();

const SIZE_LIMIT: Status = Status::COMMAND_SIZE_LIMIT_EXCEEDED.with_dnr();

/// DESFMT: format of the source ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFormat {
    /// 0h, for 16-bit guards.
    Zero,
    /// 1h, for larger guards.
    One,
}

impl CopyFormat {
    /// OCFS: bits of the supported formats.
    pub const SUPPORTED: u16 = 0b11;

    fn of(sqe: &Sqe) -> Option<Self> {
        match sqe.cdw12.get() >> 8 & 0xf {
            0 => Some(Self::Zero),
            1 => Some(Self::One),
            _ => None,
        }
    }

    /// Length of a source range descriptor in bytes.
    #[must_use]
    pub const fn entry_bytes(self) -> usize {
        match self {
            Self::Zero => 32,
            Self::One => 40,
        }
    }
}

/// Fields of a Copy command, without the source ranges ([`CopyRanges`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCopy {
    /// SDLBA: first destination block.
    pub sdlba: u64,
    /// NR: number of source ranges, 1 to [`COPY_RANGES_MAX`].
    pub ranges: u16,
    /// Format of the source ranges.
    pub format: CopyFormat,
    /// FUA of the writes.
    pub fua: bool,
}

impl BlockCopy {
    pub(super) fn parse(sqe: &Sqe) -> Result<Self, Status> {
        /// CETYPE and DTYPE.
        const RESERVED: u32 = 0x00ff_0000;
        /// PRINFOR, STCW, STCR and PRINFOW.
        const PROTECTION: u32 = 0x3f00_f000;
        const FUA: u32 = 1 << 30;

        let dword12 = sqe.cdw12.get();
        let format = CopyFormat::of(sqe).filter(|_| dword12 & RESERVED == 0);
        let format = format.ok_or(super::INVALID_FIELD)?;
        if dword12 & PROTECTION != 0 {
            return Err(super::INVALID_PROTECTION);
        }
        let ranges = (dword12 & 0xff) as u16 + 1;
        if usize::from(ranges) > COPY_RANGES_MAX {
            return Err(SIZE_LIMIT);
        }
        Ok(Self {
            sdlba: sqe.cdw10_11(),
            ranges,
            format,
            fua: dword12 & FUA != 0,
        })
    }

    pub(super) fn data_bytes(&self) -> u32 {
        u32::from(self.ranges) * self.format.entry_bytes() as u32
    }
}

impl BlockRange {
    /// Encodes the range as a source range descriptor of format 0h.
    ///
    /// # Panics
    /// If the range does not have 1 to 65,536 blocks.
    #[must_use]
    pub fn copy_entry(&self) -> [u8; CopyFormat::Zero.entry_bytes()] {
        let nlb = self.blocks.checked_sub(1).map(u16::try_from);
        let nlb = nlb.expect("a range has blocks").expect("NLB has 16 bits");
        let range = CopyRange {
            reserved0: U64::ZERO,
            slba: U64::new(self.slba),
            nlb: U16::new(nlb),
        };
        let mut entry = [0; CopyFormat::Zero.entry_bytes()];
        entry[..size_of::<CopyRange>()].copy_from_slice(range.as_bytes());
        entry
    }
}

/// Fields common to both formats of a range descriptor.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct CopyRange {
    /// Reserved.
    pub reserved0: U64,
    /// First logical block.
    pub slba: U64,
    /// Number of logical blocks, 0-based.
    pub nlb: U16,
}

/// Validated source ranges of a Copy.
#[derive(Clone, Copy, Debug)]
pub struct CopyRanges<'a> {
    command: BlockCopy,
    data: &'a [u8],
    blocks: u32,
}

impl<'a> CopyRanges<'a> {
    /// Validates source ranges and destination of a command from [`IoCommand`](super::IoCommand).
    ///
    /// # Errors
    /// Command Size Limit Exceeded, LBA Out of Range, or Overlapping I/O Range if a source overlaps
    /// the destination.
    ///
    /// # Panics
    /// If `sqe` is not a valid Copy with this `data`.
    pub fn parse(
        sqe: &Sqe,
        data: &'a [u8],
        namespace: &NamespaceView,
        limits: &IoLimits,
    ) -> Result<Self, Status> {
        let copy = BlockCopy::parse(sqe).expect("the command was parsed");
        assert_eq!(data.len(), copy.data_bytes() as usize, "{copy:?}");
        let mut ranges = Self {
            command: copy,
            data,
            blocks: 0,
        };
        let most = limits.copy_blocks(namespace);
        for range in ranges.iter() {
            if range.blocks > most {
                return Err(SIZE_LIMIT);
            }
            namespace.check_range(range.slba, range.blocks)?;
            ranges.blocks += range.blocks;
        }
        if ranges.blocks > most {
            return Err(SIZE_LIMIT);
        }
        let to = namespace.check_range(copy.sdlba, ranges.blocks)?;
        if ranges.iter().any(|from| from.overlaps(to)) {
            return Err(Status::OVERLAPPING_IO_RANGE.with_dnr());
        }
        Ok(ranges)
    }

    /// Fields of the SQE.
    #[must_use]
    pub fn command(&self) -> &BlockCopy {
        &self.command
    }

    /// Total number of blocks, at least 1.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Ranges in copy order.
    pub fn iter(&self) -> impl Iterator<Item = BlockRange> + use<'a> {
        let entries = self.data.chunks_exact(self.command.format.entry_bytes());
        entries.map(|entry| {
            let (range, _) = CopyRange::ref_from_prefix(entry).expect("an entry is longer");
            BlockRange {
                slba: range.slba.get(),
                blocks: u32::from(range.nlb.get()) + 1,
            }
        })
    }

    /// Returns index and remainder of the range at which the copy continues after `done` blocks;
    /// `None` after all blocks.
    #[must_use]
    pub fn after(&self, done: u32) -> Option<(u32, BlockRange)> {
        let mut before = 0;
        for (index, range) in (0..).zip(self.iter()) {
            let skipped = done - before;
            if skipped < range.blocks {
                let rest = BlockRange {
                    slba: range.slba + u64::from(skipped),
                    blocks: range.blocks - skipped,
                };
                return Some((index, rest));
            }
            before += range.blocks;
        }
        None
    }
}

impl BlockRange {
    fn overlaps(self, other: Self) -> bool {
        self.slba < other.slba + u64::from(other.blocks)
            && other.slba < self.slba + u64::from(self.blocks)
    }
}

impl IoLimits {
    /// MSSRL and MCL in blocks: MDTS also limits Copy, to bound its execution time.
    #[must_use]
    pub fn copy_blocks(&self, namespace: &NamespaceView) -> u32 {
        (self.mdts_bytes >> namespace.lbads).min(u16::MAX.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{IoCommand, Operation};
    use crate::transfer::{CapsuleSlice, DataTransfer};
    use crate::wire::identify::{Oncs, Vwc};
    use crate::wire::{NvmOpcode, SglDescriptor, U32};
    use std::vec;
    use std::vec::Vec;

    const NAMESPACE: NamespaceView = NamespaceView {
        nsze: 1000,
        lbads: 9,
        write_protected: false,
        write_uncorrectable: false,
    };

    fn limits() -> IoLimits {
        IoLimits {
            mdts_bytes: 16 << 9,
            wzsl_bytes: None,
            vsl_bytes: None,
            wusl_bytes: None,
            oncs: Oncs(0).with_copy(true),
            vwc: Vwc(0),
        }
    }

    fn command(sdlba: u64, cdw12: u32, bytes: u32) -> Sqe {
        let mut sqe = Sqe::new(1, NvmOpcode::COPY.0, 1);
        sqe.cdw10 = U32::new(sdlba as u32);
        sqe.cdw11 = U32::new((sdlba >> 32) as u32);
        sqe.cdw12 = U32::new(cdw12);
        sqe.dptr = SglDescriptor::in_capsule(0, bytes);
        sqe
    }

    fn parse(sqe: &Sqe, namespace: &NamespaceView) -> Result<IoCommand, Status> {
        IoCommand::parse(sqe, 8192, Some(namespace), &limits())
    }

    fn data(format: CopyFormat, ranges: &[(u64, u16)]) -> Vec<u8> {
        let entry = |&(slba, nlb): &(u64, u16)| {
            let range = CopyRange {
                reserved0: U64::new(u64::MAX),
                slba: U64::new(slba),
                nlb: U16::new(nlb - 1),
            };
            let mut entry = range.as_bytes().to_vec();
            entry.resize(format.entry_bytes(), 0xee);
            entry
        };
        ranges.iter().flat_map(entry).collect()
    }

    #[test]
    fn fields_of_a_copy() {
        for (format, number, bytes) in [(CopyFormat::Zero, 0, 32), (CopyFormat::One, 1, 40)] {
            let sqe = command(0x1_0000_0005, 1 << 30 | number << 8 | 2, 3 * bytes);
            let parsed = parse(&sqe, &NAMESPACE).unwrap();
            let expected = BlockCopy {
                sdlba: 0x1_0000_0005,
                ranges: 3,
                format,
                fua: true,
            };
            assert_eq!(parsed.operation, Operation::Copy(expected));
            let slice = CapsuleSlice {
                offset: 0,
                length: 3 * bytes,
            };
            assert_eq!(parsed.transfer, DataTransfer::InCapsule(slice));
        }
    }

    #[test]
    fn wrong_fields_are_refused() {
        let status = |cdw12, bytes| parse(&command(0, cdw12, bytes), &NAMESPACE).unwrap_err();
        for format in 2..16 {
            assert_eq!(status(format << 8, 32), super::super::INVALID_FIELD);
        }
        for bit in 16..24 {
            assert_eq!(status(1 << bit, 32), super::super::INVALID_FIELD);
        }
        for bit in (12..16).chain(24..30) {
            assert_eq!(status(1 << bit, 32), super::super::INVALID_PROTECTION);
        }
        assert_eq!(status(128, 129 * 32), SIZE_LIMIT);
        for bytes in [31, 33, 64] {
            let invalid = Status::DATA_SGL_LENGTH_INVALID.with_dnr();
            assert_eq!(status(0, bytes), invalid);
        }
        let protected = NamespaceView {
            write_protected: true,
            ..NAMESPACE
        };
        let status = parse(&command(0, 0, 32), &protected).unwrap_err();
        assert_eq!(status.code(), Status::NAMESPACE_WRITE_PROTECTED);
    }

    fn ranges(sdlba: u64, from: &[(u64, u16)]) -> Result<Vec<BlockRange>, Status> {
        let mut found = None;
        for (number, format) in [(0, CopyFormat::Zero), (1, CopyFormat::One)] {
            let data = data(format, from);
            let cdw12 = number << 8 | (from.len() as u32 - 1);
            let sqe = command(sdlba, cdw12, data.len() as u32);
            assert!(parse(&sqe, &NAMESPACE).is_ok());
            let ranges = CopyRanges::parse(&sqe, &data, &NAMESPACE, &limits());
            let ranges = ranges.map(|ranges| {
                assert_eq!(
                    ranges.iter().map(|range| range.blocks).sum::<u32>(),
                    ranges.blocks()
                );
                ranges.iter().collect()
            });
            assert!(found.is_none_or(|first| first == ranges), "formats differ");
            found = Some(ranges);
        }
        found.unwrap()
    }

    #[test]
    fn each_range_and_the_destination_must_exist_and_fit() {
        let range = |slba, blocks| BlockRange { slba, blocks };
        let both = Ok(vec![range(100, 8), range(992, 8)]);
        assert_eq!(ranges(0, &[(100, 8), (992, 8)]), both);
        assert!(ranges(984, &[(0, 8), (0, 8)]).is_ok());
        let beyond = Err(Status::LBA_OUT_OF_RANGE.with_dnr());
        for from in [(993, 8), (1000, 1), (u64::MAX, 1)] {
            assert_eq!(ranges(0, &[from]), beyond, "{from:?}");
        }
        for sdlba in [993, 1000, u64::MAX] {
            assert_eq!(ranges(sdlba, &[(0, 8)]), beyond, "{sdlba}");
        }
        assert_eq!(ranges(0, &[(100, 17)]), Err(SIZE_LIMIT));
        assert_eq!(ranges(0, &[(100, 16), (200, 1)]), Err(SIZE_LIMIT));
    }

    #[test]
    fn a_source_must_not_overlap_the_destination() {
        let overlaps = Err(Status::OVERLAPPING_IO_RANGE.with_dnr());
        for slba in [100, 93, 107] {
            assert_eq!(ranges(100, &[(0, 4), (slba, 8)]), overlaps, "{slba}");
        }
        // The second range overlaps the destination of the first range.
        assert_eq!(ranges(100, &[(0, 8), (100, 1)]), overlaps);
        for slba in [92, 112] {
            assert!(ranges(100, &[(0, 4), (slba, 8)]).is_ok(), "{slba}");
        }
    }

    #[test]
    fn a_copy_continues_within_its_ranges() {
        let data = data(CopyFormat::Zero, &[(100, 2), (7, 3)]);
        let sqe = command(0, 1, data.len() as u32);
        let ranges = CopyRanges::parse(&sqe, &data, &NAMESPACE, &limits()).unwrap();
        let after = |done| {
            let rest = ranges.after(done);
            rest.map(|(index, range)| (index, range.slba, range.blocks))
        };
        let expected = [(0, 100, 2), (0, 101, 1), (1, 7, 3), (1, 8, 2), (1, 9, 1)];
        for (done, expected) in (0..).zip(expected) {
            assert_eq!(after(done), Some(expected));
        }
        assert_eq!(after(5), None);
    }
}
