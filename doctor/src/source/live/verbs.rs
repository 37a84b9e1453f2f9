//! Attributes of RDMA devices and MTUs of their ports, from libibverbs because sysfs lacks them.

use std::io;

use crate::source::{Attributes, PortMtu};

pub(super) fn attributes(device: &str) -> io::Result<Attributes> {
    let found = cairn_verbs::device_attributes(device)?;
    Ok(Attributes {
        iwarp: found.is_iwarp,
        max_qp: found.max_qp,
        max_qp_wr: found.max_qp_wr,
        max_srq: found.max_srq,
        max_qp_rd_atom: found.max_qp_rd_atom,
        max_qp_init_rd_atom: found.max_qp_init_rd_atom,
        rnr_nak: found.has_rnr_nak,
        invalidate: found.has_invalidate,
    })
}

pub(super) fn port_mtu(device: &str, port: u32) -> io::Result<PortMtu> {
    let port = u8::try_from(port).map_err(io::Error::other)?;
    let mtu = cairn_verbs::port_mtu(device, port)?;
    Ok(PortMtu {
        active: mtu.active,
        max: mtu.max,
    })
}
