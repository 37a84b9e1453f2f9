//! Probes of requirements that tests of several programs share.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};

/// True if this process may open packet sockets, which RoCE v1 needs; otherwise records a skip.
///
/// # Panics
/// Packet sockets fail for another reason than a missing `CAP_NET_RAW`.
#[must_use]
#[track_caller]
pub fn can_open_packet_sockets() -> bool {
    match socket(AddressFamily::PACKET, SocketType::RAW, None) {
        Ok(_) => true,
        Err(error @ Errno::PERM) => {
            cairn_skips::skip(format_args!(
                "RoCE v1 takes CAP_NET_RAW: packet socket: {error}"
            ));
            false
        }
        Err(error) => panic!("packet socket: {error}"),
    }
}
