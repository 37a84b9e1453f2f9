//! RoCE in user space: RDMA over UDP sockets, without RDMA device, kernel module or privileges.
//!
//! [`Soft`] is a [provider](rdma::Provider) of reliable connections, and interoperates with Linux's
//! `rdma_rxe`. RoCE v2 needs UDP port 4791 of the address for itself, RoCE v1 `CAP_NET_RAW`.
//!
//! Packets move only while the [endpoint](rdma::Endpoint) is polled. If polling stops, peers
//! disconnect after their retries. Between polls, wait with [`sleep_until_ready`](rdma::sleep_until_ready).

#[doc(hidden)]
pub mod memory;
mod phy;
mod soft;
mod time;

pub use cairn_base::Clock;
pub use cairn_base::entropy::Entropy;
pub use cairn_rdma as rdma;
pub use phy::Network;
pub use phy::adapter::taken_by_adapter;
pub use phy::capture::Capture;
pub use phy::fault::{Blackhole, FaultOptions};
pub use phy::wire::{Frame, Wire};
pub use soft::{Soft, SoftOptions};
