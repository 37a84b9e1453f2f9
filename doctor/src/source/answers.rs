//! Answers to questions, in their recorded form.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// IEEE 802.3x pause: stops all traffic of the link, whatever its priority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// True if pause frames are obeyed.
    pub rx: bool,
    /// True if pause frames are sent.
    pub tx: bool,
    /// True if negotiated with the link partner.
    pub autonegotiated: bool,
}

/// IEEE 802.1Qaz settings relevant to RoCE.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dcb {
    /// Priorities with priority flow control (IEEE 802.1Qbb).
    pub pfc: Vec<u8>,
    /// Map from DSCP to priority.
    ///
    /// The NIC trusts the DSCP if the map has entries, and otherwise the PCP.
    pub dscp: BTreeMap<u8, u8>,
}

/// Ring sizes of a netdev.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rings {
    /// Receive entries.
    pub rx: u32,
    /// Maximum receive entries of the device.
    pub rx_max: u32,
    /// Send entries.
    pub tx: u32,
    /// Maximum send entries of the device.
    pub tx_max: u32,
}

/// Driver of a netdev.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Driver {
    /// Name of the driver.
    pub driver: String,
    /// Firmware version; empty for a device without firmware.
    pub firmware: String,
}

/// Local IP address of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// Netdev with the address.
    pub netdev: String,
    /// Address.
    pub address: IpAddr,
    /// Prefix length in bits.
    pub prefix: u8,
}

/// MTU of an RDMA port, in bytes of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortMtu {
    /// MTU in use.
    pub active: u32,
    /// Largest supported MTU.
    pub max: u32,
}

/// Number of queue pairs of an RDMA device with the same port, type and state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePairs {
    /// Port, from 1; `None` if not assigned yet.
    pub port: Option<u32>,
    /// Type in the format of `rdma resource`: GSI, RC, UD, ...
    #[serde(rename = "type")]
    pub kind: String,
    /// RESET, INIT, RTR, RTS, SQD, SQE or ERR.
    pub state: String,
    /// Number of queue pairs.
    pub count: u32,
}

impl QueuePairs {
    /// True for the connection manager's queue pair (GSI) in the state ERR, from which it does not
    /// recover.
    ///
    /// The kernel recovers it from SQE.
    #[must_use]
    pub fn is_broken_gsi(&self) -> bool {
        self.kind == "GSI" && self.state == "ERR"
    }
}

/// Connection manager's defaults for connections that do not choose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Defaults {
    /// RoCE mode: "IB/RoCE v1" or "RoCE v2".
    pub mode: String,
    /// Type of service.
    pub tos: u8,
}

/// Route to a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Outgoing netdev.
    pub netdev: String,
    /// Source address.
    pub source: Option<IpAddr>,
    /// Router; `None` if the peer is on the link.
    pub gateway: Option<IpAddr>,
    /// Path MTU learnt by the kernel, if any.
    pub mtu: Option<u32>,
}

/// Neighbour entry of ARP or neighbour discovery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// State in the format of `ip neigh`: REACHABLE, STALE, FAILED, ...
    pub state: String,
    /// Link address.
    pub mac: Option<String>,
}

/// Result of a packet that must not be fragmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Echo {
    /// The packet was answered.
    Answered,
    /// No answer arrived in time.
    Silent,
    /// A router or the peer reported that the packet is too big.
    TooBig,
}

/// Result of a datagram to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reached {
    /// No reply: a program or an adapter accepted the datagram, or it was filtered.
    Silent,
    /// The peer reports that no program listens (ICMP port unreachable).
    Refused,
    /// A host or network on the path reports that the destination is unreachable or prohibited.
    Unreachable,
    /// A filter on this machine stopped the datagram.
    FilteredHere,
}
