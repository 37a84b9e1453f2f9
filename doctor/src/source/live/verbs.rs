//! MTU of an RDMA port, which only libibverbs reports.

use std::io;

use crate::source::PortMtu;

pub(super) fn port_mtu(device: &str, port: u32) -> io::Result<PortMtu> {
    let port = u8::try_from(port).map_err(io::Error::other)?;
    let mtu = cairn_verbs::port_mtu(device, port)?;
    Ok(PortMtu {
        active: mtu.active,
        max: mtu.max,
    })
}
