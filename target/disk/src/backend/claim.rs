use std::time::Instant;

/// Access to a disk, and sharing with other programs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Claim {
    /// Whether to open for reading only.
    pub read_only: bool,
    /// Whether other programs that set this too may write to the disk.
    pub shared: bool,
    /// Required device and inode.
    pub expected: Option<(u64, u64)>,
    /// Makes the open a mere check: it takes the configured lock, opens for reading, and retries
    /// until this time if the disk is in use.
    pub trial_until: Option<Instant>,
}
