//! Data of Dataset Management: up to 256 range descriptors (NVM, 3.2.3.1).

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BlockRange, NamespaceView};
use crate::wire::Status;

/// Length of a range descriptor in bytes.
pub const DATASET_RANGE_BYTES: usize = 16;
/// Maximum ranges of a command (NR has 8 bits, 0-based).
pub const DATASET_RANGES_MAX: usize = 256;

/// Range in wire format.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DatasetRange {
    /// Context attributes (hints).
    pub context_attributes: U32,
    /// Number of logical blocks, not 0-based; may be 0.
    pub nlb: U32,
    /// First logical block.
    pub slba: U64,
}
const _: () = assert!(size_of::<DatasetRange>() == DATASET_RANGE_BYTES);

/// Validated ranges of Dataset Management.
#[derive(Clone, Copy, Debug)]
pub struct DatasetRanges<'a>(&'a [DatasetRange]);

impl<'a> DatasetRanges<'a> {
    /// Validates all ranges of a command.
    ///
    /// # Errors
    /// LBA Out of Range.
    ///
    /// # Panics
    /// Unless the length of `data` is a multiple of [`DATASET_RANGE_BYTES`], as
    /// [`IoCommand::parse`](super::IoCommand::parse) ensures.
    pub fn parse(data: &'a [u8], namespace: &NamespaceView) -> Result<Self, Status> {
        let ranges = <[DatasetRange]>::ref_from_bytes(data)
            .expect("the transfer is a whole number of ranges");
        for range in ranges {
            namespace.check_range(range.slba.get(), range.nlb.get())?;
        }
        Ok(Self(ranges))
    }

    /// Ranges with at least one block.
    pub fn iter(&self) -> impl Iterator<Item = BlockRange> + use<'a> {
        self.0
            .iter()
            .map(|range| BlockRange {
                slba: range.slba.get(),
                blocks: range.nlb.get(),
            })
            .filter(|range| range.blocks != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const NAMESPACE: NamespaceView = NamespaceView {
        nsze: 1000,
        lbads: 9,
        write_protected: false,
        write_uncorrectable: false,
    };

    fn data(ranges: &[(u64, u32)]) -> Vec<u8> {
        let record = |&(slba, nlb): &(u64, u32)| DatasetRange {
            context_attributes: U32::new(0x1234_5678),
            nlb: U32::new(nlb),
            slba: U64::new(slba),
        };
        ranges
            .iter()
            .flat_map(|range| record(range).as_bytes().to_vec())
            .collect()
    }

    #[test]
    fn ranges_are_read_and_empty_ones_left_out() {
        let data = data(&[(0, 8), (5, 0), (992, 8)]);
        let ranges = DatasetRanges::parse(&data, &NAMESPACE).unwrap();
        let expected = [
            BlockRange { slba: 0, blocks: 8 },
            BlockRange {
                slba: 992,
                blocks: 8,
            },
        ];
        assert_eq!(ranges.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn one_bad_range_spoils_all() {
        for bad in [(993, 8), (1001, 0), (u64::MAX, 1), (u64::MAX, u32::MAX)] {
            let data = data(&[(0, 8), bad]);
            let status = DatasetRanges::parse(&data, &NAMESPACE).unwrap_err();
            assert_eq!(status, Status::LBA_OUT_OF_RANGE.with_dnr(), "{bad:?}");
        }
    }
}
