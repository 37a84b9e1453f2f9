//! Errors outside the data path.

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::partition::PKey;

/// Error of an RDMA operation outside the data path.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// The provider cannot work on this machine.
    #[error("the {provider} provider is unavailable: {reason}")]
    Unavailable {
        /// `"verbs"`, `"soft"` or `"loopback"`.
        provider: &'static str,
        /// Cause and remedy.
        reason: String,
    },
    /// No device of the provider owns the address.
    #[error("no RDMA device owns {address}: {remedy}")]
    NoDevice {
        /// Requested address.
        address: IpAddr,
        /// Action that lets a device own the address.
        remedy: String,
    },
    /// The device's P_Key table lacks the requested P_Key.
    #[error(
        "P_Key {pkey} is not in the table of RDMA device {device}, which has {table}: use one \
         of these, configure the partition on the adapter if its driver can (most that speak RoCE \
         have 0xffff alone), or use RoCE in user space (provider soft), which can be in any"
    )]
    NoPartition {
        /// Name of the device.
        device: String,
        /// Requested P_Key.
        pkey: PKey,
        /// P_Keys of the device, such as "0xffff 0x8001".
        table: String,
    },
    /// Another listener uses the address.
    #[error("{address} is already in use: stop the other listener or choose another port")]
    AddressInUse {
        /// Requested address.
        address: SocketAddr,
    },
    /// Another program uses the UDP port of RoCE.
    #[error("{reason}")]
    PortTaken {
        /// Port number, and how to find the program.
        reason: String,
    },
    /// Memory could not be locked or registered.
    #[error("{reason}")]
    Memory {
        /// Required and permitted amount of memory, and where to raise the limit.
        reason: String,
    },
    /// A limit of a device or an endpoint is reached.
    #[error("{what} is full: the limit is {limit}")]
    Limit {
        /// Exhausted resource, in the plural, such as "queue pairs".
        what: &'static str,
        /// Maximum number of the resource.
        limit: u64,
    },
    /// The connection, listener or device is gone.
    #[error("the {0} no longer exists")]
    Gone(&'static str),
    /// A system or library call failed.
    #[error("{call}: {source}")]
    Os {
        /// Function or system call.
        call: &'static str,
        /// Error returned by the call.
        source: io::Error,
    },
}

impl FabricError {
    /// Returns a closure that wraps a system error of `call`.
    pub fn os(call: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Os { call, source }
    }

    /// Creates an error from `errno` after a failed `call`.
    #[must_use]
    pub fn last_os(call: &'static str) -> Self {
        Self::Os {
            call,
            source: io::Error::last_os_error(),
        }
    }
}
