//! How packets leave the process and come in.

pub mod batch;
pub mod capture;
mod explain;
pub mod fault;
pub mod frames;
pub mod interface;
pub mod neighbour;
mod offload;
pub mod outlets;
pub mod packet;
pub mod receive;
pub mod send;
mod sieve;
pub mod socket;
pub mod wire;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

use cairn_rdma::Roce;
use cairn_roce_proto::wire::icrc::Route;
use cairn_roce_proto::wire::mad::GSI_QPN;
use cairn_roce_proto::wire::udp::ROCE_PORT;
use fault::{BadInlet, FaultOptions};
use packet::PacketSocket;
use socket::{FlowKey, Socket};
use wire::{Tap, Wire};

/// What endpoints send to and receive from.
#[derive(Debug, Clone, Default)]
pub enum Network {
    /// The system's, by UDP sockets: RoCE v2.
    #[default]
    System,
    /// The system's, by packet sockets: RoCE v1.
    Ethernet {
        /// The VID of the tag to write and to require, on an interface that is no
        /// VLAN's. On one that is, the kernel writes the tag.
        vlan: Option<u16>,
    },
    /// A wire in memory.
    Wire(Wire),
    /// One of the above, from which packets arrive late, twice, damaged, or never: for tests.
    Bad(Box<Network>, FaultOptions),
}

/// What lies below a packet's BTH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Ethernet and a GRH (IBTA annex A16).
    V1,
    /// IP and UDP (IBTA annex A17).
    V2,
}

impl Version {
    /// What the ICRC covers of a packet's headers; v1 has no port.
    #[must_use]
    pub fn route(self, source: SocketAddr, destination: IpAddr) -> Route {
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

/// Where a device's connection management, or one of its endpoints, receives.
#[derive(Debug)]
pub enum Inlet {
    /// A UDP socket.
    Socket(Socket),
    /// A packet socket.
    Packets(PacketSocket),
    /// A tap of a wire in memory.
    Tap(Tap),
    /// One of the above, behind faults.
    Bad(Box<BadInlet>),
}

impl Network {
    /// The first inlet of an address, to which others may be added later; the
    /// `qpn_low_bits` low bits of a queue pair number do not select one.
    ///
    /// # Errors
    /// The address is not ours, or another process uses its port.
    pub fn first_inlet(&self, address: IpAddr, qpn_low_bits: u32) -> io::Result<Inlet> {
        match self {
            Self::System => {
                let socket = Socket::bind_receiver(SocketAddr::new(address, ROCE_PORT), false)?;
                socket.share()?;
                // Connection management's own (IBTA 3.9.5).
                socket.admit(&[GSI_QPN], &[])?;
                Ok(Inlet::Socket(socket))
            }
            Self::Ethernet { vlan } => {
                let socket = PacketSocket::bind_receiver(address, *vlan, 0, qpn_low_bits)?;
                socket.admit(&[GSI_QPN])?;
                Ok(Inlet::Packets(socket))
            }
            Self::Wire(wire) => Ok(Inlet::Tap(wire.join(address, true, qpn_low_bits)?)),
            Self::Bad(network, faults) => {
                let inlet = network.first_inlet(address, qpn_low_bits)?;
                Ok(Inlet::Bad(Box::new(BadInlet::new(inlet, *faults, 0))))
            }
        }
    }

    /// A further inlet: the one whose turn of joining was `turn` gets the packets
    /// to queue pairs whose numbers begin with `turn`, in all but the low bits.
    ///
    /// # Errors
    /// The system refuses.
    pub fn next_inlet(&self, address: IpAddr, turn: u32, qpn_low_bits: u32) -> io::Result<Inlet> {
        match self {
            Self::System => {
                let socket = Socket::bind_receiver(SocketAddr::new(address, ROCE_PORT), true)?;
                socket.spread(&[], qpn_low_bits)?;
                Ok(Inlet::Socket(socket))
            }
            Self::Ethernet { vlan } => {
                let socket = PacketSocket::bind_receiver(address, *vlan, turn, qpn_low_bits)?;
                Ok(Inlet::Packets(socket))
            }
            Self::Wire(wire) => Ok(Inlet::Tap(wire.join(address, false, qpn_low_bits)?)),
            Self::Bad(network, faults) => {
                let inlet = network.next_inlet(address, turn, qpn_low_bits)?;
                Ok(Inlet::Bad(Box::new(BadInlet::new(inlet, *faults, turn))))
            }
        }
    }

    /// The network without its faults.
    #[must_use]
    pub fn good(&self) -> &Self {
        match self {
            Self::Bad(network, _) => network.good(),
            _ => self,
        }
    }

    /// The path MTU, as a code (1 is 256, 5 is 4096), that fits where `address` is.
    ///
    /// # Errors
    /// No interface has it.
    pub fn path_mtu_code(&self, address: IpAddr) -> io::Result<u8> {
        match self.good() {
            Self::Wire(wire) => Ok(wire.path_mtu()),
            _ => interface::path_mtu_code(address),
        }
    }

    /// What is on it.
    #[must_use]
    pub fn roce(&self) -> Roce {
        match self.good() {
            Self::Ethernet { vlan } => Roce::V1 { vlan: *vlan },
            _ => Roce::V2,
        }
    }

    /// This network, if that is on it; the system's otherwise, with the same faults.
    #[must_use]
    pub fn with(&self, roce: Roce) -> Self {
        match (self, roce) {
            (Self::Bad(network, faults), _) => Self::Bad(Box::new(network.with(roce)), *faults),
            _ if self.roce() == roce => self.clone(),
            (_, Roce::V1 { vlan }) => Self::Ethernet { vlan },
            (_, Roce::V2) => Self::System,
        }
    }

    /// The RoCE version of this network.
    #[must_use]
    pub fn version(&self) -> Version {
        match self.roce() {
            Roce::V1 { .. } => Version::V1,
            Roce::V2 => Version::V2,
        }
    }

    /// Whether its owner calls it, and no thread serves it.
    #[must_use]
    pub fn is_moved_by_hand(&self) -> bool {
        matches!(self.good(), Self::Wire(_))
    }
}

impl Inlet {
    /// The descriptor that is readable when something has arrived, if there is one.
    #[must_use]
    pub fn fd(&self) -> Option<RawFd> {
        match self {
            Self::Socket(socket) => Some(socket.raw()),
            Self::Packets(socket) => Some(socket.raw()),
            Self::Tap(_) => None,
            Self::Bad(bad) => bad.inlet().fd(),
        }
    }

    /// Has the kernel drop packets for other queue pairs than these, which are in order, but for
    /// packets of these flows. Returns whether the network has such filters.
    ///
    /// # Errors
    /// The system refuses.
    pub fn admit(&self, numbers: &[u32], flows: &[FlowKey]) -> io::Result<bool> {
        match self {
            Self::Socket(socket) => socket.admit(numbers, flows).map(|()| true),
            Self::Packets(socket) => socket.admit(numbers).map(|()| true),
            Self::Tap(_) => Ok(false),
            Self::Bad(bad) => bad.inlet().admit(numbers, flows),
        }
    }

    /// Has the kernel deliver these flows at the sockets of these turns, and all other packets by
    /// their queue pair numbers, for all sockets of the address.
    ///
    /// # Errors
    /// The system refuses.
    pub fn steer(&self, flows: &[(FlowKey, u32)], qpn_low_bits: u32) -> io::Result<()> {
        match self {
            Self::Socket(socket) => socket.spread(flows, qpn_low_bits),
            // Frames are not joined.
            Self::Packets(_) | Self::Tap(_) => Ok(()),
            Self::Bad(bad) => bad.inlet().steer(flows, qpn_low_bits),
        }
    }

    /// Gives what is sent from here this traffic class, and the priority that goes
    /// with it. (On a wire in memory each packet has its own.)
    ///
    /// # Errors
    /// The system refuses.
    pub fn set_class(&self, traffic_class: u8) -> io::Result<()> {
        match self {
            Self::Socket(socket) => socket.set_class(traffic_class),
            Self::Packets(socket) => socket.set_class(traffic_class),
            Self::Tap(_) => Ok(()),
            Self::Bad(bad) => bad.inlet().set_class(traffic_class),
        }
    }
}
