//! Probes of requirements that tests of several programs share.
//!
//! Why `unsafe` here: socket(2) has no safe wrapper in the crates that we use.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};

/// Returns whether this process may open packet sockets, which RoCE v1 needs, and otherwise records
/// a skip.
///
/// # Panics
/// If packet sockets fail for another reason than a missing `CAP_NET_RAW`.
#[must_use]
#[track_caller]
pub fn can_open_packet_sockets() -> bool {
    match open_packet_socket() {
        Ok(_) => true,
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            cairn_skips::skip(format_args!(
                "RoCE v1 takes CAP_NET_RAW: packet socket: {error}"
            ));
            false
        }
        Err(error) => panic!("packet socket: {error}"),
    }
}

fn open_packet_socket() -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just returned the descriptor, and nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
