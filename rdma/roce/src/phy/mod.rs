pub(crate) mod adapter;
pub(crate) mod batch;
pub(crate) mod capture;
mod explain;
pub(crate) mod fault;
mod frames;
pub(crate) mod interface;
pub(crate) mod neighbour;
mod offload;
mod packet;
mod qpn_filter;
pub(crate) mod receive;
pub(crate) mod send;
pub(crate) mod send_sockets;
pub(crate) mod socket;
pub(crate) mod wire;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

use cairn_base::ScopedAddr;
use cairn_rdma::Roce;
use cairn_roce_proto::wire::icrc::Route;
use cairn_roce_proto::wire::mad::GSI_QPN;
use cairn_roce_proto::wire::udp::ROCE_PORT;
use fault::{BadInlet, FaultOptions};
use interface::PathMtu;
use packet::PacketSocket;
use socket::{FlowKey, Socket};
use wire::{Tap, Wire};

/// Network through which endpoints send and receive.
#[derive(Debug, Clone, Default)]
pub enum Network {
    /// UDP sockets of the system: RoCE v2.
    #[default]
    System,
    /// Packet sockets of the system: RoCE v1.
    Ethernet {
        /// VLAN ID of the tag in frames, if any; `None` on a VLAN interface, where the kernel
        /// writes the tag.
        vlan: Option<u16>,
    },
    /// Network in memory, for simulations.
    Wire(Wire),
    /// Network with injected faults, for tests.
    Bad(Box<Network>, FaultOptions),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V2,
}

impl Version {
    #[must_use]
    pub(crate) fn route(self, source: SocketAddr, destination: IpAddr) -> Route {
        let (source, source_port) = (source.ip().to_canonical(), source.port());
        let destination = destination.to_canonical();
        match self {
            Self::V1 => Route::Grh {
                source,
                destination,
            },
            Self::V2 => Route::Udp {
                source,
                destination,
                source_port,
            },
        }
    }
}

#[derive(Debug)]
pub(crate) enum Inlet {
    Socket(Socket),
    Packets(PacketSocket),
    Tap(Tap),
    Bad(Box<BadInlet>),
}

impl Network {
    /// Opens the first inlet (receiving socket) of an address, for connection management. It
    /// receives packets to queue pair numbers below 2^`qpn_low_bits`; on the system's networks, a
    /// filter passes only QP1.
    pub(crate) fn first_inlet(&self, address: ScopedAddr, qpn_low_bits: u32) -> io::Result<Inlet> {
        match self {
            Self::System => {
                let socket = Socket::bind_receiver(address.at(ROCE_PORT), false)?;
                socket.share()?;
                socket.admit(&[GSI_QPN], &[])?;
                Ok(Inlet::Socket(socket))
            }
            Self::Ethernet { vlan } => {
                let socket = PacketSocket::bind_receiver(address, *vlan, 0, qpn_low_bits)?;
                socket.admit(&[GSI_QPN])?;
                Ok(Inlet::Packets(socket))
            }
            Self::Wire(wire) => Ok(Inlet::Tap(wire.join(address.ip(), true, qpn_low_bits)?)),
            Self::Bad(network, faults) => {
                let inlet = network.first_inlet(address, qpn_low_bits)?;
                Ok(Inlet::Bad(Box::new(BadInlet::new(inlet, *faults, 0))))
            }
        }
    }

    pub(crate) fn next_inlet(
        &self,
        address: ScopedAddr,
        turn: u32,
        qpn_low_bits: u32,
    ) -> io::Result<Inlet> {
        match self {
            Self::System => {
                let socket = Socket::bind_receiver(address.at(ROCE_PORT), true)?;
                socket.spread(&[], qpn_low_bits)?;
                Ok(Inlet::Socket(socket))
            }
            Self::Ethernet { vlan } => {
                let socket = PacketSocket::bind_receiver(address, *vlan, turn, qpn_low_bits)?;
                Ok(Inlet::Packets(socket))
            }
            Self::Wire(wire) => Ok(Inlet::Tap(wire.join(address.ip(), false, qpn_low_bits)?)),
            Self::Bad(network, faults) => {
                let inlet = network.next_inlet(address, turn, qpn_low_bits)?;
                Ok(Inlet::Bad(Box::new(BadInlet::new(inlet, *faults, turn))))
            }
        }
    }

    #[must_use]
    pub(crate) fn good(&self) -> &Self {
        match self {
            Self::Bad(network, _) => network.good(),
            _ => self,
        }
    }

    pub(crate) fn path_mtu(&self, address: ScopedAddr) -> io::Result<PathMtu> {
        match self.good() {
            Self::Wire(wire) => Ok(PathMtu::of_payload(wire.payload_max())),
            _ => interface::path_mtu(address),
        }
    }

    #[must_use]
    pub(crate) fn roce(&self) -> Roce {
        match self.good() {
            Self::Ethernet { vlan } => Roce::V1 { vlan: *vlan },
            _ => Roce::V2,
        }
    }

    /// Returns this network if its RoCE version is `roce`; otherwise the system's network of that
    /// version, with the same injected faults.
    #[must_use]
    pub fn with(&self, roce: Roce) -> Self {
        match (self, roce) {
            (Self::Bad(network, faults), _) => Self::Bad(Box::new(network.with(roce)), *faults),
            _ if self.roce() == roce => self.clone(),
            (_, Roce::V1 { vlan }) => Self::Ethernet { vlan },
            (_, Roce::V2) => Self::System,
        }
    }

    #[must_use]
    pub(crate) fn version(&self) -> Version {
        match self.roce() {
            Roce::V1 { .. } => Version::V1,
            Roce::V2 => Version::V2,
        }
    }

    /// True if the network has no thread: the owner delivers the packets.
    #[must_use]
    pub(crate) fn is_moved_by_hand(&self) -> bool {
        matches!(self.good(), Self::Wire(_))
    }
}

impl Inlet {
    #[must_use]
    pub(crate) fn fd(&self) -> Option<RawFd> {
        match self {
            Self::Socket(socket) => Some(socket.raw()),
            Self::Packets(socket) => Some(socket.raw()),
            Self::Tap(_) => None,
            Self::Bad(bad) => bad.inlet().fd(),
        }
    }

    /// Sets a kernel filter that passes only packets of `flows` and packets to the sorted queue
    /// pair `numbers`. Returns false if the network has no filters.
    pub(crate) fn admit(&self, numbers: &[u32], flows: &[FlowKey]) -> io::Result<bool> {
        match self {
            Self::Socket(socket) => socket.admit(numbers, flows).map(|()| true),
            Self::Packets(socket) => socket.admit(numbers).map(|()| true),
            Self::Tap(_) => Ok(false),
            Self::Bad(bad) => bad.inlet().admit(numbers, flows),
        }
    }

    /// Makes the kernel deliver each flow to the socket with the given index, and other packets by
    /// queue pair number.
    pub(crate) fn steer(&self, flows: &[(FlowKey, u32)], qpn_low_bits: u32) -> io::Result<()> {
        match self {
            Self::Socket(socket) => socket.spread(flows, qpn_low_bits),
            Self::Packets(_) | Self::Tap(_) => Ok(()),
            Self::Bad(bad) => bad.inlet().steer(flows, qpn_low_bits),
        }
    }

    /// True if the kernel may combine packets for several inlets into one datagram (GRO).
    #[must_use]
    pub(crate) fn has_joined_packets(&self) -> bool {
        match self {
            Self::Socket(_) => true,
            Self::Packets(_) | Self::Tap(_) => false,
            Self::Bad(bad) => bad.inlet().has_joined_packets(),
        }
    }

    pub(crate) fn set_class(&self, traffic_class: u8) -> io::Result<()> {
        match self {
            Self::Socket(socket) => socket.set_class(traffic_class),
            Self::Packets(socket) => socket.set_class(traffic_class),
            Self::Tap(_) => Ok(()),
            Self::Bad(bad) => bad.inlet().set_class(traffic_class),
        }
    }
}
