//! What a disk says of itself.

use uuid::Uuid;

/// How a backend's blocks are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a logical block: 512 or 4096.
    pub block_bytes: u32,
    /// Logical blocks.
    pub blocks: u64,
    /// Bytes that the address of a buffer must be a multiple of.
    pub memory_alignment: u32,
    /// A transfer across a multiple of so many logical blocks takes the disk longer; 0: it names no such boundary.
    pub boundary: u16,
}

/// Sizes and places in which a disk works best, in logical blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preferred {
    /// Of a write.
    pub write: u32,
    /// What a write begins at multiples of.
    pub write_alignment: u32,
    /// Of a write, for the best performance.
    pub optimal_write: u32,
    /// Of a range to deallocate.
    pub deallocate: u32,
    /// What a range to deallocate begins at multiples of.
    pub deallocate_alignment: u32,
}

/// What a disk promises of a write: others see all of it or nothing. In logical blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Atomic {
    /// As long as it has power.
    pub normal: u32,
    /// Also if the power fails.
    pub power_fail: u32,
    /// A write across a multiple of this is not atomic; 0: there is none.
    pub boundary: u32,
    /// Where the first boundary is.
    pub boundary_offset: u16,
    /// The boundary if the power fails; 0: there is none.
    pub boundary_power_fail: u32,
}

impl Atomic {
    /// One block, which every disk promises.
    pub const BLOCK: Self = Self {
        normal: 1,
        power_fail: 1,
        boundary: 0,
        boundary_offset: 0,
        boundary_power_fail: 0,
    };

    /// Aligned units of so many blocks, the first of which begins at block `offset`.
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

/// Names that a disk has in the whole world.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Names {
    /// NGUID of an NVMe drive.
    pub nguid: Option<[u8; 16]>,
    /// EUI64 of an NVMe drive.
    pub eui64: Option<[u8; 8]>,
    /// UUID of an NVMe drive.
    pub uuid: Option<Uuid>,
}
