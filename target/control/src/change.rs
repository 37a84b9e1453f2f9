//! Configuration changes requested by control methods.

use std::collections::{BTreeMap, BTreeSet};

use cairn_config::{Draft, NewLimits};

/// Effect of a control method. It decides whether a read-only socket refuses the method, whether
/// the call is logged, and how much memory is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Reads,
    /// Reloads the configuration file; allowed on a read-only socket.
    Reloads,
    Changes,
}

/// Control methods, sorted by name.
pub type Declared = &'static [(&'static str, Effect)];

/// Rule for batching and refusing a configuration change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only adds objects; may be applied together with other additions.
    Grows,
    /// Only removes objects; may be applied together with other removals. Refused if a host would
    /// gain access.
    Shrinks,
    /// Applied separately, and refused if a host would gain access.
    Narrows,
    /// Applied separately.
    Alone,
}

impl Kind {
    /// Returns whether the target must refuse the change if a host would gain access.
    #[must_use]
    pub fn is_removal(self) -> bool {
        matches!(self, Self::Shrinks | Self::Narrows)
    }

    #[must_use]
    pub fn is_made_alone(self) -> bool {
        matches!(self, Self::Narrows | Self::Alone)
    }
}

/// Disk created by a client and not yet behind a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Exported path or image, as written in the configuration file.
    pub export: String,
    /// Logical block size in bytes, if requested.
    pub block_size: Option<u32>,
    pub uuid: Option<String>,
    /// SPDK product name.
    pub product: &'static str,
    /// Size in blocks; 0 for a file.
    pub blocks: u64,
    /// Block size in bytes, as shown to clients.
    pub block_bytes: u32,
    pub read_only: bool,
    pub limits: NewLimits,
}

/// Configuration file, as edited by a change.
#[derive(Debug, Clone)]
pub struct Stage {
    pub draft: Draft,
    /// Disks without a namespace, by name.
    pub disks: BTreeMap<String, Disk>,
    /// Whether key files and disk sizes must be read even if the text is unchanged.
    pub rereads: bool,
    /// Whether deleted files may be closed, which loses their data.
    pub loses_data: bool,
    /// Served namespaces (NQN, NSID) whose file was deleted and that the text lacks.
    pub kept: BTreeSet<(String, u32)>,
}
