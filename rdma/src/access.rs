//! Access rights of registered memory.

use core::ops::BitOr;

/// Access rights of a memory region. Combine with `|`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access(u8);

impl Access {
    /// The local adapter may read. Always granted.
    pub const LOCAL_READ: Self = Self(0);
    /// The local adapter may write received messages and RDMA READ data.
    pub const LOCAL_WRITE: Self = Self(1);
    /// Peers with the remote key may issue RDMA READs.
    pub const REMOTE_READ: Self = Self(2);
    /// Peers with the remote key may issue RDMA WRITEs. Includes `LOCAL_WRITE`.
    pub const REMOTE_WRITE: Self = Self(4 | 1);

    /// True if peers have any access.
    #[must_use]
    pub const fn is_remote(self) -> bool {
        self.contains(Self::REMOTE_READ) || self.contains(Self::REMOTE_WRITE)
    }

    /// True if all rights of `other` are included.
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
