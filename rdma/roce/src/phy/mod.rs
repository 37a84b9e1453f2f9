//! How packets leave the process and come in.

pub mod fault;
pub mod netdev;
pub mod receive;
pub mod send;
pub mod socket;
pub mod wire;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

use crate::wire::udp::ROCE_PORT;
use socket::Socket;
use wire::{Tap, Wire};

/// What endpoints send to and receive from.
#[derive(Debug, Clone, Default)]
pub enum Network {
    /// The system's, by UDP sockets.
    #[default]
    System,
    /// A wire in memory.
    Wire(Wire),
}

/// Where a device's connection management, or one of its endpoints, receives.
#[derive(Debug)]
pub enum Inlet {
    /// A socket.
    Socket(Socket),
    /// A tap of a wire in memory.
    Tap(Tap),
}

/// Where a flow of packets leaves.
#[derive(Debug)]
pub enum Outlet {
    /// A socket, whose port is the flow's source port.
    Socket(Socket),
    /// The wire in memory that the sender knows.
    Wire,
}

impl Network {
    /// The first inlet of an address, to which others may be added later; the
    /// `qpn_low_bits` low bits of a queue pair number do not tell them apart.
    ///
    /// # Errors
    /// The address is not ours, or somebody has it.
    pub fn first_inlet(&self, address: IpAddr, qpn_low_bits: u32) -> io::Result<Inlet> {
        match self {
            Self::System => {
                let socket = Socket::bind_receiver(SocketAddr::new(address, ROCE_PORT), false)?;
                socket.share()?;
                Ok(Inlet::Socket(socket))
            }
            Self::Wire(wire) => Ok(Inlet::Tap(wire.join(address, true, qpn_low_bits)?)),
        }
    }

    /// A further inlet: the one whose turn of joining was `n` gets the packets to
    /// queue pairs whose numbers begin with `n`, in all but the low bits.
    ///
    /// # Errors
    /// The system refuses.
    pub fn next_inlet(&self, address: IpAddr, qpn_low_bits: u32) -> io::Result<Inlet> {
        match self {
            Self::System => {
                let socket = Socket::bind_receiver(SocketAddr::new(address, ROCE_PORT), true)?;
                socket.spread_by_qpn(qpn_low_bits)?;
                Ok(Inlet::Socket(socket))
            }
            Self::Wire(wire) => Ok(Inlet::Tap(wire.join(address, false, qpn_low_bits)?)),
        }
    }

    /// An outlet that only sends.
    ///
    /// # Errors
    /// The port is in use.
    pub fn outlet(&self, address: SocketAddr) -> io::Result<Outlet> {
        match self {
            Self::System => Ok(Outlet::Socket(Socket::bind_sender(address)?)),
            Self::Wire(_) => Ok(Outlet::Wire),
        }
    }

    /// The path MTU, as a code (1 is 256, 5 is 4096), that fits where `address` is.
    ///
    /// # Errors
    /// No interface has it.
    pub fn path_mtu_code(&self, address: IpAddr) -> io::Result<u8> {
        match self {
            Self::System => netdev::path_mtu_code(address),
            Self::Wire(wire) => Ok(wire.path_mtu()),
        }
    }
}

impl Inlet {
    /// The descriptor that is readable when something has arrived, if there is one.
    #[must_use]
    pub fn fd(&self) -> Option<RawFd> {
        match self {
            Self::Socket(socket) => Some(socket.raw()),
            Self::Tap(_) => None,
        }
    }
}

impl Outlet {
    /// The descriptor, for a flow; -1 without a socket.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        match self {
            Self::Socket(socket) => socket.raw(),
            Self::Wire => -1,
        }
    }
}
