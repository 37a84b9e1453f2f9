use std::net::{IpAddr, SocketAddr};

use nvme_proto::wire::Nqn;
use nvme_proto::wire::log::{DiscoveryEntry, SubsystemType, TransportType};

/// RDMA route to a subsystem at an IP address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// SUBTYPE.
    pub kind: SubsystemType,
    /// NQN of the subsystem.
    pub subnqn: Nqn,
    /// Address and port (TRADDR and TRSVCID).
    pub address: SocketAddr,
    /// Port of the target (PORTID).
    pub portid: u16,
}

impl Route {
    /// Parses an entry; `None` if this host cannot use its transport or address.
    #[must_use]
    pub fn parse(entry: &DiscoveryEntry) -> Option<Self> {
        if TransportType(entry.trtype) != TransportType::RDMA {
            return None;
        }
        let ip: IpAddr = text(&entry.traddr)?.parse().ok()?;
        let port: u16 = text(&entry.trsvcid)?.parse().ok()?;
        Some(Self {
            kind: SubsystemType(entry.subtype),
            subnqn: Nqn::decode(&entry.subnqn).ok()?,
            address: SocketAddr::new(ip, port),
            portid: entry.portid.get(),
        })
    }
}

/// Removes trailing spaces and NUL bytes.
fn text(field: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(field).ok()?;
    Some(text.trim_end_matches(['\0', ' ']))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use nvme_proto::wire::FromZeros;

    pub(in crate::discovery) fn entry(
        kind: SubsystemType,
        subnqn: &Nqn,
        address: SocketAddr,
    ) -> DiscoveryEntry {
        let mut entry = DiscoveryEntry::new_zeroed();
        entry.trtype = TransportType::RDMA.0;
        entry.subtype = kind.0;
        entry.subnqn = subnqn.encode();
        let put = |field: &mut [u8], text: String| {
            field.fill(b' ');
            field[..text.len()].copy_from_slice(text.as_bytes());
        };
        put(&mut entry.traddr, address.ip().to_string());
        put(&mut entry.trsvcid, address.port().to_string());
        entry
    }

    #[test]
    fn a_way_is_an_address_and_a_name() {
        let address = "[2001:db8::7]:4420".parse().unwrap();
        let nqn = Nqn::discovery();
        let good = entry(SubsystemType::NVM, &nqn, address);
        let route = Route::parse(&good).unwrap();
        assert_eq!((route.address, route.subnqn), (address, nqn));

        let mut tcp = good;
        tcp.trtype = TransportType::TCP.0;
        let mut nowhere = good;
        nowhere.traddr.fill(b' ');
        let mut garbage = good;
        garbage.traddr.fill(0xff);
        let mut port = good;
        port.trsvcid[..6].copy_from_slice(b"123456");
        let mut nameless = good;
        nameless.subnqn.fill(0xff);
        for bad in [tcp, nowhere, garbage, port, nameless] {
            assert_eq!(Route::parse(&bad), None);
        }
    }
}
