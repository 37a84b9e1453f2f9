//! Configuration changes requested by control methods.

use std::collections::BTreeMap;

use cairn_config::{Draft, NewLimits};

/// Effect of a control method: decides refusal, logging and memory reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Changes nothing.
    Reads,
    /// Reloads the configuration file; allowed on a read-only socket.
    Reloads,
    /// Changes configuration or state.
    Changes,
}

/// Control methods, sorted by name.
pub type Declared = &'static [(&'static str, Effect)];

/// Kind of a change: decides whether it is batched and may give hosts access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only adds; batched.
    Grows,
    /// Only removes; batched. Must not give hosts access.
    Shrinks,
    /// Not batched. Must not give hosts access.
    Narrows,
    /// Not batched.
    Alone,
}

impl Kind {
    /// True if the change must not give hosts access.
    #[must_use]
    pub fn is_removal(self) -> bool {
        matches!(self, Self::Shrinks | Self::Narrows)
    }

    /// True if the change is not batched.
    #[must_use]
    pub fn is_made_alone(self) -> bool {
        matches!(self, Self::Narrows | Self::Alone)
    }
}

/// Disk created by a client and not yet behind a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Export, as in the configuration file.
    pub export: String,
    /// Logical block size in bytes, if requested.
    pub block_size: Option<u32>,
    /// Requested UUID.
    pub uuid: Option<String>,
    /// Product name.
    pub product: &'static str,
    /// Size in blocks; 0 for a file.
    pub blocks: u64,
    /// Shown block size in bytes.
    pub block_bytes: u32,
    /// True if writes are refused.
    pub read_only: bool,
    /// Limits of the later namespace.
    pub limits: NewLimits,
}

/// Configuration file, as edited by a change.
#[derive(Debug, Clone)]
pub struct Stage {
    /// Text of the configuration file.
    pub draft: Draft,
    /// Disks without a namespace, by name.
    pub disks: BTreeMap<String, Disk>,
    /// Whether to read key files and disk sizes even if the text is unchanged.
    pub rereads: bool,
}
