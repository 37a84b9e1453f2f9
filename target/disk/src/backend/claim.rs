use std::time::Instant;

/// Access to a disk, and sharing with other programs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Claim {
    pub read_only: bool,
    /// Whether other programs may write to the disk. Other targets must set this, too.
    pub shared: bool,
    /// Device and inode that the path must have.
    pub expected: Option<(u64, u64)>,
    /// If set, the open is only a check: it takes the configured lock, and opens the disk for
    /// reading. While the disk is in use, the open is retried until this time.
    pub trial_until: Option<Instant>,
}
