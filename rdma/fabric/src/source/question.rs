//! What sysfs does not say and the kernel does, by ioctl, netlink or a packet.

use std::fmt;
use std::net::IpAddr;

/// A question; its text is its name in a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Global pause of a netdev (ethtool -a): [`super::Pause`].
    Pause(String),
    /// PFC and the DSCP map of a netdev (dcb): [`super::Dcb`].
    Dcb(String),
    /// A netdev's own counters (ethtool -S): name to number.
    Statistics(String),
    /// Ring sizes of a netdev (ethtool -g): [`super::Rings`].
    Rings(String),
    /// Driver and firmware of a netdev (ethtool -i): [`super::Driver`].
    Driver(String),
    /// The IP addresses of the machine: a list of [`super::Address`].
    Addresses,
    /// The MTU of an RDMA port, as the device sees it: [`super::PortMtu`].
    PortMtu(String, u32),
    /// The queue pairs of an RDMA device: a list of [`super::QueuePairs`].
    QueuePairs(String),
    /// RoCE mode and ToS that the connection manager uses by default:
    /// [`super::Defaults`].
    Defaults(String, u32),
    /// The way to a peer: [`super::Route`].
    Route(IpAddr),
    /// What is known of the next hop: [`super::Neighbour`].
    Neighbour(String, IpAddr),
    /// Whether a packet of that many bytes, IP header included, gets to a peer
    /// and back in one piece: [`super::Echo`].
    Echo(IpAddr, u32),
    /// The process that has the socket of that inode open; null for the kernel's own:
    /// "NAME (pid N)".
    SocketHolder(u64),
    /// What a datagram to a UDP port of a peer brings: [`super::Reached`].
    Udp(IpAddr, u16),
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pause(netdev) => write!(f, "pause {netdev}"),
            Self::Dcb(netdev) => write!(f, "dcb {netdev}"),
            Self::Statistics(netdev) => write!(f, "statistics {netdev}"),
            Self::Rings(netdev) => write!(f, "rings {netdev}"),
            Self::Driver(netdev) => write!(f, "driver {netdev}"),
            Self::Addresses => f.write_str("addresses"),
            Self::PortMtu(device, port) => write!(f, "mtu {device} {port}"),
            Self::QueuePairs(device) => write!(f, "queue-pairs {device}"),
            Self::Defaults(device, port) => write!(f, "defaults {device} {port}"),
            Self::Route(peer) => write!(f, "route {peer}"),
            Self::Neighbour(netdev, peer) => write!(f, "neighbour {netdev} {peer}"),
            Self::Echo(peer, bytes) => write!(f, "echo {peer} {bytes}"),
            Self::SocketHolder(inode) => write!(f, "socket {inode}"),
            Self::Udp(peer, port) => write!(f, "udp {peer} {port}"),
        }
    }
}
