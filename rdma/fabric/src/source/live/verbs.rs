//! The one fact that only the device has: the MTU that its port uses, by libibverbs where that
//! is installed.

use std::io;

use crate::source::PortMtu;

/// What `ibv_devinfo` shows as max_mtu and active_mtu.
pub(super) fn port_mtu(device: &str, port: u32) -> io::Result<PortMtu> {
    let port = u8::try_from(port).map_err(io::Error::other)?;
    let mtu = cairn_verbs::port_mtu(device, port)?;
    Ok(PortMtu {
        active: mtu.active,
        max: mtu.max,
    })
}
