//! Properties reported by a disk.

use uuid::Uuid;

/// Block layout of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Logical block size in bytes: 512 or 4096.
    pub block_bytes: u32,
    /// Number of logical blocks.
    pub blocks: u64,
    /// Required alignment of buffer addresses, in bytes.
    pub memory_alignment: u32,
    /// Number of logical blocks between boundaries: transfers across a multiple of it are slower. 0 means no
    /// boundary.
    pub boundary: u16,
}

/// Preferred sizes and alignments, in logical blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preferred {
    /// Granularity of writes.
    pub write: u32,
    /// Alignment of writes.
    pub write_alignment: u32,
    /// Optimal size of writes, in blocks.
    pub optimal_write: u32,
    /// Granularity of deallocation.
    pub deallocate: u32,
    /// Alignment of deallocation.
    pub deallocate_alignment: u32,
}

/// Atomic write sizes in logical blocks: other commands see all of a write or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Atomic {
    /// Atomic size if no power failure occurs.
    pub normal: u32,
    /// Atomic size across a power failure.
    pub power_fail: u32,
    /// Boundary in blocks: a write across a multiple of it is not atomic. 0 means no boundary.
    pub boundary: u32,
    /// Offset of the first boundary, in blocks.
    pub boundary_offset: u16,
    /// Boundary across a power failure, in blocks; 0 means no boundary.
    pub boundary_power_fail: u32,
}

impl Atomic {
    /// Atomicity of a single block, guaranteed by every disk.
    pub const BLOCK: Self = Self {
        normal: 1,
        power_fail: 1,
        boundary: 0,
        boundary_offset: 0,
        boundary_power_fail: 0,
    };

    /// Returns the atomicity of aligned units of `blocks` blocks, the first of which begins at block `offset`.
    pub(super) fn units(blocks: u32, offset: u16) -> Self {
        Self {
            normal: blocks,
            power_fail: blocks,
            boundary: blocks,
            boundary_offset: offset,
            boundary_power_fail: blocks,
        }
    }
}

/// Globally unique names of a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Names {
    /// NGUID of an NVMe drive.
    pub nguid: Option<[u8; 16]>,
    /// EUI64 of an NVMe drive.
    pub eui64: Option<[u8; 8]>,
    /// UUID of an NVMe drive.
    pub uuid: Option<Uuid>,
}
