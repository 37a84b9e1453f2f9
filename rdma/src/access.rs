//! What a region of registered memory may be used for.

use core::ops::BitOr;

/// What a region may be used for. Combine with `|`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access(u8);

impl Access {
    /// Adapters of this machine may read it: always allowed.
    pub const LOCAL_READ: Self = Self(0);
    /// Adapters of this machine may write to it (receives, RDMA READ).
    pub const LOCAL_WRITE: Self = Self(1);
    /// Peers that know the key may RDMA READ it.
    pub const REMOTE_READ: Self = Self(2);
    /// Peers that know the key may RDMA WRITE to it. Implies `LOCAL_WRITE`.
    pub const REMOTE_WRITE: Self = Self(4 | 1);

    /// Whether peers may reach it at all.
    #[must_use]
    pub const fn is_remote(self) -> bool {
        self.contains(Self::REMOTE_READ) || self.contains(Self::REMOTE_WRITE)
    }

    /// Whether all of `other` is in here.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Access {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
