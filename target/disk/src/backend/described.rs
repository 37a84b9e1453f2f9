use uuid::Uuid;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Logical block size in bytes: 512 or 4096.
    pub block_bytes: u32,
    pub blocks: u64,
    /// Required alignment of buffer addresses, in bytes.
    pub memory_alignment: u32,
    /// Boundary in blocks: transfers across a multiple of it are slower. 0 means none.
    pub boundary: u16,
}

/// Preferred sizes and alignments, in logical blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preferred {
    /// Granularity of writes (NPWG).
    pub write: u32,
    /// Alignment of writes (NPWA).
    pub write_alignment: u32,
    /// Optimal size of writes (NOWS).
    pub optimal_write: u32,
    /// Granularity of deallocation (NPDG).
    pub deallocate: u32,
    /// Alignment of deallocation (NPDA).
    pub deallocate_alignment: u32,
}

/// Atomic write sizes in logical blocks: other commands see all of a write or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Atomic {
    /// Largest write that is atomic unless the power fails.
    pub normal: u32,
    /// Largest write that is atomic even if the power fails.
    pub power_fail: u32,
    /// Boundary: a write across a multiple of it is not atomic. 0 means none.
    pub boundary: u32,
    /// Offset of the first boundary.
    pub boundary_offset: u16,
    /// Boundary for `power_fail`. 0 means none.
    pub boundary_power_fail: u32,
}

impl Atomic {
    /// Single block, atomic on every disk.
    pub const BLOCK: Self = Self {
        normal: 1,
        power_fail: 1,
        boundary: 0,
        boundary_offset: 0,
        boundary_power_fail: 0,
    };

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

/// Globally unique names, reported by NVMe drives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Names {
    pub nguid: Option<[u8; 16]>,
    pub eui64: Option<[u8; 8]>,
    pub uuid: Option<Uuid>,
}
