use std::fmt;
use std::net::IpAddr;

/// Question that the kernel answers by ioctl, netlink or a packet instead of a file. Recordings
/// list answers by the question's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Global pause of a netdev (`ethtool -a`): [`super::Pause`].
    Pause(String),
    /// PFC and DSCP map of a netdev (`dcb`): [`super::Dcb`].
    Dcb(String),
    /// Counters of a netdev by name (`ethtool -S`).
    Statistics(String),
    /// Ring sizes of a netdev (`ethtool -g`): [`super::Rings`].
    Rings(String),
    /// Driver and firmware of a netdev (`ethtool -i`): [`super::Driver`].
    Driver(String),
    /// IP addresses of the machine: a list of [`super::Address`].
    Addresses,
    /// Attributes of an RDMA device: [`super::Attributes`].
    Attributes(String),
    /// MTU of a port of an RDMA device: [`super::PortMtu`].
    PortMtu(String, u32),
    /// Queue pairs of an RDMA device: a list of [`super::QueuePairs`].
    QueuePairs(String),
    /// Default RoCE mode and ToS of a port of an RDMA device: [`super::Defaults`].
    Defaults(String, u32),
    /// Route to a peer: [`super::Route`].
    Route(IpAddr),
    /// Neighbour entry of a next hop on a netdev: [`super::Neighbour`].
    Neighbour(String, IpAddr),
    /// Result of a packet to a peer, of this many bytes including the IP header: [`super::Echo`].
    Echo(IpAddr, u32),
    /// Process that owns the socket with this inode: "NAME (pid N)", or null if none is found.
    SocketHolder(u64),
    /// Result of a datagram to this UDP port of a peer: [`super::Reached`].
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
            Self::Attributes(device) => write!(f, "attributes {device}"),
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
