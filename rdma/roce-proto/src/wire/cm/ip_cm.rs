//! RDMA IP CM header: IP addresses and ports in a REQ (IBTA annex A11.3).

use core::net::{IpAddr, SocketAddr};

use super::req::PRIVATE_LEN;
use crate::wire::field;
use crate::wire::grh::gid_of;

/// Header length in bytes.
pub const LEN: usize = 36;
/// Length of the REQ's private data for the consumer, in bytes.
pub const CONSUMER_LEN: usize = PRIVATE_LEN - LEN;

/// Service ids of TCP ports: prefix 0x0000000001, protocol number 6, port.
const SERVICE_TCP: u64 = 0x0000_0000_0106_0000;

/// Returns the service id of a TCP port (annex A11.2).
#[must_use]
pub const fn service_id(port: u16) -> u64 {
    SERVICE_TCP | port as u64
}

/// Returns the TCP port of a service id, or `None` for another service.
#[must_use]
pub const fn port_of(service_id: u64) -> Option<u16> {
    if service_id & !0xffff == SERVICE_TCP {
        Some(service_id as u16)
    } else {
        None
    }
}

/// RDMA IP CM header at the start of a REQ's private data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpCm {
    /// Source IP address and port.
    pub source: SocketAddr,
    /// Destination IP address, of the same family. The service id contains the port.
    pub destination: IpAddr,
}

impl IpCm {
    /// Parses the header; `None` for another version or address family.
    #[must_use]
    pub fn read(private_data: &[u8; PRIVATE_LEN]) -> Option<Self> {
        let b = private_data;
        let port = field::u16(b, 2);
        let address = |at: usize| match b[1] >> 4 {
            4 => Some(IpAddr::from(field::array::<4>(b, at + 12))),
            6 => Some(IpAddr::from(field::array::<16>(b, at))),
            _ => None,
        };
        let (source, destination) = (address(4)?, address(20)?);
        (b[0] == 0).then_some(Self {
            source: SocketAddr::new(source, port),
            destination,
        })
    }

    /// Writes the header to the private data.
    pub fn write(&self, private_data: &mut [u8; PRIVATE_LEN]) {
        private_data[0] = 0;
        private_data[1] = if self.source.is_ipv4() { 0x40 } else { 0x60 };
        field::put(private_data, 2, &self.source.port().to_be_bytes());
        for (at, address) in [(4, self.source.ip()), (20, self.destination)] {
            let mut bytes = gid_of(address).octets();
            if address.is_ipv4() {
                bytes[..12].fill(0);
            }
            field::put(private_data, at, &bytes);
        }
    }
}
