//! Explanations, with remedies, why the soft provider cannot use an address.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use cairn_rdma::FabricError;
use cairn_rdma::error::permission;

use super::Network;
use cairn_roce_proto::wire::udp::ROCE_PORT;

impl Network {
    /// Converts an error of [`Network::first_inlet`] or [`Network::next_inlet`] to an error with a
    /// remedy.
    #[must_use]
    pub fn explain(&self, address: IpAddr, error: io::Error) -> FabricError {
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
            (Self::System, _) if is_link_local(address) => FabricError::NoDevice {
                address,
                remedy: "a link-local address means another interface to each machine, and \
                         RoCE v2 is routed: use one of the interface's other addresses, or \
                         RoCE v1"
                    .to_owned(),
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
            (_, io::ErrorKind::AddrInUse) => unavailable(format!(
                "UDP port {ROCE_PORT} of {address} is taken by another program, perhaps another \
                 Cairn: `ss -lunp sport = :{ROCE_PORT}` names it; stop it, or use another of this \
                 machine's addresses"
            )),
            _ => FabricError::Os {
                call: "opening a socket for RoCE",
                source: error,
            },
        }
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

fn unavailable(reason: String) -> FabricError {
    FabricError::Unavailable {
        provider: "soft",
        reason,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use super::*;

    #[test]
    fn a_taken_port_is_said_to_be_taken() {
        let address = Ipv4Addr::new(127, 83, 12, 7).into();
        let _other = UdpSocket::bind((address, ROCE_PORT)).unwrap();
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
        let other = ["another of this machine's addresses", "--provider verbs"];
        assert!(other.iter().any(|way| text.contains(way)), "{text}");
    }

    #[test]
    fn link_local_addresses_are_for_v1() {
        let address = "fe80::1".parse().unwrap();
        let error = Network::System.first_inlet(address, 18).unwrap_err();
        let text = Network::System.explain(address, error).to_string();
        assert!(
            text.contains("link-local") && text.contains("RoCE v1"),
            "{text}"
        );
    }

    #[test]
    fn a_missing_right_is_named() {
        let address = Ipv4Addr::LOCALHOST.into();
        let error = io::ErrorKind::PermissionDenied.into();
        let text = Network::Ethernet { vlan: None }
            .explain(address, error)
            .to_string();
        assert!(text.contains("CAP_NET_RAW"), "{text}");
    }
}
