use std::io;
use std::path::Path;

use cairn_base::permission;
use cairn_base::{ScopedAddr, TraddrError};
use cairn_rdma::FabricError;

use super::Network;
use cairn_roce_proto::wire::udp::ROCE_PORT;

impl Network {
    #[must_use]
    pub(crate) fn explain(&self, address: ScopedAddr, error: io::Error) -> FabricError {
        let (lacks_scope, address) = (address.lacks_scope(), address.ip());
        match (self, error.kind()) {
            (Self::Ethernet { .. }, io::ErrorKind::PermissionDenied) => unavailable(format!(
                "RoCE v1 is sent and received by packet sockets, for which CAP_NET_RAW is \
                 missing: {}; RoCE v2 needs none of it",
                permission(
                    "with `setcap cap_net_raw+ep` on the program, or with \
                     AmbientCapabilities=CAP_NET_RAW in its systemd unit",
                    "add CAP_NET_RAW to the container, or to CapabilityBoundingSet= of the \
                     systemd unit"
                )
            )),
            (Self::Ethernet { .. }, io::ErrorKind::AddrInUse) => unavailable(format!(
                "another Cairn speaks RoCE v1 at {address}: stop it, or use another of this \
                 machine's addresses"
            )),
            (Self::Ethernet { .. }, io::ErrorKind::AddrNotAvailable)
                if address.is_unspecified() =>
            {
                FabricError::NoDevice {
                    address,
                    remedy: "RoCE v1 belongs to one network interface: listen on the addresses \
                             of those that are meant, which `ip address` lists"
                        .to_owned(),
                }
            }
            (Self::System, _) if lacks_scope => FabricError::NoDevice {
                address,
                remedy: TraddrError::NoScope(address).to_string(),
            },
            (_, io::ErrorKind::AddrNotAvailable) => FabricError::NoDevice {
                address,
                remedy: "this machine does not have that address; `ip address` lists those it has"
                    .to_owned(),
            },
            (_, io::ErrorKind::AddrInUse) if Path::new("/sys/module/rdma_rxe").exists() => {
                unavailable(format!(
                    "UDP port {ROCE_PORT} of {address} is taken, and the kernel's rdma_rxe is \
                     loaded, which takes it in all of its network namespace: use the kernel's \
                     RoCE (--provider verbs), or unload it (modprobe -r rdma_rxe)"
                ))
            }
            (_, io::ErrorKind::AddrInUse) => FabricError::PortTaken {
                reason: format!(
                    "UDP port {ROCE_PORT} of {address} is taken by another program, perhaps \
                     another Cairn: `ss -lunp sport = :{ROCE_PORT}` names it; stop it, or use \
                     another of this machine's addresses (host: --host-traddr)"
                ),
            },
            _ => FabricError::Os {
                call: "opening a socket for RoCE",
                source: error,
            },
        }
    }
}

fn unavailable(reason: String) -> FabricError {
    FabricError::Unavailable {
        provider: "soft",
        reason,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, UdpSocket};

    use super::*;

    #[test]
    fn a_taken_port_is_said_to_be_taken() {
        let address = IpAddr::from(Ipv4Addr::new(127, 83, 12, 7)).into();
        let _other = UdpSocket::bind(ScopedAddr::at(address, ROCE_PORT)).unwrap();
        let error = Network::System.first_inlet(address, 18).unwrap_err();
        let text = Network::System.explain(address, error).to_string();
        assert!(
            text.contains("UDP port 4791 of 127.83.12.7 is taken"),
            "{text}"
        );
        assert!(
            text.contains("stop it") || text.contains("unload it"),
            "{text}"
        );
        let other = ["--host-traddr", "--provider verbs"];
        assert!(other.iter().any(|way| text.contains(way)), "{text}");
    }

    #[test]
    fn a_link_local_address_needs_its_interface() {
        let address: IpAddr = "fe80::1".parse().unwrap();
        let address = address.into();
        let error = Network::System.first_inlet(address, 18).unwrap_err();
        let text = Network::System.explain(address, error).to_string();
        assert!(text.contains("such as fe80::1%eth0"), "{text}");
    }

    #[test]
    fn a_missing_right_is_named() {
        let address = IpAddr::from(Ipv4Addr::LOCALHOST).into();
        let error = io::ErrorKind::PermissionDenied.into();
        let text = Network::Ethernet { vlan: None }
            .explain(address, error)
            .to_string();
        assert!(text.contains("CAP_NET_RAW"), "{text}");
    }
}
