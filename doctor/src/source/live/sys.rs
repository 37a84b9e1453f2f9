//! System calls missing in std: sockets of other families, socket options, and ethtool's ioctl.
//!
//! Why `unsafe` here: each C function takes integers, or one pointer to a local variable that
//! outlives the call.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const SIOCETHTOOL: libc::Ioctl = 0x8946;

pub(super) fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call passes only integers.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the new descriptor has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(super) fn set_option(
    socket: &impl AsRawFd,
    level: i32,
    name: i32,
    value: i32,
) -> io::Result<()> {
    let length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the option's value is a local integer of the stated length.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            length,
        )
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Executes an ethtool command. `data` begins with the command's number, and has room for output.
pub(super) fn ethtool(netdev: &str, data: &mut [u32]) -> io::Result<()> {
    // SAFETY: `ifreq` consists of integers, arrays and a union of both, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    if netdev.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(netdev.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = data.as_mut_ptr().cast();
    let socket = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    // SAFETY: the request and its data outlive the call. Callers reserve the space that
    // linux/ethtool.h specifies for the command.
    let failed = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if failed < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
