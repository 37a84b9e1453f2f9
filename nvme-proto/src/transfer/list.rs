use super::{CapsuleSlice, LENGTH_INVALID, OFFSET_INVALID, RemoteBuffer, TYPE_INVALID};
use crate::wire::sgl::{SGL_DESCRIPTOR_BYTES, SglType};
use crate::wire::{Sgl, SglDescriptor, Sqe, Status};

/// Maximum keyed data block descriptors in a capsule (MSDBD).
pub const DATA_BLOCKS_MAX: usize = 16;

/// Maximum bytes of a list, with a bit bucket for each keyed descriptor.
pub const LIST_BYTES_MAX: usize = 2 * DATA_BLOCKS_MAX * SGL_DESCRIPTOR_BYTES;

const SEGMENT_INVALID: Status = Status::INVALID_SGL_SEGMENT_DESCRIPTOR.with_dnr();
const NUMBER_INVALID: Status = Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS.with_dnr();

/// Data in several pieces of host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferList {
    /// Bytes, including bit buckets.
    pub length: u32,
    /// Number of pieces.
    pub pieces: u8,
}

/// Piece of a command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Offset in the data in bytes.
    pub at: u32,
    /// Host memory.
    pub buffer: RemoteBuffer,
}

/// Direction of a command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the host; bit buckets discard data.
    ToHost,
    /// From the host; bit buckets have no effect (Base, 4.3.2).
    FromHost,
}

impl Direction {
    /// Returns the direction by the opcode (Base, 3.3.3.1).
    #[must_use]
    pub fn of(sqe: &Sqe) -> Self {
        match sqe.opc & 0b11 {
            0b10 => Self::ToHost,
            _ => Self::FromHost,
        }
    }
}

/// Valid SGL of several descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SglList {
    pieces: [Piece; DATA_BLOCKS_MAX],
    count: usize,
    length: u32,
    invalidate: Option<u32>,
}

const NO_PIECE: Piece = Piece {
    at: 0,
    buffer: RemoteBuffer {
        address: 0,
        length: 0,
        rkey: 0,
    },
};

impl SglList {
    /// Locates the descriptors in the capsule; `None` unless SGL 1 is a Last Segment descriptor.
    ///
    /// # Errors
    /// The status of `docs/nvme.md` for an invalid SGL 1.
    pub fn locate(sqe: &Sqe, in_capsule_bytes: u32) -> Result<Option<CapsuleSlice>, Status> {
        if sqe.dptr.sgl_type() != SglType::LAST_SEGMENT {
            return Ok(None);
        }
        let Sgl::Segment { offset, length, .. } = sqe.dptr.parse()? else {
            return Err(TYPE_INVALID);
        };
        if length == 0 || !length.is_multiple_of(SGL_DESCRIPTOR_BYTES as u32) {
            return Err(SEGMENT_INVALID);
        }
        match offset.checked_add(length.into()) {
            Some(end) if end <= u64::from(in_capsule_bytes) && length as usize > LIST_BYTES_MAX => {
                Err(NUMBER_INVALID)
            }
            Some(end) if end <= u64::from(in_capsule_bytes) => Ok(Some(CapsuleSlice {
                offset: offset as u32,
                length,
            })),
            _ => Err(OFFSET_INVALID),
        }
    }

    /// Parses located descriptors. Descriptors without data have no piece.
    ///
    /// # Errors
    /// The status of `docs/nvme.md` for an invalid descriptor.
    pub fn parse(descriptors: &[u8], direction: Direction) -> Result<Self, Status> {
        let mut list = Self {
            pieces: [NO_PIECE; DATA_BLOCKS_MAX],
            count: 0,
            length: 0,
            invalidate: None,
        };
        let (descriptors, rest) = descriptors.as_chunks::<SGL_DESCRIPTOR_BYTES>();
        if descriptors.is_empty() || !rest.is_empty() {
            return Err(SEGMENT_INVALID);
        }
        let mut blocks = 0;
        for descriptor in descriptors {
            match SglDescriptor(*descriptor).parse()? {
                Sgl::Keyed {
                    address,
                    length,
                    rkey,
                    invalidate,
                } => {
                    blocks += 1;
                    if blocks > DATA_BLOCKS_MAX {
                        return Err(NUMBER_INVALID);
                    }
                    list.push(RemoteBuffer {
                        address,
                        length,
                        rkey,
                    })?;
                    if invalidate {
                        list.invalidate = Some(rkey);
                    }
                }
                Sgl::BitBucket { length } if direction == Direction::ToHost => list.add(length)?,
                Sgl::BitBucket { .. } => {}
                Sgl::Segment { .. } => return Err(SEGMENT_INVALID),
                Sgl::InCapsule { .. } | Sgl::Address { .. } => return Err(TYPE_INVALID),
            }
        }
        Ok(list)
    }

    fn push(&mut self, buffer: RemoteBuffer) -> Result<(), Status> {
        let wraps = buffer.address.checked_add(buffer.length.into()).is_none();
        let at = self.length;
        self.add(buffer.length)?;
        match buffer.length {
            _ if wraps => return Err(LENGTH_INVALID),
            0 => return Ok(()),
            _ => {}
        }
        self.pieces[self.count] = Piece { at, buffer };
        self.count += 1;
        Ok(())
    }

    fn add(&mut self, bytes: u32) -> Result<(), Status> {
        let length = self.length.checked_add(bytes);
        let length = length.filter(|length| *length <= Sgl::KEYED_LENGTH_MAX);
        self.length = length.ok_or(LENGTH_INVALID)?;
        Ok(())
    }

    /// Returns the pieces of the first `length` bytes.
    pub fn pieces(&self, length: u32) -> impl Iterator<Item = Piece> + '_ {
        let all = self.pieces[..self.count].iter().copied();
        all.take_while(move |piece| piece.at < length)
            .map(move |mut piece| {
                piece.buffer.length = piece.buffer.length.min(length - piece.at);
                piece
            })
    }

    /// Returns a keyed descriptor of the list's length and key to invalidate, at address 0.
    #[must_use]
    pub fn as_one(&self) -> SglDescriptor {
        let invalidates = self.invalidate.is_some();
        SglDescriptor::keyed(0, self.length, self.invalidate.unwrap_or(0), invalidates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::DataTransfer;
    use crate::wire::{IntoBytes, NvmOpcode};

    fn keyed(address: u64, length: u32) -> SglDescriptor {
        SglDescriptor::keyed(address, length, 7, false)
    }

    fn parse(descriptors: &[SglDescriptor], direction: Direction) -> Result<SglList, Status> {
        SglList::parse(descriptors.as_bytes(), direction)
    }

    #[test]
    fn pieces_have_their_places_in_the_data() {
        let bucket = SglDescriptor::from(Sgl::BitBucket { length: 10 });
        let descriptors = [keyed(100, 5), bucket, keyed(0, 0), keyed(200, 8)];
        for (direction, second) in [(Direction::ToHost, 15), (Direction::FromHost, 5)] {
            let list = parse(&descriptors, direction).unwrap();
            let places = |length| {
                let pieces = list.pieces(length);
                pieces.map(|piece| (piece.at, piece.buffer.address, piece.buffer.length))
            };
            assert!(places(second + 8).eq([(0, 100, 5), (second, 200, 8)]));
            assert!(places(second + 1).eq([(0, 100, 5), (second, 200, 1)]));
            assert!(places(second).eq([(0, 100, 5)]));
            assert_eq!(places(0).count(), 0);
            assert_eq!(list.as_one().parse().unwrap().length(), second + 8);
        }
    }

    #[test]
    fn the_last_key_that_may_be_invalidated_is() {
        let invalidated = |key| SglDescriptor::keyed(0, 8, key, true);
        let list = parse(
            &[invalidated(1), invalidated(2), keyed(0, 8)],
            Direction::ToHost,
        );
        assert_eq!(list.unwrap().as_one().invalidate_rkey(), Some(2));
        let list = parse(&[keyed(0, 8)], Direction::ToHost).unwrap();
        assert_eq!(list.as_one().invalidate_rkey(), None);
    }

    #[test]
    fn a_transfer_goes_over_the_pieces_that_it_needs() {
        let mut sqe = Sqe::new(1, NvmOpcode::WRITE.0, 1);
        let list = parse(&[keyed(0, 512), keyed(4096, 512)], Direction::of(&sqe)).unwrap();
        sqe.dptr = list.as_one();
        for (length, pieces) in [(512, 1), (513, 2), (1024, 2)] {
            let transfer = DataTransfer::from_host_at_least(&sqe, length, 0).unwrap();
            let expected = BufferList { length, pieces };
            let transfer = transfer.over(&list);
            assert_eq!(transfer, DataTransfer::FromHostList(expected));
        }
    }

    #[test]
    fn a_list_is_not_longer_than_a_keyed_descriptor_can_say() {
        let most = keyed(0, Sgl::KEYED_LENGTH_MAX);
        assert!(parse(&[most], Direction::ToHost).is_ok());
        for more in [
            keyed(0, 1),
            SglDescriptor::from(Sgl::BitBucket { length: u32::MAX }),
        ] {
            let parsed = parse(&[most, more], Direction::ToHost);
            assert_eq!(parsed, Err(LENGTH_INVALID));
        }
    }
}
