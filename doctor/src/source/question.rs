//! Questions to the kernel that sysfs does not answer: by ioctl, netlink or a packet.

use std::fmt;
use std::net::IpAddr;

/// Question; its text is its name in a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Global pause of a netdev (ethtool -a): [`super::Pause`].
    Pause(String),
    /// PFC and the DSCP map of a netdev (dcb): [`super::Dcb`].
    Dcb(String),
    /// Counters of a netdev (ethtool -S): name to number.
    Statistics(String),
    /// Ring sizes of a netdev (ethtool -g): [`super::Rings`].
    Rings(String),
    /// Driver and firmware of a netdev (ethtool -i): [`super::Driver`].
    Driver(String),
    /// IP addresses of the machine: a list of [`super::Address`].
    Addresses,
    /// MTU of an RDMA port, as reported by the device: [`super::PortMtu`].
    PortMtu(String, u32),
    /// Queue pairs of an RDMA device: a list of [`super::QueuePairs`].
    QueuePairs(String),
    /// Default RoCE mode and ToS of the connection manager: [`super::Defaults`].
    Defaults(String, u32),
    /// Route to a peer: [`super::Route`].
    Route(IpAddr),
    /// Neighbour entry of the next hop: [`super::Neighbour`].
    Neighbour(String, IpAddr),
    /// Result of a packet of that many bytes, IP header included, to a peer without fragmentation:
    /// [`super::Echo`].
    Echo(IpAddr, u32),
    /// Process that owns the socket of an inode: "NAME (pid N)"; null for the kernel's sockets.
    SocketHolder(u64),
    /// Result of a datagram to a UDP port of a peer: [`super::Reached`].
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
