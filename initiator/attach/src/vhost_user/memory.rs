//! Memory of the guest.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use cairn_initiator::Buffer;
use vhost::vhost_user::message::VhostUserMemoryRegion;
use vm_memory::{
    Bytes, FileOffset, GuestAddress, GuestMemory, GuestMemoryMmap, GuestMemoryRegion,
    GuestRegionMmap, MmapRegion, Permissions,
};

const STEP: usize = 16 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) address: GuestAddress,
    pub(super) bytes: usize,
}

#[derive(Debug)]
pub(super) struct Memory {
    pub(super) guest: GuestMemoryMmap,
    /// Address in the front end, length, and address in the guest.
    places: Vec<(u64, u64, u64)>,
    step: Box<[u8; STEP]>,
}

/// Refuses a range beyond the file, where an access would raise SIGBUS.
pub(super) fn map(file: File, offset: u64, bytes: u64) -> io::Result<MmapRegion> {
    let end = offset.checked_add(bytes);
    if end.is_none_or(|end| end > file.metadata().map_or(0, |about| about.size())) {
        return Err(io::Error::other(format!(
            "{bytes} bytes from {offset} are not in the shared file"
        )));
    }
    let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
    let file = FileOffset::new(file, offset);
    MmapRegion::from_file(file, bytes).map_err(io::Error::other)
}

impl Memory {
    pub(super) fn map(regions: &[VhostUserMemoryRegion], files: Vec<File>) -> io::Result<Self> {
        let mut mapped = Vec::new();
        let mut places = Vec::new();
        for (region, file) in regions.iter().zip(files) {
            let &VhostUserMemoryRegion {
                guest_phys_addr: guest,
                memory_size: bytes,
                user_addr: user,
                mmap_offset,
            } = region;
            let mapping = map(file, mmap_offset, bytes)?;
            let region = GuestRegionMmap::new(mapping, GuestAddress(guest));
            mapped.push(region.ok_or_else(|| io::Error::other("a region has no end"))?);
            places.push((user, bytes, guest));
        }
        mapped.sort_by_key(GuestMemoryRegion::start_addr);
        Ok(Self {
            guest: GuestMemoryMmap::from_regions(mapped).map_err(io::Error::other)?,
            places,
            step: Box::new([0; STEP]),
        })
    }

    pub(super) fn guest_address(&self, user: u64) -> Option<GuestAddress> {
        self.places.iter().find_map(|&(start, bytes, guest)| {
            let offset = user.checked_sub(start).filter(|&offset| offset < bytes)?;
            Some(GuestAddress(guest + offset))
        })
    }

    pub(super) fn contains(&self, segment: Segment, access: Permissions) -> bool {
        self.guest
            .check_range(segment.address, segment.bytes, access)
    }

    pub(super) fn fetch(&mut self, from: &[Segment], to: &mut [Buffer]) -> Option<()> {
        let mut at = 0;
        for part in parts(from) {
            let step = &mut self.step[..part.bytes];
            self.guest.read_slice(step, part.address).ok()?;
            for (piece, within, bytes) in spans(to[0].len(), at, part.bytes) {
                let (now, rest) = (bytes.start, bytes.end);
                to[piece].write(within, &self.step[now..rest]);
            }
            at += part.bytes;
        }
        Some(())
    }

    pub(super) fn put(&self, bytes: &[u8], to: &[Segment]) -> Option<usize> {
        let mut at = 0;
        for segment in to {
            let part = segment.bytes.min(bytes.len() - at);
            let part = &bytes[at..at + part];
            self.guest.write_slice(part, segment.address).ok()?;
            at += part.len();
        }
        Some(at)
    }

    pub(super) fn store(&mut self, from: &[Buffer], to: &[Segment]) -> Option<()> {
        let mut at = 0;
        for part in parts(to) {
            for (piece, within, bytes) in spans(from[0].len(), at, part.bytes) {
                from[piece].read(within, &mut self.step[bytes]);
            }
            let step = &self.step[..part.bytes];
            self.guest.write_slice(step, part.address).ok()?;
            at += part.bytes;
        }
        Some(())
    }
}

fn parts(segments: &[Segment]) -> impl Iterator<Item = Segment> {
    segments.iter().flat_map(|segment| {
        (0..segment.bytes).step_by(STEP).map(|at| Segment {
            address: GuestAddress(segment.address.0 + at as u64),
            bytes: STEP.min(segment.bytes - at),
        })
    })
}

/// Returns piece, offset in the piece, and range.
fn spans(
    piece_bytes: usize,
    at: usize,
    bytes: usize,
) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let (piece, within) = ((at + done) / piece_bytes, (at + done) % piece_bytes);
        let part = (piece_bytes - within).min(bytes - done);
        let range = done..done + part;
        done += part;
        (part > 0).then_some((piece, within, range))
    })
}
