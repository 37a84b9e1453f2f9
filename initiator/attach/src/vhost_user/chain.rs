//! Requests as chains of descriptors (Virtio 1.2, 2.7.5 and 5.2.6).

use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_DISCARD,
    VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT,
    VIRTIO_BLK_T_WRITE_ZEROES,
};
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress, Permissions};

use super::config::{QUEUE_ENTRIES_MAX, REQUEST_BYTES_MAX, SECTOR_BYTES, has};
use super::memory::{Memory, Segment};
use crate::request::Operation;

const DESCRIPTOR_BYTES: u32 = size_of::<Descriptor>() as u32;
const HEADER_BYTES: usize = 16;
const RANGE_BYTES: usize = 16;
/// VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP.
const FLAG_UNMAP: u32 = 1;

pub(super) type Broken = &'static str;

#[derive(Debug, Default)]
pub(super) struct Chain {
    pub(super) readable: Vec<Segment>,
    pub(super) writable: Vec<Segment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parsed {
    /// The rest of the chain is the data.
    Execute {
        operation: Operation,
        offset: u64,
        bytes: u64,
    },
    Serial,
    Refuse(u32),
}

impl Parsed {
    pub(super) fn data_bytes(self) -> Option<u64> {
        match self {
            Self::Execute {
                operation, bytes, ..
            } if operation.has_data() => Some(bytes),
            _ => None,
        }
    }
}

impl Chain {
    pub(super) fn collect(
        &mut self,
        memory: &Memory,
        table: GuestAddress,
        entries: u16,
        head: u16,
    ) -> Result<(), Broken> {
        self.readable.clear();
        self.writable.clear();
        let (mut table, mut entries, mut next) = (table, entries, head);
        let mut is_indirect = false;
        for _ in 0..=QUEUE_ENTRIES_MAX {
            if next >= entries {
                return Err("a descriptor is not in its table");
            }
            let at = u64::from(next) * u64::from(DESCRIPTOR_BYTES);
            let at = table.0.checked_add(at).map(GuestAddress);
            let descriptor = at.and_then(|at| memory.guest.read_obj::<Descriptor>(at).ok());
            let descriptor = descriptor.ok_or("a descriptor table is not in the memory")?;
            if descriptor.refers_to_indirect_table() {
                let bytes = descriptor.len();
                let is_table = bytes > 0 && bytes.is_multiple_of(DESCRIPTOR_BYTES);
                if is_indirect || descriptor.has_next() || !is_table {
                    return Err("an indirect descriptor breaks the rules");
                }
                is_indirect = true;
                table = descriptor.addr();
                entries = u16::try_from(bytes / DESCRIPTOR_BYTES).unwrap_or(u16::MAX);
                next = 0;
                continue;
            }
            self.add(memory, descriptor)?;
            if !descriptor.has_next() {
                return Ok(());
            }
            next = descriptor.next();
        }
        Err("a chain of descriptors has a loop")
    }

    fn add(&mut self, memory: &Memory, descriptor: Descriptor) -> Result<(), Broken> {
        let segment = Segment {
            address: descriptor.addr(),
            bytes: descriptor.len() as usize,
        };
        let (list, access) = match descriptor.is_write_only() {
            true => (&mut self.writable, Permissions::Write),
            false if !self.writable.is_empty() => {
                return Err("a readable descriptor follows a writable one");
            }
            false => (&mut self.readable, Permissions::Read),
        };
        if segment.bytes == 0 {
            return Ok(());
        }
        if !memory.contains(segment, access) {
            return Err("a descriptor leads out of the memory");
        }
        list.push(segment);
        Ok(())
    }

    /// Removes header and status, whose address is the second result.
    pub(super) fn parse(
        &mut self,
        memory: &Memory,
        features: u64,
    ) -> Result<(Parsed, GuestAddress), Broken> {
        let header = take::<HEADER_BYTES>(&mut self.readable, memory);
        let header = header.ok_or("a request has no header")?;
        let last = self.writable.last_mut();
        let last = last.ok_or("a request has no room for its status")?;
        last.bytes -= 1;
        let status = GuestAddress(last.address.0 + last.bytes as u64);
        if last.bytes == 0 {
            self.writable.pop();
        }
        let sector = u64::from_le_bytes(*header[8..].first_chunk().expect("eight bytes"));
        let parsed = self.operation(memory, u32_at(&header, 0), sector, features);
        Ok((parsed.unwrap_or_else(Parsed::Refuse), status))
    }

    fn operation(
        &mut self,
        memory: &Memory,
        kind: u32,
        sector: u64,
        features: u64,
    ) -> Result<Parsed, u32> {
        // 5.2.6.2: without flushes, completed writes are durable.
        let fua = !has(features, VIRTIO_BLK_F_FLUSH);
        let in_bytes = |sectors: u64| sectors.checked_mul(u64::from(SECTOR_BYTES));
        let offset = |sector: u64| in_bytes(sector).ok_or(VIRTIO_BLK_S_IOERR);
        let transfer = |operation, data: &[Segment]| {
            let bytes = data.iter().map(|segment| segment.bytes as u64).sum();
            match bytes {
                0..=REQUEST_BYTES_MAX => Ok(Parsed::Execute {
                    operation,
                    offset: offset(sector)?,
                    bytes,
                }),
                _ => Err(VIRTIO_BLK_S_IOERR),
            }
        };
        match kind {
            VIRTIO_BLK_T_IN => transfer(Operation::Read, &self.writable),
            VIRTIO_BLK_T_OUT => transfer(Operation::Write { fua }, &self.readable),
            VIRTIO_BLK_T_FLUSH => Ok(Parsed::Execute {
                operation: Operation::Flush,
                offset: 0,
                bytes: 0,
            }),
            VIRTIO_BLK_T_GET_ID => Ok(Parsed::Serial),
            VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES => {
                let range = take::<RANGE_BYTES>(&mut self.readable, memory);
                let range = range.ok_or(VIRTIO_BLK_S_IOERR)?;
                if !self.readable.is_empty() {
                    return Err(VIRTIO_BLK_S_IOERR);
                }
                let flags = u32_at(&range, 12);
                let unmap = flags & FLAG_UNMAP != 0;
                let is_discard = kind == VIRTIO_BLK_T_DISCARD;
                if flags & !FLAG_UNMAP != 0 || (is_discard && unmap) {
                    return Err(VIRTIO_BLK_S_UNSUPP);
                }
                let sector = u64::from_le_bytes(*range.first_chunk().expect("eight bytes"));
                Ok(Parsed::Execute {
                    operation: match is_discard {
                        true => Operation::Discard,
                        false => Operation::Zero { unmap, fua },
                    },
                    offset: offset(sector)?,
                    bytes: offset(u32_at(&range, 8).into())?,
                })
            }
            _ => Err(VIRTIO_BLK_S_UNSUPP),
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("four bytes"))
}

fn take<const N: usize>(segments: &mut Vec<Segment>, memory: &Memory) -> Option<[u8; N]> {
    let mut taken = [0; N];
    let mut filled = 0;
    let mut used = 0;
    for segment in segments.iter_mut() {
        let part = segment.bytes.min(N - filled);
        let to = &mut taken[filled..filled + part];
        memory.guest.read_slice(to, segment.address).ok()?;
        filled += part;
        segment.bytes -= part;
        segment.address.0 += part as u64;
        used += usize::from(segment.bytes == 0);
        if filled == N {
            break;
        }
    }
    segments.drain(..used);
    (filled == N).then_some(taken)
}

#[cfg(test)]
mod tests;
