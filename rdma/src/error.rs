//! What can go wrong on a fabric, said so that an admin can act on it.

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::partition::PKey;

/// What to do about a permission that is missing: `of_user` after "run as root, or", unless this is
/// root, who has all that users can get: then `of_root`, which names what refuses even root.
#[must_use]
pub fn permission(of_user: &str, of_root: &str) -> String {
    permission_of(rustix::process::geteuid().is_root(), of_user, of_root)
}

fn permission_of(is_root: bool, of_user: &str, of_root: &str) -> String {
    if is_root {
        format!("root may not either: {of_root}")
    } else {
        format!("run as root, or {of_user}")
    }
}

/// A fabric operation off the I/O path failed.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// The provider cannot work on this machine at all.
    #[error("the {provider} provider is unavailable: {reason}")]
    Unavailable {
        /// The provider's name.
        provider: &'static str,
        /// What is missing, and how to get it.
        reason: String,
    },
    /// No device of this provider owns the address.
    #[error("no RDMA device owns {address}: {remedy}")]
    NoDevice {
        /// The address that was asked for.
        address: IpAddr,
        /// What to do about it.
        remedy: String,
    },
    /// The device is no such member of that partition.
    #[error(
        "P_Key {pkey} is not in the table of RDMA device {device}, which has {table}: use one \
         of these, configure the partition on the adapter if its driver can (most that speak RoCE \
         have 0xffff alone), or use RoCE in user space (provider soft), which can be in any"
    )]
    NoPartition {
        /// The device.
        device: String,
        /// What was asked for.
        pkey: PKey,
        /// The P_Keys that it has: "0xffff 0x8001".
        table: String,
    },
    /// Something else listens there.
    #[error("{address} is already in use: stop the other listener or choose another port")]
    AddressInUse {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// Memory could not be locked or registered.
    #[error("{reason}")]
    Memory {
        /// How much was needed, how much is allowed, and where to raise it.
        reason: String,
    },
    /// A device's or an endpoint's limit is reached.
    #[error("{what} is full: the limit is {limit}")]
    Limit {
        /// What ran out, in the plural: "queue pairs".
        what: &'static str,
        /// How many there may be.
        limit: u64,
    },
    /// The connection, listener or device is gone.
    #[error("the {0} is gone")]
    Gone(&'static str),
    /// A system or library call failed.
    #[error("{call}: {source}")]
    Os {
        /// The call that failed.
        call: &'static str,
        /// What it said.
        source: io::Error,
    },
}

impl FabricError {
    /// The last OS error of `call`.
    #[must_use]
    pub fn last_os(call: &'static str) -> Self {
        Self::Os {
            call,
            source: io::Error::last_os_error(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_not_advised_to_become_root() {
        let user = permission_of(false, "ask the owner", "look for a security module");
        assert_eq!(user, "run as root, or ask the owner");
        let root = permission_of(true, "ask the owner", "look for a security module");
        assert_eq!(root, "root may not either: look for a security module");
    }
}
