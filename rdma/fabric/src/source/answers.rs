//! The answers, as they are recorded.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// IEEE 802.3x pause: all traffic of the link stops, whatever its priority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Whether pause frames are obeyed.
    pub rx: bool,
    /// Whether pause frames are sent.
    pub tx: bool,
    /// Whether that was agreed with the link partner.
    pub autonegotiated: bool,
}

/// IEEE 802.1Qaz settings, as far as they concern RoCE.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dcb {
    /// Priorities with priority flow control (IEEE 802.1Qbb).
    pub pfc: Vec<u8>,
    /// DSCP to priority. With entries the NIC trusts the DSCP, without any the PCP.
    pub dscp: BTreeMap<u8, u8>,
}

/// Sizes of a netdev's rings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rings {
    /// Entries for receiving.
    pub rx: u32,
    /// As many as the device can have.
    pub rx_max: u32,
    /// Entries for sending.
    pub tx: u32,
    /// As many as the device can have.
    pub tx_max: u32,
}

/// What drives a netdev.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Driver {
    /// The driver.
    pub driver: String,
    /// The firmware's version; empty for a device without.
    pub firmware: String,
}

/// An address of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The netdev that has it.
    pub netdev: String,
    /// The address.
    pub address: IpAddr,
    /// Bits of its network.
    pub prefix: u8,
}

/// What an RDMA port says of its MTU, in bytes of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortMtu {
    /// In use.
    pub active: u32,
    /// The largest that the device can do.
    pub max: u32,
}

/// Queue pairs of one RDMA device that are of one port, type and state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePairs {
    /// Their port, from 1; none before they have one.
    pub port: Option<u32>,
    /// GSI, RC, UD, ..., as `rdma resource` says it.
    #[serde(rename = "type")]
    pub kind: String,
    /// RESET, INIT, RTR, RTS, SQD, SQE or ERR.
    pub state: String,
    /// How many there are.
    pub count: u32,
}

impl QueuePairs {
    /// Whether it is the queue pair of all messages of the connection manager (GSI), and
    /// out of order for good. From SQE the kernel takes it back to RTS by itself.
    #[must_use]
    pub fn is_broken_gsi(&self) -> bool {
        self.kind == "GSI" && self.state == "ERR"
    }
}

/// What the connection manager uses for connections that do not say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Defaults {
    /// "IB/RoCE v1" or "RoCE v2".
    pub mode: String,
    /// Type of service.
    pub tos: u8,
}

/// The way to a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The netdev that packets leave by.
    pub netdev: String,
    /// The address that they come from.
    pub source: Option<IpAddr>,
    /// The router; none where the peer is on the link itself.
    pub gateway: Option<IpAddr>,
    /// The MTU that the kernel keeps for this way, if it has learnt one.
    pub mtu: Option<u32>,
}

/// What ARP or neighbour discovery knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// REACHABLE, STALE, FAILED, ..., as `ip neigh` says it.
    pub state: String,
    /// The link address.
    pub mac: Option<String>,
}

/// What became of a packet that may not be fragmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Echo {
    /// It came back.
    Answered,
    /// It did not come back in time.
    Silent,
    /// A router or the peer reported that it is too big.
    TooBig,
}

/// What came of a datagram to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reached {
    /// Nothing came back: a program or an adapter took it, or it was filtered.
    Silent,
    /// The peer says that no program listens (ICMP port unreachable).
    Refused,
    /// A host or network on the way says that it cannot or must not go there.
    Unreachable,
    /// A filter on this machine stopped it.
    FilteredHere,
}
