//! Tells a service manager how we are (sd_notify(3)): a datagram to the socket
//! that it named in `NOTIFY_SOCKET`, if it did.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Ready to serve, also after a reload.
pub(super) fn ready() {
    send("READY=1");
}

/// Reading the configuration anew; [`ready`] ends it.
pub(super) fn reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let usec = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
    send(&format!("RELOADING=1\nMONOTONIC_USEC={usec}"));
}

/// On the way out.
pub(super) fn stopping() {
    send("STOPPING=1");
}

fn send(state: &str) {
    if let Some(path) = std::env::var_os("NOTIFY_SOCKET")
        && let Err(error) = send_to(&path, state)
    {
        // Cause: the start, a reload or the end of the target.
        tracing::warn!(%error, "the service manager cannot be told");
    }
}

fn send_to(path: &OsStr, state: &str) -> std::io::Result<()> {
    // A leading @ stands for the NUL of an abstract name.
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_reach_the_service_manager() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        send_to(path.as_os_str(), "READY=1").unwrap();
        let mut datagram = [0; 64];
        let length = manager.recv(&mut datagram).unwrap();
        assert_eq!(&datagram[..length], b"READY=1");
    }
}
