//! NBD server: for clients at a Unix socket, and for the kernel's client, which makes a block
//! device.

mod connection;
mod device;
mod handshake;
mod server;
mod session;
mod wire;

pub use device::Device;
pub use server::Nbd;
pub use session::Tag;

/// Maximum data of a request, reported to clients as the maximum block size.
pub(crate) const PAYLOAD_BYTES_MAX: u32 = 4 << 20;
/// Memory of a connection, as a multiple of [`PAYLOAD_BYTES_MAX`].
const PAYLOADS: usize = 2;
/// Maximum connections.
const CONNECTIONS_MAX: u32 = 16;
